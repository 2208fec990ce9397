//! Interop: the allocator in the hands of programs that use cudarc.
//!
//! Owns: an allocator on a CUDA device whose streams are cudarc's ([`CudaAllocator`]), typed buffers
//! that cudarc's copies and kernels accept ([`CudaBuffer`]), and cudarc's own slices over memory of
//! the allocator ([`PooledSlice`]). Asked by programs. Never knows how a driver is called: that is
//! `device`.
//!
//! ```no_run
//! use blockyard::interop::CudaAllocator;
//!
//! let allocator = CudaAllocator::open(0)?;
//! let stream = allocator.context().default_stream();
//! let mut buffer = allocator.alloc::<f32>(&stream, 1 << 20)?;
//! stream.memset_zeros(&mut buffer)?;
//! assert_eq!(stream.clone_dtoh(&buffer)?[0], 0.0);
//! println!("{}", allocator.memory_summary());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod allocator;
mod buffer;
mod pattern;
mod slice;
mod trial;

pub use allocator::CudaAllocator;
pub use buffer::CudaBuffer;
pub use cudarc;
pub use pattern::{Patterns, Verdict, Wrong};
pub use slice::{Lease, PooledSlice};
pub use trial::{Tally, Trial, trial};
