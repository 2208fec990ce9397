//! Scene: a recording replayed to the request that fails, and the heap as it stood there.
//!
//! Asked by `explain`. A recording that has its own driver and its own out-of-memory is replayed
//! against that driver; any other on the device model. Never knows a terminal: whoever wants to show
//! how far it is hands in a function.

use crate::lab::replay::known_capacity;
use crate::lab::warm::Warm;
use crate::lab::{Driver, Failure, Player, ReplayError, Setup};
use crate::ledger::{Metric, Stats};
use crate::policy::Policy;
use crate::trace::{DeviceTrace, Event, Kind, Recording};
use crate::vocab::{HeapView, PoolId};

/// Entries between two reports of progress.
const SLICE: usize = 8192;
/// Markers that are kept, at most.
const MARKS: usize = 64;

/// How far a replay is: called with the number of entries done since the last call.
pub type Progress<'a> = &'a (dyn Fn(u64) + Sync);

/// Whose failure to look at.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The file.
    pub recording: &'a Recording,
    /// The device's part of it.
    pub trace: &'a DeviceTrace,
    /// The policy in force.
    pub policy: &'a Policy,
    /// The device's memory, if it was given.
    pub capacity: Option<u64>,
    /// Somebody chose a policy, a capacity or the device model: the recording does not answer.
    pub simulated: bool,
}

impl Subject<'_> {
    /// The device's memory: as given, else as the recording's out-of-memory tells.
    #[must_use]
    pub fn capacity(&self) -> Option<u64> {
        self.capacity.or_else(|| known_capacity(self.trace))
    }

    /// Whether the recording answers.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        let addressed = |event: &Event| event.kind == Kind::Alloc && event.address != 0;
        let grows = |event: &Event| matches!(event.kind, Kind::SegmentAlloc | Kind::SegmentMap);
        let events = &self.trace.events;
        let has_driver = !self.trace.segments.is_empty() || events.iter().any(grows);
        !self.simulated && has_driver && events.iter().any(addressed)
    }

    /// Events that count.
    #[must_use]
    pub fn events(&self) -> u32 {
        let counted = self.trace.events.iter().filter(|event| event.kind.counts()).count();
        u32::try_from(counted).unwrap_or(u32::MAX)
    }
}

/// Driver calls and flushes up to a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Segments obtained and map operations.
    pub device_allocs: u64,
    /// Segments returned and unmap operations.
    pub device_frees: u64,
    /// Times the whole cache was given back to serve a request.
    pub flushes: u64,
}

impl Effort {
    /// As the statistics count it.
    #[must_use]
    pub const fn of(stats: &Stats) -> Self {
        let counters = stats.counters();
        Self {
            device_allocs: counters.device_alloc,
            device_frees: counters.device_free,
            flushes: counters.alloc_retries,
        }
    }

    /// Driver calls of both kinds.
    #[must_use]
    pub const fn calls(self) -> u64 {
        self.device_allocs + self.device_frees
    }
}

/// The totals at a marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its text.
    pub name: String,
    /// Handed out.
    pub allocated: u64,
    /// Obtained from the driver.
    pub reserved: u64,
    /// Of that, idle in whole segments or pages.
    pub releasable: u64,
}

/// What stood there.
#[derive(Debug)]
pub struct Scene {
    /// The request that failed; nothing if all were served.
    pub failure: Option<Failure>,
    /// The file's own number of the request, if it has one.
    pub failed_id: Option<u64>,
    /// The heap after the failure, or at the end.
    pub view: HeapView,
    /// Pools whose memory can go back to the driver.
    pub giving: Vec<PoolId>,
    /// What it took to come here.
    pub effort: Effort,
    /// Events done, the failing one among them.
    pub events: u32,
    /// The most that was reserved until then.
    pub peak_reserved: u64,
    /// The most that was handed out until then.
    pub peak_allocated: u64,
    /// The state before the recording.
    pub warm: Warm,
    /// The totals at the first markers.
    pub marks: Vec<Mark>,
}

/// Replays to the first failure, or to the end.
///
/// # Errors
/// Where the recording cannot be replayed.
pub fn observe(subject: &Subject<'_>, progress: Progress<'_>) -> Result<Scene, ReplayError> {
    let setup = if subject.is_recorded() {
        Setup::recorded(subject.policy.clone())
    } else {
        Setup::simulated(subject.policy.clone(), subject.capacity())
    };
    let mut player = Player::new(subject.recording, subject.trace, setup, ())?;
    let mut marks = Vec::new();
    let events = &subject.trace.events;
    for (index, event) in events.iter().enumerate() {
        player.step()?;
        if player.failures().0 > 0 {
            break;
        }
        if event.kind == Kind::Marker && marks.len() < MARKS {
            marks.push(mark(subject.recording, event.stack.0, &player));
        }
        if (index + 1).is_multiple_of(SLICE) {
            progress(SLICE as u64);
        }
    }
    Ok(scene(&player, subject.trace, marks))
}

fn mark(recording: &Recording, marker: u32, player: &Player<'_, ()>) -> Mark {
    let stats = player.stats();
    Mark {
        name: recording.markers.get(marker as usize).cloned().unwrap_or_default(),
        allocated: stats.allocated_bytes(),
        reserved: stats.reserved_bytes(),
        releasable: player.heap().usage().iter().map(|row| row.3.releasable_bytes).sum(),
    }
}

fn scene(player: &Player<'_, ()>, trace: &DeviceTrace, marks: Vec<Mark>) -> Scene {
    let heap = player.heap();
    let view = heap.view();
    let mut giving: Vec<PoolId> = view.segments.iter().map(|segment| segment.pool).collect();
    giving.sort_unstable();
    giving.dedup();
    giving.retain(|&pool| heap.gives(pool));
    let failure = player.failures().1.cloned();
    Scene {
        failed_id: failure
            .as_ref()
            .filter(|failure| failure.allocation != crate::trace::NO_ALLOCATION)
            .map(|failure| trace.id_of(failure.allocation)),
        failure,
        view,
        giving,
        effort: Effort::of(player.stats()),
        events: player.events_done(),
        peak_reserved: player.stats().peak(Metric::ReservedBytes),
        peak_allocated: player.stats().peak(Metric::AllocatedBytes),
        warm: player.warm().clone(),
        marks,
    }
}

/// What a replay under other settings came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The event that failed; nothing if the recording was replayed to its end.
    pub failed_at: Option<u32>,
    /// The most that was reserved.
    pub peak_reserved: u64,
    /// Driver calls to the end.
    pub effort: Effort,
    /// Driver calls until the event that was asked for had been done.
    pub effort_there: Effort,
}

/// Replays the whole recording on the device model under `policy`, and looks up when `there` is done.
///
/// # Errors
/// Where the recording cannot be replayed under this policy.
pub fn attempt(
    subject: &Subject<'_>,
    policy: &Policy,
    capacity: Option<u64>,
    there: u32,
    progress: Progress<'_>,
) -> Result<Outcome, ReplayError> {
    let mut setup = Setup::simulated(policy.clone(), capacity);
    setup.driver = Driver::Simulated { capacity };
    let mut player = Player::new(subject.recording, subject.trace, setup, ())?;
    let mut effort_there = None;
    let mut done = 0usize;
    while !player.is_done() {
        player.step()?;
        done += 1;
        if effort_there.is_none() && player.events_done() > there {
            effort_there = Some(Effort::of(player.stats()));
        }
        if done.is_multiple_of(SLICE) {
            progress(SLICE as u64);
        }
    }
    let effort = Effort::of(player.stats());
    Ok(Outcome {
        failed_at: player.failures().1.map(|failure| failure.event),
        peak_reserved: player.stats().peak(Metric::ReservedBytes),
        effort,
        effort_there: effort_there.unwrap_or(effort),
    })
}
