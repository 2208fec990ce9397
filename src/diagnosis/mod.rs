//! Diagnosis: why a request failed, which setting would have served it, and the smallest trace that still fails.
//!
//! Owns the verdicts and the searches that replay a recording many times. Asked by the tools. Never claims what
//! was not replayed, and never knows a file format or a terminal.

pub mod consistency;
mod consistency_memory;
pub mod growth;
pub mod growth_leaks;
pub mod growth_steps;
pub mod owners;
pub mod safety;
