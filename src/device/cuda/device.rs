//! Device: the contract on a CUDA device: which driver calls each want is.
//!
//! Owns the bookkeeping of what is granted. Asked by the pump. Never knows blocks.
//!
//! A call that makes no sense is refused with [`INVALID_VALUE`] before the driver hears of it. What
//! the driver refuses keeps its code; its name and the function are in [`Gpu::last_error`].

use std::sync::Arc;

use super::error::CudaError;
use super::fences::{Amiss, Fences};
use super::gpu::Gpu;
use super::pool::Pool;
use super::ranges::Ranges;
use super::segments::Segments;
use super::streams::Streams;
use crate::device::contract::{Calls, Device, INVALID_VALUE, NOT_SUPPORTED};
use crate::vocab::{Address, Answer, Fault, StreamId, Want};

/// Where segments come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentSource {
    /// `cuMemAlloc` and `cuMemFree`.
    #[default]
    Direct,
    /// A memory pool of the driver's own (`cuMemAllocFromPoolAsync`), where the driver has them.
    Pool {
        /// How many bytes the pool keeps that are not in use.
        keep: u64,
    },
}

/// How a device is used.
#[derive(Clone, Debug, Default)]
pub struct CudaConfig {
    /// The most that is taken of the device's memory, in bytes; `None`: all of it.
    pub cap: Option<u64>,
    /// Where segments come from.
    pub segments: SegmentSource,
    /// Whether pages are never mapped, though the device could.
    pub no_pages: bool,
}

/// A CUDA device. What it granted goes back when it is dropped.
pub struct CudaDevice {
    // Dropped first to last: memory before the events, both before the context.
    segments: Segments,
    ranges: Ranges,
    fences: Fences,
    streams: Arc<Streams>,
    gpu: Arc<Gpu>,
    total: u64,
    cap: Option<u64>,
    used: u64,
    pages: bool,
    calls: Calls,
}

/// Why a call was refused.
enum Refusal {
    Fault(Fault),
    Driver(CudaError),
}

impl From<CudaError> for Refusal {
    fn from(error: CudaError) -> Self {
        Self::Driver(error)
    }
}

impl From<Amiss> for Refusal {
    fn from(amiss: Amiss) -> Self {
        match amiss {
            Amiss::Misuse => MISUSE,
            Amiss::Driver(error) => Self::Driver(error),
        }
    }
}

const MISUSE: Refusal = Refusal::Fault(Fault::Driver(INVALID_VALUE));

type Outcome = Result<Answer, Refusal>;

impl CudaDevice {
    /// A device on which nothing is granted yet.
    ///
    /// # Errors
    /// The driver failed, or has no pools and one was asked for.
    pub fn new(gpu: Arc<Gpu>, config: CudaConfig) -> Result<Self, CudaError> {
        let (_, total) = gpu.memory()?;
        let pool = match config.segments {
            SegmentSource::Direct => None,
            SegmentSource::Pool { keep } => Some(Pool::new(&gpu, keep)?),
        };
        let streams = Arc::new(Streams::default());
        Ok(Self {
            segments: Segments::new(Arc::clone(&gpu), pool),
            ranges: Ranges::new(Arc::clone(&gpu)),
            fences: Fences::new(Arc::clone(&gpu), Arc::clone(&streams)),
            streams,
            total,
            cap: config.cap.map(|cap| cap.min(total)),
            used: 0,
            pages: gpu.page_mapping() && !config.no_pages,
            calls: Calls::default(),
            gpu,
        })
    }

    /// Which stream of the driver each stream is; stays in step with the device.
    #[must_use]
    pub fn streams(&self) -> Arc<Streams> {
        Arc::clone(&self.streams)
    }

    /// The device and context that it is on.
    #[must_use]
    pub const fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    fn answer(&mut self, want: Want) -> Outcome {
        let gpu = Arc::clone(&self.gpu);
        let _scope = gpu.scope()?;
        match want {
            Want::Reserve { bytes } => self.reserve(bytes),
            Want::Release { base, bytes } => self.release(base, bytes),
            Want::ReserveRange { .. }
            | Want::ReleaseRange { .. }
            | Want::Map { .. }
            | Want::Unmap { .. }
                if !self.pages =>
            {
                Err(Refusal::Fault(Fault::Driver(NOT_SUPPORTED)))
            }
            Want::ReserveRange { bytes, page } => self.reserve_range(bytes, page),
            Want::ReleaseRange { base, bytes } => self.release_range(base, bytes),
            Want::Map { base, bytes, page } => self.map(base.0, bytes, page),
            Want::Unmap { base, bytes, page, stream } => self.unmap(base.0, bytes, page, stream),
            Want::Fence { stream, serial } => {
                self.fences.record(stream, serial)?;
                Ok(Answer::Fenced)
            }
            Want::Poll { stream, newest } => {
                Ok(Answer::Passed { through: self.fences.poll(stream, newest)? })
            }
            Want::Wait { stream, serial } => {
                Ok(Answer::Passed { through: self.fences.wait(stream, serial)? })
            }
            Want::Order { waiter, after, serial } => {
                self.fences.order(waiter, after, serial)?;
                Ok(Answer::Ordered)
            }
        }
    }

    fn reserve(&mut self, bytes: u64) -> Outcome {
        let whole = bytes.checked_next_multiple_of(self.gpu.granularity());
        let whole = whole.ok_or(Refusal::Fault(Fault::OutOfMemory))?;
        if bytes == 0 {
            return Err(MISUSE);
        }
        self.within_cap(whole)?;
        let base = self.segments.reserve(whole)?;
        self.used += whole;
        Ok(Answer::Granted { base: Address(base) })
    }

    fn release(&mut self, base: Address, bytes: u64) -> Outcome {
        let whole = bytes.checked_next_multiple_of(self.gpu.granularity());
        let Some(size) = self.segments.size(base.0).filter(|size| Some(*size) == whole) else {
            return Err(MISUSE);
        };
        self.segments.release(base.0)?;
        self.used -= size;
        Ok(Answer::Released)
    }

    fn reserve_range(&mut self, bytes: u64, page: u64) -> Outcome {
        let fits = page > 0 && page.is_multiple_of(self.gpu.granularity());
        if !fits || bytes == 0 || !bytes.is_multiple_of(page) {
            return Err(MISUSE);
        }
        match self.ranges.reserve(bytes, page) {
            Ok((base, size)) if size == bytes => Ok(Answer::Granted { base: Address(base) }),
            Ok((base, bytes)) => Ok(Answer::GrantedRange { base: Address(base), bytes }),
            // Addresses, not memory, is what the driver has run out of.
            Err(error) if error.fault() == Fault::OutOfMemory => {
                self.gpu.note(&error);
                Err(Refusal::Fault(Fault::OutOfAddresses))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn release_range(&mut self, base: Address, bytes: u64) -> Outcome {
        if self.ranges.empty_size(base.0) != Some(bytes) {
            return Err(MISUSE);
        }
        self.ranges.release(base.0)?;
        Ok(Answer::Released)
    }

    fn map(&mut self, base: u64, bytes: u64, page: u64) -> Outcome {
        if !self.ranges.covers(base, bytes, page, false) {
            return Err(MISUSE);
        }
        self.within_cap(bytes)?;
        self.ranges.map(base, bytes, page)?;
        self.used += bytes;
        Ok(Answer::Mapped)
    }

    fn unmap(&mut self, base: u64, bytes: u64, page: u64, stream: StreamId) -> Outcome {
        if !self.ranges.covers(base, bytes, page, true) {
            return Err(MISUSE);
        }
        // The driver does not wait for the work by itself.
        match self.streams.get(stream) {
            Some(handle) => self.gpu.drain(&handle)?,
            None => self.gpu.synchronize()?,
        }
        self.ranges.unmap(base, bytes, page)?;
        self.used -= bytes;
        Ok(Answer::Unmapped)
    }

    fn within_cap(&self, bytes: u64) -> Result<(), Refusal> {
        let fits = self.cap.is_none_or(|cap| bytes <= cap - self.used);
        if fits { Ok(()) } else { Err(Refusal::Fault(Fault::OutOfMemory)) }
    }

    fn refused(&self, refusal: Refusal) -> Answer {
        Answer::Refused(match refusal {
            Refusal::Fault(fault) => fault,
            Refusal::Driver(error) => {
                self.gpu.note(&error);
                error.fault()
            }
        })
    }
}

impl Device for CudaDevice {
    fn perform(&mut self, want: Want) -> Answer {
        let answer = self.answer(want).unwrap_or_else(|refusal| self.refused(refusal));
        self.calls.count(&want, &answer);
        answer
    }

    fn total(&self) -> Option<u64> {
        Some(self.cap.unwrap_or(self.total))
    }

    /// Of a cap, what is left of it; else what the driver says, other processes included.
    fn free(&self) -> Option<u64> {
        let left = self.cap.map(|cap| cap - self.used);
        left.or_else(|| Some(self.gpu.memory().map_or(0, |(free, _)| free)))
    }

    fn granularity(&self) -> u64 {
        self.gpu.granularity()
    }

    fn page_mapping(&self) -> bool {
        self.pages
    }

    fn nanos(&self) -> u64 {
        0
    }

    fn calls(&self) -> Calls {
        self.calls
    }
}

impl std::fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaDevice({:?}, {} bytes granted)", self.gpu, self.used)
    }
}
