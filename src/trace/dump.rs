//! Dump: what an allocator handed over of itself, as a recording or a snapshot.
//!
//! The ring of records has no beginning: the final heap has. So the recording holds the events of
//! the ring and the segments after them, and a replay goes back from these to the state before the
//! first event, as it does for PyTorch's histories. A block from before the ring that is freed in
//! it is a free without an allocation's number. What the program asked for is told where it was done,
//! behind the driver's part in it, as requests are; what was in force before the ring (a limit,
//! captures, pools without users) stands first. Asked by programs and by writers of failures. Never
//! knows the allocator.

mod before;

use std::collections::HashMap;
use std::path::Path;

use super::file::{self, TraceError};
use super::recording::{
    DeviceTrace, Event, Kind, NO_ALLOCATION, NO_LIMIT, Recording, Stack, StackId,
};
use super::snapshot::{Builder, Names, Snapshot, segments_of};
use crate::vocab::{
    Address, BlockState, Change, Dump, HeapView, Origin, PoolId, Record, StreamId, Target, Ticket,
    What,
};

/// Writes a dump as a trace, compressed if the name ends in `.zst` or `.gz`.
pub fn write_records(path: impl AsRef<Path>, dump: &Dump) -> Result<(), TraceError> {
    file::write(path, &recording(dump))
}

/// A dump as a recording: its events, and the segments after the last one. O(records + blocks).
#[must_use]
pub fn recording(dump: &Dump) -> Recording {
    let mut scribe = Scribe::new(dump);
    scribe.trace.events = before::events(dump);
    let first = before::first_whole(dump);
    for (place, record) in dump.records.iter().enumerate() {
        if place >= first {
            scribe.record(place, record);
        }
        scribe.reserved = scribe.reserved.saturating_add_signed(moved(record));
    }
    scribe.finish()
}

/// A dump as a snapshot in PyTorch's shape: its heap, and its records as the history.
#[must_use]
pub fn snapshot(dump: &Dump) -> Snapshot {
    let recording = recording(dump);
    let mut builder = Builder::new(Names::of(&recording)).origin(Some(&dump.policy), None);
    builder.settings_of(&recording);
    for device in &recording.devices {
        device.segments.iter().for_each(|segment| builder.segment(device.device, segment));
        // A device number that has no place in a snapshot has no history there.
        let _ = builder.history(device.device, &device.events);
    }
    builder.finish()
}

/// What is known of a request or of the block that it got.
#[derive(Clone, Copy)]
struct Known {
    stream: StreamId,
    pool: PoolId,
    stack: StackId,
    allocation: u32,
}

/// A request without an answer so far.
struct Open {
    ticket: Ticket,
    bytes: u64,
}

struct Scribe<'a> {
    dump: &'a Dump,
    recording: Recording,
    trace: DeviceTrace,
    known: HashMap<Ticket, Known>,
    open: Vec<Open>,
    /// A trim whose share of the driver's calls is being told.
    trim: Option<Event>,
    /// The requests that have the blocks, by where these start.
    tenants: HashMap<Address, Ticket>,
    /// Client sizes of blocks.
    sizes: HashMap<Ticket, u64>,
    interned: HashMap<Origin, StackId>,
    marks: HashMap<Ticket, Origin>,
    /// Bytes reserved before the present record.
    reserved: u64,
    /// Allocations whose request stands in no record.
    unasked: u64,
}

impl<'a> Scribe<'a> {
    fn new(dump: &'a Dump) -> Self {
        let recording = Recording {
            format: "blockyard-trace".into(),
            settings_detail: settings(dump),
            streams: dump.streams.clone(),
            has_pool_ids: true,
            says_inputs: true,
            ..Recording::default()
        };
        let flow: i128 = dump.records.iter().map(|record| i128::from(moved(record))).sum();
        let reserved = i128::from(mapped_bytes(&dump.view)) - flow;
        Self {
            dump,
            recording,
            trace: DeviceTrace { device: dump.device, ..DeviceTrace::default() },
            known: HashMap::new(),
            open: Vec::new(),
            trim: None,
            tenants: HashMap::new(),
            sizes: sizes(dump),
            interned: HashMap::new(),
            marks: dump.marks.iter().map(|mark| (mark.ticket, mark.origin)).collect(),
            reserved: u64::try_from(reserved).unwrap_or(0),
            unasked: 0,
        }
    }

    fn record(&mut self, place: usize, record: &Record) {
        if before::is_input(record) {
            self.trace.events.extend(self.trim.take());
        }
        let base = Event { time_us: record.time_us, ..Event::new(Kind::Other) };
        let change = match record.what {
            What::Asked { stream, pool, tag, stack } => {
                let origin = Origin { tag, stack };
                return self.asked(record, stream, pool, origin);
            }
            What::Changed(change) => change,
            _ => return self.told(place, record, base),
        };
        let event = match change {
            Change::Allocated { ticket, address, requested, .. } => {
                self.allocated(place, ticket, Event { bytes: requested, ..at(base, address) })
            }
            Change::FreeRequested { ticket, address, bytes: extent, .. } => {
                let bytes = self.sizes.get(&ticket).copied().unwrap_or(extent);
                let kind = Kind::FreeRequested;
                self.tenants.remove(&address);
                self.of_block(place, ticket, Event { kind, bytes, extent, ..at(base, address) })
            }
            Change::FreeCompleted { ticket, address, requested: bytes, bytes: extent, .. } => {
                let event = Event { kind: Kind::FreeCompleted, bytes, extent, ..at(base, address) };
                let event = self.of_block(place, ticket, event);
                self.known.remove(&ticket);
                event
            }
            Change::RanOut { bytes, stream, pool } => {
                self.ran_out(Event { bytes, stream, pool, ..base })
            }
            moved => match segment_event(moved, base) {
                Some(event) => Event { order: record.bytes as u32, ..event },
                None => return,
            },
        };
        self.trace.events.push(event);
    }

    /// What the program said or the driver answered that is no change.
    fn told(&mut self, place: usize, record: &Record, base: Event) {
        let event = match record.what {
            What::Used { address, stream } => {
                let event = Event { kind: Kind::Use, ..at(base, address) };
                let ticket = self.tenants.get(&address).copied();
                let event = ticket.map_or(event, |ticket| self.of_block(place, ticket, event));
                Event { stream, ..event }
            }
            What::Trim { target, .. } => {
                self.trim = Some(trim(target, base));
                return;
            }
            What::Retire(pool) => Event { kind: Kind::Retire, pool, ..base },
            What::Capture { begins: true } => Event { kind: Kind::CaptureBegin, ..base },
            What::Capture { begins: false } => Event { kind: Kind::CaptureEnd, ..base },
            What::Limit { bytes, .. } => limit(bytes, base),
            What::RangeGiven { base: start, bytes } => {
                let event = Event { kind: Kind::RangeAlloc, bytes, ..at(base, start) };
                match before::of_range(self.dump, place, event) {
                    Some(event) => event,
                    None => return,
                }
            }
            What::RangeTaken { base: start, bytes } => {
                let (kind, order) = (Kind::RangeFree, record.bytes as u32);
                let event = Event { kind, bytes, order, ..at(base, start) };
                match before::of_range(self.dump, place, event) {
                    Some(event) => event,
                    None => return,
                }
            }
            What::Passed { stream, behind: bytes } => {
                Event { kind: Kind::Passed, stream, bytes, ..base }
            }
            What::Asked { .. } | What::Changed(_) => return,
        };
        self.trace.events.push(event);
    }

    fn asked(&mut self, record: &Record, stream: StreamId, pool: PoolId, origin: Origin) {
        if record.bytes == 0 {
            return;
        }
        let stack = self.stack(origin);
        let (ticket, bytes) = (record.ticket, record.bytes);
        self.known.insert(ticket, Known { stream, pool, stack, allocation: NO_ALLOCATION });
        self.open.push(Open { ticket, bytes });
    }

    fn allocated(&mut self, place: usize, ticket: Ticket, event: Event) -> Event {
        if let Some(open) = self.open.iter().rposition(|open| open.ticket == ticket) {
            self.open.remove(open);
        } else {
            self.unasked += 1;
        }
        let allocation = self.trace.allocations;
        self.trace.allocations += 1;
        let event = self.of_block(place, ticket, Event { kind: Kind::Alloc, ..event });
        let Event { stream, pool, stack, .. } = event;
        self.known.insert(ticket, Known { stream, pool, stack, allocation });
        self.tenants.insert(Address(event.address), ticket);
        Event { allocation, ..event }
    }

    /// An event of a block, with what is known of its request.
    fn of_block(&mut self, place: usize, ticket: Ticket, event: Event) -> Event {
        let known = self.known.get(&ticket).copied().unwrap_or_else(|| {
            let (stream, pool) = home(self.dump, place, event.address);
            let stack = self.mark(ticket);
            Known { stream, pool, stack, allocation: NO_ALLOCATION }
        });
        let Known { stream, pool, stack, allocation } = known;
        // The size of a block whose request is told follows from it.
        let extent = if allocation == NO_ALLOCATION { event.extent } else { 0 };
        Event { stream, pool, stack, allocation, extent, ..event }
    }

    /// A failure is its stream's newest request without an answer.
    fn ran_out(&mut self, event: Event) -> Event {
        let known = &self.known;
        let asker = self.open.iter().rposition(|open| {
            let request = known.get(&open.ticket);
            let same = request.is_some_and(|r| (r.stream, r.pool) == (event.stream, event.pool));
            same && open.bytes <= event.bytes
        });
        let ticket = asker.map(|place| self.open.remove(place).ticket);
        let stack = ticket.and_then(|ticket| self.known.remove(&ticket));
        let stack = stack.map_or(StackId(0), |known| known.stack);
        let free = self.dump.device_bytes.unwrap_or(0).saturating_sub(self.reserved);
        Event { kind: Kind::Oom, address: free, stack, ..event }
    }

    fn mark(&mut self, ticket: Ticket) -> StackId {
        let origin = self.marks.get(&ticket).copied().unwrap_or_default();
        self.stack(origin)
    }

    /// The recording's number of a tag and a call stack.
    fn stack(&mut self, origin: Origin) -> StackId {
        if let Some(&id) = self.interned.get(&origin) {
            return id;
        }
        let (stacks, dump) = (&mut self.recording.stacks, self.dump);
        let tag = dump.tags.get(&origin.tag).cloned().unwrap_or_default();
        let frames = dump.stacks.get(&origin.stack).into_iter().flatten();
        let frames = frames.map(|frame| stacks.frame(frame.clone())).collect();
        let id = stacks.stack(Stack { tag, frames });
        self.interned.insert(origin, id);
        id
    }

    fn finish(mut self) -> Recording {
        self.trace.events.extend(self.trim.take());
        let stacks: HashMap<Ticket, StackId> = live(&self.dump.view)
            .map(|ticket| {
                let known = self.known.get(&ticket).map(|known| known.stack);
                (ticket, known.unwrap_or_else(|| self.mark(ticket)))
            })
            .collect();
        let stack_of = |ticket: Ticket| stacks.get(&ticket).copied().unwrap_or_default();
        self.trace.segments = segments_of(&self.dump.view, stack_of);
        let mut recording = self.recording;
        say_what_is_missing(&mut recording, self.dump, self.unasked);
        name_all(&mut recording, &self.trace);
        recording.devices.push(self.trace);
        recording
    }
}

fn say_what_is_missing(recording: &mut Recording, dump: &Dump, unasked: u64) {
    if dump.lost > 0 {
        let text = format!("the recorder lost its {} oldest records", dump.lost);
        recording.notice("overflow", text);
    }
    if unasked > 0 {
        let text = format!(
            "{unasked} allocations were asked for before the oldest record: \
             their streams are those of their segments"
        );
        recording.notice("unknown-request", text);
    }
    let failed = |record: &Record| matches!(record.what, What::Changed(Change::RanOut { .. }));
    if dump.device_bytes.is_none() && dump.records.iter().any(failed) {
        let text =
            "the device's memory is not known: out-of-memory events say that 0 bytes were free";
        recording.notice("unknown-capacity", text);
    }
}

/// Names for all streams and pools that appear.
fn name_all(recording: &mut Recording, trace: &DeviceTrace) {
    let events = trace.events.iter().map(|event| (event.stream, event.pool));
    let segments = trace.segments.iter().map(|segment| (segment.stream, segment.pool));
    let (mut streams, mut pools) = (1, 1);
    for (stream, pool) in events.chain(segments) {
        streams = streams.max(u64::from(stream.0) + 1);
        pools = pools.max(u64::from(pool.0) + 1);
    }
    recording.streams.extend(recording.streams.len() as u64..streams);
    recording.pools = (0..pools).map(|pool| (0, pool)).collect();
}

fn settings(dump: &Dump) -> Vec<(String, String)> {
    let policy = ("blockyard_policy".to_owned(), dump.policy.clone());
    let limit = dump.limit_bytes.map(|bytes| ("limit_bytes".to_owned(), bytes.to_string()));
    std::iter::once(policy).chain(limit).collect()
}

/// Client sizes of all blocks whose size is known.
fn sizes(dump: &Dump) -> HashMap<Ticket, u64> {
    let mut sizes = HashMap::new();
    for block in dump.view.segments.iter().flat_map(|segment| &segment.blocks) {
        if matches!(block.state, BlockState::Allocated | BlockState::AwaitingFree) {
            sizes.insert(block.ticket, block.requested);
        }
    }
    for record in &dump.records {
        if let What::Changed(
            Change::Allocated { ticket, requested, .. }
            | Change::FreeCompleted { ticket, requested, .. },
        ) = record.what
        {
            sizes.insert(ticket, requested);
        }
    }
    sizes
}

fn live(view: &HeapView) -> impl Iterator<Item = Ticket> + '_ {
    let blocks = view.segments.iter().flat_map(|segment| &segment.blocks);
    let held = |state| matches!(state, BlockState::Allocated | BlockState::AwaitingFree);
    blocks.filter(move |block| held(block.state)).map(|block| block.ticket)
}

fn mapped_bytes(view: &HeapView) -> u64 {
    let blocks = view.segments.iter().flat_map(|segment| &segment.blocks);
    blocks.filter(|block| block.state != BlockState::Unmapped).map(|block| block.bytes).sum()
}

/// The stream and pool of the segment around an address at a record: the one that goes next, or
/// else the one that is there at the end.
fn home(dump: &Dump, place: usize, address: u64) -> (StreamId, PoolId) {
    let holds = |base: Address, bytes: u64| (base.0..base.0 + bytes).contains(&address);
    let gone = dump.records[place..].iter().find_map(|record| match record.what {
        What::Changed(
            Change::SegmentFreed { base, bytes, stream, pool, .. }
            | Change::Unmapped { base, bytes, stream, pool, .. },
        ) if holds(base, bytes) => Some((stream, pool)),
        _ => None,
    });
    gone.or_else(|| {
        let segments = &dump.view.segments;
        let around = segments.partition_point(|segment| segment.base.0 <= address);
        let segment = segments.get(around.checked_sub(1)?)?;
        holds(segment.base, segment.bytes).then_some((segment.stream, segment.pool))
    })
    .unwrap_or_default()
}

/// By how much a record changes what is reserved.
fn moved(record: &Record) -> i64 {
    match record.what {
        What::Changed(Change::SegmentAllocated { bytes, .. } | Change::Mapped { bytes, .. }) => {
            bytes as i64
        }
        What::Changed(Change::SegmentFreed { bytes, .. } | Change::Unmapped { bytes, .. }) => {
            -(bytes as i64)
        }
        _ => 0,
    }
}

fn trim(target: Target, event: Event) -> Event {
    match target {
        Target::All => Event { kind: Kind::EmptyCache, ..event },
        Target::Pool(pool) => Event { kind: Kind::Trim, pool, ..event },
        Target::AtLeast(bytes) => Event { kind: Kind::Trim, bytes, ..event },
    }
}

fn limit(bytes: Option<u64>, event: Event) -> Event {
    Event { kind: Kind::Limit, bytes: bytes.unwrap_or(NO_LIMIT), ..event }
}

fn at(event: Event, address: Address) -> Event {
    Event { address: address.0, ..event }
}

/// The event of a change to a segment; of other changes there is none.
fn segment_event(change: Change, event: Event) -> Option<Event> {
    let (kind, base, bytes, stream, pool) = match change {
        Change::SegmentAllocated { base, bytes, stream, pool, .. } => {
            (Kind::SegmentAlloc, base, bytes, stream, pool)
        }
        Change::SegmentFreed { base, bytes, stream, pool, .. } => {
            (Kind::SegmentFree, base, bytes, stream, pool)
        }
        Change::Mapped { base, bytes, stream, pool, .. } => {
            (Kind::SegmentMap, base, bytes, stream, pool)
        }
        Change::Unmapped { base, bytes, stream, pool, .. } => {
            (Kind::SegmentUnmap, base, bytes, stream, pool)
        }
        _ => return None,
    };
    Some(Event { kind, bytes, stream, pool, ..at(event, base) })
}

#[cfg(test)]
mod tests;
