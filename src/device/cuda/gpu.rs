//! Gpu: one CUDA device with its context, and what can be asked of it.
//!
//! Owns the hold on the context: retained when opened, given back when dropped. Asked by
//! [`CudaDevice`](super::CudaDevice) and by programs. Never knows segments or fences.

use std::any::Any;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Arc, Mutex, PoisonError};

use super::driver::Driver;
use super::error::{CudaError, PEER_ALREADY};
use super::scope::Scope;
use super::table::{AccessDesc, AllocationProp, Handle, Location};
use crate::vocab::{Address, MIB};

const MEMORY_POOLS_SUPPORTED: c_int = 115;
const PAGES_SUPPORTED: c_int = 102;
const PROCESSORS: c_int = 16;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;
const POINTER_ORDINAL: c_int = 9;
const POINTER_RANGE_START: c_int = 11;
const POINTER_RANGE_SIZE: c_int = 12;

/// Who gives the context back.
enum Hold {
    /// The device's primary context, retained here.
    Primary,
    /// A context of other code, which lives as long as this value.
    Lent { _keep: Box<dyn Any + Send + Sync> },
}

/// One device and its context. All methods may be called from any thread.
pub struct Gpu {
    driver: &'static Driver,
    ordinal: u32,
    device: c_int,
    context: Handle,
    hold: Hold,
    granularity: u64,
    pages: bool,
    /// Devices whose kernels may use this one's memory.
    peers: Mutex<Vec<c_int>>,
    last_error: Mutex<Option<CudaError>>,
}

// SAFETY: the context is a handle that every thread may make current; all else is safe by itself.
unsafe impl Send for Gpu {}
// SAFETY: as above; the driver locks its own state.
unsafe impl Sync for Gpu {}

/// What an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The device whose memory it is.
    pub ordinal: u32,
    /// Where the allocation, or the address range, starts.
    pub base: Address,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Gpu {
    /// The device of this number, in its primary context, which other libraries share.
    ///
    /// # Errors
    /// No driver, no such device, or no context.
    pub fn open(ordinal: u32) -> Result<Arc<Self>, CudaError> {
        let driver = Driver::load()?;
        let device = Self::find(driver, ordinal)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one handle; given back in `drop`.
        let code = unsafe { (driver.core.primary_retain)(&mut context, device) };
        driver.check("cuDevicePrimaryCtxRetain", code)?;
        Self::new(driver, ordinal, device, context, Hold::Primary)
    }

    /// A device in a context of other code, for which `keep` stands: it is dropped last.
    ///
    /// # Errors
    /// No driver, no such device, or a context that cannot be entered.
    ///
    /// # Safety
    /// `context` is a context of this device, and valid as long as `keep` lives.
    pub unsafe fn adopt(
        ordinal: u32,
        context: *mut std::ffi::c_void,
        keep: Box<dyn Any + Send + Sync>,
    ) -> Result<Arc<Self>, CudaError> {
        let driver = Driver::load()?;
        let device = Self::find(driver, ordinal)?;
        Self::new(driver, ordinal, device, context, Hold::Lent { _keep: keep })
    }

    fn find(driver: &'static Driver, ordinal: u32) -> Result<c_int, CudaError> {
        let count = driver.devices();
        if ordinal >= count {
            return Err(CudaError::NoDevice { ordinal, count });
        }
        let mut device = 0;
        // SAFETY: writes one integer.
        let code = unsafe { (driver.core.device_get)(&mut device, ordinal as c_int) };
        driver.check("cuDeviceGet", code)?;
        Ok(device)
    }

    fn new(
        driver: &'static Driver,
        ordinal: u32,
        device: c_int,
        context: Handle,
        hold: Hold,
    ) -> Result<Arc<Self>, CudaError> {
        // From here on a failure gives the context back.
        let mut gpu = Self {
            driver,
            ordinal,
            device,
            context,
            hold,
            granularity: 2 * MIB,
            pages: false,
            peers: Mutex::default(),
            last_error: Mutex::default(),
        };
        gpu.pages = driver.paging.is_some() && gpu.attribute(PAGES_SUPPORTED)? != 0;
        if gpu.pages {
            let _scope = gpu.scope()?;
            gpu.granularity = gpu.smallest_page()?;
        }
        Ok(Arc::new(gpu))
    }

    fn smallest_page(&self) -> Result<u64, CudaError> {
        let paging = self.driver.paging.as_ref().ok_or(CudaError::Unsupported("pages"))?;
        let (prop, mut bytes) = (self.page_prop(), 0);
        // SAFETY: reads the properties and writes one size; 0 asks for the minimum.
        let code = unsafe { (paging.granularity)(&mut bytes, &prop, 0) };
        self.check("cuMemGetAllocationGranularity", code)?;
        if !bytes.is_power_of_two() {
            return Err(CudaError::Unsupported("pages of a power of two"));
        }
        Ok(bytes as u64)
    }

    /// The driver that it was found by.
    #[must_use]
    pub const fn driver(&self) -> &'static Driver {
        self.driver
    }

    /// Its number.
    #[must_use]
    pub const fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// The driver's handle of the context.
    #[must_use]
    pub const fn context(&self) -> *mut std::ffi::c_void {
        self.context
    }

    /// What the smallest page measures, and segments are rounded to, in bytes.
    #[must_use]
    pub const fn granularity(&self) -> u64 {
        self.granularity
    }

    /// Whether pages can be mapped into address ranges.
    #[must_use]
    pub const fn page_mapping(&self) -> bool {
        self.pages
    }

    /// Whether the driver has memory pools of its own.
    #[must_use]
    pub fn pools(&self) -> bool {
        self.driver.pooling.is_some() && self.attribute(MEMORY_POOLS_SUPPORTED) == Ok(1)
    }

    /// Its name, such as "NVIDIA A100-SXM4-80GB".
    ///
    /// # Errors
    /// The driver failed.
    pub fn name(&self) -> Result<String, CudaError> {
        let mut text: [c_char; 256] = [0; 256];
        // SAFETY: writes at most so many characters, the last of them a zero.
        let code = unsafe {
            (self.driver.core.device_name)(text.as_mut_ptr(), text.len() as c_int - 1, self.device)
        };
        self.check("cuDeviceGetName", code)?;
        // SAFETY: the last character of the array was never written and is a zero.
        Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// Its compute capability, such as 9 and 0.
    ///
    /// # Errors
    /// The driver failed.
    pub fn compute_capability(&self) -> Result<(i32, i32), CudaError> {
        Ok((self.attribute(MAJOR)?, self.attribute(MINOR)?))
    }

    /// How many multiprocessors it has.
    ///
    /// # Errors
    /// The driver failed.
    pub fn processors(&self) -> Result<u32, CudaError> {
        Ok(u32::try_from(self.attribute(PROCESSORS)?).unwrap_or(1).max(1))
    }

    fn attribute(&self, which: c_int) -> Result<c_int, CudaError> {
        let mut value = 0;
        // SAFETY: writes one integer.
        let code = unsafe { (self.driver.core.device_attribute)(&mut value, which, self.device) };
        self.check("cuDeviceGetAttribute", code)?;
        Ok(value)
    }

    /// Bytes of memory that are free, and that there are; other processes count.
    ///
    /// # Errors
    /// The driver failed.
    pub fn memory(&self) -> Result<(u64, u64), CudaError> {
        let _scope = self.scope()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two sizes.
        let code = unsafe { (self.driver.core.mem_info)(&mut free, &mut total) };
        self.check("cuMemGetInfo_v2", code)?;
        Ok((free as u64, total as u64))
    }

    /// What an address belongs to.
    ///
    /// # Errors
    /// It is none of the driver's.
    pub fn pointer(&self, address: Address) -> Result<Pointer, CudaError> {
        let _scope = self.scope()?;
        let (mut ordinal, mut base, mut bytes) = (0_i32, 0_u64, 0_usize);
        self.pointer_attribute(POINTER_ORDINAL, address, &mut ordinal)?;
        self.pointer_attribute(POINTER_RANGE_START, address, &mut base)?;
        self.pointer_attribute(POINTER_RANGE_SIZE, address, &mut bytes)?;
        let ordinal = u32::try_from(ordinal).unwrap_or(0);
        Ok(Pointer { ordinal, base: Address(base), bytes: bytes as u64 })
    }

    /// `value` has the type that the attribute is documented with.
    fn pointer_attribute<T>(
        &self,
        which: c_int,
        address: Address,
        value: &mut T,
    ) -> Result<(), CudaError> {
        let value = std::ptr::from_mut(value).cast();
        // SAFETY: writes one value of the attribute's type; the address is only looked up.
        let code = unsafe { (self.driver.core.pointer_attribute)(value, which, address.0) };
        self.check("cuPointerGetAttribute", code)
    }

    /// Lets kernels of `other` use this device's memory: segments at once, pages that are mapped
    /// from now on.
    ///
    /// # Errors
    /// The two cannot reach each other, or the driver failed.
    pub fn share_with(&self, other: &Self) -> Result<(), CudaError> {
        let missing = CudaError::Unsupported("access from another device");
        let peering = self.driver.peering.as_ref().ok_or(missing.clone())?;
        let mut can = 0;
        // SAFETY: writes one integer.
        let code = unsafe { (peering.can_access)(&mut can, other.device, self.device) };
        self.check("cuDeviceCanAccessPeer", code)?;
        if can == 0 {
            return Err(missing);
        }
        let _scope = other.scope()?;
        // SAFETY: both contexts are retained; flags must be 0.
        let code = unsafe { (peering.enable)(self.context, 0) };
        if code != PEER_ALREADY {
            self.check("cuCtxEnablePeerAccess", code)?;
        }
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if !peers.contains(&other.device) {
            peers.push(other.device);
        }
        Ok(())
    }

    /// Waits for all work of the context.
    ///
    /// # Errors
    /// Work failed, or a capture is underway.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let _scope = self.scope()?;
        // SAFETY: waits; no arguments.
        let code = unsafe { (self.driver.core.context_synchronize)() };
        self.check("cuCtxSynchronize", code)
    }

    /// The last error that a device or a request on it came to, with code, name and call.
    #[must_use]
    pub fn last_error(&self) -> Option<CudaError> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn note(&self, error: &CudaError) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
    }

    /// Makes the context current until the scope is dropped.
    pub(super) fn scope(&self) -> Result<Scope, CudaError> {
        Scope::enter(self.driver, self.context)
    }

    /// The same, to give things back in, where nobody can be told of a failure.
    pub(super) fn last_scope(&self) -> Option<Scope> {
        self.scope().or_else(|_| self.scope()).ok()
    }

    #[inline]
    pub(super) fn check(&self, call: &'static str, code: c_int) -> Result<(), CudaError> {
        self.driver.check(call, code)
    }

    /// This device's memory, pinned, not exported.
    pub(super) const fn page_prop(&self) -> AllocationProp {
        let location = Location { kind: 1, id: self.device };
        let windows = std::ptr::null_mut();
        AllocationProp { kind: 1, handle_types: 0, location, windows, flags: [0; 8] }
    }

    /// Read and write, for this device and its peers.
    pub(super) fn access(&self) -> Vec<AccessDesc> {
        let peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let all = std::iter::once(self.device).chain(peers.iter().copied());
        all.map(|id| AccessDesc { location: Location { kind: 1, id }, flags: 3 }).collect()
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gpu({} of {})", self.ordinal, self.driver.path())
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if matches!(self.hold, Hold::Primary) {
            // At the end of the process the driver may be gone already: an error then, and nothing to do.
            insist(|| {
                // SAFETY: retained in `open`, given back once.
                let code = unsafe { (self.driver.core.primary_release)(self.device) };
                self.check("cuDevicePrimaryCtxRelease_v2", code)
            });
        }
    }
}

/// Gives something back, where nobody can be told of a failure. Tried twice: a call may return an
/// error that earlier work left, and do its own job at the next.
pub(super) fn insist<T>(mut call: impl FnMut() -> Result<T, CudaError>) -> bool {
    call().is_ok() || call().is_ok()
}
