//! Rows: what each choice of settings came to on each trace, and on all of them together.

use std::collections::BTreeMap;

use crate::diagnosis::capacity::{Fineness, min_capacity_below};
use crate::diagnosis::search::knobs::Knobs;
use crate::diagnosis::search::{Bound, Measured, Subject};
use crate::lab::ReplayError;
use crate::policy::Policy;

/// One trace that is tuned for.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The trace.
    pub subject: Subject<'a>,
    /// Its device's memory, if there is a limit.
    pub capacity: Option<u64>,
    /// Steps of the program in it, if known.
    pub steps: Option<u64>,
}

/// Settings, with the policy that they mean for each trace.
#[derive(Clone, Debug)]
pub struct Choice {
    /// As `--policy` takes it.
    pub spec: String,
    /// The point of the search; `None`: given from outside.
    pub knobs: Option<Knobs>,
    /// By trace.
    pub policies: Vec<Policy>,
}

/// What one choice came to on one trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evaluated {
    /// The replay at the capacity, or without a limit.
    pub at: Measured,
    /// The smallest device, where it was searched.
    pub min_capacity: Option<u64>,
    /// The search was cut short: the smallest device is at least this one, and others do better in all respects.
    pub at_least: Option<u64>,
}

/// What is measured of each choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Also the smallest device.
    pub min_capacity: bool,
    /// How finely.
    pub fineness: Fineness,
}

/// What something already known came to on one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rival {
    /// Its figures.
    pub bound: Bound,
    /// Its smallest device, if that was searched.
    pub min_capacity: Option<u64>,
}

/// Measures one choice on one trace. A rival saves work: what it beats in every respect is not followed further.
///
/// # Errors
/// Where the trace cannot be replayed.
pub fn evaluate(
    job: &Job<'_>,
    policy: &Policy,
    plan: Plan,
    rival: Option<Rival>,
) -> Result<Evaluated, ReplayError> {
    let bound = rival.map(|rival| rival.bound).filter(|_| !plan.min_capacity);
    let at = job.subject.measure(policy, job.capacity, bound)?;
    let mut evaluated = Evaluated { at, min_capacity: None, at_least: None };
    if !plan.min_capacity {
        return Ok(evaluated);
    }
    let reserved = if job.capacity.is_some() {
        job.subject.measure(policy, None, None)?.peak_reserved
    } else {
        evaluated.at.peak_reserved
    };
    if let Some(rival) = rival
        && let Some(known) = rival.min_capacity
        && evaluated.at.peak_reserved >= rival.bound.reserved
        && evaluated.at.calls() >= rival.bound.calls
    {
        let less = known.saturating_sub((known / plan.fineness.parts).max(plan.fineness.step));
        if less < job.subject.live_peak || !job.subject.measure(policy, Some(less), None)?.completes
        {
            evaluated.at_least = Some(known);
            return Ok(evaluated);
        }
    }
    let found = min_capacity_below(&job.subject, policy, plan.fineness, reserved)?;
    evaluated.min_capacity = found.map(|found| found.bytes);
    Ok(evaluated)
}

/// One choice on all traces: the worst of each figure. Sizes are bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// As `--policy` takes it.
    pub spec: String,
    /// The point of the search.
    pub knobs: Option<Knobs>,
    /// Every trace completed.
    pub completes: bool,
    /// The replay was not followed to the end: something else does better in every respect.
    pub given_up: bool,
    /// Obtained from the driver, at the most.
    pub peak_reserved: u64,
    /// Segments obtained and map operations.
    pub device_allocs: u64,
    /// Segments returned and unmap operations.
    pub device_frees: u64,
    /// The cache was flushed so often.
    pub retries: u64,
    /// Driver calls a step, where steps are known.
    pub calls_per_step: Option<f64>,
    /// Flushes a step, where steps are known.
    pub retries_per_step: Option<f64>,
    /// Requests that were served, in all traces.
    pub allocs: u64,
    /// The smallest device that serves every trace.
    pub min_capacity: Option<u64>,
    /// That search was cut short here.
    pub at_least: Option<u64>,
    /// The first event that failed, and in which trace.
    pub failed: Option<(usize, u32)>,
    /// Peak reserved bytes by pool number.
    pub pools: BTreeMap<u32, u64>,
    /// Pools that reserve more than under the settings in use.
    pub worse_pools: Vec<u32>,
    /// By trace.
    pub each: Vec<Evaluated>,
}

impl Row {
    /// All traces together.
    #[must_use]
    pub fn of(choice: &Choice, jobs: &[Job<'_>], each: Vec<Evaluated>) -> Self {
        let most = |of: &dyn Fn(&Evaluated) -> u64| each.iter().map(of).max().unwrap_or(0);
        let per_step = |of: &dyn Fn(&Measured) -> u64| {
            let rates = jobs.iter().zip(&each).map(|(job, one)| {
                job.steps.filter(|&steps| steps > 0).map(|steps| of(&one.at) as f64 / steps as f64)
            });
            rates.collect::<Option<Vec<f64>>>().map(|rates| rates.into_iter().fold(0.0, f64::max))
        };
        let mut pools: BTreeMap<u32, u64> = BTreeMap::new();
        for (&pool, &peak) in each.iter().flat_map(|one| &one.at.pools) {
            let most = pools.entry(pool).or_default();
            *most = (*most).max(peak);
        }
        let failed = each.iter().enumerate();
        Self {
            spec: choice.spec.clone(),
            knobs: choice.knobs,
            completes: each.iter().all(|one| one.at.completes),
            given_up: each.iter().any(|one| one.at.given_up),
            peak_reserved: most(&|one| one.at.peak_reserved),
            device_allocs: most(&|one| one.at.device_allocs),
            device_frees: most(&|one| one.at.device_frees),
            retries: most(&|one| one.at.retries),
            calls_per_step: per_step(&Measured::calls),
            retries_per_step: per_step(&|at| at.retries),
            allocs: each.iter().map(|one| one.at.allocs).sum(),
            min_capacity: each
                .iter()
                .map(|one| one.min_capacity)
                .collect::<Option<Vec<u64>>>()
                .and_then(|all| all.into_iter().max()),
            at_least: each.iter().filter_map(|one| one.at_least).max(),
            failed: failed.filter_map(|(job, one)| Some((job, one.at.failed_at?))).next(),
            pools,
            worse_pools: Vec::new(),
            each,
        }
    }

    /// Driver calls that obtain or return memory.
    #[must_use]
    pub const fn calls(&self) -> u64 {
        self.device_allocs + self.device_frees
    }

    /// The cache is flushed at least once a step (or, with steps unknown, once in a thousand requests).
    #[must_use]
    pub fn thrashes(&self) -> bool {
        match self.retries_per_step {
            Some(rate) => rate >= 1.0,
            None => self.retries > 1 && self.retries * 1000 > self.allocs,
        }
    }
}
