//! Hooks: user code that hears of failures, allocations and frees. Called with no lock held
//! (**C1**).

use std::sync::{Arc, PoisonError, RwLock};

use super::sync::{AtomicUsize, Ordering};
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

#[derive(Default)]
pub(crate) struct Hooks {
    failures: RwLock<Vec<Arc<OutOfMemoryObserver>>>,
    blocks: RwLock<Vec<Arc<BlockHook>>>,
    /// How many block hooks there are: none is the common case, and costs one load.
    block_hooks: AtomicUsize,
}

impl Hooks {
    pub(crate) fn on_out_of_memory(&self, observer: Arc<OutOfMemoryObserver>) {
        self.failures.write().unwrap_or_else(PoisonError::into_inner).push(observer);
    }

    pub(crate) fn on_block(&self, hook: Arc<BlockHook>) {
        self.blocks.write().unwrap_or_else(PoisonError::into_inner).push(hook);
        self.block_hooks.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn failed(&self, report: &Report) {
        let observers = self.failures.read().unwrap_or_else(PoisonError::into_inner).clone();
        observers.iter().for_each(|observer| observer(report));
    }

    #[inline]
    pub(crate) fn block(&self, event: impl FnOnce() -> BlockEvent) {
        if self.block_hooks.load(Ordering::Relaxed) > 0 {
            self.call(event());
        }
    }

    #[cold]
    fn call(&self, event: BlockEvent) {
        let hooks = self.blocks.read().unwrap_or_else(PoisonError::into_inner).clone();
        hooks.iter().for_each(|hook| hook(event));
    }
}
