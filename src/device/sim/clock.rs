//! Clock: how far each stream has come, and which fences have passed (invariant **D2**).
//!
//! Asked by the simulated device and its judge. Never knows memory.
//!
//! ```text
//!   stream   | work | work | fence 1 | work | fence 2        positions count items of work
//!            0             3         3      4       4
//!                   ^ done = 2: fence 1 stands at 3 and cannot have passed
//! ```
//!
//! A stream that was ordered behind another's fence has a *gate*: an item of work that is done as
//! soon as that stream has come as far as the fence, and not before (invariant **D5**).

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

/// A place that a stream passes only after another has come so far.
#[derive(Clone, Copy, Debug)]
struct Gate {
    /// Its own place among the items of work: it is done at this position.
    position: u64,
    after: StreamId,
    until: u64,
}

/// One stream.
#[derive(Clone, Debug, Default)]
struct Stream {
    queued: u64,
    done: u64,
    recorded: Serial,
    passed: Serial,
    marks: VecDeque<Mark>,
    gates: VecDeque<Gate>,
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
        let mut left = items;
        loop {
            self.pass_gates();
            let found = self.streams.entry(stream).or_default();
            let next = found.gates.front().map_or(found.queued, |gate| gate.position - 1);
            let step = left.min(next - found.done);
            if step == 0 {
                return;
            }
            found.done += step;
            left -= step;
        }
    }

    /// Every stream passes the gates that stand open right ahead of it.
    fn pass_gates(&mut self) {
        while let Some((stream, gate)) = self.open_gate() {
            let found = self.streams.entry(stream).or_default();
            found.done = gate.position;
            found.gates.pop_front();
        }
    }

    fn open_gate(&self) -> Option<(StreamId, Gate)> {
        let done = |stream: StreamId| self.streams.get(&stream).map_or(0, |found| found.done);
        self.streams.iter().find_map(|(&stream, found)| {
            let gate = *found.gates.front()?;
            let opens = gate.position == found.done + 1 && done(gate.after) >= gate.until;
            opens.then_some((stream, gate))
        })
    }

    /// Holds `waiter`'s later work back until `after` has come as far as its fence `serial`.
    pub(super) fn order(
        &mut self,
        waiter: StreamId,
        after: StreamId,
        serial: Serial,
    ) -> Result<(), String> {
        let found = self.streams.entry(after).or_default();
        if serial > found.recorded {
            return Err(format!(
                "stream {} ordered behind fence {} of stream {}, never recorded",
                waiter.0, serial.0, after.0
            ));
        }
        let mark = found.marks.iter().find(|mark| mark.serial >= serial).copied();
        if let Some(mark) = mark.filter(|_| waiter != after) {
            let position = self.launch(waiter, 1);
            let gate = Gate { position, after, until: mark.position };
            self.streams.entry(waiter).or_default().gates.push_back(gate);
        }
        Ok(())
    }

    /// Whether work launched on `stream` from now on starts only after `other` has come as far as
    /// `until`.
    pub(super) fn follows(&self, stream: StreamId, other: StreamId, until: u64) -> bool {
        stream == other || self.reaches_back(stream, u64::MAX, other, until)
    }

    /// Whether what `stream` does behind `position` comes after `other` at `until`.
    fn reaches_back(&self, stream: StreamId, position: u64, other: StreamId, until: u64) -> bool {
        if stream == other {
            return until <= position;
        }
        let gates = self.streams.get(&stream).into_iter().flat_map(|found| &found.gates);
        gates
            .filter(|gate| gate.position <= position)
            .any(|gate| self.reaches_back(gate.after, gate.until, other, until))
    }

    /// Does all work up to `position` and says how many items that was.
    pub(super) fn reach(&mut self, stream: StreamId, position: u64) -> u64 {
        self.settled(stream);
        self.force(stream, position)
    }

    /// The same, with what it is ordered behind on other streams.
    fn force(&mut self, stream: StreamId, position: u64) -> u64 {
        let mut items = 0;
        loop {
            let found = self.streams.entry(stream).or_default();
            let target = position.min(found.queued);
            let ahead = found.gates.front().copied().filter(|gate| gate.position <= target);
            let Some(gate) = ahead else {
                items += target.saturating_sub(found.done);
                found.done = found.done.max(target);
                return items;
            };
            items += (gate.position - 1).saturating_sub(found.done);
            found.done = gate.position;
            found.gates.pop_front();
            items += self.force(gate.after, gate.until);
        }
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
        let found = &*self.settled(stream);
        if serial > found.recorded {
            return Err(format!(
                "fence {} of stream {} awaited, but never recorded",
                serial.0, stream.0
            ));
        }
        let mut items = 0;
        loop {
            let found = self.streams.entry(stream).or_default();
            let front = found.marks.front().copied();
            let Some(mark) = front.filter(|mark| mark.serial <= serial) else { return Ok(items) };
            items += self.pass(stream, mark);
        }
    }

    /// Does the work before a stream's first mark and passes it.
    fn pass(&mut self, stream: StreamId, mark: Mark) -> u64 {
        let items = self.force(stream, mark.position);
        let found = self.streams.entry(stream).or_default();
        found.passed = mark.serial;
        found.marks.pop_front();
        items
    }

    /// The stream, after every fence that the policy lets pass by itself has passed.
    fn settled(&mut self, stream: StreamId) -> &mut Stream {
        self.pass_gates();
        loop {
            let found = self.streams.entry(stream).or_default();
            let Some(mark) = found.marks.front().copied() else { break };
            let passes = match self.policy {
                FencePolicy::Immediate => found.done >= mark.position,
                FencePolicy::AfterCalls(_) => self.operations >= mark.due,
                FencePolicy::OnlyWhenWaited | FencePolicy::Scripted => false,
            };
            if !passes {
                break;
            }
            self.pass(stream, mark);
        }
        self.streams.entry(stream).or_default()
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
    fn d5_an_ordered_stream_waits_for_the_fence_and_for_nothing_later() {
        let mut clock = recorded(FencePolicy::Immediate, 2);
        let waiter = StreamId(2);
        assert!(clock.order(waiter, S, Serial(3)).is_err(), "never recorded");
        clock.launch(waiter, 1);
        clock.order(waiter, S, Serial(1)).expect("recorded");
        clock.launch(waiter, 3);
        assert!(clock.follows(waiter, S, 2) && !clock.follows(waiter, S, 3), "2 items before it");
        clock.advance(waiter, 9);
        assert_eq!(clock.done(waiter), 1, "it stands before the gate");
        clock.advance(S, 2);
        clock.advance(waiter, 2);
        assert_eq!(clock.done(waiter), 4, "the gate is no work");
        let third = StreamId(3);
        clock.record(waiter, Serial(1)).expect("the first");
        clock.order(third, waiter, Serial(1)).expect("recorded");
        clock.order(waiter, S, Serial(2)).expect("recorded");
        clock.record(waiter, Serial(2)).expect("the second");
        clock.order(third, waiter, Serial(2)).expect("recorded");
        assert!(clock.follows(third, S, 4), "over two streams");
        assert_eq!(clock.finish(third), 1 + 2, "which has the work before done as well");
        assert_eq!(clock.poll(S, NEWEST), Serial(2));
    }

    #[test]
    fn serials_rise_and_are_recorded_before_they_are_awaited() {
        let mut clock = recorded(FencePolicy::Immediate, 0);
        assert!(clock.record(S, Serial(2)).is_err());
        assert!(clock.record(StreamId(2), Serial(1)).is_ok(), "each stream counts for itself");
        assert!(clock.wait(S, Serial(3)).is_err());
    }
}
