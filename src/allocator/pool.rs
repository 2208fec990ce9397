//! Pool: private pools, by which a part of the program keeps its memory to itself.
//!
//! A pool is used by handle ([`Stream::alloc_in`](super::Stream::alloc_in)), or by a scope that
//! sends a thread's requests to it; scopes nest. A capture is a scope under the rules of CUDA
//! graphs: no fence is queried, frees of blocks that several streams used wait for its end, nothing
//! goes back to the driver. When the last handle is dropped the pool is retired: what is idle goes
//! back at once, what is live when it is freed.

use std::cell::RefCell;

use super::shell::Shared;
use super::sync::{Arc, Ordering};
use crate::vocab::{Fault, Input, Output, PoolId, Target};

thread_local! {
    /// Open scopes of this thread: allocator and pool, innermost last.
    static SCOPES: RefCell<Vec<(usize, PoolId)>> = const { RefCell::new(Vec::new()) };
}

/// The pool of this thread's innermost scope for this allocator. One load where no scope is open
/// anywhere.
#[inline]
pub(super) fn scoped_pool(shared: &Arc<Shared>) -> PoolId {
    if shared.pool_scopes.load(Ordering::Relaxed) == 0 {
        PoolId::DEFAULT
    } else {
        innermost(shared)
    }
}

#[cold]
fn innermost(shared: &Arc<Shared>) -> PoolId {
    let key = key(shared);
    SCOPES.with_borrow(|scopes| {
        scopes.iter().rev().find(|scope| scope.0 == key).map_or(PoolId::DEFAULT, |scope| scope.1)
    })
}

fn key(shared: &Arc<Shared>) -> usize {
    std::ptr::from_ref::<Shared>(shared).addr()
}

/// A private pool. Clones are users of the same pool.
#[derive(Clone)]
pub struct PrivatePool(Arc<Users>);

struct Users {
    shared: Arc<Shared>,
    id: PoolId,
}

impl PrivatePool {
    pub(super) fn new(shared: Arc<Shared>, id: PoolId) -> Self {
        Self(Arc::new(Users { shared, id }))
    }

    /// Whether it is a pool of the allocator behind `shared`.
    pub(super) fn belongs_to(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.0.shared, shared)
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> PoolId {
        self.0.id
    }

    /// How many handles and open scopes the pool has.
    #[must_use]
    pub fn use_count(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Sends this thread's requests to the pool until the scope is dropped.
    #[must_use]
    pub fn scope(&self) -> PoolScope {
        let shared = &self.0.shared;
        shared.pool_scopes.fetch_add(1, Ordering::Relaxed);
        SCOPES.with_borrow_mut(|scopes| scopes.push((key(shared), self.0.id)));
        PoolScope { pool: self.clone(), _here: std::marker::PhantomData }
    }

    /// Begins a capture: a scope under the rules of CUDA graphs. Dropped without
    /// [`Capture::finish`] it is aborted.
    #[must_use]
    pub fn capture(&self) -> Capture {
        let shared = &self.0.shared;
        let ticket = shared.ticket();
        shared.pump(Input::Capture { ticket, begins: true });
        Capture { scope: Some(self.scope()) }
    }

    /// Gives the pool's idle memory back to the driver. Returns the bytes: those until then, where the driver fails.
    pub fn empty_cache(&self) -> u64 {
        self.0.shared.trim(Target::Pool(self.0.id))
    }
}

impl std::fmt::Debug for PrivatePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PrivatePool({}, {} users)", self.0.id.0, self.use_count())
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        self.shared.pump(Input::Retire { pool: self.id });
        self.shared.trim(Target::Pool(self.id));
    }
}

/// Sends its thread's requests to a pool.
#[derive(Debug)]
pub struct PoolScope {
    pool: PrivatePool,
    /// A scope belongs to its thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Drop for PoolScope {
    fn drop(&mut self) {
        let entry = (key(&self.pool.0.shared), self.pool.0.id);
        SCOPES.with_borrow_mut(|scopes| {
            if let Some(place) = scopes.iter().rposition(|scope| *scope == entry) {
                scopes.remove(place);
            }
        });
        self.pool.0.shared.pool_scopes.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A capture under way.
#[derive(Debug)]
pub struct Capture {
    scope: Option<PoolScope>,
}

impl Capture {
    /// Ends the capture. Frees that it deferred now wait for their streams.
    pub fn finish(mut self) {
        self.end();
    }

    /// Ends the capture and gives back what the pool has idle. So does a drop.
    pub fn abort(self) {
        drop(self);
    }

    fn end(&mut self) -> Option<PoolScope> {
        let scope = self.scope.take()?;
        let shared = &scope.pool.0.shared;
        let ticket = shared.ticket();
        shared.pump(Input::Capture { ticket, begins: false });
        Some(scope)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(scope) = self.end() {
            scope.pool.empty_cache();
        }
    }
}

impl Shared {
    /// Gives idle memory back: bytes, and what the driver failed with, if it did.
    pub(super) fn try_trim(&self, target: Target) -> (u64, Option<Fault>) {
        let ticket = self.ticket();
        match self.pump(Input::Trim { ticket, target }) {
            Output::Trimmed { released, .. } => (released, None),
            Output::DriverFailed { fault, released, .. } => (released, Some(fault)),
            _ => (0, None),
        }
    }

    /// The same, where only the bytes count.
    pub(super) fn trim(&self, target: Target) -> u64 {
        self.try_trim(target).0
    }
}
