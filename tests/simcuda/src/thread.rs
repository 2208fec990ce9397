//! Thread: what the driver knows of each host thread.
//!
//! Owns the stack of current contexts, the mode towards captures, and whether a host function runs.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

static THREADS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static NUMBER: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
    static CONTEXTS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static CAPTURE_MODE: Cell<u32> = const { Cell::new(0) };
    static HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// This thread's number.
pub fn number() -> u64 {
    NUMBER.with(|number| *number)
}

/// The current context, 0 for none.
pub fn context() -> u64 {
    CONTEXTS.with_borrow(|stack| stack.last().copied().unwrap_or(0))
}

/// Replaces the top of the stack; 0 takes it away.
pub fn set_context(context: u64) {
    CONTEXTS.with_borrow_mut(|stack| {
        stack.pop();
        if context != 0 {
            stack.push(context);
        }
    });
}

pub fn push_context(context: u64) {
    CONTEXTS.with_borrow_mut(|stack| stack.push(context));
}

pub fn pop_context() -> Option<u64> {
    CONTEXTS.with_borrow_mut(Vec::pop)
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
