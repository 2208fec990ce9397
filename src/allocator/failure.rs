//! Failure: writing down what led to a request that failed, or to a panic of the program.
//!
//! Owns the list of writers and the process's one panic hook. A writer gets the dump as plain data
//! and knows a file format; this file knows none. The panic hook waits for no lock: the dump is
//! taken and written on a thread of its own, for which the panicking thread waits a bounded time,
//! and which gives up where the panicking thread holds the core's lock. Nothing that goes wrong in
//! a writer reaches the program.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::CachingAllocator;
use super::hooks::{HookId, List};
use super::shell::Shared;
use crate::vocab::{Dump, Report};

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// A request failed.
    OutOfMemory(Box<Report>),
    /// A thread of the program panicked: where, and what it said.
    Panic(String),
}

/// Writes a dump down.
pub type FailureWriter = dyn Fn(&FailureCause, &Dump) + Send + Sync;

thread_local! {
    /// A writer runs on this thread: failures of its own are not written.
    static WRITING: Cell<bool> = const { Cell::new(false) };
}

#[derive(Default)]
pub(crate) struct Writers(pub(super) List<FailureWriter>);

impl CachingAllocator {
    /// Calls `writer` with the cause and a [`CachingAllocator::dump`] for every request that fails,
    /// before its error is returned, and for every panic of any thread, before the panic hook that
    /// was installed till now. After a panic the writer runs on a thread of its own, for at most
    /// ten seconds, and not at all if the core's lock cannot be had.
    ///
    /// ```
    /// # use blockyard::allocator::{CachingAllocator, Config};
    /// # use blockyard::device::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::with_capacity(1 << 26));
    /// let allocator = CachingAllocator::new(device, Config { record: 1 << 16, ..Config::default() });
    /// allocator.write_on_failure(|cause, dump| {
    ///     eprintln!("{cause:?}");
    ///     if let Err(error) = blockyard::trace::write_records("failed.trace.zst", dump) {
    ///         eprintln!("{error}");
    ///     }
    /// });
    /// ```
    pub fn write_on_failure(
        &self,
        writer: impl Fn(&FailureCause, &Dump) + Send + Sync + 'static,
    ) -> HookId {
        let id = self.shared.hooks.name();
        self.shared.watch.writers.0.add(id, Arc::new(writer));
        #[cfg(not(loom))]
        panics::listen(&self.shared);
        id
    }
}

impl Shared {
    /// A request failed: tells everyone who wants to know. Called with no lock held. An observer's
    /// panic goes on when all have been told.
    #[cold]
    pub(super) fn failed(&self, report: &Report) {
        #[cfg(feature = "tracing")]
        super::events::out_of_memory(self.watch.device_index, report);
        #[cfg(feature = "metrics")]
        self.publish_metrics();
        let told = self.hooks.failed(report);
        let writers = self.watch.writers.0.all();
        if !writers.is_empty() && !WRITING.get() {
            write(&writers, &FailureCause::OutOfMemory(Box::new(report.clone())), &self.dump(true));
        }
        if let Err(panic) = told {
            resume_unwind(panic);
        }
    }

    /// Memory was taken from the driver, or given back. Called with no lock held.
    pub(super) fn segments_moved(&self) {
        #[cfg(feature = "metrics")]
        self.publish_metrics();
        self.check_alarms();
    }

    /// Writes after a panic, unless the lock cannot be had.
    #[cfg(not(loom))]
    fn write_panic(&self, cause: &FailureCause) {
        let writers = self.watch.writers.0.all();
        if let Some(dump) = self.dump_within(panics::FOR_THE_LOCK) {
            write(&writers, cause, &dump);
        }
    }
}

fn write(writers: &[Arc<FailureWriter>], cause: &FailureCause, dump: &Dump) {
    let outer = WRITING.replace(true);
    for writer in writers {
        // The panic hook has told what went wrong; the next writer may do better.
        let _ = catch_unwind(AssertUnwindSafe(|| writer(cause, dump)));
    }
    WRITING.set(outer);
}

#[cfg(not(loom))]
mod panics {
    use std::panic::PanicHookInfo;
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Once, PoisonError, RwLock, Weak};
    use std::thread;
    use std::time::Duration;

    use super::{FailureCause, Shared, WRITING};

    /// How long a panicking thread waits for what is written.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// How long the core's lock is tried for.
    pub(super) const FOR_THE_LOCK: Duration = Duration::from_secs(1);

    /// Allocators with writers.
    static LISTENING: RwLock<Vec<Weak<Shared>>> = RwLock::new(Vec::new());

    pub(super) fn listen(shared: &Arc<Shared>) {
        let mut listening = LISTENING.write().unwrap_or_else(PoisonError::into_inner);
        listening.retain(|other| other.strong_count() > 0);
        if !listening.iter().any(|other| std::ptr::eq(other.as_ptr(), &raw const **shared)) {
            listening.push(Arc::downgrade(shared));
        }
        drop(listening);
        static HOOK: Once = Once::new();
        if !thread::panicking() {
            HOOK.call_once(|| {
                let previous = std::panic::take_hook();
                std::panic::set_hook(Box::new(move |panic| {
                    panicked(panic);
                    previous(panic);
                }));
            });
        }
    }

    fn panicked(panic: &PanicHookInfo<'_>) {
        if WRITING.try_with(std::cell::Cell::get).unwrap_or(true) {
            return;
        }
        let Ok(listening) = LISTENING.try_read() else { return };
        let live: Vec<_> = listening.iter().filter_map(Weak::upgrade).collect();
        drop(listening);
        if !live.is_empty() {
            write_elsewhere(live, FailureCause::Panic(text(panic)));
        }
    }

    /// Writes on another thread, so that neither a panic there nor a lock that this thread holds
    /// does harm.
    fn write_elsewhere(live: Vec<Arc<Shared>>, cause: FailureCause) {
        let (done, finished) = channel();
        let work = move || {
            WRITING.set(true);
            live.iter().for_each(|shared| shared.write_panic(&cause));
            drop(live);
            let _ = done.send(());
        };
        if thread::Builder::new().name("blockyard-failure".into()).spawn(work).is_ok() {
            let _ = finished.recv_timeout(PATIENCE);
        }
    }

    fn text(panic: &PanicHookInfo<'_>) -> String {
        let payload = panic.payload();
        let said = payload.downcast_ref::<&str>().copied();
        let said = said.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let place = panic.location().map(|place| format!("{place}: ")).unwrap_or_default();
        format!("{place}{}", said.unwrap_or("a panic without a text"))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::allocator::Config;
    use crate::device::{SimConfig, SimDevice};

    #[test]
    fn a_panic_under_the_lock_is_not_waited_for_and_not_written() {
        let device = SimDevice::new(SimConfig::with_capacity(1 << 26));
        let allocator = CachingAllocator::new(device, Config::default());
        let written = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&written);
        let writer: Arc<FailureWriter> = Arc::new(move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let id = allocator.shared.hooks.name();
        allocator.shared.watch.writers.0.add(id, writer);
        let cause = FailureCause::Panic("planted".into());
        let held = allocator.shared.locked();
        let elsewhere = std::thread::scope(|scope| {
            scope.spawn(|| allocator.shared.write_panic(&cause)).join().is_ok()
        });
        drop(held);
        assert!(elsewhere);
        assert_eq!(written.load(Ordering::Relaxed), 0, "the state is not known to be whole");
        allocator.shared.write_panic(&cause);
        assert_eq!(written.load(Ordering::Relaxed), 1);
    }
}
