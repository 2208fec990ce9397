//! Streams: which stream of the driver a stream of the core is.
//!
//! Asked by the device at every fence, and by whoever hands out streams. A handle that is kept here
//! is valid: the driver does not survive the use of a stream that was destroyed.
//!
//! Stream 0 is the context's default stream unless something else is said. A thread's own default
//! stream has no handle by which another thread could name it. From elsewhere the context's default
//! stream stands in for it: work in that one waits for the default streams of all threads, and
//! they for it, so fences are late and never early.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use super::error::{CAPTURE_IMPLICIT, CAPTURE_UNSUPPORTED, CudaError, INVALID_HANDLE};
use super::gpu::{Gpu, insist};
use super::table::Handle;
use crate::vocab::StreamId;

/// `CU_STREAM_NON_BLOCKING`: it does not wait for the default stream.
const NON_BLOCKING: u32 = 1;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

/// A stream of the driver. Cheap to clone.
#[derive(Clone)]
pub struct CudaStreamHandle(Kind);

#[derive(Clone)]
enum Kind {
    Default,
    OfThread(ThreadId),
    Kept { raw: usize, _keep: Arc<dyn Any + Send + Sync> },
    Own(Arc<Own>),
}

/// A stream that was created here.
struct Own {
    gpu: Arc<Gpu>,
    raw: usize,
}

impl Drop for Own {
    fn drop(&mut self) {
        let Some(_scope) = self.gpu.last_scope() else { return };
        insist(|| {
            // SAFETY: created in `CudaStreamHandle::new`; this was its last user. Work in it still runs to its end.
            let code = unsafe { (self.gpu.driver().core.stream_destroy)(self.raw as Handle) };
            self.gpu.check("cuStreamDestroy_v2", code)
        });
    }
}

impl CudaStreamHandle {
    /// The context's default stream, which all blocking streams wait for and which waits for them.
    #[must_use]
    pub const fn default_stream() -> Self {
        Self(Kind::Default)
    }

    /// The default stream of this thread.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self(Kind::OfThread(std::thread::current().id()))
    }

    /// A new stream, destroyed when the last copy of the handle is dropped.
    ///
    /// # Errors
    /// The driver failed.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        let _scope = gpu.scope()?;
        let mut raw: Handle = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { (gpu.driver().core.stream_create)(&mut raw, NON_BLOCKING) };
        gpu.check("cuStreamCreate", code)?;
        Ok(Self(Kind::Own(Arc::new(Own { gpu: Arc::clone(gpu), raw: raw as usize }))))
    }

    /// A stream of other code, for which `keep` stands.
    ///
    /// # Safety
    /// `raw` is a stream of the device's context, and valid as long as `keep` lives.
    #[must_use]
    pub unsafe fn lent(raw: *mut std::ffi::c_void, keep: Arc<dyn Any + Send + Sync>) -> Self {
        match raw as usize {
            0 | 1 => Self::default_stream(),
            PER_THREAD => Self::of_this_thread(),
            raw => Self(Kind::Kept { raw, _keep: keep }),
        }
    }

    /// The driver's handle, as this thread must spell it.
    #[must_use]
    pub fn raw(&self) -> *mut std::ffi::c_void {
        let raw = match &self.0 {
            Kind::Default => 0,
            Kind::OfThread(owner) if *owner == std::thread::current().id() => PER_THREAD,
            Kind::OfThread(_) => 0,
            Kind::Kept { raw, .. } => *raw,
            Kind::Own(own) => own.raw,
        };
        raw as Handle
    }
}

impl std::fmt::Debug for CudaStreamHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaStreamHandle({:p})", self.raw())
    }
}

/// The streams that one device knows.
#[derive(Debug)]
pub struct Streams(Mutex<HashMap<StreamId, CudaStreamHandle>>);

impl Default for Streams {
    fn default() -> Self {
        let default = (StreamId(0), CudaStreamHandle::default_stream());
        Self(Mutex::new(HashMap::from([default])))
    }
}

impl Streams {
    /// `id` is this stream from now on.
    pub fn enter(&self, id: StreamId, handle: CudaStreamHandle) {
        let former = {
            let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            streams.insert(id, handle)
        };
        // Destroyed with no lock held.
        drop(former);
    }

    /// The stream, if it was ever entered.
    #[must_use]
    pub fn get(&self, id: StreamId) -> Option<CudaStreamHandle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}

impl Gpu {
    /// Whether work on the stream is being captured into a graph. Asking does not disturb it.
    pub(super) fn is_capturing(&self, stream: &CudaStreamHandle) -> Result<bool, CudaError> {
        let mut status = 0;
        // SAFETY: the handle is valid as long as it is kept; writes one integer.
        let code = unsafe { (self.driver().core.stream_is_capturing)(stream.raw(), &mut status) };
        if code == CAPTURE_IMPLICIT {
            return Ok(true);
        }
        self.check("cuStreamIsCapturing", code)?;
        Ok(status != 0)
    }

    /// An error where the stream is captured: what comes next would end up in the graph, or break it.
    pub(super) fn not_captured(&self, stream: &CudaStreamHandle) -> Result<(), CudaError> {
        if self.is_capturing(stream)? {
            return Err(self.driver().failed("cuStreamIsCapturing", CAPTURE_UNSUPPORTED));
        }
        Ok(())
    }

    /// Waits for all work of a stream.
    pub(super) fn drain(&self, stream: &CudaStreamHandle) -> Result<(), CudaError> {
        self.not_captured(stream)?;
        // SAFETY: the handle is valid as long as it is kept.
        let code = unsafe { (self.driver().core.stream_synchronize)(stream.raw()) };
        self.check("cuStreamSynchronize", code)
    }

    pub(super) fn unknown_stream(&self, call: &'static str) -> CudaError {
        self.driver().failed(call, INVALID_HANDLE)
    }
}
