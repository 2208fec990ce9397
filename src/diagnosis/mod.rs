//! Diagnosis: why a request failed, which setting would have served it, and the smallest trace that still fails.
//!
//! Owns the verdicts and the searches that replay a recording many times. Asked by the tools. Never claims what
//! was not replayed, and never knows a file format or a terminal.

pub mod capacity;
pub mod pareto;
pub mod search;
pub mod search_knobs;
pub mod search_rows;
mod search_streams;
pub mod search_tune;
pub mod shrink;
mod shrink_delete;
mod shrink_merge;
pub mod shrink_script;
