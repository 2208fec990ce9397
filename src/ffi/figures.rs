//! Figures: statistics by PyTorch's keys, the summary, and every block.

use std::ffi::{CString, c_char, c_void};
use std::sync::OnceLock;

use super::error::{Failure, answer, c_text, place, required};
use super::memory::pointer_to;
use super::open::{Opened, opened};
use super::types::{
    blockyard_allocator, blockyard_block, blockyard_block_state, blockyard_block_state::*,
    blockyard_status, blockyard_visitor,
};
use crate::ledger::Stats;
use crate::vocab::{BlockState, BlockView, Class, SegmentView};

/// Every key, in the order of the values.
fn keys() -> &'static [CString] {
    static KEYS: OnceLock<Vec<CString>> = OnceLock::new();
    KEYS.get_or_init(|| Stats::new(0).flat().into_iter().map(|(key, _)| c_text(key)).collect())
}

/// How many statistics there are.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_stat_count() -> usize {
    keys().len()
}

/// The key of a statistic by its place, such as "allocated_bytes.all.peak"; null beyond the last. It belongs to the
/// library.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_stat_key(place: usize) -> *const c_char {
    keys().get(place).map_or(std::ptr::null(), |key| key.as_ptr())
}

/// One statistic by its key.
///
/// # Safety
/// `key` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn blockyard_stat(
    allocator: blockyard_allocator,
    key: *const c_char,
    out: Option<&mut i64>,
) -> blockyard_status {
    answer(|| {
        // SAFETY: as the caller says.
        let key = unsafe { required(key, "key") }?;
        let out = place(out, "out")?;
        let place = keys().iter().position(|known| known.as_bytes() == key.as_bytes());
        let place = place.ok_or_else(|| {
            Failure::argument(format_args!("{key:?} is no statistic; see blockyard_stat_key"))
        })?;
        *out = values(&*opened(allocator)?)[place];
        Ok(())
    })
}

/// All statistics of one moment, in the order of `blockyard_stat_key`: as many as there are and as fit into `capacity`.
/// `count`, which may be null: how many there are.
///
/// # Safety
/// `out` is null or has room for `capacity` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn blockyard_stats(
    allocator: blockyard_allocator,
    out: *mut i64,
    capacity: usize,
    count: Option<&mut usize>,
) -> blockyard_status {
    answer(|| {
        let values = values(&*opened(allocator)?);
        if out.is_null() && capacity > 0 {
            return Err(Failure::null("out"));
        }
        for (place, value) in values.iter().take(capacity).enumerate() {
            // SAFETY: below `capacity`, for which there is room.
            unsafe { out.add(place).write(*value) };
        }
        count.into_iter().for_each(|count| *count = values.len());
        Ok(())
    })
}

fn values(opened: &Opened) -> Vec<i64> {
    opened.allocator.memory_stats().into_iter().map(|(_, value)| value).collect()
}

/// Peaks begin at what is current.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_reset_peak(allocator: blockyard_allocator) -> blockyard_status {
    answer(|| {
        opened(allocator)?.allocator.reset_peak_memory_stats();
        Ok(())
    })
}

/// Totals and counts begin at zero.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_reset_accumulated(allocator: blockyard_allocator) -> blockyard_status {
    answer(|| {
        opened(allocator)?.allocator.reset_accumulated_memory_stats();
        Ok(())
    })
}

/// Tables for people; to be freed with `blockyard_text_free`.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_summary(
    allocator: blockyard_allocator,
    out: Option<&mut *mut c_char>,
) -> blockyard_status {
    answer(|| {
        let out = place(out, "text")?;
        *out = c_text(opened(allocator)?.allocator.memory_summary()).into_raw();
        Ok(())
    })
}

/// Shows every block of one moment to `visitor`, by address. No lock is held meanwhile.
///
/// # Safety
/// `visitor` may be called with `user`, and does not unwind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn blockyard_blocks(
    allocator: blockyard_allocator,
    visitor: blockyard_visitor,
    user: *mut c_void,
) -> blockyard_status {
    answer(|| {
        let visitor = visitor.ok_or_else(|| Failure::null("visitor"))?;
        let opened = opened(allocator)?;
        for segment in &opened.allocator.view().segments {
            for block in &segment.blocks {
                let shown = shown(&opened, segment, block);
                // SAFETY: as the caller says; the block lives as long as the call.
                unsafe { visitor(user, &shown) };
            }
        }
        Ok(())
    })
}

fn shown(opened: &Opened, segment: &SegmentView, block: &BlockView) -> blockyard_block {
    blockyard_block {
        address: pointer_to(block.address),
        bytes: block.bytes,
        requested: block.requested,
        segment: pointer_to(segment.base),
        segment_bytes: segment.bytes,
        stream: opened.streams.handle(segment.stream),
        pool: segment.pool.0,
        state: state(block.state),
        is_large: segment.class == Class::Large,
        is_expandable: segment.expandable,
    }
}

const fn state(state: BlockState) -> blockyard_block_state {
    match state {
        BlockState::Allocated => BLOCKYARD_BLOCK_ALLOCATED,
        BlockState::AwaitingFree => BLOCKYARD_BLOCK_AWAITING_FREE,
        BlockState::Free => BLOCKYARD_BLOCK_FREE,
        BlockState::Unmapped => BLOCKYARD_BLOCK_UNMAPPED,
    }
}
