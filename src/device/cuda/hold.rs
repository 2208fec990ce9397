//! Hold: work on a stream that stays unfinished until it is let go, to see what waits for it.
//!
//! Asked by the laws and by tests.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::error::CudaError;
use super::gpu::Gpu;
use super::streams::CudaStreamHandle;

#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

/// A stream that is held up. It goes on when this is dropped.
pub struct Held(Arc<Gate>);

impl Drop for Held {
    fn drop(&mut self) {
        *self.0.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.opened.notify_all();
    }
}

impl Gpu {
    /// Holds a stream up: what is launched on it from now on waits until the hold is dropped.
    ///
    /// # Errors
    /// The driver failed.
    pub fn hold(&self, stream: &CudaStreamHandle) -> Result<Held, CudaError> {
        let missing = CudaError::Unsupported("host functions in streams");
        let table = self.driver().launching.as_ref().ok_or(missing)?;
        let _scope = self.scope()?;
        let gate = Arc::new(Gate::default());
        let data = Arc::into_raw(Arc::clone(&gate));
        // SAFETY: the stream is kept by its handle; the function takes the one count of the gate that `data` is.
        let code = unsafe { (table.host)(stream.raw(), wait, data.cast_mut().cast()) };
        if let Err(error) = self.check("cuLaunchHostFunc", code) {
            // SAFETY: the driver did not take the function, so the count is still ours.
            drop(unsafe { Arc::from_raw(data) });
            return Err(error);
        }
        Ok(Held(gate))
    }
}

/// Called once by the driver, from a thread of its own.
unsafe extern "C" fn wait(data: *mut c_void) {
    // SAFETY: `data` is the count that `Gpu::hold` gave away, and this is its only use.
    let gate = unsafe { Arc::from_raw(data.cast::<Gate>().cast_const()) };
    let open = gate.open.lock().unwrap_or_else(PoisonError::into_inner);
    let opened = gate.opened.wait_while(open, |open| !*open);
    drop(opened.unwrap_or_else(PoisonError::into_inner));
}
