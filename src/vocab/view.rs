//! View: the heap at one moment, as plain data for reports, snapshots and charts. All sizes are bytes.

use alloc::vec::Vec;

use super::units::{Address, Class, PoolId, StreamId, Ticket};

/// The whole heap at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapView {
    /// Segments by address.
    pub segments: Vec<SegmentView>,
}

/// One segment, or one page-mapped address range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentView {
    /// Where it starts.
    pub base: Address,
    /// Its size; of a page-mapped range, the address space it spans.
    pub bytes: u64,
    /// The stream whose requests it serves.
    pub stream: StreamId,
    /// The pool it belongs to.
    pub pool: PoolId,
    /// The side of the pool.
    pub class: Class,
    /// Page-mapped (an expandable segment).
    pub expandable: bool,
    /// The order in which it was created: 0 is the first.
    pub order: u64,
    /// Its blocks by address; they tile it exactly.
    pub blocks: Vec<BlockView>,
}

/// One block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// Where it starts.
    pub address: Address,
    /// Its size.
    pub bytes: u64,
    /// The client's size, 0 unless live or awaiting free.
    pub requested: u64,
    /// What it is.
    pub state: BlockState,
    /// The request that has or had it; meaningless when free or unmapped.
    pub ticket: Ticket,
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// Handed out (`active_allocated`).
    Allocated,
    /// Given back, but streams may still use it (`active_pending_free`).
    AwaitingFree,
    /// Can be handed out (`inactive`).
    Free,
    /// Address space without memory (page-mapped segments only), or memory on its way in or out.
    Unmapped,
}

/// Where the memory of one side of one pool on one stream is. All sizes are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "std", derive(serde::Serialize))]
pub struct PoolUsage {
    /// Obtained from the driver.
    pub reserved_bytes: u64,
    /// Handed out (block sizes).
    pub allocated_bytes: u64,
    /// Free, in segments (or pages) that could go back to the driver now.
    pub releasable_bytes: u64,
    /// Free, but held by a live block in the same segment (or page).
    pub pinned_free_bytes: u64,
    /// Given back by the client, not yet by every stream.
    pub awaiting_free_bytes: u64,
    /// The largest free block.
    pub largest_free_bytes: u64,
    /// Handed out beyond what was asked for.
    pub rounding_bytes: u64,
}
