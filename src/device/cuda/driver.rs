//! Driver: the CUDA driver's library, loaded at run time, once in a process.
//!
//! Asked by programs ([`Driver::load`]) and by [`Gpu`](super::Gpu). Never knows a device's state.
//! A machine without a driver gives [`CudaError::NoDriver`], never a panic.
//!
//! A library stays loaded to the end of the process: a driver cannot be unloaded safely.

use std::ffi::{CStr, c_int};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use libloading::Library;

use super::error::{CudaError, SUCCESS};
use super::table::{Core, Launching, Moving, Paging, Peering, Pooling};

/// The name by which every installation of the driver can be found.
#[cfg(not(windows))]
const LIBRARY: &str = "libcuda.so.1";
#[cfg(windows)]
const LIBRARY: &str = "nvcuda.dll";

/// The names by which cudarc looks, in its order.
#[cfg(not(windows))]
const BY_OTHERS: [&str; 2] = ["libcuda.so", LIBRARY];
#[cfg(windows)]
const BY_OTHERS: [&str; 1] = [LIBRARY];

/// The environment variable that names another library, such as a simulated driver.
pub const DRIVER_VARIABLE: &str = "BLOCKYARD_CUDA_DRIVER";

/// A function by which a simulated driver gives itself away.
const SIMULATED: &[u8] = b"simcuda_reset\0";

static LOADED: Mutex<Option<&'static Driver>> = Mutex::new(None);

/// A loaded and initialised driver.
pub struct Driver {
    path: String,
    version: i32,
    devices: u32,
    simulated: bool,
    library: &'static Library,
    pub(super) core: Core,
    pub(super) paging: Option<Paging>,
    pub(super) pooling: Option<Pooling>,
    pub(super) peering: Option<Peering>,
    pub(super) launching: Option<Launching>,
    pub(super) moving: Option<Moving>,
}

impl Driver {
    /// The driver of this machine: the library that [`DRIVER_VARIABLE`] names, else the system's.
    ///
    /// # Errors
    /// No library, one that lacks a function, or one that cannot be initialised.
    pub fn load() -> Result<&'static Self, CudaError> {
        match std::env::var(DRIVER_VARIABLE) {
            Ok(path) if !path.is_empty() => Self::load_from(Path::new(&path)),
            _ => Self::keep(LIBRARY, |_| true),
        }
    }

    /// The driver in this library. Other code that loads `libcuda.so.1` later, such as cudarc, gets
    /// the same one if that is the library's own name for itself.
    ///
    /// # Errors
    /// As [`Driver::load`]; or another driver is loaded already.
    pub fn load_from(path: &Path) -> Result<&'static Self, CudaError> {
        let path = path.to_string_lossy();
        Self::keep(&path, |loaded| loaded.path == path)
    }

    fn keep(path: &str, accepts: impl Fn(&Self) -> bool) -> Result<&'static Self, CudaError> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        match *loaded {
            Some(driver) if accepts(driver) => Ok(driver),
            Some(driver) => {
                let (loaded, asked) = (driver.path.clone(), path.to_string());
                Err(CudaError::OtherDriver { loaded, asked })
            }
            None => {
                let driver: &'static Self = Box::leak(Box::new(Self::open(path)?));
                *loaded = Some(driver);
                Ok(driver)
            }
        }
    }

    fn open(path: &str) -> Result<Self, CudaError> {
        // SAFETY: loading a driver runs its initialisers, which is what it is installed for.
        let library = unsafe { Library::new(path) }.map_err(|reason| CudaError::NoDriver {
            tried: path.to_string(),
            reason: innermost(&reason),
        })?;
        // Never unloaded, also when what follows fails: other code may use it.
        let library: &'static Library = Box::leak(Box::new(library));
        // SAFETY: the symbol is looked at and never called or read.
        let simulated = unsafe { library.get::<*const ()>(SIMULATED) }.is_ok();
        let mut driver = Self {
            path: path.to_string(),
            version: 0,
            devices: 0,
            simulated,
            library,
            core: Core::find(library, path)?,
            paging: Paging::find(library, path).ok(),
            pooling: Pooling::find(library, path).ok(),
            peering: Peering::find(library, path).ok(),
            launching: Launching::find(library, path).ok(),
            moving: Moving::find(library, path).ok(),
        };
        driver.initialise()?;
        Ok(driver)
    }

    fn initialise(&mut self) -> Result<(), CudaError> {
        let (mut version, mut count) = (0, 0);
        // SAFETY: the first call of a driver; flags must be 0.
        self.check("cuInit", unsafe { (self.core.init)(0) })?;
        // SAFETY: writes one integer.
        self.check("cuDriverGetVersion", unsafe { (self.core.driver_version)(&mut version) })?;
        // SAFETY: writes one integer.
        self.check("cuDeviceGetCount", unsafe { (self.core.device_count)(&mut count) })?;
        self.version = version;
        self.devices = u32::try_from(count).unwrap_or(0);
        Ok(())
    }

    /// The name it was loaded by.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The newest CUDA that it can do, as it counts: 12080 is 12.8.
    #[must_use]
    pub const fn version(&self) -> i32 {
        self.version
    }

    /// How many devices there are.
    #[must_use]
    pub const fn devices(&self) -> u32 {
        self.devices
    }

    /// Whether it says of itself that it has no GPU behind it.
    #[must_use]
    pub const fn is_simulated(&self) -> bool {
        self.simulated
    }

    /// Checks that the library has these functions, for other code that will call them.
    ///
    /// # Errors
    /// The first that is missing.
    pub fn require(&self, names: &[&'static str]) -> Result<(), CudaError> {
        let missing = names.iter().find(|name| {
            // SAFETY: the symbol is looked at and never called or read.
            unsafe { self.library.get::<*const ()>(name.as_bytes()) }.is_err()
        });
        missing.map_or(Ok(()), |&name| {
            Err(CudaError::MissingSymbol { name, library: self.path.clone() })
        })
    }

    /// Checks that code which looks for the driver by itself, as cudarc does, finds this one.
    ///
    /// # Errors
    /// It finds none, or another: this one was loaded by a path, and the system has its own.
    pub fn is_found_by_others(&self) -> Result<(), CudaError> {
        let mut reason = String::new();
        for name in BY_OTHERS {
            // SAFETY: drivers that are loaded already, or that the other code would load in a moment.
            let library = match unsafe { Library::new(name) } {
                Ok(library) => library,
                Err(error) => {
                    reason = innermost(&error);
                    continue;
                }
            };
            // SAFETY: the symbol is looked at and never called or read.
            let init = unsafe { library.get::<*const ()>(b"cuInit\0") }.map(|symbol| *symbol);
            // Its count was raised by one; it stays loaded for the other code.
            std::mem::forget(library);
            if init.is_ok_and(|found| std::ptr::eq(found, self.core.init as *const ())) {
                return Ok(());
            }
            let (loaded, asked) = (self.path.clone(), name.to_string());
            return Err(CudaError::OtherDriver { loaded, asked });
        }
        Err(CudaError::NoDriver { tried: BY_OTHERS.join(", "), reason })
    }

    /// The driver's name for a code.
    fn name_of(&self, code: c_int) -> String {
        let mut text = std::ptr::null();
        // SAFETY: writes one pointer: to a string of the library's, or null.
        let found = unsafe { (self.core.error_name)(code, &mut text) };
        if found != SUCCESS || text.is_null() {
            return "an unknown error".to_string();
        }
        // SAFETY: the driver's names end with a zero and live as long as its library, for ever.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Success, or the error by code, name and call.
    #[inline]
    pub(super) fn check(&self, call: &'static str, code: c_int) -> Result<(), CudaError> {
        if code == SUCCESS { Ok(()) } else { Err(self.failed(call, code)) }
    }

    #[cold]
    pub(super) fn failed(&self, call: &'static str, code: c_int) -> CudaError {
        CudaError::Call { code, name: self.name_of(code), call }
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Driver({}, {}, {} devices)", self.path, self.version, self.devices)
    }
}

/// What the loader of the system says.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
