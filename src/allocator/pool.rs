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
    /// Open scopes of this thread, the last opened last.
    static SCOPES: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
}

/// An open scope: its number, allocator and pool.
#[derive(Clone, Copy)]
struct Open {
    number: u64,
    key: usize,
    pool: PoolId,
}

/// The number of the next scope that is opened while these are; numbers rise.
fn next_number(scopes: &[Open]) -> u64 {
    scopes.last().map_or(1, |scope| scope.number + 1)
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
    let ours = |scopes: &RefCell<Vec<Open>>| {
        let scopes = scopes.borrow();
        scopes.iter().rev().find(|scope| scope.key == key).map(|scope| scope.pool)
    };
    // The destructors of a thread may run after its scopes are gone.
    SCOPES.try_with(ours).ok().flatten().unwrap_or(PoolId::DEFAULT)
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

    /// Sends this thread's requests to the pool until the scope is dropped. Scopes may end in any
    /// order: in force is the one opened last of those still open.
    #[must_use]
    pub fn scope(&self) -> PoolScope {
        let shared = &self.0.shared;
        shared.pool_scopes.fetch_add(1, Ordering::Relaxed);
        let opened = SCOPES.try_with(|scopes| {
            let mut scopes = scopes.borrow_mut();
            let number = next_number(&scopes);
            scopes.push(Open { number, key: key(shared), pool: self.0.id });
            number
        });
        let number = opened.unwrap_or(0);
        PoolScope { pool: self.clone(), number, _here: std::marker::PhantomData }
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
    /// 0: opened when the thread's list of scopes was gone already, and in force nowhere.
    number: u64,
    /// A scope belongs to its thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Drop for PoolScope {
    fn drop(&mut self) {
        let _ = SCOPES
            .try_with(|scopes| scopes.borrow_mut().retain(|scope| scope.number != self.number));
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

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::RefCell;
    use std::sync::mpsc::{Sender, channel};

    use super::PoolScope;
    use crate::allocator::{CachingAllocator, Config, Stream};
    use crate::device::{SimConfig, SimDevice};
    use crate::vocab::{MIB, PoolId};

    fn allocator() -> CachingAllocator {
        CachingAllocator::new(SimDevice::new(SimConfig::with_capacity(64 * MIB)), Config::default())
    }

    fn pool_of(stream: &Stream) -> Option<PoolId> {
        stream.alloc(1).ok().map(|buffer| buffer.pool())
    }

    #[test]
    fn scopes_end_in_any_order() {
        let all = allocator();
        let stream = all.default_stream();
        let (first, second) = (all.private_pool(), all.private_pool());
        let (x, y, z) = (first.scope(), second.scope(), first.scope());
        drop(x);
        assert_eq!(pool_of(&stream), Some(first.id()), "the one opened last is open");
        drop(z);
        assert_eq!(pool_of(&stream), Some(second.id()));
        let again = first.scope();
        drop(y);
        assert_eq!(pool_of(&stream), Some(first.id()));
        drop(again);
        assert_eq!(pool_of(&stream), Some(PoolId::DEFAULT));
    }

    /// Allocates when its thread is over.
    struct Late(Stream, Option<PoolScope>, Sender<Option<PoolId>>);

    impl Drop for Late {
        fn drop(&mut self) {
            drop(self.1.take());
            let _ = self.2.send(pool_of(&self.0));
        }
    }

    thread_local! { static LATE: RefCell<Option<Late>> = const { RefCell::new(None) }; }

    #[test]
    fn the_destructors_of_a_thread_may_allocate_while_others_have_scopes_open() {
        let all = allocator();
        let pool = all.private_pool();
        let _open = pool.scope();
        let (say, said) = channel();
        for scoped in [false, true] {
            let (stream, pool, say) = (all.default_stream(), pool.clone(), say.clone());
            let run = move || {
                LATE.set(None);
                let scope = scoped.then(|| pool.scope());
                LATE.set(Some(Late(stream, scope, say)));
            };
            assert!(std::thread::spawn(run).join().is_ok());
            assert_eq!(said.recv(), Ok(Some(PoolId::DEFAULT)));
        }
    }
}
