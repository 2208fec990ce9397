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
use crate::trace::{DeviceTrace, Event, Kind};
use crate::vocab::{Address, Answer, BlockState, Class, Fault, PoolId, StreamId, Ticket, Want};

/// What was there before the first entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warm {
    /// Segments in the order in which they are put down (by address: their true order is not known).
    pub segments: Vec<SeedSegment>,
    /// Blocks whose true end was inferred.
    pub inferred: usize,
    /// Live blocks that lie in no known segment and were left out.
    pub homeless: usize,
}

#[derive(Clone, Copy, Debug)]
struct Home {
    bytes: u64,
    stream: StreamId,
    pool: PoolId,
    class: Class,
}

#[derive(Clone, Copy, Debug)]
struct Tenant {
    requested: u64,
    /// Given back, and nothing says when that completes.
    awaiting: bool,
    /// Its size where the final state shows it; else 0.
    bytes: u64,
    end: u64,
}

/// The state before the first entry. O(n log n).
#[must_use]
pub fn before(trace: &DeviceTrace, policy: &Policy) -> Warm {
    let mut past = Past::at_the_end(trace, policy);
    for event in trace.events.iter().rev() {
        past.undo(event);
    }
    past.into_warm(trace)
}

struct Past<'a> {
    policy: &'a Policy,
    /// Whole segments by base.
    segments: BTreeMap<u64, Home>,
    /// Mapped ranges by start.
    mapped: BTreeMap<u64, Home>,
    live: BTreeMap<u64, Tenant>,
}

impl<'a> Past<'a> {
    fn at_the_end(trace: &DeviceTrace, policy: &'a Policy) -> Self {
        let mut past = Self {
            policy,
            segments: BTreeMap::new(),
            mapped: BTreeMap::new(),
            live: BTreeMap::new(),
        };
        for segment in &trace.segments {
            let home = Home {
                bytes: segment.bytes,
                stream: segment.stream,
                pool: segment.pool,
                class: segment.class,
            };
            let map = if segment.expandable { &mut past.mapped } else { &mut past.segments };
            map.insert(segment.address, home);
            for block in segment.blocks.iter().filter(|block| block.state != BlockState::Free) {
                let &crate::trace::FinalBlock { requested, bytes, state, .. } = block;
                // With a history its entries say when a pending free completes.
                let awaiting = trace.events.is_empty() && state == BlockState::AwaitingFree;
                past.live.insert(block.address, Tenant { requested, awaiting, bytes, end: 0 });
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
                self.live.insert(
                    at,
                    Tenant { requested: event.bytes, awaiting: false, bytes: 0, end: 0 },
                );
            }
            Kind::SegmentAlloc => {
                self.segments.remove(&at);
            }
            Kind::SegmentFree => {
                let class = self.class_of(event.bytes, self.policy.small_segment);
                let home =
                    Home { bytes: event.bytes, stream: event.stream, pool: event.pool, class };
                self.segments.insert(at, home);
            }
            Kind::SegmentMap => self.unmap(at, event.bytes),
            Kind::SegmentUnmap => {
                let page = grow::page_bytes(self.policy, Class::Large).unwrap_or(1);
                let large = event.bytes.is_multiple_of(page);
                let class = if large { Class::Large } else { Class::Small };
                let home =
                    Home { bytes: event.bytes, stream: event.stream, pool: event.pool, class };
                self.mapped.insert(at, home);
            }
            _ => {}
        }
    }

    const fn class_of(&self, bytes: u64, small: u64) -> Class {
        if bytes <= small { Class::Small } else { Class::Large }
    }

    /// Takes `bytes` from `at` on out of the mapped ranges.
    fn unmap(&mut self, at: u64, bytes: u64) {
        let Some((&start, &home)) = self.mapped.range(..=at).next_back() else { return };
        let end = start + home.bytes;
        if at >= end {
            return;
        }
        self.mapped.remove(&start);
        if at > start {
            self.mapped.insert(start, Home { bytes: at - start, ..home });
        }
        if end > at + bytes {
            self.mapped.insert(at + bytes, Home { bytes: end - at - bytes, ..home });
        }
    }

    fn into_warm(mut self, trace: &DeviceTrace) -> Warm {
        let mut warm = Warm::default();
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
        for (&base, home) in &self.segments {
            warm.segments.push(SeedSegment {
                base,
                bytes: home.bytes,
                stream: home.stream,
                pool: home.pool,
                class: home.class,
                page: 0,
                mapped: Vec::new(),
                live: take(&mut self.live, base, base + home.bytes),
            });
        }
        let ranges = range_ends(trace, self.policy);
        for (start, end) in ranges {
            let inside: Vec<(u64, Home)> =
                self.mapped.range(start..end).map(|(&a, &h)| (a, h)).collect();
            let Some(&(_, home)) = inside.first() else { continue };
            let page =
                grow::page_bytes(self.policy, home.class).unwrap_or(self.policy.small_segment);
            warm.segments.push(SeedSegment {
                base: start,
                bytes: (end - start) / page * page,
                stream: home.stream,
                pool: home.pool,
                class: home.class,
                page,
                mapped: inside.iter().map(|&(at, home)| (at, home.bytes)).collect(),
                live: take(&mut self.live, start, end),
            });
        }
        warm.homeless = self.live.len();
        warm
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
    let Some(page) = grow::page_bytes(policy, Class::Large) else { return Vec::new() };
    let mut starts: BTreeMap<(PoolId, StreamId, bool), u64> = BTreeMap::new();
    let mut note = |pool, stream, large, start: u64| {
        let lowest = starts.entry((pool, stream, large)).or_insert(start);
        *lowest = start.min(*lowest);
    };
    for event in &trace.events {
        if matches!(event.kind, Kind::SegmentMap | Kind::SegmentUnmap) {
            note(event.pool, event.stream, event.bytes.is_multiple_of(page), event.address);
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
