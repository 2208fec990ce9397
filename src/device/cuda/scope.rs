//! Scope: a device's context is current on this thread, and afterwards the caller's is again.
//!
//! Asked around every row of driver calls. So an allocator works beside other libraries' contexts,
//! and from any thread. While the scope is open the thread may make calls that a capture of another
//! thread would otherwise forbid: they concern memory, not what is captured.

use std::ffi::c_int;
use std::marker::PhantomData;

use super::driver::Driver;
use super::error::{CudaError, SUCCESS};
use super::table::Handle;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

/// An open scope; what it changed is put back when it is dropped.
pub(super) struct Scope {
    driver: &'static Driver,
    pushed: bool,
    mode: Option<c_int>,
    /// It belongs to its thread.
    _here: PhantomData<*const ()>,
}

impl Scope {
    pub(super) fn enter(driver: &'static Driver, context: Handle) -> Result<Self, CudaError> {
        let core = &driver.core;
        let mut current = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let found = unsafe { (core.context_get)(&mut current) };
        driver.check("cuCtxGetCurrent", found)?;
        let pushed = current != context;
        if pushed {
            // SAFETY: the context is retained by whoever asks for the scope.
            driver.check("cuCtxPushCurrent_v2", unsafe { (core.context_push)(context) })?;
        }
        let mut mode = RELAXED;
        // SAFETY: reads one integer and writes the former one there.
        let exchanged = unsafe { (core.exchange_capture_mode)(&mut mode) };
        let mode = (exchanged == SUCCESS).then_some(mode);
        Ok(Self { driver, pushed, mode, _here: PhantomData })
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let core = &self.driver.core;
        if let Some(mut mode) = self.mode {
            // SAFETY: as in `enter`.
            let code = unsafe { (core.exchange_capture_mode)(&mut mode) };
            if code != SUCCESS {
                // SAFETY: as above; the mode was not exchanged.
                unsafe { (core.exchange_capture_mode)(&mut mode) };
            }
        }
        if self.pushed {
            let mut popped = std::ptr::null_mut();
            // SAFETY: takes off what `enter` put on this thread's stack; the scope cannot leave its thread.
            let code = unsafe { (core.context_pop)(&mut popped) };
            if code != SUCCESS {
                // SAFETY: as above; nothing was taken off.
                unsafe { (core.context_pop)(&mut popped) };
            }
        }
    }
}
