//! Fences: pending frees behind recorded points of streams.
//!
//! Owns, for each stream, the serials of its fences and the queue of blocks that wait. A later
//! fence has a larger serial, so one comparison says whether it has passed, and a fence that was
//! recorded covers every block with the same serial or a smaller one. **E1** a block is draining
//! exactly while it stands in a queue.
//!
//! ```text
//!   serials   1 .. passed .. recorded .. newest
//!             done   | the device knows | given to blocks; one at a time is recorded
//! ```

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::vocab::{Serial, StreamId};

#[derive(Clone, Debug, Default)]
struct Line {
    newest: u64,
    recorded: u64,
    passed: u64,
    /// Somebody is recording a fence.
    recording: bool,
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

    /// Begins to record a fence behind everything that waits on `stream`: its serial. `None` where
    /// all of it is recorded, or somebody is recording.
    pub fn begin(&mut self, stream: StreamId) -> Option<Serial> {
        let line = self.lines.get_mut(&stream)?;
        let begins = line.newest > line.recorded && !line.recording;
        line.recording |= begins;
        begins.then_some(Serial(line.newest))
    }

    /// The fence was recorded, or the device refused to.
    pub fn end(&mut self, stream: StreamId, serial: Serial, recorded: bool) {
        let Some(line) = self.lines.get_mut(&stream) else { return };
        line.recording = false;
        if recorded {
            line.recorded = line.recorded.max(serial.0);
        }
    }

    /// The newest recorded fence of `stream`, if a block waits for it or for one before it.
    #[must_use]
    pub fn recorded(&self, stream: StreamId) -> Option<Serial> {
        let line = self.lines.get(&stream)?;
        let first = line.waiting.front()?.0;
        (first <= line.recorded).then_some(Serial(line.recorded))
    }

    /// How many streams have a fence being recorded.
    pub fn recordings(&self) -> usize {
        self.lines.values().filter(|line| line.recording).count()
    }

    /// Fences of `stream` up to `through` have passed: the next block whose fence that releases, if
    /// any. Call until `None`.
    pub fn pass(&mut self, stream: StreamId, through: Serial) -> Option<u32> {
        let line = self.lines.get_mut(&stream)?;
        line.passed = line.passed.max(through.0.min(line.recorded));
        match line.waiting.front() {
            Some(&(serial, block)) if serial <= line.passed => {
                line.waiting.pop_front();
                self.outstanding -= 1;
                Some(block)
            }
            _ => None,
        }
    }

    /// The first stream after `after` on which something waits.
    #[must_use]
    pub fn next_waiting(&self, after: Option<StreamId>) -> Option<StreamId> {
        let from = match after {
            Some(stream) => core::ops::Bound::Excluded(stream),
            None => core::ops::Bound::Unbounded,
        };
        let mut lines = self.lines.range((from, core::ops::Bound::Unbounded));
        lines.find(|(_, line)| !line.waiting.is_empty()).map(|(&stream, _)| stream)
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
        assert_eq!(fences.pass(stream, Serial(99)), None, "not recorded");
        assert_eq!(fences.begin(stream), Some(Serial(1)));
        assert_eq!(fences.enqueue(stream, 11), Serial(2));
        assert_eq!(fences.begin(stream), None, "one at a time");
        fences.end(stream, Serial(1), true);
        assert_eq!(fences.recorded(stream), Some(Serial(1)));
        assert_eq!(fences.pass(stream, Serial(99)), Some(10));
        assert_eq!(fences.pass(stream, Serial(99)), None);
        assert_eq!((fences.next_waiting(None), fences.recorded(stream)), (Some(stream), None));
        assert_eq!(fences.next_waiting(Some(stream)), None);
        assert!(!fences.is_idle());
    }

    #[test]
    fn a_fence_that_was_refused_is_covered_by_the_next_one() {
        let mut fences = Fences::default();
        let stream = StreamId(0);
        fences.enqueue(stream, 10);
        assert_eq!(fences.begin(stream), Some(Serial(1)));
        fences.end(stream, Serial(1), false);
        assert_eq!((fences.recorded(stream), fences.recordings()), (None, 0));
        fences.enqueue(stream, 11);
        assert_eq!(fences.begin(stream), Some(Serial(2)));
        fences.end(stream, Serial(2), true);
        assert_eq!(fences.pass(stream, Serial(2)), Some(10));
        assert_eq!(fences.pass(stream, Serial(2)), Some(11));
        assert!(fences.is_idle() && fences.begin(stream).is_none());
        assert_eq!(fences.enqueue(stream, 12), Serial(3));
        assert_eq!(fences.pass(stream, Serial(2)), None, "an old answer passes nothing new");
    }
}
