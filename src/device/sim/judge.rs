//! Judge: whose each stretch of memory is, and which unfinished work still uses it.
//!
//! Told by tests what the streams do (`launch`) and by the allocator's side what was handed out;
//! panics when memory goes away, or to another stream, under work that is not finished. Never knows
//! blocks or policies, and never asks the allocator, whose mistakes it is there to find.
//!
//! A stream's own order makes reuse on that stream safe: work launched later starts later. So
//! memory may go from a stream to itself at any time; to another stream, or back to the driver,
//! only when all *other* streams' work on it is done, or the stream that gets it was ordered behind
//! that work.

use super::clock::Clock;
use super::intervals::Intervals;
use crate::vocab::StreamId;

/// Unfinished work on a stretch.
#[derive(Clone, Copy, Debug)]
struct Work {
    stream: StreamId,
    start: u64,
    end: u64,
    /// Done once the stream has come this far.
    until: u64,
}

/// What the judge knows.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    owners: Intervals<StreamId>,
    works: Vec<Work>,
}

impl Judge {
    /// Nothing handed out, nothing launched.
    pub(super) const fn new() -> Self {
        Self { owners: Intervals::new(), works: Vec::new() }
    }

    /// `stream`'s work on the stretch ends at `until`. A stretch handed to nobody becomes its own.
    pub(super) fn launched(&mut self, stream: StreamId, start: u64, end: u64, until: u64) {
        if !self.owners.touches(start, end) {
            self.owners.set(start, end, stream);
        }
        self.works.push(Work { stream, start, end, until });
    }

    /// The stretch now belongs to `stream`. No other stream's unfinished work may use it.
    pub(super) fn handed_out(&mut self, stream: StreamId, start: u64, end: u64, clock: &mut Clock) {
        self.forbid("handed out", start, end, clock, |work, _, clock| {
            clock.follows(stream, work.stream, work.until)
        });
        self.owners.set(start, end, stream);
    }

    /// Memory goes back to the driver. Work of the stream it belongs to may be unfinished (the
    /// driver waits for it), and so may work of `waited`.
    pub(super) fn taken_away(
        &mut self,
        verb: &str,
        start: u64,
        end: u64,
        waited: Option<StreamId>,
        clock: &mut Clock,
    ) {
        let owned = |work: &Work, owners: &Intervals<StreamId>| {
            let (from, to) = (work.start.max(start), work.end.min(end));
            owners.overlapping(from, to).all(|(_, _, owner)| owner == work.stream)
        };
        self.forbid(verb, start, end, clock, |work, owners, _| match waited {
            Some(waited) => work.stream == waited,
            None => owned(work, owners),
        });
    }

    /// The unfinished work on a stretch: stream, and position at which it ends.
    pub(super) fn unfinished(
        &mut self,
        start: u64,
        end: u64,
        clock: &mut Clock,
    ) -> Vec<(StreamId, u64)> {
        self.works.retain(|work| clock.done(work.stream) < work.until);
        let on_it = self.works.iter().filter(|work| work.start < end && start < work.end);
        on_it.map(|work| (work.stream, work.until)).collect()
    }

    /// Nobody owns the stretch any more.
    pub(super) fn forget(&mut self, start: u64, end: u64) {
        self.owners.clear(start, end);
    }

    fn forbid(
        &mut self,
        verb: &str,
        start: u64,
        end: u64,
        clock: &mut Clock,
        allowed: impl Fn(&Work, &Intervals<StreamId>, &Clock) -> bool,
    ) {
        if self.works.is_empty() {
            return;
        }
        self.works.retain(|work| clock.done(work.stream) < work.until);
        let on_it = self.works.iter().filter(|work| work.start < end && start < work.end);
        for work in on_it {
            assert!(
                allowed(work, &self.owners, clock),
                "judge: {verb} {start:#x}..{end:#x} while unfinished work of stream {} uses \
                 {:#x}..{:#x}",
                work.stream.0,
                work.start,
                work.end
            );
        }
    }
}
