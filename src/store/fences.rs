//! Fences: pending frees behind recorded points of streams.
//!
//! Owns, for each stream, the serial of its newest fence and the queue of blocks that wait. A later fence has a
//! larger serial, so one comparison says whether it has passed. **E1** a block is draining exactly while it
//! stands in a queue.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::vocab::{Serial, StreamId};

#[derive(Clone, Debug, Default)]
struct Line {
    newest: u64,
    passed: u64,
    waiting: VecDeque<(u64, u32)>,
}

/// Pending frees of all streams.
#[derive(Clone, Debug, Default)]
pub struct Fences {
    lines: BTreeMap<StreamId, Line>,
    outstanding: usize,
    uses: BTreeMap<u32, Vec<StreamId>>,
}

impl Fences {
    /// Whether nothing waits. O(1).
    #[inline]
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.outstanding == 0
    }

    /// Notes that `stream` uses the block in this slot; once is enough.
    pub fn note_use(&mut self, block: u32, stream: StreamId) {
        let streams = self.uses.entry(block).or_default();
        if !streams.contains(&stream) {
            streams.push(stream);
        }
    }

    /// Takes the streams that use the block in this slot.
    pub fn take_uses(&mut self, block: u32) -> Vec<StreamId> {
        self.uses.remove(&block).unwrap_or_default()
    }

    /// The block in this slot waits for a new fence of `stream`; its serial.
    pub fn enqueue(&mut self, stream: StreamId, block: u32) -> Serial {
        let line = self.lines.entry(stream).or_default();
        line.newest += 1;
        line.waiting.push_back((line.newest, block));
        self.outstanding += 1;
        Serial(line.newest)
    }

    /// Fences of `stream` up to `through` have passed: the next block whose fence that releases, if any.
    /// Call until `None`.
    pub fn pass(&mut self, stream: StreamId, through: Serial) -> Option<u32> {
        let line = self.lines.get_mut(&stream)?;
        line.passed = line.passed.max(through.0.min(line.newest));
        match line.waiting.front() {
            Some(&(serial, block)) if serial <= line.passed => {
                line.waiting.pop_front();
                self.outstanding -= 1;
                Some(block)
            }
            _ => None,
        }
    }

    /// The first stream after `after` on which something waits, with its newest fence.
    #[must_use]
    pub fn next_waiting(&self, after: Option<StreamId>) -> Option<(StreamId, Serial)> {
        let from = match after {
            Some(stream) => core::ops::Bound::Excluded(stream),
            None => core::ops::Bound::Unbounded,
        };
        self.lines
            .range((from, core::ops::Bound::Unbounded))
            .find(|(_, line)| !line.waiting.is_empty())
            .map(|(&stream, line)| (stream, Serial(line.newest)))
    }

    /// Every queued block's slot, once for each fence it waits for.
    pub fn waiting(&self) -> impl Iterator<Item = u32> {
        self.lines.values().flat_map(|line| line.waiting.iter().map(|&(_, block)| block))
    }

    /// Slots for which other streams were named.
    pub fn used(&self) -> impl Iterator<Item = u32> {
        self.uses.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_pass_in_order_and_only_up_to_what_was_recorded() {
        let mut fences = Fences::default();
        let stream = StreamId(3);
        assert_eq!(fences.enqueue(stream, 10), Serial(1));
        assert_eq!(fences.enqueue(stream, 11), Serial(2));
        assert_eq!(fences.pass(stream, Serial(1)), Some(10));
        assert_eq!(fences.pass(stream, Serial(1)), None);
        assert!(!fences.is_idle());
        assert_eq!(fences.next_waiting(None), Some((stream, Serial(2))));
        assert_eq!(fences.next_waiting(Some(stream)), None);
        assert_eq!(fences.pass(stream, Serial(99)), Some(11));
        assert!(fences.is_idle());
        assert_eq!(fences.enqueue(stream, 12), Serial(3));
        assert_eq!(fences.pass(stream, Serial(2)), None, "an old answer passes nothing new");
    }
}
