//! Change: one thing that happened in the heap, as the ledger, the recorder and the charts see it.
//!
//! Statistics are a fold over changes (invariant **R1**: the fold equals a recount of the state).
//! All sizes are bytes.

use super::units::{Address, Class, PoolId, StreamId, Ticket};

/// What changed. Emitted by the heap in the order in which it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A block was handed out.
    Allocated {
        /// The request that got it.
        ticket: Ticket,
        /// Where it starts.
        address: Address,
        /// The block's size.
        bytes: u64,
        /// The client's size.
        requested: u64,
        /// The side of the pool.
        class: Class,
        /// `bytes` is at or above the policy's split limit.
        oversize: bool,
    },
    /// The client gave a block back; streams may still use it.
    FreeRequested {
        /// The request that had got it.
        ticket: Ticket,
        /// Where it starts.
        address: Address,
        /// The block's size.
        bytes: u64,
        /// The side of the pool.
        class: Class,
        /// `bytes` is at or above the policy's split limit.
        oversize: bool,
    },
    /// The block's memory can be reused.
    FreeCompleted {
        /// The request that had got it.
        ticket: Ticket,
        /// Where it started.
        address: Address,
        /// The block's size.
        bytes: u64,
        /// The client's size.
        requested: u64,
        /// The side of the pool.
        class: Class,
    },
    /// Free blocks of split, not page-mapped segments: how their number and bytes changed.
    InactiveSplit {
        /// The side of the pool.
        class: Class,
        /// Blocks more or fewer.
        blocks: i64,
        /// Bytes more or fewer.
        bytes: i64,
    },
    /// The driver gave a segment.
    SegmentAllocated {
        /// Where it starts.
        base: Address,
        /// Its size.
        bytes: u64,
        /// The side of the pool.
        class: Class,
        /// Its stream.
        stream: StreamId,
        /// Its pool.
        pool: PoolId,
        /// `bytes` is at or above the policy's split limit.
        oversize: bool,
    },
    /// The driver took a segment back.
    SegmentFreed {
        /// Where it started.
        base: Address,
        /// Its size.
        bytes: u64,
        /// The side of the pool.
        class: Class,
        /// Its stream.
        stream: StreamId,
        /// Its pool.
        pool: PoolId,
        /// `bytes` is at or above the policy's split limit.
        oversize: bool,
    },
    /// One map operation on a contiguous range of pages.
    Mapped {
        /// Where the range starts.
        base: Address,
        /// Its size.
        bytes: u64,
        /// Pages in it: single driver map calls.
        pages: u64,
        /// The side of the pool.
        class: Class,
        /// Its stream.
        stream: StreamId,
        /// Its pool.
        pool: PoolId,
    },
    /// One unmap operation on a contiguous range of pages.
    Unmapped {
        /// Where the range starts.
        base: Address,
        /// Its size.
        bytes: u64,
        /// Pages in it: single driver unmap calls.
        pages: u64,
        /// The side of the pool.
        class: Class,
        /// Its stream.
        stream: StreamId,
        /// Its pool.
        pool: PoolId,
    },
    /// The driver is asked again after the whole cache was given back (`num_alloc_retries`).
    Retried,
    /// A request failed (`num_ooms`).
    RanOut {
        /// The rounded request.
        bytes: u64,
        /// Its stream.
        stream: StreamId,
        /// Its pool.
        pool: PoolId,
    },
    /// The block that was handed out last is cached for another stream and only lent.
    Borrowed {
        /// Its size.
        bytes: u64,
        /// The borrower's stream was ordered behind a fence of the owner's; otherwise that had
        /// passed already.
        waited: bool,
    },
    /// All pending frees were waited for (`num_sync_all_streams`).
    Synchronized,
}

/// Whoever wants to hear of changes. Must not fail and must not call back into the heap.
pub trait Observe {
    /// Hears of one change.
    fn observe(&mut self, change: Change);
}

/// Nobody listens.
impl Observe for () {
    fn observe(&mut self, _: Change) {}
}

/// Two listeners, the first one first.
impl<A: Observe, B: Observe> Observe for (A, B) {
    #[inline]
    fn observe(&mut self, change: Change) {
        self.0.observe(change);
        self.1.observe(change);
    }
}

impl<T: Observe + ?Sized> Observe for &mut T {
    #[inline]
    fn observe(&mut self, change: Change) {
        (**self).observe(change);
    }
}

impl Observe for alloc::vec::Vec<Change> {
    fn observe(&mut self, change: Change) {
        self.push(change);
    }
}
