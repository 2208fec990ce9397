//! Torch: the symbols that PyTorch's `CUDAPluggableAllocator` takes, over one allocator for each device.
//!
//! An allocator is created when its device is first asked for, with the settings of `BLOCKYARD_CONF`. Everything else
//! of the interface works on it by its number, [`blockyard_torch_allocator`]. Functions that cannot answer say what
//! went wrong by the last error; one that PyTorch does not look at is said on the standard error stream, too.
//!
//! PyTorch does not look at a null pointer from `alloc` when the allocator is installed for the whole process: its
//! tensors then have no memory. So install it there by the C++ shim of `python/blockyard_torch`, which raises.

use std::ffi::{CStr, c_int, c_void};
use std::sync::{PoisonError, RwLock};

use super::error::{Failure, Outcome, answer, blockyard_last_error_text, place};
use super::memory;
use super::open::{Opened, create, device_of_environment, opened};
use super::types::{
    blockyard_allocator,
    blockyard_status::{self, *},
};
use crate::allocator::FreeError;

/// Numbers by device.
static BY_DEVICE: RwLock<Vec<Option<blockyard_allocator>>> = RwLock::new(Vec::new());

/// More devices than any machine has.
const MOST_DEVICES: c_int = 1024;

/// The allocator of a device, created if it is not there yet.
fn of_device(device: c_int) -> Result<blockyard_allocator, Failure> {
    if !(0..MOST_DEVICES).contains(&device) {
        return Err(Failure::argument(format_args!("{device} is no number of a device")));
    }
    let place = device as usize;
    let known = BY_DEVICE.read().unwrap_or_else(PoisonError::into_inner);
    match known.get(place) {
        Some(Some(number)) if opened(*number).is_ok() => return Ok(*number),
        _ => drop(known),
    }
    let mut known = BY_DEVICE.write().unwrap_or_else(PoisonError::into_inner);
    if known.len() <= place {
        known.resize(place + 1, None);
    }
    if let Some(number) = known[place].filter(|number| opened(*number).is_ok()) {
        return Ok(number);
    }
    let name = device_of_environment().map_or_else(|| format!("cuda:{device}"), String::from);
    let number = create(Some(&name), None)?;
    known[place] = Some(number);
    Ok(number)
}

/// All that there are.
fn each(mut call: impl FnMut(&Opened) -> Outcome) -> Outcome {
    let known: Vec<_> = BY_DEVICE.read().unwrap_or_else(PoisonError::into_inner).clone();
    known.into_iter().flatten().filter_map(|number| opened(number).ok()).try_for_each(|o| call(&o))
}

fn say(status: blockyard_status, what: &str) {
    if status != BLOCKYARD_OK {
        // SAFETY: the text of this thread, looked at before its next failure.
        let text = unsafe { CStr::from_ptr(blockyard_last_error_text()) };
        eprintln!("blockyard: {what}: {}", text.to_string_lossy());
    }
}

/// The allocator behind the functions below for a device; created if need be.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_torch_allocator(
    device: c_int,
    out: Option<&mut blockyard_allocator>,
) -> blockyard_status {
    answer(|| {
        let out = place(out, "out")?;
        *out = of_device(device)?;
        Ok(())
    })
}

/// `alloc_fn`. A null pointer: see the last error.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_torch_alloc(
    bytes: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    let mut pointer = std::ptr::null_mut();
    answer(|| {
        let size = u64::try_from(bytes);
        let size =
            size.map_err(|_| Failure::argument(format_args!("{bytes} bytes are no size")))?;
        pointer = memory::alloc(&*opened(of_device(device)?)?, size, stream)?;
        Ok(())
    });
    pointer
}

/// `free_fn`. The stream is the one of the request, which is known.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_torch_free(
    pointer: *mut c_void,
    bytes: isize,
    device: c_int,
    _stream: *mut c_void,
) {
    let size = u64::try_from(bytes).unwrap_or(0);
    say(answer(|| memory::free(&*opened(of_device(device)?)?, pointer, size)), "free");
}

/// `init_fn`. Allocators are created when they are needed.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_torch_init(_device_count: c_int) {}

/// `reset_fn`, which `torch.cuda.empty_cache` calls: on every device.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_torch_reset() {
    let emptied = answer(|| {
        each(|opened| {
            let fault = opened.allocator.empty_cache().fault;
            fault.map_or(Ok(()), |fault| Err(Failure::new(BLOCKYARD_DRIVER, fault)))
        })
    });
    say(emptied, "empty_cache");
}

/// `memory_fraction_fn`.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_torch_memory_fraction(fraction: f64, device: c_int) {
    let set = answer(|| {
        opened(of_device(device)?)?.allocator.set_memory_fraction(fraction)?;
        Ok(())
    });
    say(set, "set_memory_fraction");
}

/// `base_alloc_fn`: the block around an address, on whichever device it is; null: none is.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_torch_base_alloc(
    pointer: *mut c_void,
    bytes: Option<&mut usize>,
) -> *mut c_void {
    let mut found = None;
    answer(|| {
        each(|opened| {
            found = found.or_else(|| opened.allocator.find_raw(memory::address_of(pointer)));
            Ok(())
        })?;
        let unknown = || Failure::new(BLOCKYARD_UNKNOWN_POINTER, "no live block is there");
        let (_, requested) = found.ok_or_else(unknown)?;
        bytes.into_iter().for_each(|bytes| *bytes = requested as usize);
        Ok(())
    });
    found.map_or(std::ptr::null_mut(), |(base, _)| memory::pointer_to(base))
}

/// `record_stream_fn`, on whichever device the block is.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_torch_record_stream(pointer: *mut c_void, stream: *mut c_void) {
    let address = memory::address_of(pointer);
    if address.0 == 0 {
        return;
    }
    let recorded = answer(|| {
        let mut result = Err(FreeError::UnknownAddress(address.0));
        each(|opened| {
            if result.is_err() {
                let stream = opened.stream(stream);
                result = opened.allocator.record_stream_raw(address, &stream);
            }
            Ok(())
        })?;
        result.map_err(Failure::from)
    });
    say(recorded, "record_stream");
}
