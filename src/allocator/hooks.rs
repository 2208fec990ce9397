//! Hooks: user code that hears of failures, allocations and frees. Called with no lock held
//! (**C1**).
//!
//! Whoever hears of one thing hears of all of it: where a hook panics the others are called all the
//! same, and the first panic goes on when they have been.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use super::CachingAllocator;
use super::sync::{AtomicU64, AtomicUsize, Ordering};
use crate::vocab::{Address, Report, StreamId};

/// Hears of failed requests, before the error is returned.
pub type OutOfMemoryObserver = dyn Fn(&Report) + Send + Sync;

/// One block handed out or given back. Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    /// Handed out, or given back.
    pub is_alloc: bool,
    /// Where it starts.
    pub address: Address,
    /// The client's size.
    pub bytes: u64,
    /// The stream it was allocated on.
    pub stream: StreamId,
}

/// Hears of every block handed out and given back.
pub type BlockHook = dyn Fn(BlockEvent) + Send + Sync;

/// Names a hook, observer, writer or alarm, so that it can be removed
/// ([`CachingAllocator::remove_hook`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HookId(u64);

/// What a panic carries.
type Panic = Box<dyn Any + Send>;

/// Called in the order in which they came.
pub(super) struct List<T: ?Sized>(RwLock<Vec<(HookId, Arc<T>)>>);

impl<T: ?Sized> Default for List<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T: ?Sized> List<T> {
    pub(super) fn add(&self, id: HookId, hook: Arc<T>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push((id, hook));
    }

    /// Whether it was here.
    pub(super) fn remove(&self, id: HookId) -> bool {
        let mut hooks = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let place = hooks.iter().position(|hook| hook.0 == id);
        let removed = place.map(|place| hooks.remove(place));
        // What it owns is dropped with no lock held.
        drop(hooks);
        removed.is_some()
    }

    pub(super) fn all(&self) -> Vec<Arc<T>> {
        let hooks = self.0.read().unwrap_or_else(PoisonError::into_inner);
        hooks.iter().map(|hook| Arc::clone(&hook.1)).collect()
    }

    /// Calls every one; the first panic, if there was one.
    fn call(&self, call: impl Fn(&T)) -> Result<(), Panic> {
        let mut result = Ok(());
        for hook in self.all() {
            let called = catch_unwind(AssertUnwindSafe(|| call(&hook)));
            result = result.and(called);
        }
        result
    }
}

#[derive(Default)]
pub(crate) struct Hooks {
    failures: List<OutOfMemoryObserver>,
    blocks: List<BlockHook>,
    /// How many block hooks there are: none is the common case, and costs one load.
    block_hooks: AtomicUsize,
    named: AtomicU64,
}

impl Hooks {
    /// A name that nothing else has.
    pub(super) fn name(&self) -> HookId {
        HookId(self.named.fetch_add(1, Ordering::Relaxed))
    }

    /// Tells every observer; the first panic, if there was one.
    #[cold]
    pub(super) fn failed(&self, report: &Report) -> Result<(), Panic> {
        self.failures.call(|observer| observer(report))
    }

    #[inline]
    pub(crate) fn block(&self, event: impl FnOnce() -> BlockEvent) {
        if self.block_hooks.load(Ordering::Relaxed) > 0 {
            self.call(event());
        }
    }

    #[cold]
    fn call(&self, event: BlockEvent) {
        if let Err(panic) = self.blocks.call(|hook| hook(event)) {
            std::panic::resume_unwind(panic);
        }
    }
}

impl CachingAllocator {
    /// Calls `observer` with the report of every failed request, before its error is returned. Making the report is
    /// O(blocks), under the lock: what is pinned and by whom is not kept up to date on the way of every request.
    ///
    /// An observer that panics keeps none of the others, nor the writers of
    /// [`CachingAllocator::write_on_failure`], from hearing of it; the panic then comes out of the request.
    pub fn on_out_of_memory(&self, observer: impl Fn(&Report) + Send + Sync + 'static) -> HookId {
        let id = self.shared.hooks.name();
        self.shared.hooks.failures.add(id, Arc::new(observer));
        id
    }

    /// Calls `hook` with every block handed out and given back, before its address can be handed out again. A hook
    /// that panics keeps none of the others from being called; then the panic goes on. Over a free it loses no block;
    /// over a new block it leaves it allocated.
    pub fn on_block(&self, hook: impl Fn(BlockEvent) + Send + Sync + 'static) -> HookId {
        let hooks = &self.shared.hooks;
        let id = hooks.name();
        hooks.blocks.add(id, Arc::new(hook));
        hooks.block_hooks.fetch_add(1, Ordering::Relaxed);
        id
    }

    /// Removes a hook, observer, writer or alarm of this allocator; whether it was there. Calls
    /// that have begun on other threads may still be under way.
    pub fn remove_hook(&self, id: HookId) -> bool {
        let hooks = &self.shared.hooks;
        if hooks.blocks.remove(id) {
            hooks.block_hooks.fetch_sub(1, Ordering::Relaxed);
            return true;
        }
        let watch = &self.shared.watch;
        hooks.failures.remove(id) || watch.writers.0.remove(id) || watch.alarms.remove(id)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use crate::allocator::{CachingAllocator, Config, FailureCause, Pressure, Threshold};
    use crate::device::{SimConfig, SimDevice};
    use crate::vocab::MIB;

    fn allocator() -> CachingAllocator {
        CachingAllocator::new(SimDevice::new(SimConfig::with_capacity(32 * MIB)), Config::default())
    }

    fn counter() -> (Arc<AtomicUsize>, impl Fn() + Send + Sync + 'static) {
        let count = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&count);
        let counts = move || {
            counts.fetch_add(1, Ordering::Relaxed);
        };
        (count, counts)
    }

    #[test]
    fn a_panicking_observer_keeps_nobody_from_hearing_and_its_panic_goes_on() {
        let all = allocator();
        let ((heard, hear), (written, write)) = (counter(), counter());
        all.on_out_of_memory(|_| std::panic::panic_any("the first"));
        all.on_out_of_memory(move |_| hear());
        all.on_out_of_memory(|_| std::panic::panic_any("the second"));
        all.write_on_failure(move |cause, _| {
            if matches!(cause, FailureCause::OutOfMemory(_)) {
                write();
            }
        });
        let stream = all.default_stream();
        let panic = catch_unwind(AssertUnwindSafe(|| stream.alloc(64 * MIB).is_err()));
        let said = panic.err().and_then(|panic| panic.downcast_ref::<&str>().copied());
        assert_eq!(said, Some("the first"));
        assert_eq!((heard.load(Ordering::Relaxed), written.load(Ordering::Relaxed)), (1, 1));
        assert_eq!(all.audit(), Ok(()));
    }

    #[test]
    fn a_panicking_block_hook_keeps_no_other_from_its_count() {
        let all = allocator();
        let panics = Arc::new(Mutex::new(true));
        let now = Arc::clone(&panics);
        let first = all.on_block(move |_| {
            assert!(!now.lock().is_ok_and(|panics| *panics), "planted");
        });
        let (heard, hear) = counter();
        all.on_block(move |_| hear());
        let stream = all.default_stream();
        assert!(catch_unwind(AssertUnwindSafe(|| stream.alloc(1).is_ok())).is_err());
        assert!(all.remove_hook(first));
        drop(stream.alloc(1));
        assert_eq!(heard.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn what_was_removed_is_not_called_any_more() {
        let all = allocator();
        let (heard, hear) = counter();
        let hear = Arc::new(hear);
        let hears = || Arc::clone(&hear);
        let (a, b, c, d) = (hears(), hears(), hears(), hears());
        let threshold =
            Threshold { pressure: Pressure::ReservedOfLimit, above: 0.1, rearm_below: 0.1 };
        let hooks = [
            all.on_block(move |_| a()),
            all.on_out_of_memory(move |_| b()),
            all.write_on_failure(move |cause, _| {
                if matches!(cause, FailureCause::OutOfMemory(_)) {
                    c();
                }
            }),
            all.on_pressure(threshold, move |_| d()),
        ];
        let stream = all.default_stream();
        let round = || {
            drop(stream.alloc(8 * MIB));
            assert!(stream.alloc(64 * MIB).is_err());
            all.empty_cache();
            all.check_pressure();
        };
        round();
        assert_eq!(heard.load(Ordering::Relaxed), 5, "two blocks, three others");
        assert!(hooks.into_iter().all(|hook| all.remove_hook(hook)));
        assert!(!all.remove_hook(hooks[0]), "only once");
        round();
        assert_eq!(heard.load(Ordering::Relaxed), 5);
    }
}
