//! Error: what an allocation can come to, where not to a buffer.

use core::fmt;

use crate::vocab::{Fault, OutOfMemory};

/// Why a request was not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocError {
    /// There is no memory for it. The report says why; it owns no allocation.
    OutOfMemory(OutOfMemory),
    /// The driver failed for another reason.
    Driver(Fault),
}

impl AllocError {
    /// The out-of-memory, if it is one.
    #[must_use]
    pub const fn out_of_memory(&self) -> Option<&OutOfMemory> {
        match self {
            Self::OutOfMemory(error) => Some(error),
            Self::Driver(_) => None,
        }
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory(error) => error.fmt(f),
            Self::Driver(fault) => write!(f, "the allocation failed: {fault}"),
        }
    }
}

impl core::error::Error for AllocError {}

/// Why a free through the raw interface was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeError {
    /// No live block starts at this address: never allocated here, or freed before.
    UnknownAddress(u64),
    /// The block has another size than the caller says.
    WrongSize {
        /// Where it starts.
        address: u64,
        /// What the caller says, in bytes.
        said: u64,
        /// What was requested, in bytes.
        requested: u64,
    },
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownAddress(address) => {
                write!(
                    f,
                    "no live block starts at {address:#x}: never allocated here, or freed before"
                )
            }
            Self::WrongSize { address, said, requested } => {
                write!(
                    f,
                    "the block at {address:#x} was requested with {requested} bytes, not {said}"
                )
            }
        }
    }
}

impl core::error::Error for FreeError {}
