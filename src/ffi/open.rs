//! Open: from two texts to an allocator, and its end.
//!
//! Owns the table of allocators, the texts that name a device, and the environment: `BLOCKYARD_CONF` (settings) and
//! `BLOCKYARD_DEVICE` stand in for texts that are not given.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, OnceLock};

use super::error::{Failure, answer, c_text, place, required, text};
use super::handles::Handles;
use super::observe::{Callbacks, listen};
use super::scopes::drop_pools;
use super::streams::Streams;
use super::trace::Trace;
use super::types::{
    BLOCKYARD_ABI_MAJOR, BLOCKYARD_ABI_MINOR, blockyard_allocator,
    blockyard_status::{self, *},
};
use crate::allocator::{CachingAllocator, Config, Stream};
use crate::device::{Device, HostDevice, SimConfig, SimDevice};
use crate::policy::presets;
use crate::policy::settings::{Effective, policy_from};

/// What one number stands for.
pub(super) struct Opened {
    pub allocator: CachingAllocator,
    pub streams: Streams,
    pub callbacks: Callbacks,
    pub trace: Option<Trace>,
    settings: String,
}

impl Opened {
    /// The allocator's stream for a handle of the driver.
    #[inline]
    pub(super) fn stream(&self, raw: *mut c_void) -> Stream {
        self.streams.get(&self.allocator, raw)
    }
}

pub(super) static ALLOCATORS: Handles<Opened> = Handles::new(0xa1, "allocator");

/// The allocator of this number.
#[inline]
pub(super) fn opened(number: blockyard_allocator) -> Result<Arc<Opened>, Failure> {
    ALLOCATORS.get(number)
}

/// The version of the interface: the major number in the upper sixteen bits, the minor one in the lower.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_abi_version() -> u32 {
    BLOCKYARD_ABI_MAJOR << 16 | BLOCKYARD_ABI_MINOR
}

/// The version of the library, such as "0.1.0". It belongs to the library.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Creates an allocator.
///
/// `device` is "cuda" or "cuda:N", "sim" or "sim:16GiB" (addresses without memory), "host" or "host:1GiB"; null: what
/// the variable `BLOCKYARD_DEVICE` says, else "cuda:0". `settings` is a preset ("blockyard", "pytorch", ...), a preset
/// with settings after a colon, or settings alone ("max_split_size_mb:128"); null: what `BLOCKYARD_CONF` says, else
/// "blockyard".
///
/// # Safety
/// Both texts are null or end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn blockyard_create(
    device: *const c_char,
    settings: *const c_char,
    out: Option<&mut blockyard_allocator>,
) -> blockyard_status {
    answer(|| {
        // SAFETY: as the caller says.
        let (device, settings) = unsafe { (text(device, "device")?, text(settings, "settings")?) };
        let out = place(out, "out")?;
        *out = create(device, settings)?;
        Ok(())
    })
}

/// Destroys an allocator and its pools; what it has cached goes back to the driver. Refused with `BLOCKYARD_BUSY` while
/// blocks are live.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_destroy(allocator: blockyard_allocator) -> blockyard_status {
    answer(|| {
        close(allocator, |opened| {
            let live = opened.allocator.memory_allocated();
            (live > 0).then(|| {
                let text = format_args!("{live} bytes are live; free them, or abandon");
                Failure::new(BLOCKYARD_BUSY, text)
            })
        })
    })
}

/// Destroys an allocator whatever is live: all its memory goes back to the driver, under whoever still uses it.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_abandon(allocator: blockyard_allocator) -> blockyard_status {
    answer(|| close(allocator, |_| None))
}

/// A text of the settings in force, what asked for each, and warnings; to be freed with `blockyard_text_free`.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_settings(
    allocator: blockyard_allocator,
    out: Option<&mut *mut c_char>,
) -> blockyard_status {
    answer(|| {
        let out = place(out, "text")?;
        *out = c_text(opened(allocator)?.settings.clone()).into_raw();
        Ok(())
    })
}

fn close(
    number: blockyard_allocator,
    keep: impl FnOnce(&Opened) -> Option<Failure>,
) -> Result<(), Failure> {
    let opened = ALLOCATORS.remove(number, keep)?;
    drop_pools(&opened);
    if let Some(trace) = &opened.trace {
        trace.write(&opened.allocator);
    }
    Ok(())
}

pub(super) fn create(
    device: Option<&str>,
    settings: Option<&str>,
) -> Result<blockyard_allocator, Failure> {
    let conf = settings.map_or_else(|| variable("BLOCKYARD_CONF"), |text| Some(text.into()));
    let said = device.map_or_else(|| variable("BLOCKYARD_DEVICE"), |text| Some(text.into()));
    let device = said.unwrap_or_else(|| "cuda:0".into());
    let effective = effective(conf.as_deref().unwrap_or_default())?;
    let record = if Trace::is_wanted() { usize::MAX } else { 0 };
    let make = Make { effective, record };
    let mut opened = match split(&device) {
        ("sim", size) => make.on(sim(size)?, None, 0),
        ("host", size) => make.on(host(size)?, None, 0),
        ("cuda", ordinal) => cuda(make, ordinal)?,
        _ => {
            let text = format_args!("device {device:?}: expected cuda:N, sim:SIZE or host:SIZE");
            return Err(Failure::argument(text));
        }
    };
    opened.trace = Trace::from_environment();
    let opened = Arc::new(opened);
    listen(&opened);
    if let Some(trace) = &opened.trace {
        trace.watch(&opened);
    }
    ALLOCATORS.insert(opened)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.trim().is_empty())
}

/// A preset, a preset with settings, or settings alone.
fn effective(spec: &str) -> Result<Effective, Failure> {
    let spec = spec.trim();
    let name = spec.split(':').next().unwrap_or_default();
    let spec = match spec {
        "" => "blockyard".to_string(),
        _ if presets::NAMES.contains(&name) || !spec.contains(':') => spec.to_string(),
        _ => format!("blockyard:{spec}"),
    };
    policy_from(&spec, None).map_err(|error| Failure::argument(format_args!("settings: {error}")))
}

fn split(device: &str) -> (&str, Option<&str>) {
    match device.split_once(':') {
        Some((kind, rest)) => (kind, Some(rest)),
        None => (device, None),
    }
}

/// What an allocator is made from, but for its device.
struct Make {
    effective: Effective,
    record: usize,
}

impl Make {
    fn on(
        self,
        device: impl Device + Send + 'static,
        introduce: Option<Arc<super::streams::Introduce>>,
        device_index: u32,
    ) -> Opened {
        let effective = self.effective.for_device(device.total());
        let settings = effective.to_string();
        let policy = effective.policy;
        let config = Config { policy, record: self.record, device_index, ..Config::default() };
        Opened {
            allocator: CachingAllocator::new(device, config),
            streams: Streams::new(introduce),
            callbacks: Callbacks::new(),
            trace: None,
            settings,
        }
    }
}

fn sim(size: Option<&str>) -> Result<SimDevice, Failure> {
    let capacity = size.map(bytes).transpose()?;
    Ok(SimDevice::new(SimConfig { capacity, ..SimConfig::default() }))
}

fn host(size: Option<&str>) -> Result<HostDevice, Failure> {
    let cap = size.map(bytes).transpose()?;
    Ok(cap.map_or_else(HostDevice::new, HostDevice::with_cap))
}

#[cfg(feature = "cuda")]
fn cuda(make: Make, ordinal: Option<&str>) -> Result<Opened, Failure> {
    use crate::device::cuda::{CudaConfig, CudaDevice, CudaStreamHandle, Gpu};

    let failed = |error| Failure::new(BLOCKYARD_DRIVER, error);
    let wrong = |_| Failure::argument("the device's number after cuda: is none");
    let ordinal: u32 = ordinal.unwrap_or("0").parse().map_err(wrong)?;
    let gpu = Gpu::open(ordinal).map_err(failed)?;
    let device = CudaDevice::new(gpu, CudaConfig::default()).map_err(failed)?;
    let streams = device.streams();
    let introduce = move |id, raw: *mut c_void| {
        // SAFETY: the interface's contract: a stream that is shown to an allocator is one of its device and lives as
        // long as the allocator.
        let handle = unsafe { CudaStreamHandle::lent(raw, Arc::new(())) };
        streams.enter(id, handle);
    };
    Ok(make.on(device, Some(Arc::new(introduce)), ordinal))
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: Make, _: Option<&str>) -> Result<Opened, Failure> {
    Err(Failure::new(BLOCKYARD_UNSUPPORTED, "this library was built without the CUDA device"))
}

/// "16GiB", "512 MiB", "1048576".
fn bytes(text: &str) -> Result<u64, Failure> {
    const UNITS: [(&str, u32); 5] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("B", 0)];
    let text = text.trim();
    let unit = UNITS.iter().find_map(|(unit, bits)| Some((text.strip_suffix(unit)?, *bits)));
    let (digits, bits) = unit.unwrap_or((text, 0));
    let number: Option<u64> = digits.trim().parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << bits));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| {
        Failure::argument(format_args!("size {text:?}: expected a number such as 16GiB"))
    })
}

/// What stays the same for the whole process: the environment's name of the device, if there is one.
pub(super) fn device_of_environment() -> Option<&'static str> {
    static DEVICE: OnceLock<Option<String>> = OnceLock::new();
    DEVICE.get_or_init(|| variable("BLOCKYARD_DEVICE")).as_deref()
}

/// Where a path given by C leads.
///
/// # Safety
/// Null, or a text that ends with a zero.
pub(super) unsafe fn path<'a>(pointer: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: as the caller says.
    unsafe { required(pointer, "path") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_settings_are_read_from_text_or_refused() {
        assert_eq!(bytes("16GiB").unwrap(), 16 << 30);
        assert_eq!(bytes(" 512 MiB").unwrap(), 512 << 20);
        assert_eq!(bytes("4096").unwrap(), 4096);
        for bad in ["", "GiB", "-1", "0", "1.5GiB", "99999999999TiB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(effective("").unwrap().policy.name, "blockyard");
        assert_eq!(effective("pytorch").unwrap().policy.name, "pytorch");
        assert_eq!(effective("max_split_size_mb:64").unwrap().policy.max_split, 64 << 20);
        for bad in ["blokyard", "max_split:1", "pytorch:tie_order:address"] {
            let failure = effective(bad).err().unwrap();
            assert_eq!(failure.status, BLOCKYARD_INVALID_ARGUMENT, "{bad}");
        }
        for bad in ["gpu", "sim:much", "cuda:first"] {
            assert!(create(Some(bad), Some("blockyard")).is_err(), "{bad}");
        }
    }

    #[test]
    fn f3_a_destroyed_allocator_is_answered_and_a_busy_one_kept() {
        let number = create(Some("host:64MiB"), Some("blockyard")).unwrap();
        let address = {
            let found = opened(number).unwrap();
            found.allocator.alloc_raw(4096, &found.stream(std::ptr::null_mut())).unwrap()
        };
        assert_eq!(blockyard_destroy(number), BLOCKYARD_BUSY);
        opened(number).unwrap().allocator.free_raw(address, None).unwrap();
        assert_eq!(blockyard_destroy(number), BLOCKYARD_OK);
        assert_eq!(blockyard_destroy(number), BLOCKYARD_INVALID_HANDLE);
        assert_eq!(blockyard_abandon(number), BLOCKYARD_INVALID_HANDLE);
    }
}
