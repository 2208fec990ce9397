//! Lab: worlds in which the core is tried: replay of recordings, and the naive twin.
//!
//! Owns: the replay of a [`Recording`](crate::trace::Recording) under any policy and device
//! ([`replay`]), the state before a recording that began mid-run ([`warm`]), the naive twin
//! ([`twin`]), the bodies of the fuzz targets ([`fuzzing`]) and the random numbers of tests
//! ([`rng`]). Asked by the tools and the tests. Never knows a lock, a clock or a file: the same
//! recording and policy give the same result.

pub mod fuzzing;
pub mod replay;
pub mod rng;
pub mod twin;
pub mod warm;

pub use replay::{
    Driver, Exact, ExactMismatch, Failure, Player, ReplayError, Setup, Watch, demand_peak,
    live_peak,
};
