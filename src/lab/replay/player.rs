//! Player: a replay under way, event by event.
//!
//! Owns the engine, the world that answers it, and which block each event means. Asked by whoever replays. What
//! driver entries between requests were is found out in `runs`, or told (`told`).

use std::collections::HashMap;

use super::super::warm::{self, Warm};
use super::runs::{self, Run};
use super::world::World;
use super::{Driver, Exact, ExactMismatch, Failure, ReplayError, Setup, Watch, known_capacity};
use crate::device::{Device, FencePolicy, RecordedDevice, SimConfig, SimDevice};
use crate::heap::{Heap, seed::SeedSegment};
use crate::ledger::Stats;
use crate::trace::{DeviceTrace, Event, Kind, NO_ALLOCATION, Recording};
use crate::vocab::{
    Address, BlockId, Change, Input, Observe, Order, Output, Report, StreamId, Target, Ticket,
};

/// A replay under way. Step it event by event; look at it between events.
pub struct Player<'a, W: Watch> {
    pub(super) trace: &'a DeviceTrace,
    pub(super) heap: Heap,
    stats: Stats,
    pub(super) world: World,
    watch: W,
    pub(super) at: usize,
    event: u32,
    continue_on_oom: bool,
    stopped: bool,
    /// The recording says everything that was asked for.
    pub(super) told: bool,
    /// By allocation: its block, or [`BlockId::NONE`].
    pub(super) blocks: Vec<BlockId>,
    /// Live blocks from before the recording, by address.
    pub(super) before: HashMap<u64, BlockId>,
    /// Frees that the recording completes later: allocation or address key -> stand-in stream.
    pub(super) pending: HashMap<u64, StreamId>,
    pub(super) spare_streams: Vec<StreamId>,
    /// By stand-in stream: how many frees have waited on it, which is its newest fence.
    pub(super) stand_in_fences: HashMap<StreamId, u64>,
    pub(super) next_stream: u32,
    pub(super) run: Run,
    exact: Exact,
    failures: u64,
    first_failure: Option<Failure>,
    warm: Warm,
    pub(super) recorded_reserved: i128,
    /// The most that the recording ever had reserved: its device had as much.
    pub(super) recorded_peak: i128,
    pub(super) next_ticket: u64,
}

/// Streams that stand in for the recording's fences begin here; no real stream number is as high.
pub(super) const STAND_IN: u32 = 1 << 30;

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
        let told = recording.says_inputs;
        let warm = warm::before(recording, trace, &setup.policy);
        let world = match setup.driver {
            Driver::Recorded => {
                let ranges = warm::range_ends(trace, &setup.policy);
                World::Recorded(Box::new(RecordedDevice::new(total, ranges).complete(told)))
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
            told,
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
            recorded_peak: 0,
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
        self.recorded_peak = runs::peak(self.trace, self.recorded_reserved);
        self.seed_pending()
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
            Kind::Use => self.use_on(event)?,
            Kind::EmptyCache | Kind::EmptyCacheMarker if self.told => self.tell(event)?,
            Kind::EmptyCache | Kind::EmptyCacheMarker => self.empty_cache()?,
            Kind::Trim | Kind::Retire | Kind::CaptureBegin | Kind::CaptureEnd | Kind::Limit => {
                self.tell(event)?
            }
            Kind::SegmentAlloc
            | Kind::SegmentMap
            | Kind::SegmentFree
            | Kind::SegmentUnmap
            | Kind::RangeAlloc
            | Kind::RangeFree
            | Kind::Passed => self.gather(event),
            Kind::Oom => self.request(event, NO_ALLOCATION)?,
            Kind::Snapshot | Kind::Marker | Kind::Other => {}
        }
        self.at += 1;
        self.event += u32::from(event.kind.counts());
        if self.at == trace.events.len() && !self.stopped {
            self.finish()?;
        }
        Ok(())
    }

    /// What is left after the last request.
    fn finish(&mut self) -> Result<(), ReplayError> {
        if !self.told {
            return self.explain_run();
        }
        if self.run.moves() {
            self.mismatch("a driver call that served no request".into(), "no request".into());
        }
        self.run.deeds.clear();
        self.pass_completed()
    }

    pub(super) fn apply(&mut self, mut input: Input) -> Result<Output, ReplayError> {
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
        if self.told {
            self.lay_out_run()?;
        } else {
            self.before_request(event)?;
        }
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
        self.settle();
        if matches!(self.world, World::Recorded(_)) {
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

    /// Notes where the engine and the recording disagreed since the layout.
    pub(super) fn settle(&mut self) {
        if let World::Recorded(device) = &mut self.world
            && let Some(found) = device.settle()
        {
            self.mismatch(found.expected, found.got);
        }
    }

    pub(super) fn mismatch(&mut self, expected: String, got: String) {
        let event = self.event;
        self.exact.first_mismatch.get_or_insert(ExactMismatch { event, expected, got });
    }

    pub(super) fn compare_reserved(&mut self) {
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
        if self.told {
            self.lay_out_run()?;
        } else {
            self.explain_run()?;
        }
        let Some(block) = self.block_of(event) else { return Ok(()) };
        let next = self.trace.events.get(self.at + 1);
        let at_once = next
            .is_some_and(|next| next.kind == Kind::FreeCompleted && next.address == event.address);
        if !at_once && !self.waits_by_itself(block) {
            self.stand_in(event.address, block)?;
        }
        self.apply(Input::Free { block })?;
        if self.told { self.done() } else { Ok(()) }
    }

    /// Nothing else says when a free completes: a stream that stands in for those it waits for.
    pub(super) fn stand_in(&mut self, address: u64, block: BlockId) -> Result<(), ReplayError> {
        let stream = self.spare_streams.pop().unwrap_or_else(|| {
            self.next_stream += 1;
            StreamId(self.next_stream)
        });
        self.pending.insert(address, stream);
        *self.stand_in_fences.entry(stream).or_default() += 1;
        self.apply(Input::Use { block, stream })?;
        Ok(())
    }

    fn free_completed(&mut self, event: &Event) -> Result<(), ReplayError> {
        if let Some(stream) = self.pending.remove(&event.address) {
            self.run.completed.push(stream.0);
            if self.told {
                self.run.completes(stream);
            }
            return Ok(());
        }
        if self.told {
            return Ok(());
        }
        // The block was given back before the recording began, or the request was left out.
        self.free(event)
    }

    fn use_on(&mut self, event: &Event) -> Result<(), ReplayError> {
        let known = match event.allocation {
            NO_ALLOCATION => self.before.get(&event.address),
            allocation => self.blocks.get(allocation as usize),
        };
        let block = known.copied().filter(|&block| block != BlockId::NONE);
        let Some(block) = block.filter(|_| self.uses_are_streams()) else { return Ok(()) };
        if self.told {
            self.lay_out_run()?;
        }
        self.apply(Input::Use { block, stream: event.stream })?;
        if self.told { self.done() } else { Ok(()) }
    }

    pub(super) fn empty_cache(&mut self) -> Result<(), ReplayError> {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.apply(Input::Trim { ticket, target: Target::All })?;
        Ok(())
    }
}

fn overlap(segment: &SeedSegment) -> ReplayError {
    ReplayError::Layout(format!("segment {:#x} overlaps another", segment.base))
}

impl<W: Watch> Observe for Player<'_, W> {
    fn observe(&mut self, change: Change) {
        self.watch.observe(change);
    }
}
