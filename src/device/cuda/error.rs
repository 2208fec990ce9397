//! Error: what a CUDA driver can fail with, by its own code and name.
//!
//! Asked by everyone in this folder, and by programs that want more than the fault the core gets.

use core::fmt;

use crate::vocab::Fault;

/// Code 0.
pub(super) const SUCCESS: i32 = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(super) const OUT_OF_MEMORY: i32 = 2;
/// `CUDA_ERROR_INVALID_HANDLE`.
pub(super) const INVALID_HANDLE: i32 = 400;
/// `CUDA_ERROR_NOT_READY`: no failure, work is unfinished.
pub(super) const NOT_READY: i32 = 600;
/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
pub(super) const PEER_ALREADY: i32 = 704;
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`: not while the stream is captured.
pub(super) const CAPTURE_UNSUPPORTED: i32 = 900;
/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`: a capture is underway that the legacy stream would join.
pub(super) const CAPTURE_IMPLICIT: i32 = 906;

/// Why something on CUDA did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CudaError {
    /// The driver's library is not on this machine.
    NoDriver {
        /// What was looked for.
        tried: String,
        /// What the loader said.
        reason: String,
    },
    /// The library lacks a function: too old, or no driver at all.
    MissingSymbol {
        /// The function.
        name: &'static str,
        /// The library.
        library: String,
    },
    /// A program has one driver; another was loaded before.
    OtherDriver {
        /// The one that is loaded.
        loaded: String,
        /// The one that was asked for.
        asked: String,
    },
    /// There is no device of this number.
    NoDevice {
        /// The number, from 0.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// The device or its driver cannot do this.
    Unsupported(&'static str),
    /// A driver call failed.
    Call {
        /// The driver's code.
        code: i32,
        /// Its name for the code, such as `CUDA_ERROR_OUT_OF_MEMORY`.
        name: String,
        /// The function that returned it.
        call: &'static str,
    },
}

impl CudaError {
    /// The driver's code, where a call failed.
    #[must_use]
    pub const fn code(&self) -> Option<i32> {
        match self {
            Self::Call { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// What the core is told.
    #[must_use]
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Call { code: OUT_OF_MEMORY, .. } => Fault::OutOfMemory,
            Self::Call { code, .. } => Fault::Driver(*code),
            Self::Unsupported(_) => Fault::Driver(crate::device::contract::NOT_SUPPORTED),
            _ => Fault::Driver(INVALID_HANDLE),
        }
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver { tried, reason } => {
                write!(f, "no CUDA driver found: {tried} could not be loaded ({reason})")
            }
            Self::MissingSymbol { name, library } => {
                write!(f, "the CUDA driver {library} has no function {name}: it is too old")
            }
            Self::OtherDriver { loaded, asked } => {
                write!(f, "the CUDA driver {asked} was asked for, but {loaded} is loaded already")
            }
            Self::NoDevice { ordinal, count } => {
                write!(f, "no CUDA device {ordinal}: this machine has {count}")
            }
            Self::Unsupported(what) => write!(f, "the CUDA device does not support {what}"),
            Self::Call { code, name, call } => write!(f, "{call} failed with {name} ({code})"),
        }
    }
}

impl core::error::Error for CudaError {}

#[cfg(test)]
mod tests {
    use super::CudaError;
    use crate::vocab::Fault;

    #[test]
    fn the_core_hears_of_memory_as_memory_and_of_the_rest_by_code() {
        let failed = |code| CudaError::Call { code, name: "X".into(), call: "cuMemAlloc_v2" };
        assert_eq!(failed(2).fault(), Fault::OutOfMemory);
        assert_eq!(failed(719).fault(), Fault::Driver(719));
        assert_eq!(CudaError::Unsupported("pages").fault(), Fault::Driver(801));
        assert_eq!(failed(719).to_string(), "cuMemAlloc_v2 failed with X (719)");
    }
}
