//! Search: one recording replayed many times, and what each replay came to.
//!
//! Owns the measure of one replay ([`Subject::measure`]) and the seam to whoever runs many at once ([`Crew`]).
//! Asked by the searches beside it. Never knows a thread: a crew may have many, and the answers are the same.

pub mod knobs;
pub mod rows;
mod streams;
pub mod tune;

use std::collections::BTreeMap;

use crate::lab::{Failure, Player, ReplayError, Setup, Watch, demand_peak, warm};
use crate::ledger::{Metric, Stats};
use crate::policy::{Policy, presets};
use crate::trace::{DeviceTrace, Recording};
use crate::vocab::{Change, Observe, PoolId};

/// Whoever does independent pieces of work, perhaps several at once. The results stand in the order of the work.
pub trait Crew: Sync {
    /// Does the pieces `0..count`.
    fn each<T: Send>(&self, count: usize, work: &(dyn Fn(usize) -> T + Sync)) -> Vec<T>;

    /// So much of the whole is done: pieces done, pieces known so far, and what is going on.
    fn progress(&self, done: usize, of: usize, what: &str) {
        let _ = (done, of, what);
    }
}

/// One piece after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Crew for Alone {
    fn each<T: Send>(&self, count: usize, work: &(dyn Fn(usize) -> T + Sync)) -> Vec<T> {
        (0..count).map(work).collect()
    }
}

/// One device's part of a recording, to be replayed.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// The device's part of it.
    pub trace: &'a DeviceTrace,
    /// The largest sum of client sizes live at one time, a recorded request that failed among them: no device
    /// below this completes.
    pub live_peak: u64,
}

/// A replay may stop once it has reserved more and called the driver more often than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Peak reserved bytes of something better.
    pub reserved: u64,
    /// Its driver calls.
    pub calls: u64,
}

/// What a replay came to. Sizes are bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Every request was served to the end of the recording.
    pub completes: bool,
    /// The bound was passed, and the rest was not replayed.
    pub given_up: bool,
    /// Peaks of the statistics.
    pub peak_requested: u64,
    /// Handed out, at the most.
    pub peak_allocated: u64,
    /// Obtained from the driver, at the most.
    pub peak_reserved: u64,
    /// Segments obtained and map operations.
    pub device_allocs: u64,
    /// Segments returned and unmap operations.
    pub device_frees: u64,
    /// The driver was asked again after the whole cache was given back.
    pub retries: u64,
    /// Cost-model time of all driver calls.
    pub device_nanos: u64,
    /// Requests that were served.
    pub allocs: u64,
    /// The event at which it failed.
    pub failed_at: Option<u32>,
    /// Peak reserved bytes of each pool, by number.
    pub pools: BTreeMap<u32, u64>,
}

impl Measured {
    /// Driver calls that obtain or return memory.
    #[must_use]
    pub const fn calls(&self) -> u64 {
        self.device_allocs + self.device_frees
    }
}

/// Entries between two looks at the bound.
const SLICE: usize = 1024;

impl<'a> Subject<'a> {
    /// One device's part of a recording. O(events).
    #[must_use]
    pub fn new(recording: &'a Recording, trace: &'a DeviceTrace) -> Self {
        let live_peak = demand_peak(trace, &warm::before(recording, trace, &presets::pytorch()));
        Self { recording, trace, live_peak }
    }

    /// One replay on a simulated device of this capacity (`None`: unlimited), up to the first failure.
    ///
    /// # Errors
    /// Where the recording cannot be replayed at all. That a device is too small for the state before the
    /// recording is no error but a replay that does not complete.
    pub fn measure(
        &self,
        policy: &Policy,
        capacity: Option<u64>,
        bound: Option<Bound>,
    ) -> Result<Measured, ReplayError> {
        let setup = Setup::simulated(policy.clone(), capacity);
        let player = Player::new(self.recording, self.trace, setup, Pools::default());
        let mut player = match player {
            Err(ReplayError::Layout(_)) if capacity.is_some() => {
                return Ok(Measured { failed_at: Some(0), ..Measured::default() });
            }
            other => other?,
        };
        let mut given_up = false;
        while player.run(SLICE)? {
            given_up = bound.is_some_and(|bound| passes(player.stats(), bound));
            if given_up {
                break;
            }
        }
        Ok(measured(player, given_up))
    }

    /// The first failure on a device of this capacity, if there is one.
    ///
    /// # Errors
    /// Where the recording cannot be replayed.
    pub fn failure(
        &self,
        policy: &Policy,
        capacity: Option<u64>,
    ) -> Result<Option<Failure>, ReplayError> {
        let setup = Setup::simulated(policy.clone(), capacity);
        let mut player = Player::new(self.recording, self.trace, setup, ())?;
        while player.run(SLICE)? {}
        Ok(player.failures().1.cloned())
    }
}

fn passes(stats: &Stats, bound: Bound) -> bool {
    let counters = stats.counters();
    stats.peak(Metric::ReservedBytes) > bound.reserved
        && counters.device_alloc + counters.device_free > bound.calls
}

fn measured(player: Player<'_, Pools>, given_up: bool) -> Measured {
    let stats = player.stats();
    let counters = *stats.counters();
    let (failures, first) = player.failures();
    Measured {
        completes: failures == 0 && !given_up,
        given_up,
        peak_requested: stats.peak(Metric::RequestedBytes),
        peak_allocated: stats.peak(Metric::AllocatedBytes),
        peak_reserved: stats.peak(Metric::ReservedBytes),
        device_allocs: counters.device_alloc,
        device_frees: counters.device_free,
        retries: counters.alloc_retries,
        device_nanos: player.device_nanos(),
        allocs: stats.allocated(Metric::Allocation),
        failed_at: first.map(|first| first.event),
        pools: player.into_watch().peaks(),
    }
}

/// Peak reserved bytes of each pool.
#[derive(Debug, Default)]
struct Pools {
    now: BTreeMap<PoolId, (u64, u64)>,
}

impl Pools {
    fn grow(&mut self, pool: PoolId, bytes: u64) {
        let (now, peak) = self.now.entry(pool).or_default();
        *now += bytes;
        *peak = (*peak).max(*now);
    }

    fn shrink(&mut self, pool: PoolId, bytes: u64) {
        let (now, _) = self.now.entry(pool).or_default();
        *now = now.saturating_sub(bytes);
    }

    fn peaks(&self) -> BTreeMap<u32, u64> {
        self.now.iter().map(|(pool, &(_, peak))| (pool.0, peak)).collect()
    }
}

impl Observe for Pools {
    #[inline]
    fn observe(&mut self, change: Change) {
        match change {
            Change::SegmentAllocated { pool, bytes, .. } | Change::Mapped { pool, bytes, .. } => {
                self.grow(pool, bytes);
            }
            Change::SegmentFreed { pool, bytes, .. } | Change::Unmapped { pool, bytes, .. } => {
                self.shrink(pool, bytes);
            }
            _ => {}
        }
    }
}

impl Watch for Pools {}
