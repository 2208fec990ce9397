//! Thread: what the driver knows of each host thread.
//!
//! Owns the stack of current contexts, the mode towards captures, and whether a host function runs.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

static THREADS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static NUMBER: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
    static CURRENT: Cell<u64> = const { Cell::new(0) };
    static BELOW: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static CAPTURE_MODE: Cell<u32> = const { Cell::new(0) };
    static HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// This thread's number.
pub fn number() -> u64 {
    NUMBER.with(|number| *number)
}

/// The current context, 0 for none. Known to the thread's last moment, when the stack is gone.
pub fn context() -> u64 {
    CURRENT.with(Cell::get)
}

/// Replaces the top of the stack; 0 takes it away.
pub fn set_context(context: u64) {
    match context {
        0 => {
            pop_context();
        }
        _ => CURRENT.with(|current| current.set(context)),
    }
}

pub fn push_context(context: u64) {
    let below = CURRENT.with(|current| current.replace(context));
    if below != 0 {
        let _ = BELOW.try_with(|stack| stack.borrow_mut().push(below));
    }
}

pub fn pop_context() -> Option<u64> {
    let below = BELOW.try_with(|stack| stack.borrow_mut().pop()).ok().flatten();
    let top = CURRENT.with(|current| current.replace(below.unwrap_or(0)));
    Some(top).filter(|top| *top != 0)
}

/// The mode towards captures, exchanged for `mode` if there is one.
pub fn capture_mode(mode: Option<u32>) -> u32 {
    CAPTURE_MODE.with(|cell| {
        let old = cell.get();
        cell.set(mode.unwrap_or(old));
        old
    })
}

pub fn in_host_function() -> bool {
    HOST_FUNCTION.with(Cell::get)
}

/// Runs `work` as a host function, which may not call the driver.
pub fn as_host_function(work: impl FnOnce()) {
    HOST_FUNCTION.with(|flag| flag.set(true));
    work();
    HOST_FUNCTION.with(|flag| flag.set(false));
}
