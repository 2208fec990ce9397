//! CUDA: the work of a place on an NVIDIA GPU: blockyard's kernels, and copies on lanes.
//!
//! Asked by copies and constructors. Never knows tensors. Every launch is on the stream that is
//! named, behind the transfers that use the same storage; ordering other streams is the program's
//! business, as everywhere. `write` and `read` wait for their stream.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::Arc;

use super::axes::MAX_RANK;
use super::compute::{Bus, Compute, ComputeError, CsrTimesDense, Region, Side, Strided};
use super::dtype::DType;
use super::hazards::{Hazards, Milestone, Reached};
use super::host::HostCompute;
use super::pinned::Pinned;
use super::place::{Lane, Place};
use crate::allocator::{CachingAllocator, Config};
use crate::device::HostFile;
use crate::device::cuda::{
    CudaConfig, CudaDevice, CudaError, CudaStreamHandle, Gpu, Mark, PinnedDevice, Streams, Work,
};
use crate::vocab::StreamId;

/// Works on the memory of one GPU.
#[derive(Debug)]
pub struct CudaCompute {
    work: Work,
    copies: Hazards,
    bus: Bus,
}

/// What a place on a GPU has that others have not.
pub(super) struct Parts {
    gpu: Arc<Gpu>,
    streams: Arc<Streams>,
    lanes: [(Lane, CudaStreamHandle); 2],
}

/// The kernels' shape: sizes, strides of both sides, and how many axes count.
#[repr(C)]
struct Shape {
    size: [u64; MAX_RANK],
    dst: [u64; MAX_RANK],
    src: [u64; MAX_RANK],
    rank: u64,
}

impl Shape {
    const fn of(shape: &Strided) -> Self {
        Self { size: shape.sizes, dst: shape.dst, src: shape.src, rank: shape.rank as u64 }
    }
}

/// An argument of a kernel: the driver copies it before the launch returns.
fn at<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

fn failed(error: CudaError) -> ComputeError {
    ComputeError::Driver(error.fault())
}

/// The number of a type in the kernels' table.
fn number(dtype: DType) -> u32 {
    DType::ALL.iter().position(|other| *other == dtype).unwrap_or(0) as u32
}

impl Milestone for Mark {
    /// One that failed has passed: what comes next says why.
    fn passed(&self) -> bool {
        Self::passed(self).unwrap_or(true)
    }

    fn wait(&self) -> Result<(), ComputeError> {
        Self::wait(self).map_err(failed)
    }

    fn hold_back(&self, stream: StreamId) -> Result<(), ComputeError> {
        Self::hold_back(self, stream).map_err(failed)
    }
}

impl CudaCompute {
    /// Works on these streams of a device.
    ///
    /// # Errors
    /// The driver has no kernels or copies, or failed.
    pub fn new(gpu: &Arc<Gpu>, streams: &Arc<Streams>) -> Result<Self, CudaError> {
        Ok(Self { work: Work::new(gpu, streams)?, copies: Hazards::default(), bus: Bus::new() })
    }

    /// The stream's later work comes behind the copies that stand in the way.
    fn ordered(&self, memory: Region, writes: bool, on: StreamId) -> Result<(), ComputeError> {
        self.copies.before(memory, writes, |copy| copy.hold_back(on))
    }

    fn launch(
        &self,
        on: StreamId,
        kernel: &str,
        items: u64,
        arguments: &mut [*mut c_void],
    ) -> Result<(), ComputeError> {
        // SAFETY: the callers below pass what `docs/kernels.md` lists. Sides lie inside storages that
        // are admitted (X1), which the allocator keeps until the work of their streams is done.
        unsafe { self.work.launch(on, kernel, items, arguments) }.map_err(failed)
    }

    /// Elements of one type.
    fn move_elements(
        &self,
        dst: Side,
        src: Side,
        shape: &Strided,
        on: StreamId,
    ) -> Result<(), ComputeError> {
        let (mut to, mut from) = (dst.address().0, src.address().0);
        let size = dst.dtype.size() as u64;
        let count = shape.elements();
        if shape.is_run() {
            let mut bytes = count * size;
            let arguments = &mut [at(&mut to), at(&mut from), at(&mut bytes)];
            return self.launch(on, "by_copy", bytes.div_ceil(16), arguments);
        }
        let mut shape = Shape::of(shape);
        let arguments = &mut [at(&mut to), at(&mut from), at(&mut shape)];
        self.launch(on, &format!("by_copy_strided_{}", size * 8), count, arguments)
    }

    /// Elements of one type as elements of another.
    fn convert(
        &self,
        dst: Side,
        src: Side,
        shape: &Strided,
        on: StreamId,
    ) -> Result<(), ComputeError> {
        let (mut to, mut from) = (dst.address().0, src.address().0);
        let mut count = shape.elements();
        if shape.is_run() {
            let kernel = format!("by_cast_{}_{}", src.dtype.name(), dst.dtype.name());
            let arguments = &mut [at(&mut to), at(&mut from), at(&mut count)];
            return self.launch(on, &kernel, count, arguments);
        }
        let (mut left, mut right) = (number(dst.dtype), number(src.dtype));
        let mut shape = Shape::of(shape);
        let arguments =
            &mut [at(&mut to), at(&mut from), at(&mut left), at(&mut right), at(&mut shape)];
        self.launch(on, "by_cast_strided", count, arguments)
    }

    /// That both are within what the driver can copy in a stream's turn.
    fn locked(&self, host: &Side, bytes: u64) -> Result<(), ComputeError> {
        let known = self.work.knows(host.address(), bytes);
        if known { Ok(()) } else { Err(ComputeError::Pageable(host.address())) }
    }

    fn noted(&self, memory: Region, lane: StreamId, writes: bool) -> Result<Reached, ComputeError> {
        let mark = self.work.mark(lane).map_err(|error| {
            // Without a mark nobody could tell when the copy is done: it is waited for.
            let _ = self.work.drain(lane);
            failed(error)
        });
        let reached: Reached = Arc::new(mark?);
        self.copies.note(memory, Arc::clone(&reached), writes);
        Ok(reached)
    }
}

impl Compute for CudaCompute {
    fn adopt(&self, file: HostFile) -> Result<Region, HostFile> {
        Err(file)
    }

    fn dismiss(&self, memory: Region) {
        self.copies.forget(memory);
    }

    fn fill(&self, dst: Side, count: u64, bits: u64, on: StreamId) -> Result<(), ComputeError> {
        self.ordered(dst.memory, true, on)?;
        let (mut to, mut count, mut low, mut high) = (dst.address().0, count, bits, 0_u64);
        let mut element = dst.dtype.size() as u32;
        let items = (count * u64::from(element)).div_ceil(16);
        let arguments =
            &mut [at(&mut to), at(&mut count), at(&mut element), at(&mut low), at(&mut high)];
        self.launch(on, "by_fill", items, arguments)
    }

    fn copy(
        &self,
        dst: Side,
        src: Side,
        shape: &Strided,
        on: StreamId,
    ) -> Result<(), ComputeError> {
        self.ordered(dst.memory, true, on)?;
        self.ordered(src.memory, false, on)?;
        if dst.dtype == src.dtype {
            return self.move_elements(dst, src, shape, on);
        }
        self.convert(dst, src, shape, on)
    }

    fn write(&self, dst: Side, bytes: &[u8], on: StreamId) -> Result<(), ComputeError> {
        self.ordered(dst.memory, true, on)?;
        // SAFETY: the destination lies inside its storage (X1); the source is read before this returns.
        let copied = unsafe { self.work.to_device(on, dst.address(), bytes.as_ptr(), bytes.len()) };
        copied.and_then(|()| self.work.drain(on)).map_err(failed)
    }

    fn read(&self, src: Side, bytes: &mut [u8], on: StreamId) -> Result<(), ComputeError> {
        self.ordered(src.memory, false, on)?;
        // SAFETY: as in `write`; memory that is not page-locked is written before the copy returns,
        // and other memory before the stream is drained.
        let copied =
            unsafe { self.work.to_host(on, bytes.as_mut_ptr(), src.address(), bytes.len()) };
        copied.and_then(|()| self.work.drain(on)).map_err(failed)
    }

    fn csr_times_dense(&self, job: &CsrTimesDense, on: StreamId) -> Result<(), ComputeError> {
        self.ordered(job.out.memory, true, on)?;
        for side in [&job.starts, &job.column, &job.values, &job.x] {
            self.ordered(side.memory, false, on)?;
        }
        let sides = [&job.out, &job.starts, &job.column, &job.values, &job.x];
        let [mut out, mut starts, mut column, mut values, mut x] =
            sides.map(|side| side.address().0);
        let (mut rows, mut columns) = (job.rows, job.columns);
        let (mut ldo, mut ldx) = (columns, columns);
        let (mut one, mut zero) = (1_f64, 0_f64);
        let (mut short_one, mut short_zero) = (1_f32, 0_f32);
        let (alpha, beta) = match job.values.dtype {
            DType::F64 => (at(&mut one), at(&mut zero)),
            DType::F32 => (at(&mut short_one), at(&mut short_zero)),
            _ => return Err(ComputeError::NotSupported("a product of these types")),
        };
        let (value, index) = (job.values.dtype.name(), job.column.dtype.name());
        let arguments = &mut [
            at(&mut out),
            at(&mut ldo),
            at(&mut starts),
            at(&mut column),
            at(&mut values),
            at(&mut x),
            at(&mut ldx),
            at(&mut rows),
            at(&mut columns),
            alpha,
            beta,
        ];
        let items = job.rows * job.columns;
        self.launch(on, &format!("by_csr_mm_{value}_{index}"), items, arguments)
    }

    fn bus(&self) -> Option<Bus> {
        Some(self.bus)
    }

    fn upload(
        &self,
        dst: Side,
        from: Side,
        bytes: u64,
        lane: StreamId,
    ) -> Result<Reached, ComputeError> {
        self.locked(&from, bytes)?;
        self.ordered(dst.memory, true, lane)?;
        let source = from.address().0 as *const u8;
        // SAFETY: so many bytes of page-locked memory stand there, as was asked, and its storage is not
        // given up before the lane's fence; the destination lies inside its storage.
        let copied = unsafe { self.work.to_device(lane, dst.address(), source, bytes as usize) };
        copied.map_err(failed)?;
        self.noted(dst.memory, lane, true)
    }

    fn download(
        &self,
        src: Side,
        to: Side,
        bytes: u64,
        lane: StreamId,
    ) -> Result<Reached, ComputeError> {
        self.locked(&to, bytes)?;
        self.ordered(src.memory, false, lane)?;
        let target = to.address().0 as *mut u8;
        // SAFETY: as in `upload`; the host looks at the target only behind the milestone.
        let copied = unsafe { self.work.to_host(lane, target, src.address(), bytes as usize) };
        copied.map_err(failed)?;
        self.noted(src.memory, lane, false)
    }

    fn mark(&self, stream: StreamId) -> Result<Option<Reached>, ComputeError> {
        Ok(Some(Arc::new(self.work.mark(stream).map_err(failed)?)))
    }

    fn settle(&self, memory: Region, on: StreamId) -> Result<(), ComputeError> {
        self.ordered(memory, true, on)
    }
}

impl Parts {
    /// Page-locked memory that this device's lanes copy from and to.
    pub(super) fn pinned(
        &self,
        name: &str,
        bus: Bus,
        cap: Option<u64>,
        config: Config,
    ) -> Result<Place, ComputeError> {
        let device = PinnedDevice::new(Arc::clone(&self.gpu), cap).map_err(failed)?;
        let (streams, work) = (device.streams(), HostCompute::new(device.memory()));
        let allocator = Arc::new(CachingAllocator::new(device, config));
        self.enter_lanes(&allocator, &streams);
        Ok(Place::new(name, allocator, Box::new(Pinned::new(work, bus))))
    }

    fn enter_lanes(&self, allocator: &CachingAllocator, streams: &Streams) {
        for (lane, handle) in &self.lanes {
            streams.enter(allocator.stream(lane.handle()).id(), handle.clone());
        }
    }
}

impl Place {
    /// The GPU of this number, on its context's default stream. Each call makes a place of its own:
    /// keep one.
    ///
    /// # Errors
    /// No driver, no such device, or the driver failed.
    pub fn cuda(ordinal: u32) -> Result<Self, CudaError> {
        Self::cuda_on(Gpu::open(ordinal)?, CudaConfig::default(), Config::default())
    }

    /// This GPU, used so and under this policy.
    ///
    /// # Errors
    /// The driver failed.
    pub fn cuda_on(gpu: Arc<Gpu>, device: CudaConfig, config: Config) -> Result<Self, CudaError> {
        let (name, device_index) = (format!("cuda:{}", gpu.ordinal()), gpu.ordinal());
        let device = CudaDevice::new(Arc::clone(&gpu), device)?;
        let streams = device.streams();
        let compute = CudaCompute::new(&gpu, &streams)?;
        let new = || CudaStreamHandle::new(&gpu);
        let lanes = [(Lane::Up, new()?), (Lane::Down, new()?)];
        let allocator = Arc::new(CachingAllocator::new(device, Config { device_index, ..config }));
        let parts = Parts { gpu, streams: Arc::clone(&streams), lanes };
        parts.enter_lanes(&allocator, &streams);
        Ok(Self::with_cuda(&name, allocator, Box::new(compute), parts))
    }

    /// The same place; what is made through the new handle belongs to this stream of the driver.
    ///
    /// # Errors
    /// A place that is no GPU.
    pub fn on_cuda_stream(&self, handle: &CudaStreamHandle) -> Result<Self, ComputeError> {
        let parts = self.cuda_parts().ok_or(ComputeError::NotSupported("a stream of CUDA"))?;
        let place = self.on_stream(handle.raw().addr() as u64);
        parts.streams.enter(place.stream_id(), handle.clone());
        Ok(place)
    }
}
