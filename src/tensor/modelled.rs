//! Modelled: a simulated device with a clock: what transfers and work would take on a bus of so many
//! bytes a second. No values, no threads, no waiting: the same program gives the same nanoseconds.
//!
//! Each stream is a number: when its work so far will be done. So is the host: work cannot start
//! before it was launched. The figures of [`BusModel`] are a model, not a measurement.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::compute::{Bus, Compute, ComputeError, CsrTimesDense, Region, Side, Strided};
use super::hazards::{Hazards, Milestone, Reached};
use super::place::Place;
use crate::allocator::{CachingAllocator, Config};
use crate::device::{HostFile, SimConfig, SimDevice};
use crate::vocab::StreamId;

/// What a bus can do. Both directions at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusModel {
    /// Bytes a microsecond to the device.
    pub up: u64,
    /// Bytes a microsecond from it.
    pub down: u64,
    /// Nanoseconds of each copy besides.
    pub latency: u64,
}

impl Default for BusModel {
    /// PCIe 4.0 with 16 lanes, as commonly reported for page-locked memory: 25 GB/s, 10 us a copy.
    fn default() -> Self {
        Self { up: 25_000, down: 25_000, latency: 10_000 }
    }
}

impl BusModel {
    /// Nanoseconds of a copy of so many bytes, at so many a microsecond.
    const fn nanos(&self, bytes: u64, rate: u64) -> u64 {
        self.latency + (bytes as u128 * 1000 / rate as u128) as u64
    }
}

/// When everything is done.
#[derive(Debug, Default)]
struct Times {
    host: u64,
    streams: BTreeMap<StreamId, u64>,
}

/// The clock of a modelled device. Cheap to clone; clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct ModelClock(Arc<Mutex<Times>>);

impl ModelClock {
    /// Launches work of so many nanoseconds on a tensor's stream, behind the transfers that its
    /// storage waits for.
    ///
    /// # Errors
    /// The tensor's place has another clock.
    pub fn work_on(&self, tensor: &super::Tensor, nanos: u64) -> super::Result<()> {
        tensor.settle()?;
        self.launch(tensor.place().stream_id(), nanos);
        Ok(())
    }

    /// The host is busy for so many nanoseconds.
    pub fn host_works(&self, nanos: u64) {
        self.0.lock().host += nanos;
    }

    /// When the host and all streams will be done, in nanoseconds since the beginning.
    #[must_use]
    pub fn done(&self) -> u64 {
        let times = self.0.lock();
        times.streams.values().copied().fold(times.host, u64::max)
    }

    /// How late it is for the host.
    #[must_use]
    pub fn host(&self) -> u64 {
        self.0.lock().host
    }

    fn launch(&self, stream: StreamId, nanos: u64) -> u64 {
        let mut times = self.0.lock();
        let host = times.host;
        let done = times.streams.entry(stream).or_default();
        *done = (*done).max(host) + nanos;
        *done
    }

    fn milestone(&self, at: u64) -> Reached {
        Arc::new(Moment { clock: self.clone(), at })
    }
}

/// A time that a stream will have come to.
#[derive(Debug)]
struct Moment {
    clock: ModelClock,
    at: u64,
}

impl Milestone for Moment {
    fn passed(&self) -> bool {
        self.clock.0.lock().host >= self.at
    }

    fn wait(&self) -> Result<(), ComputeError> {
        let mut times = self.clock.0.lock();
        times.host = times.host.max(self.at);
        Ok(())
    }

    fn hold_back(&self, stream: StreamId) -> Result<(), ComputeError> {
        let mut times = self.clock.0.lock();
        let done = times.streams.entry(stream).or_default();
        *done = (*done).max(self.at);
        Ok(())
    }
}

/// A device on a modelled bus.
#[derive(Debug)]
struct Modelled {
    clock: ModelClock,
    model: BusModel,
    bus: Bus,
    copies: Hazards,
}

impl Modelled {
    fn ordered(&self, memory: Region, writes: bool, on: StreamId) -> Result<(), ComputeError> {
        self.copies.before(memory, writes, |copy| copy.hold_back(on))
    }
}

impl Compute for Modelled {
    fn has_values(&self) -> bool {
        false
    }

    fn adopt(&self, file: HostFile) -> Result<Region, HostFile> {
        Err(file)
    }

    fn dismiss(&self, memory: Region) {
        self.copies.forget(memory);
    }

    fn fill(&self, dst: Side, _: u64, _: u64, on: StreamId) -> Result<(), ComputeError> {
        self.ordered(dst.memory, true, on)
    }

    fn copy(&self, dst: Side, src: Side, _: &Strided, on: StreamId) -> Result<(), ComputeError> {
        self.ordered(dst.memory, true, on)?;
        self.ordered(src.memory, false, on)
    }

    /// From pageable memory: the host waits.
    fn write(&self, dst: Side, bytes: &[u8], on: StreamId) -> Result<(), ComputeError> {
        self.ordered(dst.memory, true, on)?;
        let nanos = self.model.nanos(bytes.len() as u64, self.model.up);
        self.clock.milestone(self.clock.launch(on, nanos)).wait()
    }

    fn read(&self, _: Side, _: &mut [u8], _: StreamId) -> Result<(), ComputeError> {
        Err(ComputeError::NoValues)
    }

    fn csr_times_dense(&self, job: &CsrTimesDense, on: StreamId) -> Result<(), ComputeError> {
        self.ordered(job.out.memory, true, on)
    }

    fn bus(&self) -> Option<Bus> {
        Some(self.bus)
    }

    fn upload(
        &self,
        dst: Side,
        _: Side,
        bytes: u64,
        lane: StreamId,
    ) -> Result<Reached, ComputeError> {
        self.ordered(dst.memory, true, lane)?;
        let nanos = self.model.nanos(bytes, self.model.up);
        let reached = self.clock.milestone(self.clock.launch(lane, nanos));
        self.copies.note(dst.memory, Arc::clone(&reached), true);
        Ok(reached)
    }

    fn download(
        &self,
        src: Side,
        _: Side,
        bytes: u64,
        lane: StreamId,
    ) -> Result<Reached, ComputeError> {
        self.ordered(src.memory, false, lane)?;
        let nanos = self.model.nanos(bytes, self.model.down);
        let reached = self.clock.milestone(self.clock.launch(lane, nanos));
        self.copies.note(src.memory, Arc::clone(&reached), false);
        Ok(reached)
    }

    fn mark(&self, stream: StreamId) -> Result<Option<Reached>, ComputeError> {
        let at = self.clock.0.lock().streams.get(&stream).copied();
        Ok(at.map(|at| self.clock.milestone(at)))
    }

    fn settle(&self, memory: Region, on: StreamId) -> Result<(), ComputeError> {
        self.ordered(memory, true, on)
    }
}

impl Place {
    /// A simulated device on a modelled bus, and its clock. [`Place::pinned`] gives the page-locked
    /// memory that goes with it.
    #[must_use]
    pub fn modelled(config: SimConfig, model: BusModel) -> (Self, ModelClock) {
        let allocator = CachingAllocator::new(SimDevice::new(config), Config::default());
        let clock = ModelClock::default();
        let compute =
            Modelled { clock: clock.clone(), model, bus: Bus::new(), copies: Hazards::default() };
        (Self::new("sim", Arc::new(allocator), Box::new(compute)), clock)
    }
}
