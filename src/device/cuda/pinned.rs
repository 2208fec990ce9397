//! Pinned: page-locked memory of the host as a device of its own (`cuMemHostAlloc`).
//!
//! Owns: the segments, as memory that is claimed block by block ([`HostMemory`]). Asked by the pump,
//! as any device. Never knows who copies: the streams it fences are those that a device copies on,
//! and its stream 0 is the host, whose own work is done when anyone asks.
//!
//! A block that a copy uses is shown to the allocator as used by the copy's stream
//! (`record_stream`); after it was freed, the stream's fence keeps it from being reused. Which
//! memory of the machine the pages come from is the system's choice.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use super::error::CudaError;
use super::fences::{Amiss, Fences};
use super::gpu::{Gpu, insist};
use super::streams::Streams;
use crate::device::contract::{Calls, Device, INVALID_VALUE, NOT_SUPPORTED};
use crate::device::host_memory::HostMemory;
use crate::vocab::{Address, Answer, Fault, Serial, StreamId, Want};

/// The driver locks whole pages, and gives them at page borders.
const PAGE: u64 = 4096;
/// `CU_MEMHOSTALLOC_PORTABLE`: page-locked for every context.
const PORTABLE: u32 = 1;
/// The host itself.
const HOST: StreamId = StreamId(0);

/// One allocation of the driver's, given back when dropped. The driver waits for copies from and to it.
struct Locked {
    gpu: Arc<Gpu>,
    pointer: usize,
}

impl Drop for Locked {
    fn drop(&mut self) {
        let Some(_scope) = self.gpu.last_scope() else { return };
        let Some(table) = self.gpu.driver().moving.as_ref() else { return };
        insist(|| {
            // SAFETY: the pointer came from `cuMemHostAlloc` and is given back once.
            let code = unsafe { (table.host_free)(self.pointer as *mut c_void) };
            self.gpu.check("cuMemFreeHost", code)
        });
    }
}

/// Page-locked memory of the host. What it granted goes back when it is dropped and nobody has a
/// claim on it.
pub struct PinnedDevice {
    memory: HostMemory,
    fences: Fences,
    streams: Arc<Streams>,
    gpu: Arc<Gpu>,
    cap: Option<u64>,
    used: u64,
    host: HashMap<StreamId, Serial>,
    calls: Calls,
}

impl PinnedDevice {
    /// A device on which nothing is granted yet; at most `cap` bytes will be.
    ///
    /// # Errors
    /// The driver has no such memory.
    pub fn new(gpu: Arc<Gpu>, cap: Option<u64>) -> Result<Self, CudaError> {
        gpu.driver().moving.as_ref().ok_or(CudaError::Unsupported("page-locked memory"))?;
        let streams = Arc::new(Streams::default());
        Ok(Self {
            memory: HostMemory::default(),
            fences: Fences::new(Arc::clone(&gpu), Arc::clone(&streams)),
            streams,
            gpu,
            cap,
            used: 0,
            host: HashMap::new(),
            calls: Calls::default(),
        })
    }

    /// The way to the bytes of what this device grants.
    #[must_use]
    pub fn memory(&self) -> HostMemory {
        self.memory.clone()
    }

    /// Which stream of the driver each stream that copies is.
    #[must_use]
    pub fn streams(&self) -> Arc<Streams> {
        Arc::clone(&self.streams)
    }

    fn reserve(&mut self, bytes: u64) -> Result<Answer, Fault> {
        let whole = bytes.checked_next_multiple_of(PAGE).filter(|&whole| whole > 0);
        let whole = whole.ok_or(if bytes == 0 { MISUSE } else { Fault::OutOfMemory })?;
        if self.free().is_some_and(|free| whole > free) {
            return Err(Fault::OutOfMemory);
        }
        let base = self.obtain(whole).map_err(|error| {
            self.gpu.note(&error);
            error.fault()
        })?;
        self.used += whole;
        Ok(Answer::Granted { base })
    }

    fn obtain(&self, bytes: u64) -> Result<Address, CudaError> {
        let missing = CudaError::Unsupported("page-locked memory");
        let table = self.gpu.driver().moving.as_ref().ok_or(missing.clone())?;
        let size = usize::try_from(bytes).map_err(|_| missing.clone())?;
        let mut pointer = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        let code = unsafe { (table.host_alloc)(&mut pointer, size, PORTABLE) };
        self.gpu.check("cuMemHostAlloc", code)?;
        let keep = Locked { gpu: Arc::clone(&self.gpu), pointer: pointer as usize };
        let base = NonNull::new(pointer.cast::<u8>()).ok_or(missing.clone())?;
        if !(pointer as u64).is_multiple_of(PAGE) {
            return Err(missing);
        }
        // SAFETY: the driver gave so many bytes, which are ours; what stands in them is not defined,
        // so they are written once.
        unsafe { base.write_bytes(0, size) };
        // SAFETY: initialised above, and given back by `keep` alone.
        if !unsafe { self.memory.lend(base, size, Box::new(keep)) } {
            return Err(missing);
        }
        Ok(Address(pointer as u64))
    }

    fn release(&mut self, base: Address, bytes: u64) -> Result<Answer, Fault> {
        let whole = bytes.checked_next_multiple_of(PAGE);
        let whole = whole.filter(|&whole| self.memory.release(base, whole)).ok_or(MISUSE)?;
        self.used -= whole;
        Ok(Answer::Released)
    }

    /// Fences of the host are passed when they are recorded; those of copies are the driver's.
    fn fence(&mut self, stream: StreamId, serial: Serial) -> Result<Answer, Fault> {
        if stream != HOST {
            return self.of_driver(|fences| fences.record(stream, serial).map(|()| Answer::Fenced));
        }
        let recorded = self.host.entry(stream).or_default();
        if serial <= *recorded {
            return Err(MISUSE);
        }
        *recorded = serial;
        Ok(Answer::Fenced)
    }

    fn passed(&mut self, stream: StreamId, serial: Serial, wait: bool) -> Result<Answer, Fault> {
        if stream != HOST {
            return self.of_driver(|fences| {
                let through =
                    if wait { fences.wait(stream, serial) } else { fences.poll(stream, serial) };
                Ok(Answer::Passed { through: through? })
            });
        }
        let through = self.host.get(&stream).copied().unwrap_or_default();
        match wait {
            true if serial > through => Err(MISUSE),
            true => Ok(Answer::Passed { through }),
            false => Ok(Answer::Passed { through: through.min(serial) }),
        }
    }

    fn order(
        &mut self,
        waiter: StreamId,
        after: StreamId,
        serial: Serial,
    ) -> Result<Answer, Fault> {
        match (waiter, after) {
            // The host's work is done.
            (_, HOST) if serial <= self.host.get(&HOST).copied().unwrap_or_default() => {
                Ok(Answer::Ordered)
            }
            (_, HOST) => Err(MISUSE),
            // The host can only wait, and an order never does.
            (HOST, _) => Err(Fault::Driver(NOT_SUPPORTED)),
            _ => self
                .of_driver(|fences| fences.order(waiter, after, serial).map(|()| Answer::Ordered)),
        }
    }

    fn of_driver(
        &mut self,
        call: impl FnOnce(&mut Fences) -> Result<Answer, Amiss>,
    ) -> Result<Answer, Fault> {
        call(&mut self.fences).map_err(|amiss| match amiss {
            Amiss::Misuse => MISUSE,
            Amiss::Driver(error) => {
                self.gpu.note(&error);
                error.fault()
            }
        })
    }

    fn answer(&mut self, want: Want) -> Result<Answer, Fault> {
        let gpu = Arc::clone(&self.gpu);
        let _scope = gpu.scope().map_err(|error| error.fault())?;
        match want {
            Want::Reserve { bytes } => self.reserve(bytes),
            Want::Release { base, bytes } => self.release(base, bytes),
            Want::ReserveRange { .. }
            | Want::ReleaseRange { .. }
            | Want::Map { .. }
            | Want::Unmap { .. } => Err(Fault::Driver(NOT_SUPPORTED)),
            Want::Fence { stream, serial } => self.fence(stream, serial),
            Want::Poll { stream, newest } => self.passed(stream, newest, false),
            Want::Wait { stream, serial } => self.passed(stream, serial, true),
            Want::Order { waiter, after, serial } => self.order(waiter, after, serial),
        }
    }
}

const MISUSE: Fault = Fault::Driver(INVALID_VALUE);

impl Device for PinnedDevice {
    fn perform(&mut self, want: Want) -> Answer {
        let answer = self.answer(want).unwrap_or_else(Answer::Refused);
        self.calls.count(&want, &answer);
        answer
    }

    fn total(&self) -> Option<u64> {
        self.cap
    }

    fn free(&self) -> Option<u64> {
        self.cap.map(|cap| cap - self.used)
    }

    fn granularity(&self) -> u64 {
        PAGE
    }

    fn page_mapping(&self) -> bool {
        false
    }

    fn nanos(&self) -> u64 {
        0
    }

    fn calls(&self) -> Calls {
        self.calls
    }
}

impl Drop for PinnedDevice {
    fn drop(&mut self) {
        self.memory.clear();
    }
}

impl std::fmt::Debug for PinnedDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedDevice({:?}, {} bytes granted)", self.gpu, self.used)
    }
}
