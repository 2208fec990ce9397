//! Types: what the header names: versions, status, handles, blocks, callbacks.
//!
//! Asked by every file of this room. Whatever changes here changes the interface: a new function or a new status raises
//! the minor number, anything that an old program could notice the major one.

use std::ffi::{c_char, c_void};

/// Programs built for another major version do not work with this library.
pub const BLOCKYARD_ABI_MAJOR: u32 = 1;
/// Rises with every function that is added.
pub const BLOCKYARD_ABI_MINOR: u32 = 0;
/// No limit, for `blockyard_set_limit`.
pub const BLOCKYARD_NO_LIMIT: u64 = u64::MAX;
/// Everything, for `blockyard_record`.
pub const BLOCKYARD_ALL: u64 = u64::MAX;

/// What a call came to. The text is in `blockyard_last_error_text`. A call that fails has changed nothing.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum blockyard_status {
    /// It was done.
    BLOCKYARD_OK = 0,
    /// There is no memory for the request; the text is a report of why.
    BLOCKYARD_OUT_OF_MEMORY = 1,
    /// The driver failed, or there is none.
    BLOCKYARD_DRIVER = 2,
    /// No live block starts at this address: never allocated here, or freed before.
    BLOCKYARD_UNKNOWN_POINTER = 3,
    /// The block has another size than the caller says.
    BLOCKYARD_WRONG_SIZE = 4,
    /// A null pointer, a text that is not understood, a number out of range.
    BLOCKYARD_INVALID_ARGUMENT = 5,
    /// No such allocator or pool: never created, or given back.
    BLOCKYARD_INVALID_HANDLE = 6,
    /// Blocks are live, or a scope is open.
    BLOCKYARD_BUSY = 7,
    /// This library or this device cannot do it.
    BLOCKYARD_UNSUPPORTED = 8,
    /// A file could not be written.
    BLOCKYARD_IO = 9,
    /// A defect of this library. Whether the call was done is not known.
    BLOCKYARD_INTERNAL = 10,
}

/// An allocator. 0 is none.
pub type blockyard_allocator = u64;
/// A private pool. 0 is none.
pub type blockyard_pool = u64;

/// What a block is.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum blockyard_block_state {
    /// Handed out.
    BLOCKYARD_BLOCK_ALLOCATED = 0,
    /// Given back, but streams may still use it.
    BLOCKYARD_BLOCK_AWAITING_FREE = 1,
    /// Can be handed out.
    BLOCKYARD_BLOCK_FREE = 2,
    /// Addresses without memory.
    BLOCKYARD_BLOCK_UNMAPPED = 3,
}

/// One block of one segment. Sizes are bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct blockyard_block {
    /// Where it starts.
    pub address: *mut c_void,
    /// Its size.
    pub bytes: u64,
    /// The client's size; 0 of a block that is free.
    pub requested: u64,
    /// Where its segment starts.
    pub segment: *mut c_void,
    /// The segment's size; of a page-mapped one, the addresses that it spans.
    pub segment_bytes: u64,
    /// The stream whose requests the segment serves.
    pub stream: *mut c_void,
    /// The number of the segment's pool; 0: the default pool.
    pub pool: u32,
    /// What it is.
    pub state: blockyard_block_state,
    /// Whether the segment is on the large side of its pool.
    pub is_large: bool,
    /// Whether the segment is page-mapped.
    pub is_expandable: bool,
}

/// Hears of a request that failed, before its error is returned. `report` lives as long as the call.
pub type blockyard_oom_callback =
    Option<unsafe extern "C" fn(user: *mut c_void, requested: u64, report: *const c_char)>;

/// Hears of a block that was handed out (`is_alloc` is true) or is given back.
pub type blockyard_block_callback = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        is_alloc: bool,
        address: *mut c_void,
        bytes: u64,
        stream: *mut c_void,
    ),
>;

/// Is shown a block.
pub type blockyard_visitor =
    Option<unsafe extern "C" fn(user: *mut c_void, block: *const blockyard_block)>;
