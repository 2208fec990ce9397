//! Script: a recording as the requests alone, made to be cut.
//!
//! Owns what may be taken away as one piece ([`Piece`]): a block with everything that happens to it, one use by
//! another stream, one emptying of the cache. So lifetimes stay valid whatever is taken.

use std::collections::{HashMap, HashSet};

use crate::lab::warm;
use crate::policy::presets;
use crate::trace::{DeviceTrace, Event, Kind, NO_ALLOCATION, Recording, StackId};
use crate::vocab::{PoolId, StreamId};

/// What a script consists of: the number of a block, or of a lone step.
pub type Piece = u32;

/// One step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A block is requested.
    Alloc(Piece),
    /// It is given back.
    Free(Piece),
    /// Another stream uses a block. The step is a piece of its own.
    Use(Piece, StreamId, Piece),
    /// The cache is emptied.
    Trim(Piece),
}

impl Op {
    /// The block it is about.
    #[must_use]
    pub const fn block(self) -> Option<Piece> {
        match self {
            Self::Alloc(block) | Self::Free(block) | Self::Use(block, ..) => Some(block),
            Self::Trim(_) => None,
        }
    }

    /// The piece that it goes with.
    #[must_use]
    pub const fn piece(self) -> Piece {
        match self {
            Self::Alloc(piece) | Self::Free(piece) | Self::Use(_, _, piece) | Self::Trim(piece) => {
                piece
            }
        }
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Request {
    /// What the client asked for.
    pub bytes: u64,
    /// Its stream.
    pub stream: StreamId,
    /// Its pool.
    pub pool: PoolId,
    /// Its tag or call stack in the recording.
    pub stack: StackId,
}

/// Requests in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The steps.
    pub ops: Vec<Op>,
    /// By piece: what is requested (nothing, for a lone step).
    pub requests: Vec<Request>,
}

impl Script {
    /// The requests of one device's part of a recording: blocks from before it are requested first, a request
    /// that failed is a request, and a free that completes late is a use by another stream and a free. O(events).
    #[must_use]
    pub fn of(trace: &DeviceTrace) -> Self {
        let mut reader = Reader::default();
        reader.past(trace);
        for (index, event) in trace.events.iter().enumerate() {
            reader.event(event, &trace.events[index + 1..]);
        }
        reader.script
    }

    /// The script as a recording's part, with dense numbers. O(steps).
    #[must_use]
    pub fn to_trace(&self) -> DeviceTrace {
        let mut numbers = vec![NO_ALLOCATION; self.requests.len()];
        let mut allocations = 0;
        let mut events = Vec::with_capacity(self.ops.len());
        for op in &self.ops {
            let block = op.block().map(|block| (block as usize, self.requests[block as usize]));
            let event = match (*op, block) {
                (Op::Alloc(_), Some((block, request))) => {
                    numbers[block] = allocations;
                    allocations += 1;
                    let Request { bytes, stream, pool, stack } = request;
                    let allocation = numbers[block];
                    Event { bytes, stream, pool, stack, allocation, ..Event::new(Kind::Alloc) }
                }
                (Op::Free(_), Some((block, request))) => {
                    let Request { bytes, stream, pool, .. } = request;
                    let allocation = numbers[block];
                    Event { bytes, stream, pool, allocation, ..Event::new(Kind::Free) }
                }
                (Op::Use(_, stream, _), Some((block, request))) => {
                    let Request { bytes, pool, .. } = request;
                    let allocation = numbers[block];
                    Event { bytes, stream, pool, allocation, ..Event::new(Kind::Use) }
                }
                _ => Event::new(Kind::EmptyCache),
            };
            events.push(event);
        }
        DeviceTrace { events, allocations, ..DeviceTrace::default() }
    }

    /// The script as a recording of its own. The tags of `source` stay as what people call them, or become
    /// numbers if `anonymous`.
    #[must_use]
    pub fn to_recording(&self, source: &Recording, anonymous: bool) -> Recording {
        let mut recording = Recording {
            format: "blockyard".into(),
            settings: source.settings.clone(),
            streams: source.streams.clone(),
            pools: source.pools.clone(),
            has_pool_ids: source.has_pool_ids,
            ..Recording::default()
        };
        let mut trace = self.to_trace();
        let mut names: HashMap<String, String> = HashMap::new();
        for event in trace.events.iter_mut().filter(|event| event.stack != StackId(0)) {
            let label = source.stacks.label(event.stack);
            let next = names.len();
            let name = names.entry(label.clone()).or_insert_with(|| {
                if anonymous && !label.is_empty() { format!("owner {next}") } else { label }
            });
            event.stack = recording.stacks.tag(name);
        }
        recording.devices = vec![trace];
        recording
    }

    /// Every piece once, in the order in which they appear.
    #[must_use]
    pub fn pieces(&self) -> Vec<Piece> {
        let begins = |op: &&Op| !matches!(op, Op::Free(_));
        self.ops.iter().filter(begins).map(|op| op.piece()).collect()
    }

    /// The script without some pieces. O(steps).
    #[must_use]
    pub fn without(&self, pieces: &[Piece]) -> Self {
        let mut gone = vec![false; self.requests.len()];
        for &piece in pieces {
            gone[piece as usize] = true;
        }
        let is_gone = |piece: Piece| gone[piece as usize];
        let stays = |op: &&Op| !is_gone(op.piece()) && !op.block().is_some_and(is_gone);
        let ops = self.ops.iter().filter(stays).copied().collect();
        Self { ops, requests: self.requests.clone() }
    }

    /// The largest sum of client sizes live at one time. O(steps).
    #[must_use]
    pub fn live_peak(&self) -> u64 {
        let (mut live, mut peak) = (0u64, 0);
        for op in &self.ops {
            match *op {
                Op::Alloc(block) => live = live.saturating_add(self.requests[block as usize].bytes),
                Op::Free(block) => live = live.saturating_sub(self.requests[block as usize].bytes),
                Op::Use(..) | Op::Trim(_) => {}
            }
            peak = peak.max(live);
        }
        peak
    }

    /// The script with pieces numbered from 0 and nothing kept of those that are gone.
    #[must_use]
    pub fn compact(&self) -> Self {
        let mut numbers = HashMap::new();
        let mut requests = Vec::new();
        let mut number = |piece: Piece| {
            *numbers.entry(piece).or_insert_with(|| {
                requests.push(self.requests[piece as usize]);
                requests.len() as Piece - 1
            })
        };
        let ops = self.ops.iter().map(|op| match *op {
            Op::Alloc(block) => Op::Alloc(number(block)),
            Op::Free(block) => Op::Free(number(block)),
            Op::Use(block, stream, piece) => Op::Use(number(block), stream, number(piece)),
            Op::Trim(piece) => Op::Trim(number(piece)),
        });
        let ops = ops.collect();
        Self { ops, requests }
    }
}

/// Reads a recording's part as a script.
#[derive(Default)]
struct Reader {
    script: Script,
    /// Blocks of allocations, by number.
    blocks: HashMap<u32, Piece>,
    /// Blocks from before the recording, by address.
    before: HashMap<u64, Piece>,
    used: HashSet<Piece>,
}

impl Reader {
    fn past(&mut self, trace: &DeviceTrace) {
        for segment in &warm::before(trace, &presets::pytorch()).segments {
            for block in &segment.live {
                let (stream, pool) = (segment.stream, segment.pool);
                let request =
                    Request { bytes: block.requested, stream, pool, stack: StackId::default() };
                let piece = self.request(request);
                self.before.insert(block.address, piece);
            }
        }
    }

    fn piece(&mut self, request: Request) -> Piece {
        self.script.requests.push(request);
        self.script.requests.len() as Piece - 1
    }

    fn request(&mut self, request: Request) -> Piece {
        let piece = self.piece(request);
        self.script.ops.push(Op::Alloc(piece));
        piece
    }

    fn event(&mut self, event: &Event, later: &[Event]) {
        match event.kind {
            Kind::Alloc | Kind::Oom => {
                let &Event { bytes, stream, pool, stack, .. } = event;
                let piece = self.request(Request { bytes, stream, pool, stack });
                if event.kind == Kind::Alloc {
                    self.blocks.insert(event.allocation, piece);
                }
            }
            Kind::Free | Kind::FreeCompleted => self.free(event, false),
            Kind::FreeRequested => self.free(event, !completes_at_once(event, later)),
            Kind::Use => {
                if let Some(&block) = self.blocks.get(&event.allocation) {
                    self.used(block, event.stream);
                }
            }
            Kind::EmptyCache | Kind::EmptyCacheMarker => {
                let piece = self.piece(Request::default());
                self.script.ops.push(Op::Trim(piece));
            }
            _ => {}
        }
    }

    fn used(&mut self, block: Piece, stream: StreamId) {
        if self.script.requests[block as usize].stream != stream {
            self.used.insert(block);
        }
        let piece = self.piece(Request::default());
        self.script.ops.push(Op::Use(block, stream, piece));
    }

    fn free(&mut self, event: &Event, late: bool) {
        let block = if event.allocation == NO_ALLOCATION {
            self.before.remove(&event.address)
        } else {
            self.blocks.remove(&event.allocation)
        };
        let Some(block) = block else { return };
        if late && !self.used.contains(&block) {
            let StreamId(own) = self.script.requests[block as usize].stream;
            self.used(block, StreamId(u32::from(own == 0)));
        }
        self.script.ops.push(Op::Free(block));
    }
}

/// Whether the memory is reusable as soon as the client gave it back.
fn completes_at_once(event: &Event, later: &[Event]) -> bool {
    let next = later.iter().find(|later| later.kind.counts());
    next.is_some_and(|next| next.kind == Kind::FreeCompleted && next.address == event.address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_goes_with_everything_that_happens_to_it() {
        let requests = vec![Request { bytes: 8, ..Request::default() }; 5];
        let ops = vec![
            Op::Alloc(0),
            Op::Alloc(1),
            Op::Use(0, StreamId(1), 2),
            Op::Free(0),
            Op::Trim(3),
            Op::Alloc(4),
        ];
        let script = Script { ops, requests };
        assert_eq!(script.pieces(), [0, 1, 2, 3, 4]);
        assert_eq!(script.live_peak(), 16);
        assert_eq!(script.without(&[0]).ops, [Op::Alloc(1), Op::Trim(3), Op::Alloc(4)]);
        assert_eq!(script.without(&[2, 3]).ops.len(), 4, "lone steps go alone");
        let small = script.without(&[0, 1]).compact();
        assert_eq!(small.ops, [Op::Trim(0), Op::Alloc(1)]);
        let trace = script.to_trace();
        assert_eq!((trace.allocations, trace.events.len()), (3, 6));
        assert_eq!(trace.events[3].allocation, 0);
    }
}
