//! Warm: the state before a recording that began mid-run.
//!
//! The final segments are known, so the trace is walked backwards from them: an allocation undone, a free redone.
//! What is left at its beginning are the segments and live blocks of that moment. A large block from before
//! may own up to the policy's remainder of tail that no entry shows; its true end is then taken from the first
//! later block placed directly behind it, and reported as inferred.

use std::collections::BTreeMap;

use super::replay::ReplayError;
use crate::device::Device;
use crate::heap::seed::{SeedBlock, SeedSegment};
use crate::policy::{Policy, grow, size};
use crate::trace::{DeviceTrace, Event, Kind, Recording};
use crate::vocab::{Address, Answer, BlockState, Class, Fault, PoolId, StreamId, Ticket, Want};

/// What was there before the first entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warm {
    /// Segments in the order in which they are put down: that of their creation, or by address where it is not
    /// known.
    pub segments: Vec<SeedSegment>,
    /// Blocks whose true end was inferred.
    pub inferred: usize,
    /// Live blocks that lie in no known segment and were left out.
    pub homeless: usize,
    /// The order in which the segments were created is known.
    pub ordered: bool,
    /// Where blocks start that had been given back and whose frees complete later, of a recording that says
    /// so.
    pub pending: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Home {
    bytes: u64,
    stream: StreamId,
    pool: PoolId,
    class: Class,
    order: u32,
}

impl Home {
    const fn of(event: &Event, class: Class) -> Self {
        let &Event { bytes, stream, pool, order, .. } = event;
        Self { bytes, stream, pool, class, order }
    }
}

#[derive(Clone, Copy, Debug)]
struct Tenant {
    requested: u64,
    /// Given back, and nothing says when that completes.
    awaiting: bool,
    /// Given back before, to complete later.
    pending: bool,
    /// Its size where the final state shows it; else 0.
    bytes: u64,
    end: u64,
}

/// The state before the first entry. O(n log n).
#[must_use]
pub fn before(recording: &Recording, trace: &DeviceTrace, policy: &Policy) -> Warm {
    let ordered = recording.says_inputs;
    let mut past = Past::at_the_end(trace, policy);
    for event in trace.events.iter().rev() {
        past.undo(event);
    }
    let mut warm = past.into_warm(trace, ordered);
    if !ordered {
        warm.pending.clear();
    }
    warm
}

struct Past<'a> {
    policy: &'a Policy,
    /// Whole segments by base.
    segments: BTreeMap<u64, Home>,
    /// Mapped ranges by start.
    mapped: BTreeMap<u64, Home>,
    /// Address ranges by start, of a recording that tells of them.
    ranges: BTreeMap<u64, Home>,
    /// Pages of the large side, as the recording has them.
    large_page: u64,
    live: BTreeMap<u64, Tenant>,
}

impl<'a> Past<'a> {
    fn at_the_end(trace: &DeviceTrace, policy: &'a Policy) -> Self {
        let mut past = Self {
            policy,
            segments: BTreeMap::new(),
            mapped: BTreeMap::new(),
            ranges: BTreeMap::new(),
            large_page: recorded_page(policy),
            live: BTreeMap::new(),
        };
        for segment in &trace.segments {
            let home = Home {
                bytes: segment.bytes,
                stream: segment.stream,
                pool: segment.pool,
                class: segment.class,
                order: segment.order,
            };
            if let Some((start, bytes)) = segment.range {
                past.ranges.insert(start, Home { bytes, ..home });
            }
            let map = if segment.expandable { &mut past.mapped } else { &mut past.segments };
            map.insert(segment.address, home);
            for block in segment.blocks.iter().filter(|block| block.state != BlockState::Free) {
                let &crate::trace::FinalBlock { requested, bytes, state, .. } = block;
                // With a history its entries say when a pending free completes.
                let awaiting = trace.events.is_empty() && state == BlockState::AwaitingFree;
                let pending = state == BlockState::AwaitingFree;
                let tenant = Tenant { requested, awaiting, pending, bytes, end: 0 };
                past.live.insert(block.address, tenant);
            }
        }
        past
    }

    fn undo(&mut self, event: &Event) {
        let at = event.address;
        match event.kind {
            Kind::Alloc => {
                self.live.remove(&at);
            }
            Kind::FreeCompleted | Kind::Free => {
                let pending = event.kind == Kind::FreeCompleted;
                let (requested, bytes) = (event.bytes, event.extent);
                let tenant = Tenant { requested, awaiting: false, pending, bytes, end: 0 };
                self.live.insert(at, tenant);
            }
            Kind::FreeRequested => {
                if let Some(tenant) = self.live.get_mut(&at) {
                    tenant.pending = false;
                }
            }
            Kind::SegmentAlloc => {
                self.segments.remove(&at);
            }
            Kind::SegmentFree => {
                let class = self.class_of(event.bytes, self.policy.small_segment);
                self.segments.insert(at, Home::of(event, class));
            }
            Kind::SegmentMap => self.unmap(at, event.bytes),
            Kind::SegmentUnmap => {
                let large = event.bytes.is_multiple_of(self.large_page);
                let class = if large { Class::Large } else { Class::Small };
                self.mapped.insert(at, Home::of(event, class));
            }
            Kind::RangeAlloc => {
                self.ranges.remove(&at);
            }
            Kind::RangeFree => {
                let class = event.class.unwrap_or(Class::Large);
                self.ranges.insert(at, Home::of(event, class));
            }
            _ => {}
        }
    }

    const fn class_of(&self, bytes: u64, small: u64) -> Class {
        if bytes <= small { Class::Small } else { Class::Large }
    }

    /// Takes `bytes` from `at` on out of the mapped ranges, of which several may touch there.
    fn unmap(&mut self, at: u64, bytes: u64) {
        let gone = at + bytes;
        let reach = |(&start, home): (&u64, &Home)| start + home.bytes > at;
        while let Some((&start, &home)) =
            self.mapped.range(..gone).next_back().filter(|&range| reach(range))
        {
            let end = start + home.bytes;
            self.mapped.remove(&start);
            if end > gone {
                self.mapped.insert(gone, Home { bytes: end - gone, ..home });
            }
            if at > start {
                self.mapped.insert(start, Home { bytes: at - start, ..home });
            }
        }
    }

    fn into_warm(mut self, trace: &DeviceTrace, ordered: bool) -> Warm {
        let mut warm = Warm { ordered, ..Warm::default() };
        self.settle_ends(trace, &mut warm);
        let mut ticket = u64::from(trace.allocations);
        let mut take = |live: &mut BTreeMap<u64, Tenant>, start: u64, end: u64| {
            let addresses: Vec<u64> = live.range(start..end).map(|(&address, _)| address).collect();
            let mut blocks = Vec::with_capacity(addresses.len());
            for address in addresses {
                let Some(tenant) = live.remove(&address) else { continue };
                ticket += 1;
                let (bytes, requested) = (tenant.end - address, tenant.requested);
                let awaiting = tenant.awaiting;
                if tenant.pending && !awaiting {
                    warm.pending.push(address);
                }
                blocks.push(SeedBlock {
                    address,
                    bytes,
                    requested,
                    ticket: Ticket(ticket),
                    awaiting,
                });
            }
            blocks
        };
        let mut placed: Vec<(u32, SeedSegment)> = Vec::new();
        for (&base, home) in &self.segments {
            let mut segment = seed_of(base, home);
            segment.live = take(&mut self.live, base, base + home.bytes);
            placed.push((home.order, segment));
        }
        for (start, home) in self.homes_of_ranges(trace) {
            let end = start + home.bytes;
            let mapped = joined(self.mapped.range(start..end).map(|(&at, home)| (at, home.bytes)));
            let Some(page) = page_of(self.policy, home.class, ordered, start, &mapped) else {
                for (at, bytes) in mapped {
                    let mut segment = seed_of(at, &Home { bytes, ..home });
                    segment.live = take(&mut self.live, at, at + bytes);
                    placed.push((home.order, segment));
                }
                continue;
            };
            let bytes = home.bytes / page * page;
            let live = take(&mut self.live, start, end);
            let segment = SeedSegment { bytes, page, mapped, live, ..seed_of(start, &home) };
            placed.push((home.order, segment));
        }
        if ordered {
            placed.sort_by_key(|&(order, _)| order);
        }
        warm.segments = placed.into_iter().map(|(_, segment)| segment).collect();
        warm.homeless = self.live.len();
        warm
    }

    /// The address ranges, each with whose it is: those that the recording tells of, or else those that its
    /// pages lead to.
    fn homes_of_ranges(&self, trace: &DeviceTrace) -> Vec<(u64, Home)> {
        if !self.ranges.is_empty() {
            return self.ranges.iter().map(|(&start, &home)| (start, home)).collect();
        }
        let ranges = range_ends(trace, self.policy).into_iter();
        let homes = ranges.filter_map(|(start, end)| {
            let (_, home) = self.mapped.range(start..end).next()?;
            Some((start, Home { bytes: end - start, ..*home }))
        });
        homes.collect()
    }

    /// Finds where each live block ends.
    fn settle_ends(&mut self, trace: &DeviceTrace, warm: &mut Warm) {
        let starts: Vec<u64> = self.live.keys().copied().collect();
        let mut open: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (index, &start) in starts.iter().enumerate() {
            let tenant = self.live[&start];
            let most = tenant.requested.clamp(1, size::IMPOSSIBLE);
            let least = start.saturating_add(size::round(self.policy, most));
            let mut end = if tenant.bytes > 0 { start + tenant.bytes } else { least };
            if tenant.bytes == 0
                && let Some((home, home_end)) = self.home_of(start)
                && home.class == Class::Large
            {
                let next = starts.get(index + 1).copied().unwrap_or(u64::MAX).min(home_end);
                if next.saturating_sub(least) <= self.policy.large_remainder {
                    end = next;
                    warm.inferred += usize::from(next > least);
                } else {
                    open.insert(start, (least, next));
                }
            }
            if let Some(tenant) = self.live.get_mut(&start) {
                tenant.end = end;
            }
        }
        self.infer_tails(trace, open, warm);
    }

    /// Blocks with more than a tail of free space behind them: the first later block placed there tells.
    fn infer_tails(
        &mut self,
        trace: &DeviceTrace,
        mut open: BTreeMap<u64, (u64, u64)>,
        warm: &mut Warm,
    ) {
        for event in &trace.events {
            if open.is_empty() {
                return;
            }
            match event.kind {
                Kind::FreeCompleted => {
                    open.remove(&event.address);
                }
                Kind::Alloc => {
                    let Some((&start, &(least, next))) = open.range(..event.address).next_back()
                    else {
                        continue;
                    };
                    let end = event.address;
                    if end < least || end >= next {
                        continue;
                    }
                    if end - least <= self.policy.large_remainder {
                        warm.inferred += usize::from(end > least);
                        if let Some(tenant) = self.live.get_mut(&start) {
                            tenant.end = end;
                        }
                    }
                    open.remove(&start);
                }
                _ => {}
            }
        }
    }

    /// The whole segment around an address, and its end.
    fn home_of(&self, address: u64) -> Option<(Home, u64)> {
        let (&base, &home) = self.segments.range(..=address).next_back()?;
        (address < base + home.bytes).then_some((home, base + home.bytes))
    }
}

fn seed_of(base: u64, home: &Home) -> SeedSegment {
    let &Home { bytes, stream, pool, class, .. } = home;
    let (mapped, live) = (Vec::new(), Vec::new());
    SeedSegment { base, bytes, stream, pool, class, page: 0, mapped, live }
}

/// Stretches by start, those that touch as one.
fn joined(stretches: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut whole: Vec<(u64, u64)> = Vec::new();
    for (start, bytes) in stretches {
        match whole.last_mut() {
            Some((last, length)) if *last + *length == start => *length += bytes,
            _ => whole.push((start, bytes)),
        }
    }
    whole
}

/// The page of a range from before: the policy's, if it has one and what is mapped fits it. Else what is mapped
/// is taken for whole segments; but where the range was only inferred, it is wrong and will be refused.
fn page_of(
    policy: &Policy,
    class: Class,
    told: bool,
    start: u64,
    mapped: &[(u64, u64)],
) -> Option<u64> {
    let page = grow::page_bytes(policy, class)?;
    let fits =
        |&(at, bytes): &(u64, u64)| (at - start).is_multiple_of(page) && bytes.is_multiple_of(page);
    (!told || mapped.iter().all(fits)).then_some(page)
}

/// The page of the large side in a recording that does not say: PyTorch's is its large segment.
fn recorded_page(policy: &Policy) -> u64 {
    let page = grow::page_bytes(policy, Class::Large).unwrap_or_default();
    page.max(policy.large_segment)
}

/// Asks the device for the memory of a segment from before the recording, and moves the segment to where the
/// device puts it. [`SeedSegment::check`] must have agreed.
///
/// # Errors
/// The device has no room for it, or fails.
pub fn place(segment: &SeedSegment, device: &mut impl Device) -> Result<SeedSegment, ReplayError> {
    let &SeedSegment { bytes, page, .. } = segment;
    let want = if page == 0 { Want::Reserve { bytes } } else { Want::ReserveRange { bytes, page } };
    let base = match device.perform(want) {
        Answer::Granted { base } => base.0,
        answer => return Err(no_room(segment, &answer)),
    };
    let moved = |address: u64| base + (address - segment.base);
    let mut placed = SeedSegment { base, ..segment.clone() };
    placed.live.iter_mut().for_each(|block| block.address = moved(block.address));
    placed.mapped.iter_mut().for_each(|(start, _)| *start = moved(*start));
    for &(start, bytes) in placed.mapped.iter().filter(|_| page > 0) {
        match device.perform(Want::Map { base: Address(start), bytes, page }) {
            Answer::Mapped => {}
            answer => return Err(no_room(segment, &answer)),
        }
    }
    Ok(placed)
}

fn no_room(segment: &SeedSegment, answer: &Answer) -> ReplayError {
    match answer {
        Answer::Refused(Fault::OutOfMemory) => ReplayError::Layout(format!(
            "the device has no room for the segment of {} bytes that was at {:#x}",
            segment.bytes, segment.base
        )),
        Answer::Refused(fault) => ReplayError::Device(*fault),
        _ => ReplayError::Device(Fault::WrongAnswer),
    }
}

/// The address ranges of a recording's page-mapped segments as (start, end) by start. A range ends where the next
/// thing in the recording begins.
#[must_use]
pub fn range_ends(trace: &DeviceTrace, policy: &Policy) -> Vec<(u64, u64)> {
    let large = recorded_page(policy);
    let page = grow::page_bytes(policy, Class::Large).unwrap_or(large);
    let mut starts: BTreeMap<(PoolId, StreamId, bool), u64> = BTreeMap::new();
    let mut note = |pool, stream, large, start: u64| {
        let lowest = starts.entry((pool, stream, large)).or_insert(start);
        *lowest = start.min(*lowest);
    };
    for event in &trace.events {
        if matches!(event.kind, Kind::SegmentMap | Kind::SegmentUnmap) {
            note(event.pool, event.stream, event.bytes.is_multiple_of(large), event.address);
        }
    }
    let mut borders: Vec<u64> = Vec::new();
    for segment in &trace.segments {
        if segment.expandable {
            note(segment.pool, segment.stream, segment.class == Class::Large, segment.address);
        } else {
            borders.push(segment.address);
        }
    }
    let whole = trace.events.iter().filter(|event| event.kind == Kind::SegmentAlloc);
    borders.extend(whole.map(|event| event.address));
    let mut ranges: Vec<u64> = starts.into_values().collect();
    ranges.sort_unstable();
    ranges.dedup();
    borders.extend_from_slice(&ranges);
    borders.sort_unstable();
    let end_of = |start: u64| {
        let next = borders.partition_point(|&border| border <= start);
        let farthest = start + RANGE_AT_MOST.min(u64::MAX - start) / page * page;
        borders
            .get(next)
            .map_or(farthest, |&border| (start + (border - start) / page * page).min(farthest))
    };
    ranges.into_iter().map(|start| (start, end_of(start))).collect()
}

/// No range is longer than this: 1 TiB.
const RANGE_AT_MOST: u64 = 1 << 40;
