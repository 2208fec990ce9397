//! Ledger: what the heap's changes add up to.
//!
//! Owns: PyTorch's statistics as a fold ([`stats`]), the same figures re-derived from a view
//! ([`mod@recount`]), the last changes themselves ([`journal`]) and the tables people read
//! ([`summary`]). Asked by whoever shows figures. Never knows a heap, a policy or a device: a fold
//! cannot steer.

pub mod journal;
pub mod recount;
pub mod stats;
pub mod summary;

pub use journal::{Journal, Record};
pub use recount::{Recount, recount};
pub use stats::{Gauge, Metric, Stats};
pub use summary::{memory_summary, pool_summary};
