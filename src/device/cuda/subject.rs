//! Subject: a CUDA device that the laws can be put to: streams of its own, and work to hold.
//!
//! Asked by tests and by the check of a GPU.

use std::collections::HashMap;
use std::sync::Arc;

use super::device::{CudaConfig, CudaDevice};
use super::error::CudaError;
use super::gpu::Gpu;
use super::hold::Held;
use super::streams::CudaStreamHandle;
use crate::device::contract::{Calls, Device};
use crate::device::laws::Subject;
use crate::vocab::{Address, Answer, StreamId, Want};

/// A device with as many streams as the laws name.
pub struct CudaSubject {
    held: HashMap<StreamId, Held>,
    device: CudaDevice,
}

impl CudaSubject {
    /// How many streams it has.
    pub const STREAMS: u32 = 8;

    /// A device on which nothing is granted yet.
    ///
    /// # Errors
    /// The driver failed.
    pub fn new(gpu: &Arc<Gpu>, config: CudaConfig) -> Result<Self, CudaError> {
        let device = CudaDevice::new(Arc::clone(gpu), config)?;
        for id in 0..Self::STREAMS {
            device.streams().enter(StreamId(id), CudaStreamHandle::new(gpu)?);
        }
        Ok(Self { held: HashMap::new(), device })
    }
}

impl Device for CudaSubject {
    fn perform(&mut self, want: Want) -> Answer {
        self.device.perform(want)
    }
    fn total(&self) -> Option<u64> {
        self.device.total()
    }
    fn free(&self) -> Option<u64> {
        self.device.free()
    }
    fn granularity(&self) -> u64 {
        self.device.granularity()
    }
    fn page_mapping(&self) -> bool {
        self.device.page_mapping()
    }
    fn nanos(&self) -> u64 {
        self.device.nanos()
    }
    fn calls(&self) -> Calls {
        self.device.calls()
    }
}

impl Subject for CudaSubject {
    fn busy(&mut self, stream: StreamId, _base: Address, _bytes: u64) -> bool {
        let Some(handle) = self.device.streams().get(stream) else { return false };
        let held = self.device.gpu().hold(&handle).ok();
        held.is_some_and(|held| self.held.insert(stream, held).is_none())
    }

    fn idle(&mut self, stream: StreamId) {
        self.held.remove(&stream);
    }
}
