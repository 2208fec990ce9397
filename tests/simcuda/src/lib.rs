//! A simulated CUDA driver: `libcuda.so.1` in host memory, for tests without a GPU.
//!
//! The driver's entry points are in `api`, each a few lines; what they decide is in the files
//! beside it, behind one lock (`world`). `docs/simcuda.md` says what is real, what is not, and how
//! to configure it. Rust programs that loaded the library steer it with [`control::Control`].
#![allow(unsafe_code)]

mod api;
mod capture;
mod code;
mod config;
pub mod control;
mod door;
mod event;
mod faults;
mod judge;
mod memory;
mod module;
mod pool;
mod random;
mod ranges;
mod report;
mod space;
mod steer;
mod stream;
mod thread;
mod vmm;
mod work;
mod worker;
mod world;
