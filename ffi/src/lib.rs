//! Libblockyard: the C interface as a shared library.
//!
//! Owns nothing: the functions are those of the room `ffi`, and a shared library exports them because this crate
//! names them.

pub use blockyard_core::ffi::*;
