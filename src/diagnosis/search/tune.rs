//! Tune: the settings that serve a trace best, or that none is worth a change.
//!
//! Rounds: the settings in use; single settings on a coarse grid; pairs of the best; then points near the best.
//! Within a round nothing depends on anything, so the outcome is the same for any number of threads.

use std::collections::HashSet;

use crate::diagnosis::pareto;
use crate::diagnosis::search::knobs::{Demand, Family, Knobs, near, singles};
use crate::diagnosis::search::rows::{Choice, Evaluated, Job, Plan, Rival, Row, evaluate};
use crate::diagnosis::search::streams::{on_one_stream, uses_streams};
use crate::diagnosis::search::{Bound, Crew, Subject};
use crate::lab::ReplayError;
use crate::policy::Policy;
use crate::trace::DeviceTrace;

/// What is to be small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Memory going back to the driver on a device of known size: to complete, and in peace.
    Fit,
    /// The device on which the traces complete.
    MinCapacity,
    /// What is obtained from the driver.
    Reserved,
    /// Calls of the driver.
    DriverCalls,
}

impl Objective {
    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fit => "fit",
            Self::MinCapacity => "min-capacity",
            Self::Reserved => "reserved",
            Self::DriverCalls => "driver-calls",
        }
    }
}

/// How to search.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Whose settings.
    pub family: Family,
    /// What is to be small.
    pub objective: Objective,
    /// What is measured.
    pub plan: Plan,
    /// Settings tried at the most, duplicates not counted.
    pub tries: usize,
    /// Percent that a change must win.
    pub worth: u64,
}

/// Results that are known from an earlier run.
pub trait Archive: Sync {
    /// What these settings came to on this trace.
    fn recall(&self, spec: &str, job: usize) -> Option<Evaluated>;
    /// Remembers it.
    fn keep(&self, spec: &str, job: usize, evaluated: &Evaluated);
}

impl Archive for () {
    fn recall(&self, _: &str, _: usize) -> Option<Evaluated> {
        None
    }

    fn keep(&self, _: &str, _: usize, _: &Evaluated) {}
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// Everything that was tried, the settings in use first.
    pub rows: Vec<Row>,
    /// Rows that nothing beats in smallest device, reserved bytes and driver calls together.
    pub front: Vec<usize>,
    /// The row that serves best.
    pub best: Option<usize>,
    /// What to do.
    pub verdict: Advice,
    /// A better row that was passed over since a pool gets worse.
    pub passed_over: Option<usize>,
    /// Settings that make no difference to any that was tried.
    pub duplicates: Vec<(String, String)>,
    /// The same requests on one stream, where more are used.
    pub one_stream: Option<Row>,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Take the best row's settings.
    Change,
    /// The settings in use are as good.
    NoChange,
    /// More is live at once than the device has: so many bytes too many.
    Impossible(u64),
    /// The live peak would fit, but nothing that was tried completes.
    NothingCompletes,
}

/// Searches. `base`: the settings in use.
///
/// # Errors
/// Where a trace cannot be replayed.
pub fn tune<C: Crew>(
    search: &Search,
    jobs: &[Job<'_>],
    base: Choice,
    archive: &impl Archive,
    crew: &C,
) -> Result<Tuned, ReplayError> {
    let demands: Vec<Demand> = jobs.iter().map(|job| Demand::of(job.subject.trace)).collect();
    let mut tuner = Tuner {
        search,
        jobs,
        archive,
        crew,
        demands,
        base: base.policies.clone(),
        rows: Vec::new(),
        tried: Vec::new(),
        seen: Vec::new(),
        duplicates: Vec::new(),
    };
    tuner.round(vec![base])?;
    let one_stream = tuner.one_stream()?;
    if jobs.iter().any(|job| short(job) > 0) {
        return Ok(Tuned { one_stream, ..tuner.finish() });
    }
    let limited = jobs.iter().all(|job| job.capacity.is_some());
    let first = singles(search.family, &tuner.demands, limited);
    tuner.points(first)?;
    let pairs = tuner.pairs();
    tuner.points(pairs)?;
    for _ in 0..NEARER {
        let Some(knobs) = tuner.best().and_then(|best| tuner.rows[best].knobs) else { break };
        let nearer = near(knobs, &tuner.tried);
        tuner.points(nearer)?;
    }
    Ok(Tuned { one_stream, ..tuner.finish() })
}

/// Rounds of points near the best.
const NEARER: usize = 3;

struct Tuner<'a, 'j, A, C> {
    search: &'a Search,
    jobs: &'a [Job<'j>],
    archive: &'a A,
    crew: &'a C,
    demands: Vec<Demand>,
    /// The policies in use, by trace.
    base: Vec<Policy>,
    rows: Vec<Row>,
    tried: Vec<Knobs>,
    /// Signatures of the rows.
    seen: Vec<String>,
    duplicates: Vec<(String, String)>,
}

impl<A: Archive, C: Crew> Tuner<'_, '_, A, C> {
    /// Tries points, as many as may still be tried.
    fn points(&mut self, points: Vec<Knobs>) -> Result<(), ReplayError> {
        let mut choices = Vec::new();
        for knobs in points {
            if self.tried.contains(&knobs) {
                continue;
            }
            self.tried.push(knobs);
            let Ok(policy) = knobs.policy() else { continue };
            let policies = vec![policy; self.jobs.len()];
            choices.push(Choice { spec: knobs.spec(), knobs: Some(knobs), policies });
        }
        self.round(choices)
    }

    /// Measures choices on all traces.
    fn round(&mut self, choices: Vec<Choice>) -> Result<(), ReplayError> {
        let mut fresh: Vec<Choice> = Vec::new();
        let mut specs: Vec<String> = self.rows.iter().map(|row| row.spec.clone()).collect();
        for choice in choices {
            let parts = self.demands.iter().zip(&choice.policies);
            let parts: Vec<String> =
                parts.map(|(demand, policy)| demand.signature(policy)).collect();
            let signature = parts.join("\n");
            if let Some(same) = self.seen.iter().position(|other| *other == signature) {
                self.duplicates.push((choice.spec, specs[same].clone()));
            } else if self.rows.len() + fresh.len() < self.search.tries {
                self.seen.push(signature);
                specs.push(choice.spec.clone());
                fresh.push(choice);
            }
        }
        let rivals = self.rivals();
        let count = self.jobs.len();
        let done = std::sync::atomic::AtomicUsize::new(0);
        let (before, of) = (self.rows.len() * count, fresh.len() * count);
        let results = self.crew.each(of, &|index| {
            let (choice, job) = (&fresh[index / count], index % count);
            let known = self.archive.recall(&choice.spec, job);
            let found = match known {
                Some(known) => Ok(known),
                None => {
                    let rival = rivals.as_ref().map(|rivals| rivals[job]);
                    evaluate(&self.jobs[job], &choice.policies[job], self.search.plan, rival)
                        .inspect(|found| self.archive.keep(&choice.spec, job, found))
                }
            };
            let done = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            self.crew.progress(before + done, before + of, "settings");
            found
        });
        let mut results = results.into_iter();
        for choice in &fresh {
            let each = results.by_ref().take(count).collect::<Result<Vec<_>, _>>()?;
            let row = Row::of(choice, self.jobs, each);
            self.rows.push(row);
        }
        self.compare_pools();
        Ok(())
    }

    /// The same requests on one stream under the settings in use, where the traces use more than one.
    fn one_stream(&self) -> Result<Option<Row>, ReplayError> {
        let Some((base, _)) = self.rows.split_first() else { return Ok(None) };
        if !self.jobs.iter().any(|job| uses_streams(job.subject.trace)) {
            return Ok(None);
        }
        let merged: Vec<DeviceTrace> =
            self.jobs.iter().map(|job| on_one_stream(job.subject.trace)).collect();
        let jobs: Vec<Job<'_>> = self
            .jobs
            .iter()
            .zip(&merged)
            .map(|(job, trace)| {
                let subject = Subject { trace, ..job.subject };
                Job { subject, ..*job }
            })
            .collect();
        let spec = format!("{} on one stream", base.spec);
        let each = self.crew.each(jobs.len(), &|index| match self.archive.recall(&spec, index) {
            Some(known) => Ok(known),
            None => evaluate(&jobs[index], &self.base[index], self.search.plan, None)
                .inspect(|found| self.archive.keep(&spec, index, found)),
        });
        let each = each.into_iter().collect::<Result<Vec<_>, _>>()?;
        let choice = Choice { spec, knobs: None, policies: Vec::new() };
        Ok(Some(Row::of(&choice, &jobs, each)))
    }

    /// The best row so far, by trace, for others to be measured against.
    fn rivals(&self) -> Option<Vec<Rival>> {
        let best = &self.rows[self.best()?];
        let rival = |one: &Evaluated| Rival {
            bound: Bound { reserved: one.at.peak_reserved, calls: one.at.calls() },
            min_capacity: one.min_capacity,
        };
        Some(best.each.iter().map(rival).collect())
    }

    /// Marks the pools that reserve more than under the settings in use, where there are several.
    fn compare_pools(&mut self) {
        let Some((base, others)) = self.rows.split_first_mut() else { return };
        if base.pools.len() < 2 {
            return;
        }
        for row in others.iter_mut().filter(|row| row.completes) {
            let grown = base.pools.iter().filter(|(pool, before)| {
                let most = **before + **before * self.search.worth / 100;
                row.pools.get(pool).is_some_and(|&now| now > most)
            });
            row.worse_pools = grown.map(|(pool, _)| *pool).collect();
        }
    }

    /// What the objective says of a row.
    fn primary(&self, row: &Row) -> u64 {
        match self.search.objective {
            Objective::Fit => row.device_frees,
            Objective::MinCapacity => row.min_capacity.unwrap_or(u64::MAX),
            Objective::Reserved => row.peak_reserved,
            Objective::DriverCalls => row.calls(),
        }
    }

    /// Whether a row may be recommended, pools aside: it completes, and not by calling the driver all the time
    /// where the settings in use do without.
    fn may(&self, row: &Row) -> bool {
        let base = &self.rows[0];
        let dear = base.completes && row.calls() > base.calls().saturating_mul(DEAR);
        row.completes && self.primary(row) < u64::MAX && !dear
    }

    fn best(&self) -> Option<usize> {
        self.best_where(|row| row.worse_pools.is_empty())
    }

    /// Of the rows within 2 % of the best figure the simplest, then the one with the fewest driver calls.
    fn best_where(&self, pools: impl Fn(&Row) -> bool) -> Option<usize> {
        let may: Vec<usize> = (0..self.rows.len())
            .filter(|&index| self.may(&self.rows[index]) && pools(&self.rows[index]))
            .collect();
        let least = may.iter().map(|&index| self.primary(&self.rows[index])).min()?;
        let close = |index: &usize| self.primary(&self.rows[*index]) <= least + least / 50;
        may.into_iter().filter(close).min_by_key(|&index| {
            let row = &self.rows[index];
            let keys = row.knobs.map_or(0, |knobs| knobs.count());
            (index > 0, keys, row.calls(), row.peak_reserved, index)
        })
    }

    /// Pairs of the best settings that touch different things.
    fn pairs(&self) -> Vec<Knobs> {
        let mut order: Vec<&Row> =
            self.rows.iter().filter(|row| row.completes && row.knobs.is_some()).collect();
        order.sort_by_key(|row| (self.primary(row), row.calls(), row.peak_reserved));
        let mut seen = HashSet::new();
        let tops: Vec<Knobs> = order
            .iter()
            .filter_map(|row| row.knobs)
            .filter(|knobs| knobs.count() > 0 && seen.insert((knobs.preset, knobs.axes())))
            .take(TOPS)
            .collect();
        let pair = |(at, a): (usize, &Knobs)| {
            tops[at + 1..].iter().filter_map(|b| a.with(*b)).collect::<Vec<_>>()
        };
        tops.iter().enumerate().flat_map(pair).collect()
    }

    fn finish(self) -> Tuned {
        let best = self.best();
        let any = self.best_where(|_| true);
        let passed_over = any.filter(|_| any != best).filter(|&any| {
            let worse = |best| self.worth_it(&self.rows[best], &self.rows[any]);
            best.is_none_or(worse)
        });
        let verdict = self.verdict(best);
        let points: Vec<[u64; 3]> = self.rows.iter().map(point).collect();
        let front = pareto::front(&points);
        let front = front.into_iter().filter(|&index| self.rows[index].completes).collect();
        let Self { rows, duplicates, .. } = self;
        Tuned { rows, front, best, verdict, passed_over, duplicates, one_stream: None }
    }

    fn verdict(&self, best: Option<usize>) -> Advice {
        let short = self.jobs.iter().map(short).max().unwrap_or(0);
        if short > 0 {
            return Advice::Impossible(short);
        }
        match best {
            None => Advice::NothingCompletes,
            Some(best) if self.worth_it(&self.rows[0], &self.rows[best]) => Advice::Change,
            Some(_) => Advice::NoChange,
        }
    }

    /// Whether going from one row to another is worth a change: it saves the run, or wins so many percent.
    fn worth_it(&self, from: &Row, to: &Row) -> bool {
        if !from.completes {
            return to.completes;
        }
        let (before, after) = (self.primary(from), self.primary(to));
        let saved = before.saturating_sub(after);
        let enough = saved > 0 && saved >= before / 100 * self.search.worth;
        match self.search.objective {
            Objective::DriverCalls => enough && matters(from, saved),
            Objective::Fit => enough && felt(from) && to.retries < from.retries,
            Objective::MinCapacity | Objective::Reserved => enough,
        }
    }
}

/// Flushes that are felt: one in ten steps, or one in ten thousand requests.
fn felt(row: &Row) -> bool {
    match row.retries_per_step {
        Some(rate) => rate >= 0.1,
        None => row.retries * 10_000 >= row.allocs.max(1),
    }
}

/// How much more is live at the peak than the device has.
fn short(job: &Job<'_>) -> u64 {
    job.capacity.map_or(0, |capacity| job.subject.live_peak.saturating_sub(capacity))
}

/// Calls that a step would feel: one a step, or one in a thousand requests.
fn matters(from: &Row, saved: u64) -> bool {
    match from.calls_per_step {
        Some(rate) if from.calls() > 0 => rate * saved as f64 / from.calls() as f64 >= 1.0,
        _ => saved * 1000 >= from.allocs,
    }
}

/// Smallest device, reserved bytes, driver calls; at the far end what does not complete.
fn point(row: &Row) -> [u64; 3] {
    if !row.completes {
        return [u64::MAX; 3];
    }
    let capacity = row.min_capacity.or(row.at_least).unwrap_or(0);
    [capacity, row.peak_reserved, row.calls()]
}

/// Settings that call the driver so many times as often are recommended only where nothing else completes.
const DEAR: u64 = 4;
/// Best settings that are paired.
const TOPS: usize = 4;
