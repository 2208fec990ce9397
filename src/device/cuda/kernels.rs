//! Kernels: memory filled with a pattern on the device, and checked there, to judge an allocator.
//!
//! Asked by tests and by the check of a GPU, through `interop`. Their PTX is part of this crate; it
//! is compiled by the driver when they are loaded.

use std::ffi::{CStr, CString, c_void};
use std::sync::Arc;

use super::error::CudaError;
use super::gpu::{Gpu, insist};
use super::table::{Handle, Launching};
use crate::vocab::Address;

const PTX: &str = include_str!("../../../kernels/pattern.ptx");
const THREADS: u32 = 256;
/// Enough to keep a device busy; threads take several words each.
const BLOCKS: u64 = 1024;

/// The kernels that fill and check.
pub struct PatternKernels {
    gpu: Arc<Gpu>,
    table: &'static Launching,
    module: Handle,
    fill: Handle,
    verify: Handle,
}

// SAFETY: modules and functions are handles that every thread may use.
unsafe impl Send for PatternKernels {}
// SAFETY: as above.
unsafe impl Sync for PatternKernels {}

impl PatternKernels {
    /// Loads them into the device's context.
    ///
    /// # Errors
    /// The driver has no use for the PTX, or failed.
    pub fn load(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        let missing = CudaError::Unsupported("kernels");
        let table = gpu.driver().launching.as_ref().ok_or(missing.clone())?;
        let text = CString::new(PTX).map_err(|_| missing)?;
        let _scope = gpu.scope()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: reads a text that ends with a zero, writes one handle; unloaded in `drop`.
        let code = unsafe { (table.module_load)(&mut module, text.as_ptr().cast()) };
        gpu.check("cuModuleLoadData", code)?;
        let none = std::ptr::null_mut();
        let mut kernels = Self { gpu: Arc::clone(gpu), table, module, fill: none, verify: none };
        kernels.fill = kernels.function(c"by_pattern_fill")?;
        kernels.verify = kernels.function(c"by_pattern_verify")?;
        Ok(kernels)
    }

    fn function(&self, name: &CStr) -> Result<Handle, CudaError> {
        let mut function = std::ptr::null_mut();
        // SAFETY: reads a name that ends with a zero, writes one handle, which lives as the module does.
        let code = unsafe { (self.table.function)(&mut function, self.module, name.as_ptr()) };
        self.gpu.check("cuModuleGetFunction", code)?;
        Ok(function)
    }

    /// Launches the fill of `bytes` at `at`, a multiple of 8, with the pattern of `seed`.
    ///
    /// # Errors
    /// The driver failed.
    ///
    /// # Safety
    /// `stream` is a stream of the device's context; the memory is there until the work is done,
    /// and nothing else uses it meanwhile.
    pub unsafe fn fill(
        &self,
        stream: *mut c_void,
        at: Address,
        bytes: u64,
        seed: u64,
    ) -> Result<(), CudaError> {
        let (mut at, mut bytes, mut seed, mut origin) = (at.0, bytes, seed, 0_u64);
        let mut arguments =
            [argument(&mut at), argument(&mut bytes), argument(&mut seed), argument(&mut origin)];
        self.launch(stream, self.fill, bytes, &mut arguments)
    }

    /// Launches the check of what [`PatternKernels::fill`] wrote. `found` is two words of device
    /// memory that hold 2^64 - 1 and 0: afterwards the lowest index of a wrong word, and how many
    /// are wrong.
    ///
    /// # Errors
    /// The driver failed.
    ///
    /// # Safety
    /// As [`PatternKernels::fill`], for both stretches of memory.
    pub unsafe fn verify(
        &self,
        stream: *mut c_void,
        at: Address,
        bytes: u64,
        seed: u64,
        found: Address,
    ) -> Result<(), CudaError> {
        let (mut at, mut bytes, mut seed, mut origin) = (at.0, bytes, seed, 0_u64);
        let mut found = found.0;
        let mut arguments = [
            argument(&mut at),
            argument(&mut bytes),
            argument(&mut seed),
            argument(&mut origin),
            argument(&mut found),
        ];
        self.launch(stream, self.verify, bytes, &mut arguments)
    }

    fn launch(
        &self,
        stream: Handle,
        function: Handle,
        bytes: u64,
        arguments: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        let _scope = self.gpu.scope()?;
        let blocks = bytes.div_ceil(8 * u64::from(THREADS)).clamp(1, BLOCKS) as u32;
        let (arguments, none) = (arguments.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the function's module is loaded; the driver copies the arguments, whose number and
        // types are the kernel's, before it returns; what they point to is the caller's promise.
        let code = unsafe {
            (self.table.kernel)(function, blocks, 1, 1, THREADS, 1, 1, 0, stream, arguments, none)
        };
        self.gpu.check("cuLaunchKernel", code)
    }
}

fn argument(value: &mut u64) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

impl Drop for PatternKernels {
    fn drop(&mut self) {
        let Some(_scope) = self.gpu.last_scope() else { return };
        insist(|| {
            // SAFETY: loaded in `load`, unloaded once; launched work still runs to its end.
            let code = unsafe { (self.table.module_unload)(self.module) };
            self.gpu.check("cuModuleUnload", code)
        });
    }
}
