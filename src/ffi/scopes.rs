//! Scopes: tags, private pools and captures, which in C begin and end by calls of one thread.
//!
//! Owns what is open on each thread. A scope ends on the thread where it began; one that is not open there is answered
//! with `BLOCKYARD_INVALID_ARGUMENT`. What a thread leaves open ends with it.

use std::cell::RefCell;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use super::error::{Failure, Outcome, answer, place, required};
use super::handles::Handles;
use super::open::{Opened, opened};
use super::types::{
    blockyard_allocator, blockyard_pool,
    blockyard_status::{self, *},
};
use crate::allocator::tags::TagScope;
use crate::allocator::{Capture, PoolScope, PrivatePool};

/// What one pool's number stands for.
pub(super) struct Pool {
    pool: PrivatePool,
    owner: Weak<Opened>,
}

static POOLS: Handles<Pool> = Handles::new(0xb0, "pool");

/// What is open on a thread, innermost last.
enum Open {
    Pool { _scope: PoolScope },
    Capture(Capture),
}

/// All of it. At the end of a thread, what a scope needs may be gone before it: that ends the scope, not the process.
struct Left(Vec<(blockyard_pool, Open)>);

impl Drop for Left {
    fn drop(&mut self) {
        while let Some(open) = self.0.pop() {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(open)));
        }
    }
}

thread_local! {
    static TAGS: RefCell<Vec<TagScope>> = const { RefCell::new(Vec::new()) };
    static OPEN: RefCell<Left> = const { RefCell::new(Left(Vec::new())) };
}

fn ending<T>(_: T) -> Failure {
    Failure::new(BLOCKYARD_UNSUPPORTED, "this thread is ending: no scope can be open on it")
}

/// A pool of this allocator by number.
pub(super) fn pool(number: blockyard_pool, of: &Arc<Opened>) -> Result<PrivatePool, Failure> {
    let found = POOLS.get(number)?;
    if !std::ptr::eq(found.owner.as_ptr(), &raw const **of) {
        let text = format_args!("pool {number:#x} belongs to another allocator");
        return Err(Failure::new(BLOCKYARD_INVALID_HANDLE, text));
    }
    Ok(found.pool.clone())
}

/// The pools of an allocator that is destroyed go with it.
pub(super) fn drop_pools(opened: &Arc<Opened>) {
    let owner = Arc::downgrade(opened);
    drop(POOLS.remove_all(|pool| Weak::ptr_eq(&pool.owner, &owner)));
}

/// Names what this thread allocates, inside the names that are open already, until it is popped.
///
/// # Safety
/// `name` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn blockyard_tag_push(name: *const c_char) -> blockyard_status {
    answer(|| {
        // SAFETY: as the caller says.
        let name = unsafe { required(name, "name") }?;
        let scope = TagScope::enter(name);
        TAGS.try_with(|tags| tags.borrow_mut().push(scope)).map_err(ending)
    })
}

/// Ends this thread's innermost name.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_tag_pop() -> blockyard_status {
    answer(|| {
        let popped = TAGS.try_with(|tags| tags.borrow_mut().pop()).map_err(ending)?;
        popped.map(drop).ok_or_else(|| Failure::argument("no tag is open on this thread"))
    })
}

/// Creates a private pool: a part of the program keeps its memory to itself.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_pool_create(
    allocator: blockyard_allocator,
    out: Option<&mut blockyard_pool>,
) -> blockyard_status {
    answer(|| {
        let out = place(out, "out")?;
        let opened = opened(allocator)?;
        let pool = opened.allocator.private_pool();
        *out = POOLS.insert(Arc::new(Pool { pool, owner: Arc::downgrade(&opened) }))?;
        Ok(())
    })
}

/// Gives a pool back: what is idle goes to the driver, what is live when it is freed. Scopes that are open on it last
/// until they end.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_pool_release(pool: blockyard_pool) -> blockyard_status {
    answer(|| POOLS.remove(pool, |_| None).map(drop))
}

/// The number by which `blockyard_blocks` and snapshots know the pool.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_pool_number(
    pool: blockyard_pool,
    out: Option<&mut u32>,
) -> blockyard_status {
    answer(|| {
        let out = place(out, "out")?;
        *out = POOLS.get(pool)?.pool.id().0;
        Ok(())
    })
}

/// Gives the pool's idle memory back to the driver. `released`, which may be null: bytes.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_pool_empty_cache(
    pool: blockyard_pool,
    released: Option<&mut u64>,
) -> blockyard_status {
    answer(|| {
        let done = POOLS.get(pool)?.pool.empty_cache();
        released.into_iter().for_each(|released| *released = done);
        Ok(())
    })
}

/// Sends this thread's requests to the pool until `blockyard_pool_end`. Scopes nest.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_pool_begin(pool: blockyard_pool) -> blockyard_status {
    answer(|| {
        let scope = POOLS.get(pool)?.pool.scope();
        begin(pool, Open::Pool { _scope: scope })
    })
}

/// Ends this thread's innermost scope of the pool.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_pool_end(pool: blockyard_pool) -> blockyard_status {
    answer(|| end(pool, |open| matches!(open, Open::Pool { .. })).map(drop))
}

/// Begins a capture of a graph: a scope of the pool in which no fence is asked about and nothing goes back to the
/// driver.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_capture_begin(pool: blockyard_pool) -> blockyard_status {
    answer(|| {
        let capture = POOLS.get(pool)?.pool.capture();
        begin(pool, Open::Capture(capture))
    })
}

/// Ends this thread's innermost capture into the pool.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_capture_end(pool: blockyard_pool) -> blockyard_status {
    answer(|| {
        if let Open::Capture(capture) = end(pool, |open| matches!(open, Open::Capture(_)))? {
            capture.finish();
        }
        Ok(())
    })
}

fn begin(pool: blockyard_pool, scope: Open) -> Outcome {
    OPEN.try_with(|open| open.borrow_mut().0.push((pool, scope))).map_err(ending)
}

fn end(pool: blockyard_pool, is: impl Fn(&Open) -> bool) -> Result<Open, Failure> {
    let ended = OPEN.try_with(|open| {
        let open = &mut open.borrow_mut().0;
        let place = open.iter().rposition(|(of, scope)| *of == pool && is(scope))?;
        Some(open.remove(place).1)
    });
    ended.map_err(ending)?.ok_or_else(|| {
        Failure::argument(format_args!("nothing of pool {pool:#x} is open on this thread"))
    })
}
