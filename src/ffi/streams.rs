//! Streams: the driver's handles of streams, and the allocator's streams for them.
//!
//! Asked by every call that names a stream, and by callbacks, which are told the driver's handle. A stream that was
//! shown to an allocator lives as long as the allocator: fences may be wanted on it as long as memory that it used is
//! cached. That is the caller's to keep, as the header says.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::allocator::{CachingAllocator, Stream};
use crate::vocab::StreamId;

/// What the device wants to hear of a stream that is new.
pub(super) type Introduce = dyn Fn(StreamId, *mut c_void) + Send + Sync;

pub(super) struct Streams {
    introduce: Option<Arc<Introduce>>,
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    streams: HashMap<u64, Stream>,
    /// The driver's handles by number.
    handles: Vec<usize>,
}

impl Streams {
    pub(super) fn new(introduce: Option<Arc<Introduce>>) -> Self {
        Self { introduce, known: RwLock::default() }
    }

    /// The allocator's stream for a handle of the driver.
    pub(super) fn get(&self, allocator: &CachingAllocator, raw: *mut c_void) -> Stream {
        let key = key(raw.addr() as u64);
        if key == 0 {
            return allocator.default_stream();
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = known.streams.get(&key) {
            return stream.clone();
        }
        drop(known);
        self.meet(allocator, key, raw)
    }

    #[cold]
    fn meet(&self, allocator: &CachingAllocator, key: u64, raw: *mut c_void) -> Stream {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = known.streams.get(&key) {
            return stream.clone();
        }
        let stream = allocator.stream(key);
        if let Some(introduce) = &self.introduce {
            introduce(stream.id(), raw);
        }
        let number = stream.id().0 as usize;
        if known.handles.len() <= number {
            known.handles.resize(number + 1, 0);
        }
        known.handles[number] = raw.addr();
        known.streams.insert(key, stream.clone());
        stream
    }

    /// The driver's handle of a stream.
    pub(super) fn handle(&self, stream: StreamId) -> *mut c_void {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let handle = known.handles.get(stream.0 as usize).copied();
        std::ptr::without_provenance_mut(handle.unwrap_or(0))
    }
}

/// What the allocator knows a stream by. Threads' own default streams share a handle and are not one stream; no other
/// handle has its low bits.
fn key(raw: u64) -> u64 {
    match raw {
        0 | 1 => 0,
        2 => 2 | this_thread() << 4,
        raw => raw,
    }
}

/// A number that no other thread has or had.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}
