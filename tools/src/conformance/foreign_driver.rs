//! Foreign driver: the few calls of a CUDA driver that the checks need, found by name.
//!
//! Owns the loaded driver and the device's primary context. Asked by `bench`: copies in the order of a stream, streams,
//! and how much memory is in use.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::path::Path;

use libloading::Library;

type Status = c_int;
type Copy = unsafe extern "C" fn(u64, u64, usize, u64) -> Status;

/// A driver with a context.
pub(super) struct Driver {
    context: u64,
    set_current: unsafe extern "C" fn(u64) -> Status,
    memory: unsafe extern "C" fn(*mut usize, *mut usize) -> Status,
    stream: unsafe extern "C" fn(*mut u64, u32) -> Status,
    synchronize: unsafe extern "C" fn(u64) -> Status,
    upload: Copy,
    download: Copy,
    fill: unsafe extern "C" fn(u64, u8, usize, u64) -> Status,
    /// The device's name.
    pub(super) name: String,
    _library: Library,
}

impl Driver {
    /// Loads the driver, so that later loads of `libcuda.so.1` find this one, and retains the primary context.
    pub(super) fn open(path: Option<&Path>, device: i32) -> Result<Self, String> {
        let path = path.unwrap_or(Path::new("libcuda.so.1"));
        let name = path.display();
        // SAFETY: a CUDA driver's initialisers do nothing to the process.
        let library = unsafe { Library::new(path) };
        let library = library.map_err(|error| format!("no CUDA driver: {name}: {error}"))?;
        let (mut context, mut text) = (0_u64, [0_u8; 64]);
        // SAFETY: the types are those of the driver's interface, with handles and addresses as numbers.
        let driver = unsafe {
            let init: unsafe extern "C" fn(u32) -> Status = find(&library, "cuInit")?;
            let retain: unsafe extern "C" fn(*mut u64, c_int) -> Status =
                find(&library, "cuDevicePrimaryCtxRetain")?;
            let name: unsafe extern "C" fn(*mut u8, c_int, c_int) -> Status =
                find(&library, "cuDeviceGetName")?;
            done("cuInit", init(0))?;
            done("cuDevicePrimaryCtxRetain", retain(&raw mut context, device))?;
            done("cuDeviceGetName", name(text.as_mut_ptr(), 64, device))?;
            Self {
                context,
                set_current: find(&library, "cuCtxSetCurrent")?,
                memory: find(&library, "cuMemGetInfo_v2")?,
                stream: find(&library, "cuStreamCreate")?,
                synchronize: find(&library, "cuStreamSynchronize")?,
                upload: find(&library, "cuMemcpyHtoDAsync_v2")?,
                download: find(&library, "cuMemcpyDtoHAsync_v2")?,
                fill: find(&library, "cuMemsetD8Async")?,
                name: words(&text),
                _library: library,
            }
        };
        driver.attach()?;
        Ok(driver)
    }

    /// Makes the context current on this thread.
    pub(super) fn attach(&self) -> Result<(), String> {
        // SAFETY: a context that is retained as long as the process lives.
        done("cuCtxSetCurrent", unsafe { (self.set_current)(self.context) })
    }

    /// Bytes in use on the device, by whomever.
    pub(super) fn used(&self) -> Result<u64, String> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: two places to write to.
        done("cuMemGetInfo", unsafe { (self.memory)(&raw mut free, &raw mut total) })?;
        Ok(total.saturating_sub(free) as u64)
    }

    /// A new stream that waits for no other.
    pub(super) fn stream(&self) -> Result<u64, String> {
        let mut stream = 0;
        // SAFETY: a place to write to.
        done("cuStreamCreate", unsafe { (self.stream)(&raw mut stream, 1) })?;
        Ok(stream)
    }

    pub(super) fn wait(&self, stream: u64) -> Result<(), String> {
        // SAFETY: a stream of this driver.
        done("cuStreamSynchronize", unsafe { (self.synchronize)(stream) })
    }

    /// In the stream's order; the bytes are read before this returns, or by the wait.
    pub(super) fn write(&self, address: u64, bytes: &[u8], stream: u64) -> Result<(), String> {
        let from = bytes.as_ptr().expose_provenance() as u64;
        // SAFETY: so many bytes can be read; the driver checks the address.
        let status = unsafe { (self.upload)(address, from, bytes.len(), stream) };
        done("cuMemcpyHtoDAsync", status)?;
        self.wait(stream)
    }

    /// After the stream's work so far.
    pub(super) fn read(&self, address: u64, bytes: &mut [u8], stream: u64) -> Result<(), String> {
        let to = bytes.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: so many bytes can be written; the driver checks the address.
        let status = unsafe { (self.download)(to, address, bytes.len(), stream) };
        done("cuMemcpyDtoHAsync", status)?;
        self.wait(stream)
    }

    /// Queues a fill.
    pub(super) fn fill(&self, at: u64, value: u8, bytes: u64, stream: u64) -> Result<(), String> {
        // SAFETY: the driver checks the address.
        done("cuMemsetD8Async", unsafe { (self.fill)(at, value, bytes as usize, stream) })
    }
}

/// # Safety
/// The symbol has this type.
unsafe fn find<F: std::marker::Copy>(library: &Library, symbol: &str) -> Result<F, String> {
    // SAFETY: as the caller says.
    let found = unsafe { library.get::<F>(symbol) };
    found.map(|function| *function).map_err(|_| format!("the CUDA driver has no {symbol}"))
}

fn words(text: &[u8]) -> String {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    String::from_utf8_lossy(&text[..end]).into_owned()
}

fn done(call: &str, status: Status) -> Result<(), String> {
    match status {
        0 => Ok(()),
        error => Err(format!("{call} answers {error}")),
    }
}
