//! Benches: blockyard's core beside other allocators, on the same work in the same run.
//!
//! Owns: the contenders ([`contenders`]), the work they are given ([`work`]) and the table of ratios
//! ([`table`]). Asked by the benchmarks beside it and by `count`. Never asserts a time: a shared machine cannot
//! keep such a promise.

pub mod contenders;
pub mod table;
pub mod work;

pub use contenders::{Contender, Ours, Spec, Tree};
pub use table::Table;
