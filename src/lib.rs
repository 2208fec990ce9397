//! **blockyard**: a caching GPU memory allocator with introspection.
//!
//! GPU memory is requested from the driver in big *segments* and handed out in *blocks*. The rooms of this
//! crate, from the ground up (a room may use rooms in lower rows, never one in its own row or above):
//!
//! | room | what it holds |
//! |---|---|
//! | [`vocab`] | nouns only: units, identifiers, the protocol between the core and the world |
//! | [`policy`] | what to do, as pure functions and data; [`store`]: what is where |
//! | [`heap`] | `apply(Input) -> Output`, pure and deterministic; [`ledger`]: a fold over its changes |
//! | `allocator` | the core for programs with threads; `tensor`: arrays that live in its memory, and views of them |
//! | `device` | the simulated, recorded, host and CUDA devices; `interop`: for users of cudarc |
//! | `lab` | replay and the naive twin; `trace`: what is written down; `diagnosis`: why a request failed, and what helps |
//! | `ffi` | the C interface |
//!
//! `ARCHITECTURE.md` in the repository has the picture and the rules.
#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(all(doctest, feature = "std"), doc = include_str!("../README.md"))]
#![cfg_attr(all(doctest, feature = "std"), doc = include_str!("../docs/tensor-tutorial.md"))]
#![cfg_attr(all(doctest, feature = "std"), doc = include_str!("../docs/transfer.md"))]

extern crate alloc;

pub mod heap;
pub mod ledger;
pub mod policy;
pub mod store;
pub mod vocab;

#[cfg(feature = "std")]
pub mod allocator;
#[cfg(feature = "std")]
pub mod device;
#[cfg(feature = "std")]
pub mod diagnosis;
#[cfg(feature = "ffi")]
pub mod ffi;
#[cfg(feature = "cuda")]
pub mod interop;
#[cfg(feature = "std")]
pub mod lab;
#[cfg(all(feature = "std", not(loom)))]
pub mod tensor;
#[cfg(feature = "std")]
pub mod trace;
