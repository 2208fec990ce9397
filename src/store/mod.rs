//! Store: what is where, and nothing about what should be.
//!
//! Owns: the slab of blocks and segments ([`slab`], [`block`], [`segment`]), the free lists ([`bins`]), which pool has
//! them ([`pools`]), and the pending frees ([`fences`]). Asked by the heap only. Never knows a policy: a list must not
//! have an opinion.

pub mod bins;
pub mod block;
pub mod fences;
pub mod pools;
pub mod segment;
pub mod slab;

pub use bins::{Bins, Key};
pub use block::{Block, NONE, State};
pub use fences::{Fences, Later};
pub use pools::Pools;
pub use segment::Segment;
pub use slab::Slab;
