//! Ffi: the C interface: a small, versioned set of functions named `blockyard_...`.
//!
//! Owns handles, the last error of each thread, and what C cannot express: scopes, callbacks, texts. Asked by C, C++,
//! Python and PyTorch through `libblockyard` (the crate in `ffi/`), described by `include/blockyard.h`, which is
//! generated from here. Never knows a rule: everything is a call of the allocator's own faces.
//!
//! - **F1**: no panic crosses the interface; it becomes `BLOCKYARD_INTERNAL`.
//! - **F2**: a call that fails has changed nothing and says why, by code and by text, on its own thread.
//! - **F3**: a handle that was given back, a null pointer, an address freed twice are answered, never followed.
//!
//! | file | what |
//! |---|---|
//! | `types` | what the header names: status, handles, callbacks |
//! | `error` | from a result to a status; the last error (**F1**, **F2**) |
//! | `handles` | numbers for allocators and pools (**F3**) |
//! | `open` | device and settings from text; create, destroy |
//! | `streams` | the driver's handles of streams |
//! | `memory` | alloc, free, limits |
//! | `figures` | statistics, summary, blocks |
//! | `observe` | recorder, snapshot, callbacks |
//! | `trace` | `BLOCKYARD_TRACE`: everything recorded, written at the end |
//! | `scopes` | tags, private pools, captures |
//! | `torch` | the symbols that PyTorch's pluggable allocator takes |
#![allow(unsafe_code, non_camel_case_types)]

mod error;
mod figures;
mod handles;
mod memory;
mod observe;
mod open;
mod scopes;
mod streams;
mod torch;
mod trace;
mod types;

pub use error::{blockyard_last_error, blockyard_last_error_text};
pub use figures::{
    blockyard_blocks, blockyard_reset_accumulated, blockyard_reset_peak, blockyard_stat,
    blockyard_stat_count, blockyard_stat_key, blockyard_stats, blockyard_summary,
};
pub use memory::{
    blockyard_alloc, blockyard_alloc_in, blockyard_empty_cache, blockyard_find, blockyard_free,
    blockyard_largest_possible, blockyard_limit, blockyard_record_stream,
    blockyard_release_at_least, blockyard_set_limit, blockyard_set_memory_fraction,
};
pub use observe::{
    blockyard_last_report, blockyard_on_block, blockyard_on_out_of_memory, blockyard_record,
    blockyard_snapshot, blockyard_text_free, blockyard_write_snapshot, blockyard_write_trace,
};
pub use open::{
    blockyard_abandon, blockyard_abi_version, blockyard_create, blockyard_destroy,
    blockyard_settings, blockyard_version,
};
pub use scopes::{
    blockyard_capture_begin, blockyard_capture_end, blockyard_pool_begin, blockyard_pool_create,
    blockyard_pool_empty_cache, blockyard_pool_end, blockyard_pool_number, blockyard_pool_release,
    blockyard_tag_pop, blockyard_tag_push,
};
pub use torch::{
    blockyard_torch_alloc, blockyard_torch_allocator, blockyard_torch_base_alloc,
    blockyard_torch_free, blockyard_torch_init, blockyard_torch_memory_fraction,
    blockyard_torch_record_stream, blockyard_torch_reset,
};
pub use types::{
    BLOCKYARD_ABI_MAJOR, BLOCKYARD_ABI_MINOR, BLOCKYARD_ALL, BLOCKYARD_NO_LIMIT,
    blockyard_allocator, blockyard_block, blockyard_block_callback, blockyard_block_state,
    blockyard_oom_callback, blockyard_pool, blockyard_status, blockyard_visitor,
};
