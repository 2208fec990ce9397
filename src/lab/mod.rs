//! Lab: where the heap is run, doubted and compared.
//!
//! Owns the naive twin ([`twin`]) and the random numbers of every test ([`rng`]). Asked by tests and tools. Never
//! knows a lock or a clock.

pub mod rng;
pub mod twin;
