//! Memory: blocks by address, what goes back to the driver, and limits.

use std::ffi::c_void;

use super::error::{Failure, Outcome, answer, place};
use super::open::{Opened, opened};
use super::scopes::pool;
use super::types::{
    BLOCKYARD_NO_LIMIT, blockyard_allocator, blockyard_pool,
    blockyard_status::{self, *},
};
use crate::vocab::Address;

pub(super) fn address_of(pointer: *const c_void) -> Address {
    Address(pointer.addr() as u64)
}

pub(super) fn pointer_to(address: Address) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address.0 as usize)
}

pub(super) fn alloc(
    opened: &Opened,
    bytes: u64,
    stream: *mut c_void,
) -> Result<*mut c_void, Failure> {
    Ok(pointer_to(opened.allocator.alloc_raw(bytes, &opened.stream(stream))?))
}

/// A block of `bytes` on a stream of the driver (null: the default stream), from the pool of this thread's innermost
/// scope. Zero bytes give a null pointer. The stream must live as long as the allocator.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_alloc(
    allocator: blockyard_allocator,
    bytes: u64,
    stream: *mut c_void,
    out: Option<&mut *mut c_void>,
) -> blockyard_status {
    answer(|| {
        let out = place(out, "out")?;
        *out = alloc(&*opened(allocator)?, bytes, stream)?;
        Ok(())
    })
}

/// The same from a private pool of this allocator; pool 0: as `blockyard_alloc`.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_alloc_in(
    allocator: blockyard_allocator,
    from: blockyard_pool,
    bytes: u64,
    stream: *mut c_void,
    out: Option<&mut *mut c_void>,
) -> blockyard_status {
    answer(|| {
        let out = place(out, "out")?;
        let opened = opened(allocator)?;
        let _scope = if from == 0 { None } else { Some(pool(from, &opened)?.scope()) };
        *out = alloc(&opened, bytes, stream)?;
        Ok(())
    })
}

/// Gives a block back. `bytes`, unless 0, must be what was requested. A null pointer is nothing. Never waits for the
/// device.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_free(
    allocator: blockyard_allocator,
    pointer: *mut c_void,
    bytes: u64,
) -> blockyard_status {
    answer(|| free(&*opened(allocator)?, pointer, bytes))
}

pub(super) fn free(opened: &Opened, pointer: *mut c_void, bytes: u64) -> Outcome {
    let said = (bytes > 0).then_some(bytes);
    opened.allocator.free_raw(address_of(pointer), said)?;
    Ok(())
}

/// A stream uses the block too: once freed, its memory is reused only when that stream's work so far is done.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_record_stream(
    allocator: blockyard_allocator,
    pointer: *mut c_void,
    stream: *mut c_void,
) -> blockyard_status {
    answer(|| {
        let opened = opened(allocator)?;
        opened.allocator.record_stream_raw(address_of(pointer), &opened.stream(stream))?;
        Ok(())
    })
}

/// The live block around an address: where it starts, and what was requested. Takes time proportional to the number of
/// live blocks. Either result may be null.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_find(
    allocator: blockyard_allocator,
    pointer: *const c_void,
    base: Option<&mut *mut c_void>,
    bytes: Option<&mut u64>,
) -> blockyard_status {
    answer(|| {
        let address = address_of(pointer);
        let found = opened(allocator)?.allocator.find_raw(address);
        let (start, requested) = found.ok_or_else(|| {
            let text = format_args!("no live block has the address {address} in it");
            Failure::new(BLOCKYARD_UNKNOWN_POINTER, text)
        })?;
        base.into_iter().for_each(|base| *base = pointer_to(start));
        bytes.into_iter().for_each(|bytes| *bytes = requested);
        Ok(())
    })
}

/// Gives all idle memory back to the driver, after waiting for pending frees. `released`, which may be null: bytes. If
/// the driver fails, what it did not take back is kept.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_empty_cache(
    allocator: blockyard_allocator,
    released: Option<&mut u64>,
) -> blockyard_status {
    answer(|| {
        let emptied = opened(allocator)?.allocator.empty_cache();
        released.into_iter().for_each(|released| *released = emptied.released_bytes);
        match emptied.fault {
            None => Ok(()),
            Some(fault) => Err(Failure::new(BLOCKYARD_DRIVER, fault)),
        }
    })
}

/// Gives at least so many bytes of idle memory back, if there is as much. `released`, which may be null: bytes.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_release_at_least(
    allocator: blockyard_allocator,
    bytes: u64,
    released: Option<&mut u64>,
) -> blockyard_status {
    answer(|| {
        let done = opened(allocator)?.allocator.release_at_least(bytes);
        released.into_iter().for_each(|released| *released = done);
        Ok(())
    })
}

/// Sets the most that may be reserved, in bytes; `BLOCKYARD_NO_LIMIT`: no limit.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_set_limit(
    allocator: blockyard_allocator,
    bytes: u64,
) -> blockyard_status {
    answer(|| {
        let limit = (bytes != BLOCKYARD_NO_LIMIT).then_some(bytes);
        opened(allocator)?.allocator.set_limit(limit);
        Ok(())
    })
}

/// The most that may be reserved, in bytes, or `BLOCKYARD_NO_LIMIT`.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_limit(
    allocator: blockyard_allocator,
    out: Option<&mut u64>,
) -> blockyard_status {
    answer(|| {
        let out = place(out, "out")?;
        *out = opened(allocator)?.allocator.limit().unwrap_or(BLOCKYARD_NO_LIMIT);
        Ok(())
    })
}

/// Sets the limit to a share of the device's memory, from 0 to 1; 1 is no limit.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_set_memory_fraction(
    allocator: blockyard_allocator,
    fraction: f64,
) -> blockyard_status {
    answer(|| {
        opened(allocator)?.allocator.set_memory_fraction(fraction)?;
        Ok(())
    })
}

/// The largest request that would be served on this stream now, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_largest_possible(
    allocator: blockyard_allocator,
    stream: *mut c_void,
    out: Option<&mut u64>,
) -> blockyard_status {
    answer(|| {
        let out = place(out, "out")?;
        let opened = opened(allocator)?;
        *out = opened.allocator.largest_possible_allocation(&opened.stream(stream));
        Ok(())
    })
}
