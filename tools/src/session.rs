//! Session: one recording, one device, one policy, replayed; and everything that is known afterwards.

use std::time::Instant;

use blockyard::lab::{
    Driver, Exact, Failure, Player, Setup, Watch, live_peak, replay::known_capacity,
};
use blockyard::ledger::{Metric, Stats};
use blockyard::policy::Effective;
use blockyard::trace::{DeviceTrace, NO_ALLOCATION, Recording};
use blockyard::vocab::{HeapView, Human, PoolUsage};

use crate::charts::model::Sample;
use crate::fail::Fail;
use crate::moment::{When, entries_through, entries_to_marker};
use crate::progress;

/// Entries between two looks at the clock.
const SLICE: usize = 4096;

/// Where the capacity came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacitySource {
    /// The command line.
    Given,
    /// An out-of-memory entry: reserved then plus free then.
    Recorded,
    /// Nowhere: unlimited.
    None,
}

/// How to replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device's memory in bytes, if given.
    pub capacity: Option<u64>,
    /// The recording answers.
    pub recorded: bool,
    /// Go on after a failure.
    pub continue_on_oom: bool,
    /// Keep the totals after every event.
    pub curve: bool,
    /// Stop at this moment and keep the heap's state.
    pub stop: Option<When>,
    /// No progress bar.
    pub quiet: bool,
}

/// What a replay came to. Sizes are bytes.
#[derive(Debug)]
pub struct Outcome {
    /// The settings in force.
    pub effective: Effective,
    /// The device's number.
    pub device: u32,
    /// The file's own number of the first failed allocation.
    pub failed_id: Option<u64>,
    /// The recording answered.
    pub recorded: bool,
    /// The device's memory.
    pub capacity: Option<u64>,
    /// Where that came from.
    pub capacity_source: CapacitySource,
    /// Requests made and blocks given back.
    pub allocs: u64,
    /// Blocks given back.
    pub frees: u64,
    /// The lower bound.
    pub peak_live: u64,
    /// The statistics at the end.
    pub stats: Stats,
    /// Failed requests.
    pub ooms: u64,
    /// The first of them.
    pub failure: Option<Failure>,
    /// The comparison with the recording.
    pub exact: Option<Exact>,
    /// Cost-model time of all driver calls.
    pub device_nanos: u64,
    /// Time inside the core and the replay loop for each event, median of the slices.
    pub nanos_per_event: f64,
    /// Events done.
    pub events: u32,
    /// The event with the most allocated bytes.
    pub peak_event: u32,
    /// The event with the most reserved bytes.
    pub peak_reserved_event: u32,
    /// The totals after each event, where asked for.
    pub curve: Vec<Sample>,
    /// The heap where the replay stopped.
    pub view: HeapView,
    /// Books of pools where the replay stopped: pool, `small` or `large`, stream.
    pub usage: Vec<(u32, &'static str, u32, PoolUsage)>,
    /// What had to be assumed, in sentences.
    pub notes: Vec<String>,
}

/// The device's memory for a replay on the simulated driver.
#[must_use]
pub fn capacity(trace: &DeviceTrace, given: Option<u64>) -> (Option<u64>, CapacitySource) {
    match (given, known_capacity(trace)) {
        (Some(given), _) => (Some(given), CapacitySource::Given),
        (None, Some(known)) => (Some(known), CapacitySource::Recorded),
        (None, None) => (None, CapacitySource::None),
    }
}

/// Replays one device's part of a recording.
///
/// # Errors
/// Where the recording cannot be replayed, or has no such moment.
pub fn replay<W: Watch>(
    recording: &Recording,
    trace: &DeviceTrace,
    effective: Effective,
    options: &Options,
    watch: W,
) -> Result<(Outcome, W), Fail> {
    let (capacity, capacity_source) = capacity(trace, options.capacity);
    let mut setup = if options.recorded {
        Setup::recorded(effective.policy.clone())
    } else {
        Setup::simulated(effective.policy.clone(), capacity)
    };
    if matches!(setup.driver, Driver::Simulated { .. }) {
        setup.continue_on_oom = options.continue_on_oom;
    }
    let effective = effective.for_device(capacity);
    let stop = stop_entry(recording, trace, options.stop.as_ref())?;
    let broken = |error: blockyard::lab::ReplayError| Fail::BadInput(error.to_string());
    let mut player = Player::new(recording, trace, setup, watch).map_err(broken)?;
    let mut timing = Timing::default();
    let mut follow = Follow::new(options.curve, trace.events.len());
    let bar =
        progress::bar(stop as u64, &format!("replay {}", effective.policy.name), options.quiet);
    let at_oom = matches!(options.stop, Some(When::Oom));
    let mut done = 0;
    while done < stop && !player.is_done() {
        let count = SLICE.min(stop - done);
        let start = Instant::now();
        for _ in 0..count {
            player.step().map_err(broken)?;
            done += 1;
            follow.after(&player);
            if player.is_done() || (at_oom && player.failures().0 > 0) {
                break;
            }
        }
        timing.slice(start.elapsed().as_nanos() as f64, count);
        bar.set_position(done as u64);
        if at_oom && player.failures().0 > 0 {
            break;
        }
    }
    bar.finish_and_clear();
    if at_oom && player.failures().0 == 0 {
        return Err(Fail::BadInput(format!(
            "device {}: no request failed under policy {}, expected an out-of-memory to look at",
            trace.device, effective.policy.name
        )));
    }
    let outcome = Outcome {
        device: trace.device,
        failed_id: player
            .failures()
            .1
            .filter(|failure| failure.allocation != NO_ALLOCATION)
            .map(|failure| trace.id_of(failure.allocation)),
        recorded: options.recorded,
        capacity,
        capacity_source,
        allocs: player.stats().allocated(Metric::Allocation),
        frees: player.stats().freed(Metric::Allocation),
        peak_live: live_peak(trace, player.warm()),
        stats: player.stats().clone(),
        ooms: player.failures().0,
        failure: player.failures().1.cloned(),
        exact: options.recorded.then(|| player.exact().clone()),
        device_nanos: player.device_nanos(),
        nanos_per_event: timing.median(),
        events: player.events_done(),
        peak_event: follow.peak_event,
        peak_reserved_event: follow.peak_reserved_event,
        curve: follow.curve,
        view: player.heap().view(),
        usage: usage(player.heap()),
        notes: notes(&player, &effective),
        effective,
    };
    Ok((outcome, player.into_watch()))
}

/// The books of each side of each pool on each stream.
#[must_use]
pub fn usage(heap: &blockyard::heap::Heap) -> Vec<(u32, &'static str, u32, PoolUsage)> {
    heap.usage()
        .into_iter()
        .map(|(pool, class, stream, book)| (pool.0, class.name(), stream.0, book))
        .collect()
}

fn notes<W: Watch>(player: &Player<'_, W>, effective: &Effective) -> Vec<String> {
    let warm = player.warm();
    let mut notes = Vec::new();
    if !warm.segments.is_empty() {
        let blocks: usize = warm.segments.iter().map(|segment| segment.live.len()).sum();
        let order =
            if warm.ordered { "" } else { "; their order of creation is assumed to be by address" };
        notes.push(format!(
            "the recording began mid-run: {} segments and {blocks} live blocks from before were rebuilt from the \
             final state{order}",
            warm.segments.len()
        ));
    }
    if warm.inferred > 0 {
        notes.push(format!(
            "the true end of {} blocks from before the recording was inferred",
            warm.inferred
        ));
    }
    if warm.homeless > 0 {
        notes.push(format!(
            "{} blocks from before the recording lie in no known segment",
            warm.homeless
        ));
    }
    notes.extend(
        effective.warnings.iter().map(|warning| format!("{}: {}", warning.key, warning.text)),
    );
    notes
}

/// How many entries to replay at the most.
fn stop_entry(
    recording: &Recording,
    trace: &DeviceTrace,
    stop: Option<&When>,
) -> Result<usize, Fail> {
    match stop {
        Some(&When::Event(event)) => {
            let events = trace.events.iter().filter(|event| event.kind.counts()).count();
            if event as usize >= events {
                return Err(Fail::BadInput(format!(
                    "device {}: there is no event {event}, expected one of 0 to {}",
                    trace.device,
                    events.saturating_sub(1)
                )));
            }
            Ok(entries_through(trace, event))
        }
        Some(When::Marker(text)) => entries_to_marker(recording, trace, text).ok_or_else(|| {
            Fail::BadInput(format!("device {}: no marker begins with {text:?}", trace.device))
        }),
        _ => Ok(trace.events.len()),
    }
}

/// Follows the totals.
struct Follow {
    keep: bool,
    curve: Vec<Sample>,
    peak: u64,
    peak_event: u32,
    peak_reserved: u64,
    peak_reserved_event: u32,
}

impl Follow {
    fn new(keep: bool, entries: usize) -> Self {
        let curve = if keep { Vec::with_capacity(entries) } else { Vec::new() };
        Self { keep, curve, peak: 0, peak_event: 0, peak_reserved: 0, peak_reserved_event: 0 }
    }

    #[inline]
    fn after<W: Watch>(&mut self, player: &Player<'_, W>) {
        let stats = player.stats();
        let event = player.events_done().saturating_sub(1);
        let allocated = stats.allocated_bytes();
        if allocated > self.peak {
            (self.peak, self.peak_event) = (allocated, event);
        }
        let reserved = stats.reserved_bytes();
        if reserved > self.peak_reserved {
            (self.peak_reserved, self.peak_reserved_event) = (reserved, event);
        }
        if self.keep {
            self.curve.push(Sample {
                event: u64::from(event),
                allocated,
                active: stats.active_bytes(),
                reserved,
                requested: stats.requested_bytes(),
            });
        }
    }
}

#[derive(Default)]
struct Timing {
    slices: Vec<f64>,
}

impl Timing {
    fn slice(&mut self, nanos: f64, events: usize) {
        if events > 0 {
            self.slices.push(nanos / events as f64);
        }
    }

    fn median(&mut self) -> f64 {
        self.slices.sort_by(f64::total_cmp);
        self.slices.get(self.slices.len() / 2).copied().unwrap_or(0.0)
    }
}

/// The capacity in words.
#[must_use]
pub fn capacity_words(outcome: &Outcome) -> String {
    match (outcome.capacity, outcome.capacity_source) {
        (Some(bytes), CapacitySource::Given) => format!("{} (given)", Human(bytes)),
        (Some(bytes), _) => {
            format!("{} (reserved + free at the recorded out-of-memory)", Human(bytes))
        }
        (None, _) => "unlimited (none given, none recorded)".to_string(),
    }
}
