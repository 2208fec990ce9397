//! Clock: how far each stream has come, and which fences have passed (invariant **D2**).
//!
//! Asked by the simulated device and its judge. Never knows memory.
//!
//! ```text
//!   stream   | work | work | fence 1 | work | fence 2        positions count items of work
//!            0             3         3      4       4
//!                   ^ done = 2: fence 1 stands at 3 and cannot have passed
//! ```

use std::collections::{BTreeMap, VecDeque};

use super::FencePolicy;
use crate::vocab::{Serial, StreamId};

/// A recorded fence that has not passed.
#[derive(Clone, Copy, Debug)]
struct Mark {
    serial: Serial,
    /// Passes once the stream has done this much.
    position: u64,
    /// The operation at which [`FencePolicy::AfterCalls`] has the stream arrive here.
    due: u64,
}

/// One stream.
#[derive(Clone, Debug, Default)]
struct Stream {
    queued: u64,
    done: u64,
    recorded: Serial,
    passed: Serial,
    marks: VecDeque<Mark>,
}

/// All streams, each created when first named.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    policy: FencePolicy,
    operations: u64,
    streams: BTreeMap<StreamId, Stream>,
}

impl Clock {
    /// No stream yet.
    pub(super) const fn new(policy: FencePolicy) -> Self {
        Self { policy, operations: 0, streams: BTreeMap::new() }
    }

    /// Whether streams do their work as operations go by.
    pub(super) const fn moves_by_itself(&self) -> bool {
        matches!(self.policy, FencePolicy::AfterCalls(_))
    }

    /// One more call or launch has happened.
    pub(super) const fn tick(&mut self) {
        self.operations += 1;
    }

    /// Queues `items` of work and says at which position they end.
    pub(super) fn launch(&mut self, stream: StreamId, items: u64) -> u64 {
        let stream = self.streams.entry(stream).or_default();
        stream.queued += items;
        stream.queued
    }

    /// Does up to `items` of the work queued.
    pub(super) fn advance(&mut self, stream: StreamId, items: u64) {
        let stream = self.streams.entry(stream).or_default();
        stream.done = stream.done.saturating_add(items).min(stream.queued);
    }

    /// Does all work up to `position` and says how many items that was.
    pub(super) fn reach(&mut self, stream: StreamId, position: u64) -> u64 {
        let stream = self.settled(stream);
        let items = position.min(stream.queued).saturating_sub(stream.done);
        stream.done += items;
        items
    }

    /// Does all work queued and says how many items that was.
    pub(super) fn finish(&mut self, stream: StreamId) -> u64 {
        self.reach(stream, u64::MAX)
    }

    /// How far the stream has come.
    pub(super) fn done(&mut self, stream: StreamId) -> u64 {
        self.settled(stream).done
    }

    /// Records a fence behind all work queued. Its serial must be larger than any before.
    pub(super) fn record(&mut self, stream: StreamId, serial: Serial) -> Result<(), String> {
        let lag = match self.policy {
            FencePolicy::AfterCalls(calls) => calls,
            _ => 0,
        };
        let due = self.operations.saturating_add(lag);
        let found = self.streams.entry(stream).or_default();
        if serial <= found.recorded {
            return Err(format!(
                "fence {} of stream {} recorded after fence {}",
                serial.0, stream.0, found.recorded.0
            ));
        }
        found.recorded = serial;
        found.marks.push_back(Mark { serial, position: found.queued, due });
        Ok(())
    }

    /// The newest fence up to `newest` that has passed, without waiting.
    pub(super) fn poll(&mut self, stream: StreamId, newest: Serial) -> Serial {
        self.settled(stream).passed.min(newest)
    }

    /// Does the work before fence `serial`, passes it and all before it, and says how many items
    /// that was.
    pub(super) fn wait(&mut self, stream: StreamId, serial: Serial) -> Result<u64, String> {
        let found = self.settled(stream);
        if serial > found.recorded {
            return Err(format!(
                "fence {} of stream {} awaited, but never recorded",
                serial.0, stream.0
            ));
        }
        let before = found.done;
        while let Some(mark) = found.marks.front().copied().filter(|mark| mark.serial <= serial) {
            found.done = found.done.max(mark.position);
            found.passed = mark.serial;
            found.marks.pop_front();
        }
        Ok(found.done - before)
    }

    /// The stream, after every fence that the policy lets pass by itself has passed.
    fn settled(&mut self, stream: StreamId) -> &mut Stream {
        let found = self.streams.entry(stream).or_default();
        while let Some(mark) = found.marks.front().copied() {
            let passes = match self.policy {
                FencePolicy::Immediate => found.done >= mark.position,
                FencePolicy::AfterCalls(_) => self.operations >= mark.due,
                FencePolicy::OnlyWhenWaited | FencePolicy::Scripted => false,
            };
            if !passes {
                break;
            }
            found.done = found.done.max(mark.position);
            found.passed = mark.serial;
            found.marks.pop_front();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, FencePolicy};
    use crate::vocab::{Serial, StreamId};

    const S: StreamId = StreamId(1);
    const NEWEST: Serial = Serial(u64::MAX);

    fn recorded(policy: FencePolicy, work: u64) -> Clock {
        let mut clock = Clock::new(policy);
        clock.launch(S, work);
        clock.record(S, Serial(1)).expect("the first");
        clock.launch(S, work);
        clock.record(S, Serial(2)).expect("the second");
        clock
    }

    #[test]
    fn an_idle_stream_passes_its_fences_at_once() {
        let mut clock = recorded(FencePolicy::Immediate, 0);
        assert_eq!(clock.poll(S, NEWEST), Serial(2));
        assert_eq!(clock.poll(S, Serial(1)), Serial(1), "no more than was asked about");
        assert_eq!(clock.poll(StreamId(9), NEWEST), Serial(0));
    }

    #[test]
    fn a_fence_passes_only_after_the_work_before_it() {
        let mut clock = recorded(FencePolicy::Immediate, 2);
        clock.advance(S, 1);
        assert_eq!(clock.poll(S, NEWEST), Serial(0));
        clock.advance(S, 1);
        assert_eq!(clock.poll(S, NEWEST), Serial(1));
        assert_eq!(clock.finish(S), 2);
        assert_eq!(clock.poll(S, NEWEST), Serial(2));
    }

    #[test]
    fn after_calls_the_stream_arrives_by_itself() {
        let mut clock = recorded(FencePolicy::AfterCalls(2), 3);
        clock.tick();
        assert_eq!((clock.poll(S, NEWEST), clock.done(S)), (Serial(0), 0));
        clock.tick();
        assert_eq!((clock.poll(S, NEWEST), clock.done(S)), (Serial(2), 6));
    }

    #[test]
    fn only_a_wait_passes_and_only_as_far_as_asked() {
        let mut clock = recorded(FencePolicy::OnlyWhenWaited, 2);
        clock.finish(S);
        assert_eq!(clock.poll(S, NEWEST), Serial(0), "though the work is done");
        assert_eq!(clock.wait(S, Serial(1)), Ok(0));
        assert_eq!(clock.poll(S, NEWEST), Serial(1));
        let mut busy = recorded(FencePolicy::Scripted, 2);
        assert_eq!(busy.wait(S, Serial(2)), Ok(4));
        assert_eq!(busy.poll(S, NEWEST), Serial(2));
    }

    #[test]
    fn serials_rise_and_are_recorded_before_they_are_awaited() {
        let mut clock = recorded(FencePolicy::Immediate, 0);
        assert!(clock.record(S, Serial(2)).is_err());
        assert!(clock.record(StreamId(2), Serial(1)).is_ok(), "each stream counts for itself");
        assert!(clock.wait(S, Serial(3)).is_err());
    }
}
