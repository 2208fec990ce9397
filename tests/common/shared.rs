//! Shared device: a device that the test keeps a hand on while an allocator has it.
#![allow(missing_docs, clippy::unwrap_used, dead_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blockyard::device::{CallKind, Calls, Device};
use blockyard::vocab::{Answer, Want};

pub struct SharedDevice<D>(Arc<Mutex<D>>, Arc<Mutex<Option<CallKind>>>);

impl<D> Clone for SharedDevice<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0), Arc::clone(&self.1))
    }
}

impl<D> SharedDevice<D> {
    pub fn new(device: D) -> Self {
        Self(Arc::new(Mutex::new(device)), Arc::default())
    }

    pub fn get(&self) -> MutexGuard<'_, D> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next call of this kind panics.
    pub fn trap(&self, kind: CallKind) {
        *self.1.lock().unwrap() = Some(kind);
    }
}

impl<D: Device> Device for SharedDevice<D> {
    fn perform(&mut self, want: Want) -> Answer {
        let sprung = self.1.lock().unwrap().take_if(|kind| *kind == CallKind::of(&want));
        assert!(sprung.is_none(), "planted");
        self.get().perform(want)
    }
    fn total(&self) -> Option<u64> {
        self.get().total()
    }
    fn free(&self) -> Option<u64> {
        self.get().free()
    }
    fn granularity(&self) -> u64 {
        self.get().granularity()
    }
    fn page_mapping(&self) -> bool {
        self.get().page_mapping()
    }
    fn nanos(&self) -> u64 {
        self.get().nanos()
    }
    fn calls(&self) -> Calls {
        self.get().calls()
    }
}
