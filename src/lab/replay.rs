//! Replay: a recording's requests, through the engine, under any policy and on any device.
//!
//! Two drivers. *Simulated*: the device model answers. *Recorded*: the recording answers, and every address and
//! every released group is compared with it.
//!
//! A recording of PyTorch's lists driver calls and completed frees between the requests. They are gathered as the
//! `Run` before a request and say what its driver did; a run of releases that no request explains is the
//! program emptying its cache. Frees that completed in a run with releases completed because the ladder waited
//! for them, so they are not shown to the search before it.

use std::collections::HashMap;

use super::warm::{self, Warm};
use crate::device::{Deed, Device, FencePolicy, RecordedDevice, SimConfig, SimDevice};
use crate::heap::{Heap, seed::SeedSegment};
use crate::ledger::Stats;
use crate::policy::Policy;
use crate::trace::{DeviceTrace, Event, Kind, NO_ALLOCATION, Recording};
use crate::vocab::{
    Address, Answer, BlockId, Change, Fault, Input, Observe, Order, Output, PoolId, Report, Serial,
    StreamId, Target, Ticket, Want,
};

/// Who answers the engine's wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The device model, with this capacity in bytes (`None`: unlimited).
    Simulated {
        /// The device's memory.
        capacity: Option<u64>,
    },
    /// The recording.
    Recorded,
}

/// How to replay.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The policy.
    pub policy: Policy,
    /// The driver.
    pub driver: Driver,
    /// Go on after a failed request; later events of it are ignored.
    pub continue_on_oom: bool,
    /// When recorded fences pass on the simulated device, for text traces.
    pub fences: FencePolicy,
}

impl Setup {
    /// This policy on a simulated device, stopping at the first failure.
    #[must_use]
    pub const fn simulated(policy: Policy, capacity: Option<u64>) -> Self {
        Self {
            policy,
            driver: Driver::Simulated { capacity },
            continue_on_oom: false,
            fences: FencePolicy::Immediate,
        }
    }

    /// This policy against the recording's own driver.
    #[must_use]
    pub const fn recorded(policy: Policy) -> Self {
        Self {
            policy,
            driver: Driver::Recorded,
            continue_on_oom: true,
            fences: FencePolicy::Scripted,
        }
    }
}

/// Whoever wants to see a replay as it goes.
pub trait Watch: Observe {
    /// Event number `index` begins.
    fn begin(&mut self, index: u32) {
        let _ = index;
    }
}

impl Watch for () {}

/// Why a recording cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// The layout before the recording could not be rebuilt.
    Layout(String),
    /// The device failed for another reason than memory.
    Device(Fault),
}

impl core::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Layout(text) => {
                write!(f, "the state before the recording cannot be rebuilt: {text}")
            }
            Self::Device(fault) => write!(f, "the device failed: {fault}"),
        }
    }
}

impl core::error::Error for ReplayError {}

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The event, counted from 0.
    pub event: u32,
    /// The line of a text file, from 1; else 0.
    pub line: u32,
    /// Which allocation it would have been; [`NO_ALLOCATION`] for a failure that was recorded as such.
    pub allocation: u32,
    /// Why.
    pub report: Box<Report>,
}

/// How a replay against the recorded driver compares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exact {
    /// `alloc` entries compared.
    pub checked: u64,
    /// Those that landed at their recorded address.
    pub matched: u64,
    /// `alloc` entries in the recording.
    pub allocs: u64,
    /// The first disagreement of any kind.
    pub first_mismatch: Option<ExactMismatch>,
}

impl Exact {
    /// Everything was checked and nothing disagreed.
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.allocs > 0
            && self.checked == self.allocs
            && self.matched == self.allocs
            && self.first_mismatch.is_none()
    }
}

/// A disagreement with the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactMismatch {
    /// The event, counted from 0.
    pub event: u32,
    /// What the recording has.
    pub expected: String,
    /// What the engine did.
    pub got: String,
}

/// Driver entries and completed frees before a request.
#[derive(Debug, Default)]
struct Run {
    deeds: Vec<Deed>,
    completed: Vec<u32>,
    releases: usize,
    growths: usize,
    pools: Vec<PoolId>,
}

enum World {
    Simulated(Box<SimDevice>),
    Recorded(Box<RecordedDevice>),
}

impl World {
    fn perform(&mut self, want: Want) -> Answer {
        match self {
            Self::Simulated(device) => device.perform(want),
            Self::Recorded(device) => device.perform(want),
        }
    }

    fn pass(&mut self, stream: StreamId, serial: Serial) {
        match self {
            Self::Simulated(device) => device.pass(stream, serial),
            Self::Recorded(device) => device.pass(stream, serial),
        }
    }
}

/// A replay under way. Step it event by event; look at it between events.
pub struct Player<'a, W: Watch> {
    trace: &'a DeviceTrace,
    heap: Heap,
    stats: Stats,
    world: World,
    watch: W,
    at: usize,
    event: u32,
    continue_on_oom: bool,
    stopped: bool,
    /// By allocation: its block, or [`BlockId::NONE`].
    blocks: Vec<BlockId>,
    /// Live blocks from before the recording, by address.
    before: HashMap<u64, BlockId>,
    /// Frees that the recording completes later: allocation or address key -> stand-in stream.
    pending: HashMap<u64, StreamId>,
    spare_streams: Vec<StreamId>,
    /// By stand-in stream: how many frees have waited on it, which is its newest fence.
    stand_in_fences: HashMap<StreamId, u64>,
    next_stream: u32,
    run: Run,
    exact: Exact,
    failures: u64,
    first_failure: Option<Failure>,
    warm: Warm,
    recorded_reserved: i128,
    next_ticket: u64,
}

/// Streams that stand in for the recording's fences begin here; no real stream number is as high.
const STAND_IN: u32 = 1 << 30;

impl<'a, W: Watch> Player<'a, W> {
    /// A replay of one device's part of a recording, before its first event. Policy `pytorch` breaks ties as
    /// the release did that wrote the recording.
    ///
    /// # Errors
    /// Where the recording began mid-run and its first state cannot be rebuilt.
    pub fn new(
        recording: &Recording,
        trace: &'a DeviceTrace,
        mut setup: Setup,
        watch: W,
    ) -> Result<Self, ReplayError> {
        if !recording.has_pool_ids {
            setup.policy.order = Order::Address;
        }
        let known = known_capacity(trace);
        let total = match setup.driver {
            Driver::Simulated { capacity } => capacity,
            Driver::Recorded => known,
        };
        let warm = warm::before(trace, &setup.policy);
        let world = match setup.driver {
            Driver::Recorded => {
                let ranges = warm::range_ends(trace, &setup.policy);
                World::Recorded(Box::new(RecordedDevice::new(total, ranges)))
            }
            Driver::Simulated { capacity } => {
                let scripted = trace.events.iter().any(|event| event.kind == Kind::FreeCompleted);
                let fences = if scripted { FencePolicy::Scripted } else { setup.fences };
                let config = SimConfig { capacity, fences, ..SimConfig::default() };
                World::Simulated(Box::new(SimDevice::new(config)))
            }
        };
        let mut player = Self {
            trace,
            stats: Stats::new(setup.policy.max_split),
            heap: Heap::new(setup.policy, total),
            world,
            watch,
            at: 0,
            event: 0,
            continue_on_oom: setup.continue_on_oom,
            stopped: false,
            blocks: vec![BlockId::NONE; trace.allocations as usize],
            before: HashMap::new(),
            pending: HashMap::new(),
            spare_streams: Vec::new(),
            stand_in_fences: HashMap::new(),
            next_stream: STAND_IN,
            run: Run::default(),
            exact: Exact::default(),
            failures: 0,
            first_failure: None,
            warm,
            recorded_reserved: 0,
            next_ticket: u64::from(trace.allocations),
        };
        player.exact.allocs =
            trace.events.iter().filter(|e| e.kind == Kind::Alloc && e.bytes > 0).count() as u64;
        player.seed()?;
        Ok(player)
    }

    fn seed(&mut self) -> Result<(), ReplayError> {
        let mut sink = (&mut self.stats, &mut self.watch);
        for segment in &self.warm.segments {
            segment.check().map_err(ReplayError::Layout)?;
            let placed = match &mut self.world {
                World::Simulated(device) => warm::place(segment, device.as_mut())?,
                World::Recorded(device) => device
                    .hold(segment.base, segment.bytes)
                    .then(|| segment.clone())
                    .ok_or_else(|| overlap(segment))?,
            };
            let ids = self.heap.seed(&placed, &mut sink).map_err(ReplayError::Layout)?;
            for (block, id) in segment.live.iter().zip(ids) {
                self.before.insert(block.address, id);
                self.next_ticket = self.next_ticket.max(block.ticket.0 + 1);
            }
        }
        self.recorded_reserved = self.heap.reserved().into();
        Ok(())
    }

    /// The engine's state.
    #[must_use]
    pub const fn heap(&self) -> &Heap {
        &self.heap
    }

    /// The statistics so far.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The watcher.
    pub const fn watch(&self) -> &W {
        &self.watch
    }

    /// The watcher, at the end.
    pub fn into_watch(self) -> W {
        self.watch
    }

    /// How many events have been replayed.
    #[must_use]
    pub const fn events_done(&self) -> u32 {
        self.event
    }

    /// The comparison with the recording; meaningful with the recorded driver.
    #[must_use]
    pub const fn exact(&self) -> &Exact {
        &self.exact
    }

    /// Requests that failed, and the first of them.
    #[must_use]
    pub const fn failures(&self) -> (u64, Option<&Failure>) {
        (self.failures, self.first_failure.as_ref())
    }

    /// What was assumed about the time before the recording.
    #[must_use]
    pub const fn warm(&self) -> &Warm {
        &self.warm
    }

    /// Cost-model time of all driver calls, in nanoseconds.
    #[must_use]
    pub fn device_nanos(&self) -> u64 {
        match &self.world {
            World::Simulated(device) => device.nanos(),
            World::Recorded(_) => 0,
        }
    }

    /// Replays up to `count` more entries. Returns whether there is more to do.
    ///
    /// # Errors
    /// Where the device fails for another reason than memory.
    pub fn run(&mut self, count: usize) -> Result<bool, ReplayError> {
        for _ in 0..count {
            if self.is_done() {
                return Ok(false);
            }
            self.step()?;
        }
        Ok(!self.is_done())
    }

    /// Whether nothing is left: the end was reached, or a failure that stops the replay.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.stopped || self.at >= self.trace.events.len()
    }

    /// The next entry.
    ///
    /// # Errors
    /// Where the device fails for another reason than memory.
    #[inline]
    pub fn step(&mut self) -> Result<(), ReplayError> {
        let trace = self.trace;
        let Some(event) = trace.events.get(self.at) else { return Ok(()) };
        self.watch.begin(self.event);
        match event.kind {
            Kind::Alloc => self.request(event, event.allocation)?,
            Kind::Free => self.free(event)?,
            Kind::FreeRequested => self.free_requested(event)?,
            Kind::FreeCompleted => self.free_completed(event)?,
            Kind::Use => self.use_on(event),
            Kind::EmptyCache | Kind::EmptyCacheMarker => self.empty_cache()?,
            Kind::SegmentAlloc | Kind::SegmentMap | Kind::SegmentFree | Kind::SegmentUnmap => {
                self.gather(event);
            }
            Kind::Oom => self.request(event, NO_ALLOCATION)?,
            Kind::Snapshot | Kind::Marker | Kind::Other => {}
        }
        self.at += 1;
        self.event += u32::from(event.kind.counts());
        if self.at == trace.events.len() && !self.stopped {
            self.explain_run()?;
        }
        Ok(())
    }

    fn apply(&mut self, mut input: Input) -> Result<Output, ReplayError> {
        loop {
            let mut sink = (&mut self.stats, &mut self.watch);
            match self.heap.apply(input, &mut sink) {
                Output::Want { ticket, want } => {
                    input = Input::Answer { ticket, answer: self.world.perform(want) };
                }
                Output::DriverFailed { fault, .. } => return Err(ReplayError::Device(fault)),
                output => return Ok(output),
            }
        }
    }

    fn request(&mut self, event: &Event, allocation: u32) -> Result<(), ReplayError> {
        self.before_request(event)?;
        let failed_before = self.failures;
        let ticket = if allocation == NO_ALLOCATION {
            self.next_ticket += 1;
            Ticket(self.next_ticket)
        } else {
            Ticket(u64::from(allocation))
        };
        let Event { bytes, stream, pool, .. } = *event;
        match self.apply(Input::Alloc { ticket, bytes, stream, pool })? {
            Output::Served { block, address, .. } => {
                self.served(event, allocation, block, address)?
            }
            Output::Failed { report, .. } => self.failed(event, allocation, report),
            _ => {}
        }
        if let World::Recorded(device) = &mut self.world {
            let disagreement = device.settle();
            if let Some(found) = disagreement {
                self.mismatch(found.expected, found.got);
            }
            let expected_failure = event.kind == Kind::Oom;
            let failed = self.failures > failed_before;
            if expected_failure != failed {
                let say =
                    |failed: bool| if failed { "out of memory" } else { "served" }.to_string();
                self.mismatch(say(expected_failure), say(failed));
            }
            self.compare_reserved();
        }
        self.pass_completed()
    }

    fn served(
        &mut self,
        event: &Event,
        allocation: u32,
        block: BlockId,
        address: Address,
    ) -> Result<(), ReplayError> {
        if allocation == NO_ALLOCATION {
            // A request that failed when it was recorded: how long it would have lived is not known, so it
            // stays only where nothing comes after it.
            if self.at + 1 < self.trace.events.len() {
                self.apply(Input::Free { block })?;
            }
            return Ok(());
        }
        self.blocks[allocation as usize] = block;
        if matches!(self.world, World::Recorded(_)) {
            self.exact.checked += 1;
            if address.0 == event.address {
                self.exact.matched += 1;
            } else {
                self.mismatch(format!("{:#x}", event.address), format!("{address}"));
            }
        }
        Ok(())
    }

    fn failed(&mut self, event: &Event, allocation: u32, report: Box<Report>) {
        self.failures += 1;
        if self.first_failure.is_none() {
            let line = event.line;
            self.first_failure = Some(Failure { event: self.event, line, allocation, report });
        }
        self.stopped = !self.continue_on_oom;
    }

    fn mismatch(&mut self, expected: String, got: String) {
        let event = self.event;
        self.exact.first_mismatch.get_or_insert(ExactMismatch { event, expected, got });
    }

    fn compare_reserved(&mut self) {
        let (expected, got) = (self.recorded_reserved, self.heap.reserved());
        if expected != i128::from(got) {
            self.mismatch(format!("{expected} bytes reserved"), format!("{got}"));
        }
    }

    /// The live block that an event names, whether from the recording or from before it.
    fn block_of(&mut self, event: &Event) -> Option<BlockId> {
        if event.allocation == NO_ALLOCATION {
            return self.before.remove(&event.address);
        }
        let block = core::mem::replace(&mut self.blocks[event.allocation as usize], BlockId::NONE);
        (block != BlockId::NONE).then_some(block)
    }

    fn free(&mut self, event: &Event) -> Result<(), ReplayError> {
        if let Some(block) = self.block_of(event) {
            self.apply(Input::Free { block })?;
        }
        Ok(())
    }

    fn free_requested(&mut self, event: &Event) -> Result<(), ReplayError> {
        self.explain_run()?;
        let Some(block) = self.block_of(event) else { return Ok(()) };
        let next = self.trace.events.get(self.at + 1);
        let at_once = next
            .is_some_and(|next| next.kind == Kind::FreeCompleted && next.address == event.address);
        if !at_once {
            let stream = self.spare_streams.pop().unwrap_or_else(|| {
                self.next_stream += 1;
                StreamId(self.next_stream)
            });
            self.pending.insert(event.address, stream);
            *self.stand_in_fences.entry(stream).or_default() += 1;
            self.apply(Input::Use { block, stream })?;
        }
        self.apply(Input::Free { block })?;
        Ok(())
    }

    fn free_completed(&mut self, event: &Event) -> Result<(), ReplayError> {
        if let Some(stream) = self.pending.remove(&event.address) {
            self.run.completed.push(stream.0);
            return Ok(());
        }
        // The block was given back before the recording began, or the request was left out.
        self.free(event)
    }

    fn use_on(&mut self, event: &Event) {
        if let Some(&block) = self.blocks.get(event.allocation as usize)
            && block != BlockId::NONE
        {
            let mut sink = (&mut self.stats, &mut self.watch);
            self.heap.apply(Input::Use { block, stream: event.stream }, &mut sink);
        }
    }

    fn empty_cache(&mut self) -> Result<(), ReplayError> {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.apply(Input::Trim { ticket, target: Target::All })?;
        Ok(())
    }

    /// Keeps a driver entry for the request that it belongs to.
    fn gather(&mut self, event: &Event) {
        let (base, bytes) = (event.address, event.bytes);
        let (deed, sign) = match event.kind {
            Kind::SegmentAlloc => (Deed::Segment { base, bytes }, 1),
            Kind::SegmentMap => (Deed::Pages { base, bytes }, 1),
            Kind::SegmentFree => (Deed::SegmentGone { base, bytes }, -1),
            _ => (Deed::PagesGone { base, bytes }, -1),
        };
        self.recorded_reserved += sign * i128::from(bytes);
        self.run.deeds.push(deed);
        if sign > 0 {
            self.run.growths += 1;
        } else {
            self.run.releases += 1;
            if event.pool != PoolId::DEFAULT && !self.run.pools.contains(&event.pool) {
                self.run.pools.push(event.pool);
            }
        }
    }

    /// Decides what the run before a request was, and lays it out for the driver.
    fn before_request(&mut self, event: &Event) -> Result<(), ReplayError> {
        let failed = event.kind == Kind::Oom;
        if self.run.deeds.is_empty() && self.run.completed.is_empty() {
            if let World::Recorded(device) = &mut self.world {
                device.lay_out([], failed);
            }
            return Ok(());
        }
        let in_ladder = self.run.growths > 0 || failed;
        let served = self.heap.fits(event.bytes, event.stream, event.pool);
        if self.run.releases > 0 && (!in_ladder || served) {
            self.explain_releases()?;
        }
        self.retire_pools()?;
        if self.run.releases == 0 {
            self.pass_completed()?;
        }
        let deeds = core::mem::take(&mut self.run.deeds);
        if let World::Recorded(device) = &mut self.world {
            device.lay_out(deeds, failed);
        }
        self.run.releases = 0;
        self.run.growths = 0;
        Ok(())
    }

    /// A run that no request explains: the program emptied its cache.
    fn explain_run(&mut self) -> Result<(), ReplayError> {
        if self.run.releases > 0 {
            self.explain_releases()?;
        }
        if self.run.growths > 0 {
            self.run.deeds.clear();
            self.run.growths = 0;
            self.mismatch("a driver call that served no request".into(), "no request".into());
        }
        self.pass_completed()
    }

    fn explain_releases(&mut self) -> Result<(), ReplayError> {
        self.retire_pools()?;
        let first_growth = self
            .run
            .deeds
            .iter()
            .position(|deed| matches!(deed, Deed::Segment { .. } | Deed::Pages { .. }));
        let rest = self.run.deeds.split_off(first_growth.unwrap_or(self.run.deeds.len()));
        let releases = core::mem::replace(&mut self.run.deeds, rest);
        self.run.releases = 0;
        if let World::Recorded(device) = &mut self.world {
            device.lay_out(releases, true);
        }
        self.empty_cache()?;
        if let World::Recorded(device) = &mut self.world
            && let Some(found) = device.settle()
        {
            self.mismatch(found.expected, found.got);
        }
        self.pass_completed()
    }

    /// A private pool whose segments the recording released had no users left.
    fn retire_pools(&mut self) -> Result<(), ReplayError> {
        for pool in core::mem::take(&mut self.run.pools) {
            self.apply(Input::Retire { pool })?;
        }
        Ok(())
    }

    /// The device shows frees as completed that the recording completed.
    fn pass_completed(&mut self) -> Result<(), ReplayError> {
        for stream in core::mem::take(&mut self.run.completed) {
            let stream = StreamId(stream);
            let newest = self.stand_in_fences.get(&stream).copied().unwrap_or(0);
            self.world.pass(stream, Serial(newest));
            self.spare_streams.push(stream);
        }
        Ok(())
    }
}

fn overlap(segment: &SeedSegment) -> ReplayError {
    ReplayError::Layout(format!("segment {:#x} overlaps another", segment.base))
}

/// The device's memory as an out-of-memory entry tells it: reserved then, and free on the device then.
#[must_use]
pub fn known_capacity(trace: &DeviceTrace) -> Option<u64> {
    let position = trace.events.iter().position(|event| event.kind == Kind::Oom)?;
    let mut reserved: i128 = trace.segments.iter().map(|segment| i128::from(segment.bytes)).sum();
    for event in trace.events[position..].iter() {
        match event.kind {
            Kind::SegmentAlloc | Kind::SegmentMap => reserved -= i128::from(event.bytes),
            Kind::SegmentFree | Kind::SegmentUnmap => reserved += i128::from(event.bytes),
            _ => {}
        }
    }
    u64::try_from(reserved).ok()?.checked_add(trace.events[position].address)
}

/// The largest sum of client sizes live at one time in the trace itself: the lower bound of any allocator.
/// Failures and fences are ignored.
#[must_use]
pub fn live_peak(trace: &DeviceTrace, warm: &Warm) -> u64 {
    peak(trace, warm, false)
}

/// As [`live_peak`], and a recorded request that failed counts where it was made: no device below this serves
/// every request.
#[must_use]
pub fn demand_peak(trace: &DeviceTrace, warm: &Warm) -> u64 {
    peak(trace, warm, true)
}

fn peak(trace: &DeviceTrace, warm: &Warm, with_failed: bool) -> u64 {
    let mut sizes = vec![0u64; trace.allocations as usize];
    let mut before: HashMap<u64, u64> = HashMap::new();
    for block in warm.segments.iter().flat_map(|segment| &segment.live) {
        before.insert(block.address, block.requested);
    }
    let mut live: u128 = before.values().copied().map(u128::from).sum();
    let mut peak = live;
    for event in &trace.events {
        match event.kind {
            Kind::Alloc => {
                sizes[event.allocation as usize] = event.bytes;
                live += u128::from(event.bytes);
                peak = peak.max(live);
            }
            Kind::Oom if with_failed => peak = peak.max(live + u128::from(event.bytes)),
            Kind::Free | Kind::FreeRequested => {
                live -= u128::from(match event.allocation {
                    NO_ALLOCATION => before.remove(&event.address).unwrap_or(0),
                    allocation => core::mem::take(&mut sizes[allocation as usize]),
                });
            }
            _ => {}
        }
    }
    u64::try_from(peak).unwrap_or(u64::MAX)
}

impl<W: Watch> Observe for Player<'_, W> {
    fn observe(&mut self, change: Change) {
        self.watch.observe(change);
    }
}
