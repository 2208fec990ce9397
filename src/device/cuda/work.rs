//! Work: kernels and copies on the streams of one device, and marks in them.
//!
//! Owns the modules with blockyard's kernels, each compiled by the driver when a kernel of it is
//! first launched. Asked by tensors. Never knows shapes, nor whose memory it is: that addresses are
//! right is the caller's promise.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{CudaError, NOT_READY};
use super::gpu::{Gpu, insist};
use super::streams::{CudaStreamHandle, Streams};
use super::table::{Handle, Launching, Moving};
use crate::vocab::{Address, StreamId};

/// The beginning of a kernel's name, and the module that it is in.
const MODULES: [(&str, &str); 4] = [
    ("by_fill", include_str!("../../../kernels/fill.ptx")),
    ("by_copy", include_str!("../../../kernels/copy.ptx")),
    ("by_cast", include_str!("../../../kernels/cast.ptx")),
    ("by_csr", include_str!("../../../kernels/sparse.ptx")),
];
const THREADS: u32 = 256;
/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;

/// Handles, as numbers.
#[derive(Default)]
struct Loaded {
    modules: HashMap<&'static str, usize>,
    functions: HashMap<String, usize>,
}

/// Launches what it is told to.
pub struct Work {
    gpu: Arc<Gpu>,
    streams: Arc<Streams>,
    launching: &'static Launching,
    moving: &'static Moving,
    most_blocks: u64,
    loaded: Mutex<Loaded>,
}

impl Work {
    /// For the streams of one device.
    ///
    /// # Errors
    /// The driver has no kernels or copies, or failed.
    pub fn new(gpu: &Arc<Gpu>, streams: &Arc<Streams>) -> Result<Self, CudaError> {
        let driver = gpu.driver();
        let launching = driver.launching.as_ref().ok_or(CudaError::Unsupported("kernels"))?;
        let moving = driver.moving.as_ref().ok_or(CudaError::Unsupported("copies"))?;
        let most_blocks = u64::from(gpu.processors()?) * 32;
        let (gpu, streams) = (Arc::clone(gpu), Arc::clone(streams));
        Ok(Self { gpu, streams, launching, moving, most_blocks, loaded: Mutex::default() })
    }

    /// Launches a kernel over so many items, of which threads take one after the other.
    ///
    /// # Errors
    /// No such kernel, an unknown stream, or the driver failed.
    ///
    /// # Safety
    /// The arguments are those of the kernel, in number and type; the memory that they name is there
    /// until the work is done, and nothing that is not ordered with the stream uses it meanwhile.
    pub unsafe fn launch(
        &self,
        stream: StreamId,
        kernel: &str,
        items: u64,
        arguments: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        let _scope = self.gpu.scope()?;
        let function = self.function(kernel)?;
        let handle = self.stream(stream, "cuLaunchKernel")?;
        let blocks = items.div_ceil(u64::from(THREADS)).clamp(1, self.most_blocks) as u32;
        let (arguments, none) = (arguments.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the module is loaded as long as `self`, the stream is kept by its handle; the rest
        // is the caller's promise.
        let code = unsafe {
            (self.launching.kernel)(
                function,
                blocks,
                1,
                1,
                THREADS,
                1,
                1,
                0,
                handle.raw(),
                arguments,
                none,
            )
        };
        self.gpu.check("cuLaunchKernel", code)
    }

    /// Launches a copy from the host. Of page-locked memory it is read in the stream's turn, of other
    /// memory before the call returns.
    ///
    /// # Errors
    /// An unknown stream, or the driver failed.
    ///
    /// # Safety
    /// As [`Work::launch`], for both stretches.
    pub unsafe fn to_device(
        &self,
        stream: StreamId,
        to: Address,
        from: *const u8,
        bytes: usize,
    ) -> Result<(), CudaError> {
        let _scope = self.gpu.scope()?;
        let handle = self.stream(stream, "cuMemcpyHtoDAsync_v2")?;
        // SAFETY: the stream is kept by its handle; the stretches are the caller's promise.
        let code = unsafe { (self.moving.to_device)(to.0, from.cast(), bytes, handle.raw()) };
        self.gpu.check("cuMemcpyHtoDAsync_v2", code)
    }

    /// Launches a copy to the host; as [`Work::to_device`].
    ///
    /// # Errors
    /// As [`Work::to_device`].
    ///
    /// # Safety
    /// As [`Work::to_device`].
    pub unsafe fn to_host(
        &self,
        stream: StreamId,
        to: *mut u8,
        from: Address,
        bytes: usize,
    ) -> Result<(), CudaError> {
        let _scope = self.gpu.scope()?;
        let handle = self.stream(stream, "cuMemcpyDtoHAsync_v2")?;
        // SAFETY: as in `to_device`.
        let code = unsafe { (self.moving.to_host)(to.cast(), from.0, bytes, handle.raw()) };
        self.gpu.check("cuMemcpyDtoHAsync_v2", code)
    }

    /// Waits for all work of a stream.
    ///
    /// # Errors
    /// An unknown stream, one that is captured, or work of it failed.
    pub fn drain(&self, stream: StreamId) -> Result<(), CudaError> {
        let _scope = self.gpu.scope()?;
        self.gpu.drain(&self.stream(stream, "cuStreamSynchronize")?)
    }

    /// Whether these bytes lie in memory that the driver knows, so that it can copy from and to it
    /// in a stream's turn.
    #[must_use]
    pub fn knows(&self, at: Address, bytes: u64) -> bool {
        let found = self.gpu.pointer(at).ok();
        found.is_some_and(|found| at.0 - found.base.0 + bytes <= found.bytes)
    }

    /// A mark behind all work of a stream so far.
    ///
    /// # Errors
    /// An unknown stream, one that is captured, or the driver failed.
    pub fn mark(&self, stream: StreamId) -> Result<Mark, CudaError> {
        let _scope = self.gpu.scope()?;
        let handle = self.stream(stream, "cuEventRecord")?;
        self.gpu.not_captured(&handle)?;
        let mut raw: Handle = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { (self.gpu.driver().core.event_create)(&mut raw, NO_TIMING) };
        self.gpu.check("cuEventCreate", code)?;
        let (gpu, streams) = (Arc::clone(&self.gpu), Arc::clone(&self.streams));
        let mark = Mark { gpu, streams, event: raw as usize };
        // SAFETY: the event lives until `mark` is dropped, the stream is kept by its handle.
        let code = unsafe { (self.gpu.driver().core.event_record)(raw, handle.raw()) };
        self.gpu.check("cuEventRecord", code)?;
        Ok(mark)
    }

    fn stream(&self, id: StreamId, call: &'static str) -> Result<CudaStreamHandle, CudaError> {
        self.streams.get(id).ok_or_else(|| self.gpu.unknown_stream(call))
    }

    fn function(&self, kernel: &str) -> Result<Handle, CudaError> {
        let missing = CudaError::Unsupported("this kernel");
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&function) = loaded.functions.get(kernel) {
            return Ok(function as Handle);
        }
        let module = MODULES.into_iter().find(|(begin, _)| kernel.starts_with(begin));
        let (begin, text) = module.ok_or(missing.clone())?;
        let module = match loaded.modules.get(begin) {
            Some(&module) => module,
            None => {
                let module = self.load(text)?;
                loaded.modules.insert(begin, module);
                module
            }
        };
        let name = CString::new(kernel).map_err(|_| missing)?;
        let mut function: Handle = std::ptr::null_mut();
        // SAFETY: reads a name that ends with a zero, writes one handle, which lives as the module does.
        let code =
            unsafe { (self.launching.function)(&mut function, module as Handle, name.as_ptr()) };
        self.gpu.check("cuModuleGetFunction", code)?;
        loaded.functions.insert(kernel.to_string(), function as usize);
        Ok(function)
    }

    fn load(&self, text: &str) -> Result<usize, CudaError> {
        let text = CString::new(text).map_err(|_| CudaError::Unsupported("these kernels"))?;
        let mut module: Handle = std::ptr::null_mut();
        // SAFETY: reads a text that ends with a zero, writes one handle; unloaded in `drop`.
        let code = unsafe { (self.launching.module_load)(&mut module, text.as_ptr().cast()) };
        self.gpu.check("cuModuleLoadData", code)?;
        Ok(module as usize)
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Work({:?})", self.gpu)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let Some(_scope) = self.gpu.last_scope() else { return };
        let loaded = self.loaded.get_mut().unwrap_or_else(PoisonError::into_inner);
        for &module in loaded.modules.values() {
            insist(|| {
                // SAFETY: loaded in `load`, unloaded once; launched work still runs to its end.
                let code = unsafe { (self.launching.module_unload)(module as Handle) };
                self.gpu.check("cuModuleUnload", code)
            });
        }
    }
}

/// A place in a stream's work.
pub struct Mark {
    gpu: Arc<Gpu>,
    streams: Arc<Streams>,
    event: usize,
}

impl Mark {
    /// Whether the stream has come so far.
    ///
    /// # Errors
    /// Work before it failed.
    pub fn passed(&self) -> Result<bool, CudaError> {
        let _scope = self.gpu.scope()?;
        // SAFETY: the event lives until `drop`.
        match unsafe { (self.gpu.driver().core.event_query)(self.event as Handle) } {
            NOT_READY => Ok(false),
            code => self.gpu.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Waits until the stream has come so far.
    ///
    /// # Errors
    /// Work before it failed.
    pub fn wait(&self) -> Result<(), CudaError> {
        let _scope = self.gpu.scope()?;
        // SAFETY: the event lives until `drop`.
        let code = unsafe { (self.gpu.driver().core.event_synchronize)(self.event as Handle) };
        self.gpu.check("cuEventSynchronize", code)
    }

    /// Holds later work of a stream of the same device back until then.
    ///
    /// # Errors
    /// An unknown stream, or the driver failed.
    pub fn hold_back(&self, stream: StreamId) -> Result<(), CudaError> {
        let _scope = self.gpu.scope()?;
        let unknown = || self.gpu.unknown_stream("cuStreamWaitEvent");
        let handle = self.streams.get(stream).ok_or_else(unknown)?;
        // SAFETY: the event lives until `drop`, the stream is kept by its handle.
        let code = unsafe {
            (self.gpu.driver().core.stream_wait_event)(handle.raw(), self.event as Handle, 0)
        };
        self.gpu.check("cuStreamWaitEvent", code)
    }
}

impl std::fmt::Debug for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mark({:#x})", self.event)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let Some(_scope) = self.gpu.last_scope() else { return };
        insist(|| {
            // SAFETY: created in `Work::mark`, destroyed once; who waits for it still does.
            let code = unsafe { (self.gpu.driver().core.event_destroy)(self.event as Handle) };
            self.gpu.check("cuEventDestroy_v2", code)
        });
    }
}
