//! Pinned: places of page-locked host memory, which a device copies from and to while the host goes on.
//!
//! The work is the host's, but for one thing: before the host touches a storage, it waits for the
//! copies that stand in the way.

use std::sync::Arc;

use super::compute::{Bus, Compute, ComputeError, CsrTimesDense, Region, Side, Strided};
use super::hazards::{Hazards, Reached};
use super::host::HostCompute;
use super::place::Place;
use super::simulated::NoValues;
use crate::allocator::{CachingAllocator, Config};
use crate::device::{CostModel, HostDevice, HostFile, SimConfig, SimDevice};
use crate::vocab::StreamId;

/// Works as another place does, after waiting for copies.
#[derive(Debug)]
pub(super) struct Pinned<C> {
    work: C,
    bus: Bus,
    copies: Hazards,
}

impl<C: Compute> Pinned<C> {
    pub(super) fn new(work: C, bus: Bus) -> Self {
        Self { work, bus, copies: Hazards::default() }
    }

    fn read_soon(&self, side: &Side) -> Result<(), ComputeError> {
        self.copies.before(side.memory, false, |copy| copy.wait())
    }

    fn written_soon(&self, side: &Side) -> Result<(), ComputeError> {
        self.copies.before(side.memory, true, |copy| copy.wait())
    }
}

impl<C: Compute> Compute for Pinned<C> {
    fn has_values(&self) -> bool {
        self.work.has_values()
    }

    fn admit(&self, memory: Region) -> Result<(), ComputeError> {
        self.work.admit(memory)
    }

    /// A file is not page-locked.
    fn adopt(&self, file: HostFile) -> Result<Region, HostFile> {
        Err(file)
    }

    fn dismiss(&self, memory: Region) {
        self.copies.forget(memory);
        self.work.dismiss(memory);
    }

    fn fill(&self, dst: Side, count: u64, bits: u64, on: StreamId) -> Result<(), ComputeError> {
        self.written_soon(&dst)?;
        self.work.fill(dst, count, bits, on)
    }

    fn copy(
        &self,
        dst: Side,
        src: Side,
        shape: &Strided,
        on: StreamId,
    ) -> Result<(), ComputeError> {
        self.written_soon(&dst)?;
        self.read_soon(&src)?;
        self.work.copy(dst, src, shape, on)
    }

    fn write(&self, dst: Side, bytes: &[u8], on: StreamId) -> Result<(), ComputeError> {
        self.written_soon(&dst)?;
        self.work.write(dst, bytes, on)
    }

    fn read(&self, src: Side, bytes: &mut [u8], on: StreamId) -> Result<(), ComputeError> {
        self.read_soon(&src)?;
        self.work.read(src, bytes, on)
    }

    fn csr_times_dense(&self, job: &CsrTimesDense, on: StreamId) -> Result<(), ComputeError> {
        self.written_soon(&job.out)?;
        for side in [&job.starts, &job.column, &job.values, &job.x] {
            self.read_soon(side)?;
        }
        self.work.csr_times_dense(job, on)
    }

    fn bus(&self) -> Option<Bus> {
        Some(self.bus)
    }

    fn is_page_locked(&self) -> bool {
        true
    }

    fn note(&self, memory: Region, until: Reached, writes: bool) {
        self.copies.note(memory, until, writes);
    }

    /// A copy that reads does not stand in the way of another one that reads: only what is being
    /// written is waited for here, and who writes waits for the rest by itself.
    fn settle(&self, memory: Region, _: StreamId) -> Result<(), ComputeError> {
        self.copies.before(memory, false, |copy| copy.wait())
    }
}

impl Place {
    /// Page-locked memory for transfers with this device, at most `cap` bytes, under
    /// [`Config::pinned`]. For a simulated device it has no values either. For a place without a
    /// bus, such as the host, ordinary memory stands in, and copies wait.
    ///
    /// # Errors
    /// The driver has no such memory.
    pub fn pinned(device: &Self, cap: Option<u64>) -> Result<Self, ComputeError> {
        Self::pinned_with(device, cap, Config::pinned())
    }

    /// The same, configured.
    ///
    /// # Errors
    /// As [`Place::pinned`].
    pub fn pinned_with(
        device: &Self,
        cap: Option<u64>,
        config: Config,
    ) -> Result<Self, ComputeError> {
        let name = format!("pinned({})", device.name());
        let Some(bus) = device.compute().bus() else {
            let host = cap.map_or_else(HostDevice::new, HostDevice::with_cap);
            let work = HostCompute::new(host.memory());
            let allocator = Arc::new(CachingAllocator::new(host, config));
            return Ok(Self::new(&name, allocator, Box::new(work)));
        };
        #[cfg(feature = "cuda")]
        if let Some(parts) = device.cuda_parts() {
            return parts.pinned(&name, bus, cap, config);
        }
        let costs = CostModel::page_locked();
        let sim = SimDevice::new(SimConfig { capacity: cap, costs, ..SimConfig::default() });
        let allocator = Arc::new(CachingAllocator::new(sim, config));
        Ok(Self::new(&name, allocator, Box::new(Pinned::new(NoValues, bus))))
    }
}
