//! Benches: blockyard's core beside other allocators, on the same work in the same run.
//!
//! Owns: the contenders ([`contenders`]), the work they are given ([`work`]) and the table of ratios ([`table`]);
//! the whole allocator ([`whole`]), a thread's processor time ([`clock`]) and medians ([`board`]). Asked by the
//! benchmarks beside it, by `count` and by `trace`. Never asserts a time: a shared machine cannot keep such a promise.

pub mod board;
pub mod clock;
pub mod contenders;
#[cfg(feature = "peers")]
pub mod peers;
pub mod table;
pub mod whole;
pub mod work;

pub use contenders::{Contender, Ours, Spec, Tree};
pub use table::Table;
