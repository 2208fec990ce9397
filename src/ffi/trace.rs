//! Trace: everything a program does, written down without a change to the program.
//!
//! `BLOCKYARD_TRACE=run.trace.zst` records all requests of every allocator that is created. The file is written when
//! the allocator is destroyed, when the process exits, and at the first, second, fourth, eighth ... request that fails.
//! The second allocator of a process writes to `run-2.trace.zst`, and so on.

use std::ffi::{OsString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

use super::open::{ALLOCATORS, Opened};
use crate::allocator::CachingAllocator;
use crate::trace::write_records;

const VARIABLE: &str = "BLOCKYARD_TRACE";

/// Where one allocator's history goes.
pub(super) struct Trace {
    path: PathBuf,
    /// Held while the file is written: two threads may fail at once.
    writing: Mutex<()>,
    failures: AtomicU64,
}

unsafe extern "C" {
    fn atexit(call: extern "C" fn()) -> c_int;
}

impl Trace {
    pub(super) fn is_wanted() -> bool {
        path().is_some()
    }

    /// The next allocator's.
    pub(super) fn from_environment() -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let path = path()?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
        let path = numbered(Path::new(&path), number);
        Some(Self { path, writing: Mutex::new(()), failures: AtomicU64::new(0) })
    }

    /// From now on failures are written, and the end of the process is.
    pub(super) fn watch(&self, opened: &Arc<Opened>) {
        let weak = Arc::downgrade(opened);
        opened.allocator.on_out_of_memory(move |_| {
            let Some(opened) = weak.upgrade() else { return };
            let Some(trace) = &opened.trace else { return };
            let earlier = trace.failures.fetch_add(1, Ordering::Relaxed);
            if (earlier + 1).is_power_of_two() {
                trace.write(&opened.allocator);
            }
        });
        static AT_EXIT: Once = Once::new();
        AT_EXIT.call_once(|| {
            // SAFETY: a function of this library, which is not unloaded.
            let _ = unsafe { atexit(write_all) };
        });
    }

    /// Writes the file; what goes wrong is said on the standard error stream, for nobody is there to be told.
    pub(super) fn write(&self, allocator: &CachingAllocator) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = write_records(&self.path, &allocator.dump()) {
            eprintln!("blockyard: {VARIABLE}: {error}");
        }
    }
}

fn path() -> Option<OsString> {
    std::env::var_os(VARIABLE).filter(|path| !path.is_empty())
}

extern "C" fn write_all() {
    // Nothing may unwind into the C library.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        for opened in ALLOCATORS.all() {
            opened.trace.iter().for_each(|trace| trace.write(&opened.allocator));
        }
    }));
}

/// `run.trace.zst`, `run-2.trace.zst`, ...
fn numbered(path: &Path, number: u64) -> PathBuf {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if number == 1 || name.is_empty() {
        return path.to_owned();
    }
    let (stem, rest) = name.split_at(name.find('.').unwrap_or(name.len()));
    path.with_file_name(format!("{stem}-{number}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_allocator_has_a_file_of_its_own() {
        let name = |path, number| numbered(Path::new(path), number).display().to_string();
        assert_eq!(name("a/run.trace.zst", 1), "a/run.trace.zst");
        assert_eq!(name("a/run.trace.zst", 3), "a/run-3.trace.zst");
        assert_eq!(name("run", 2), "run-2");
    }
}
