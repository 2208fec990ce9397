//! Pool: a memory pool of the driver, from which segments can be taken (`cudaMallocAsync`).
//!
//! Asked by segments. The driver's pool is ordered by a stream; ours is a stream of its own, waited
//! for at every call, so that a segment is there for every stream when the call returns.

use std::ffi::c_int;
use std::sync::Arc;

use super::error::CudaError;
use super::gpu::{Gpu, insist};
use super::streams::CudaStreamHandle;
use super::table::{Handle, Location, PoolProps, Pooling};

/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const RELEASE_THRESHOLD: c_int = 4;

/// A pool of the driver.
pub(super) struct Pool {
    gpu: Arc<Gpu>,
    table: &'static Pooling,
    raw: Handle,
    stream: CudaStreamHandle,
}

// SAFETY: the pool is a handle that every thread may use; all else is safe by itself.
unsafe impl Send for Pool {}

impl Pool {
    /// A new pool, which keeps up to `keep` bytes that are not in use.
    pub(super) fn new(gpu: &Arc<Gpu>, keep: u64) -> Result<Self, CudaError> {
        let missing = CudaError::Unsupported("memory pools");
        let Some(table) = gpu.driver().pooling.as_ref().filter(|_| gpu.pools()) else {
            return Err(missing);
        };
        let stream = CudaStreamHandle::new(gpu)?;
        let _scope = gpu.scope()?;
        let access = gpu.access();
        let location: Location = gpu.page_prop().location;
        let windows = std::ptr::null_mut();
        let props = PoolProps { kind: 1, handle_types: 0, location, windows, reserved: [0; 8] };
        let mut raw = std::ptr::null_mut();
        // SAFETY: reads the properties, writes one handle; destroyed in `drop`.
        gpu.check("cuMemPoolCreate", unsafe { (table.create)(&mut raw, &props) })?;
        let pool = Self { gpu: Arc::clone(gpu), table, raw, stream };
        let mut keep = keep;
        let value = std::ptr::from_mut(&mut keep).cast();
        // SAFETY: reads a 64-bit size, which this attribute is.
        let code = unsafe { (table.set_attribute)(raw, RELEASE_THRESHOLD, value) };
        gpu.check("cuMemPoolSetAttribute", code)?;
        // Its own device has access already, and must not be named.
        if let [_, peers @ ..] = &access[..]
            && !peers.is_empty()
        {
            // SAFETY: reads so many descriptions.
            let code = unsafe { (table.set_access)(raw, peers.as_ptr(), peers.len()) };
            gpu.check("cuMemPoolSetAccess", code)?;
        }
        Ok(pool)
    }

    pub(super) fn obtain(&self, bytes: u64) -> Result<u64, CudaError> {
        let mut pointer = 0;
        // SAFETY: writes one address; pool and stream live as long as `self`.
        let code = unsafe {
            (self.table.alloc)(&mut pointer, bytes as usize, self.raw, self.stream.raw())
        };
        self.gpu.check("cuMemAllocFromPoolAsync", code)?;
        if let Err(error) = self.gpu.drain(&self.stream) {
            insist(|| self.free(pointer));
            return Err(error);
        }
        Ok(pointer)
    }

    /// The driver knows only its own order, so all work is waited for first.
    pub(super) fn give(&self, pointer: u64) -> Result<(), CudaError> {
        self.gpu.synchronize()?;
        self.free(pointer)?;
        // It is given back, whatever this comes to.
        let _ = self.gpu.drain(&self.stream);
        Ok(())
    }

    fn free(&self, pointer: u64) -> Result<(), CudaError> {
        // SAFETY: the pointer came from `obtain`, and nothing uses it any more.
        let code = unsafe { (self.table.free)(pointer, self.stream.raw()) };
        self.gpu.check("cuMemFreeAsync", code)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let Some(_scope) = self.gpu.last_scope() else { return };
        let _ = self.gpu.drain(&self.stream);
        insist(|| {
            // SAFETY: created in `new`, destroyed once; the driver keeps it until its last memory is back.
            self.gpu.check("cuMemPoolDestroy", unsafe { (self.table.destroy)(self.raw) })
        });
    }
}
