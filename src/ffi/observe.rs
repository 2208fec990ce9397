//! Observe: the recorder, what is written down, and callbacks into C.
//!
//! A callback is one slot for each kind and allocator. It is called with no lock of this library held, so it may use
//! the allocator itself.

use std::ffi::{CString, c_char, c_void};
use std::fs::File;
use std::sync::{Arc, Mutex, Once, PoisonError, RwLock};

use super::error::{Failure, Outcome, answer, c_text, place};
use super::memory::pointer_to;
use super::open::{Opened, opened, path};
use super::types::{
    BLOCKYARD_ALL, blockyard_allocator, blockyard_block_callback, blockyard_oom_callback,
    blockyard_status::{self, *},
};
use crate::allocator::BlockEvent;
use crate::trace::{dump, write_records};
use crate::vocab::Report;

/// What C wants to be told, and where that leads.
struct Slot<F>(RwLock<Option<(F, usize)>>);

impl<F: Copy> Slot<F> {
    const fn new() -> Self {
        Self(RwLock::new(None))
    }

    fn set(&self, callback: Option<F>, user: *mut c_void) {
        let value = callback.map(|callback| (callback, user.expose_provenance()));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value;
    }

    fn get(&self) -> Option<(F, *mut c_void)> {
        let slot = *self.0.read().unwrap_or_else(PoisonError::into_inner);
        slot.map(|(callback, user)| (callback, std::ptr::with_exposed_provenance_mut(user)))
    }
}

type OnFailure = unsafe extern "C" fn(*mut c_void, u64, *const c_char);
type OnBlock = unsafe extern "C" fn(*mut c_void, bool, *mut c_void, u64, *mut c_void);

/// The callbacks of one allocator. A program that hears of no blocks pays nothing for them: the allocator is asked to
/// tell when one is first set.
pub(super) struct Callbacks {
    failure: Slot<OnFailure>,
    block: Slot<OnBlock>,
    listens_to_blocks: Once,
    last_report: Mutex<Option<CString>>,
}

impl Callbacks {
    pub(super) const fn new() -> Self {
        Self {
            failure: Slot::new(),
            block: Slot::new(),
            listens_to_blocks: Once::new(),
            last_report: Mutex::new(None),
        }
    }

    fn failed(&self, report: &Report) {
        let text = c_text(report.to_string());
        if let Some((callback, user)) = self.failure.get() {
            // SAFETY: as whoever set it said; the text lives as long as the call.
            unsafe { callback(user, report.requested_bytes, text.as_ptr()) };
        }
        *self.last_report.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }
}

/// From now on reports are kept, and told to whoever is set.
pub(super) fn listen(opened: &Arc<Opened>) {
    let weak = Arc::downgrade(opened);
    opened.allocator.on_out_of_memory(move |report| {
        weak.upgrade().iter().for_each(|opened| opened.callbacks.failed(report));
    });
}

impl Opened {
    fn moved(&self, event: BlockEvent) {
        if let Some((callback, user)) = self.callbacks.block.get() {
            let BlockEvent { is_alloc, address, bytes, stream } = event;
            let handle = self.streams.handle(stream);
            // SAFETY: as whoever set it said.
            unsafe { callback(user, is_alloc, pointer_to(address), bytes, handle) };
        }
    }
}

/// `callback` hears of every request that fails, before its error is returned; null: nobody does. The one before may
/// still be running on another thread when this returns.
///
/// # Safety
/// `callback` may be called with `user` from any thread as long as it is set, and does not unwind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn blockyard_on_out_of_memory(
    allocator: blockyard_allocator,
    callback: blockyard_oom_callback,
    user: *mut c_void,
) -> blockyard_status {
    answer(|| {
        opened(allocator)?.callbacks.failure.set(callback, user);
        Ok(())
    })
}

/// The report of the last request that failed, on whatever thread, to be freed with `blockyard_text_free`; null if none
/// has. For callers that cannot take a callback: one that would need a lock which the failing thread may hold.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_last_report(
    allocator: blockyard_allocator,
    out: Option<&mut *mut c_char>,
) -> blockyard_status {
    answer(|| {
        let out = place(out, "text")?;
        let opened = opened(allocator)?;
        let report = opened.callbacks.last_report.lock().unwrap_or_else(PoisonError::into_inner);
        *out = report.clone().map_or(std::ptr::null_mut(), CString::into_raw);
        Ok(())
    })
}

/// `callback` hears of every block that is handed out or given back, before its address can be handed out again; null:
/// nobody does.
///
/// # Safety
/// As for `blockyard_on_out_of_memory`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn blockyard_on_block(
    allocator: blockyard_allocator,
    callback: blockyard_block_callback,
    user: *mut c_void,
) -> blockyard_status {
    answer(|| {
        let opened = opened(allocator)?;
        opened.callbacks.block.set(callback, user);
        let weak = Arc::downgrade(&opened);
        opened.callbacks.listens_to_blocks.call_once(|| {
            opened.allocator.on_block(move |event| {
                weak.upgrade().iter().for_each(|opened| opened.moved(event));
            });
        });
        Ok(())
    })
}

/// Keeps the last so many records from now on, and forgets those so far. 0: none. `BLOCKYARD_ALL`: all, in memory that
/// grows by about a hundred bytes a record. Where `BLOCKYARD_TRACE` has everything recorded, this changes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_record(
    allocator: blockyard_allocator,
    records: u64,
) -> blockyard_status {
    answer(|| {
        let most = 1 << 28;
        let records = match records {
            BLOCKYARD_ALL => usize::MAX,
            records if records <= most => records as usize,
            _ => {
                let text = format_args!("{records} records: at most {most}, or BLOCKYARD_ALL");
                return Err(Failure::argument(text));
            }
        };
        let opened = opened(allocator)?;
        if opened.trace.is_none() {
            opened.allocator.set_recording(records);
        }
        Ok(())
    })
}

/// Writes the records and the heap after them as a trace, which `blockyard replay` and `render` read; compressed if the
/// name ends in ".zst" or ".gz".
///
/// # Safety
/// `to` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn blockyard_write_trace(
    allocator: blockyard_allocator,
    to: *const c_char,
) -> blockyard_status {
    answer(|| {
        // SAFETY: as the caller says.
        let to = unsafe { path(to) }?;
        write_records(to, &opened(allocator)?.allocator.dump())?;
        Ok(())
    })
}

/// Writes heap and records as JSON in the shape of PyTorch's memory snapshots, which its viewer and `blockyard` read.
///
/// # Safety
/// `to` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn blockyard_write_snapshot(
    allocator: blockyard_allocator,
    to: *const c_char,
) -> blockyard_status {
    answer(|| {
        // SAFETY: as the caller says.
        let to = unsafe { path(to) }?;
        let snapshot = dump::snapshot(&opened(allocator)?.allocator.dump());
        let written = File::create(to).and_then(|file| snapshot.to_json(file));
        written.map_err(|error| Failure::new(BLOCKYARD_IO, format_args!("{to}: {error}")))
    })
}

/// The same as a text, to be freed with `blockyard_text_free`.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_snapshot(
    allocator: blockyard_allocator,
    out: Option<&mut *mut c_char>,
) -> blockyard_status {
    answer(|| {
        let out = place(out, "text")?;
        *out = snapshot_text(&*opened(allocator)?)?;
        Ok(())
    })
}

fn snapshot_text(opened: &Opened) -> Result<*mut c_char, Failure> {
    let mut json = Vec::new();
    let snapshot = dump::snapshot(&opened.allocator.dump());
    snapshot.to_json(&mut json).map_err(|error| Failure::new(BLOCKYARD_IO, error))?;
    let text = String::from_utf8(json).map_err(|error| Failure::new(BLOCKYARD_INTERNAL, error))?;
    Ok(c_text(text).into_raw())
}

/// Frees a text that a function of this library gave to the caller. A null pointer is nothing.
///
/// # Safety
/// `text` came from this library for the caller to free, and is not freed twice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn blockyard_text_free(text: *mut c_char) {
    let freed = || -> Outcome {
        if !text.is_null() {
            // SAFETY: as the caller says: it came from `CString::into_raw`.
            drop(unsafe { CString::from_raw(text) });
        }
        Ok(())
    };
    answer(freed);
}
