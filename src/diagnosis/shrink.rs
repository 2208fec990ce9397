//! Shrink: the smallest trace with the same failure.
//!
//! Two passes. The first takes away whole pieces (delta debugging: halves, quarters, single ones), so what is left
//! is a part of the recording. The second also merges, lengthens and resizes, so what is left is a new trace with
//! the same class of failure. Nothing is believed: every step was replayed and failed the same way.

mod delete;
mod merge;
pub mod script;

use crate::diagnosis::search::Crew;
use crate::diagnosis::shrink::script::{Op, Script};
use crate::lab::{Failure, Player, ReplayError, Setup};
use crate::ledger::Metric;
use crate::policy::Policy;
use crate::trace::Recording;
use crate::vocab::Verdict;

/// What must stay true of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// A request fails, for the same cause.
    OutOfMemory,
    /// More than this many bytes are reserved, and no more are live than in the recording.
    ReservedAbove(u64),
}

/// Where and how a script fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The cause; `None` where it is reserved bytes that are kept.
    pub verdict: Option<Verdict>,
    /// Steps up to and with the one at which it shows.
    pub steps: usize,
    /// The failed request.
    pub failure: Option<Failure>,
    /// Obtained from the driver, at the most.
    pub peak_reserved: u64,
}

/// Tells whether a script still fails the same way.
#[derive(Clone, Debug)]
pub struct Judge<'a> {
    recording: &'a Recording,
    policy: Policy,
    capacity: Option<u64>,
    keep: Keep,
    verdict: Option<Verdict>,
    live_peak: u64,
    /// So much the device must have beyond all that is live and the request.
    spare: u64,
}

/// One part in so many of the device is enough to spare.
const SPARE: u64 = 32;

/// Steps between two looks at the reserved bytes: none, so that the cut is exact.
const STEP: usize = 1;

impl<'a> Judge<'a> {
    /// Looks at how the whole script fails, which is then kept. `None`: it does not fail.
    ///
    /// # Errors
    /// Where it cannot be replayed.
    pub fn of(
        recording: &'a Recording,
        script: &Script,
        policy: Policy,
        capacity: Option<u64>,
        keep: Keep,
    ) -> Result<Option<(Self, Seen)>, ReplayError> {
        let live_peak = script.live_peak();
        let mut judge =
            Self { recording, policy, capacity, keep, verdict: None, live_peak, spare: 0 };
        let Some(seen) = judge.look(script)? else { return Ok(None) };
        judge.verdict = seen.verdict;
        judge.spare = judge.spare_of(&seen).min(capacity.unwrap_or(0) / SPARE);
        Ok(Some((judge, seen)))
    }

    /// Replays a script and says how it fails, if it does, whatever the cause.
    fn look(&self, script: &Script) -> Result<Option<Seen>, ReplayError> {
        let trace = script.to_trace();
        let setup = Setup::simulated(self.policy.clone(), self.capacity);
        let mut player = Player::new(self.recording, &trace, setup, ())?;
        let reserved = |player: &Player<'_, ()>| player.stats().peak(Metric::ReservedBytes);
        match self.keep {
            Keep::OutOfMemory => while player.run(usize::MAX)? {},
            Keep::ReservedAbove(most) => {
                while reserved(&player) <= most && player.run(STEP)? {}
                let steps = player.events_done() as usize;
                let peak_reserved = reserved(&player);
                let seen = Seen { verdict: None, steps, failure: None, peak_reserved };
                return Ok((peak_reserved > most).then_some(seen));
            }
        }
        let steps = player.events_done() as usize;
        let peak_reserved = reserved(&player);
        Ok(player.failures().1.map(|failure| Seen {
            verdict: Some(failure.report.verdict),
            steps,
            failure: Some(failure.clone()),
            peak_reserved,
        }))
    }

    /// The script up to its failure, if it fails the same way.
    #[must_use]
    pub fn keeps(&self, mut script: Script) -> Option<Script> {
        let seen = self.look(&script).ok().flatten()?;
        script.ops.truncate(seen.steps);
        self.is_same(&script, &seen).then_some(script)
    }

    /// How a script fails, if it does the same way.
    #[must_use]
    pub fn seen(&self, script: &Script) -> Option<Seen> {
        self.look(script).ok().flatten().filter(|seen| self.is_same(script, seen))
    }

    /// The same cause; and where that was not the capacity, what is live and the request would have fitted, with
    /// as much to spare as in the recording or a small part of the device. So a likeness of a likeness is one of
    /// the recording too.
    fn is_same(&self, script: &Script, seen: &Seen) -> bool {
        match self.keep {
            Keep::ReservedAbove(_) => script.live_peak() <= self.live_peak,
            Keep::OutOfMemory => seen.verdict == self.verdict && self.spare_of(seen) >= self.spare,
        }
    }

    /// What the device has beyond all that is live and the failed request.
    fn spare_of(&self, seen: &Seen) -> u64 {
        let (Some(capacity), Some(failure)) = (self.capacity, &seen.failure) else { return 0 };
        let report = &failure.report;
        let wanted = report.requested_bytes.saturating_add(report.awaiting_free_bytes);
        capacity.saturating_sub(wanted.saturating_add(report.live_bytes))
    }
}

/// How far to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passes {
    /// Also merge, lengthen and resize.
    pub merge: bool,
}

/// What was left. Counts are steps: requests, frees, uses, emptied caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shrunk {
    /// The small script.
    pub script: Script,
    /// How it fails.
    pub seen: Seen,
    /// Steps of the whole script.
    pub steps_before: usize,
    /// Steps after whole pieces were taken away.
    pub steps_deleted: usize,
    /// Replays that it took.
    pub replays: u64,
}

/// The smallest script that was found. The result does not depend on how many threads the crew has.
#[must_use]
pub fn shrink<C: Crew>(
    judge: &Judge<'_>,
    script: &Script,
    passes: Passes,
    crew: &C,
) -> Option<Shrunk> {
    let mut work = Work::new(judge, crew, script.ops.len());
    let mut best = judge.keeps(script.clone())?;
    delete::delete(&mut work, &mut best);
    let steps_deleted = best.ops.len();
    if passes.merge {
        merge::merge(&mut work, &mut best);
        settle(&mut work, &mut best);
    }
    let script = best.compact();
    let seen = judge.seen(&script)?;
    let replays = work.replays + 2;
    Some(Shrunk { script, seen, steps_before: work.of, steps_deleted, replays })
}

/// Both passes again and again until together they take nothing more: the result, shrunk, is itself.
fn settle<C: Crew>(work: &mut Work<'_, '_, C>, best: &mut Script) {
    loop {
        let mut next = best.compact();
        delete::delete(work, &mut next);
        merge::merge(work, &mut next);
        if next.ops.len() >= best.ops.len() {
            return;
        }
        *best = next;
    }
}

/// Candidates tried together. Fixed, so that what is found does not depend on the number of threads.
pub(super) const BATCH: usize = 16;

/// The judge, the crew and the count of their work.
pub(super) struct Work<'a, 'r, C> {
    judge: &'a Judge<'r>,
    crew: &'a C,
    replays: u64,
    of: usize,
}

impl<'a, 'r, C: Crew> Work<'a, 'r, C> {
    fn new(judge: &'a Judge<'r>, crew: &'a C, of: usize) -> Self {
        Self { judge, crew, replays: 0, of }
    }

    /// Tries candidates, each made by its number.
    pub(super) fn each(
        &mut self,
        count: usize,
        make: &(dyn Fn(usize) -> Option<Script> + Sync),
    ) -> Vec<Option<Script>> {
        self.replays += count as u64;
        let judge = self.judge;
        self.crew.each(count, &|index| make(index).and_then(|script| judge.keeps(script)))
    }

    /// Tries one.
    pub(super) fn one(&mut self, script: Script) -> Option<Script> {
        self.replays += 1;
        self.judge.keeps(script)
    }

    /// Says how far it is.
    pub(super) fn progress(&self, left: usize, what: &str) {
        self.crew.progress(self.of.saturating_sub(left), self.of, &format!("{what}: {left} left"));
    }
}

/// Steps that a person reads: all of them.
#[must_use]
pub fn blocks(script: &Script) -> usize {
    script.ops.iter().filter(|op| matches!(op, Op::Alloc(_))).count()
}
