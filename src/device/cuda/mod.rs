//! CUDA: the real device: memory, pages and events of an NVIDIA GPU, by its driver.
//!
//! Owns: the driver's library ([`Driver`]), a device's context ([`Gpu`]), the streams by number
//! ([`Streams`]), and the device of the contract ([`CudaDevice`]). Asked by `interop` and by
//! programs. Never knows blocks or pools.
//!
//! - **D4**: no function of the driver is called before its load succeeded.
//!
//! The driver is found at run time. Where there is none, [`Driver::load`] says so in an error.
//! Functions are looked up here and not through cudarc: cudarc panics at a function that is
//! missing, and its result type has no room for codes of newer drivers.
//!
//! | file | what |
//! |---|---|
//! | `table` | the functions by name (**D4**); `driver`: the library |
//! | `gpu` | a device and its context; `scope`: that context, current for a while |
//! | `streams` | whose stream is whose; `fences`: events by serial |
//! | `segments`, `pool` | `cuMemAlloc`, or the driver's pools |
//! | `ranges` | addresses and pages |
//! | `device` | the contract, from those |
//! | `hold`, `subject` | work that stays unfinished, for the laws |
//! | `kernels` | filling and checking memory on the device |
//! | `work` | kernels, copies and marks on streams, for tensors |
//! | `pinned` | page-locked host memory as a device of its own |
//! | `measure` | what driver calls cost |
#![allow(unsafe_code)]

mod device;
mod driver;
mod error;
mod fences;
mod gpu;
mod hold;
mod kernels;
mod measure;
mod pinned;
mod pool;
mod ranges;
mod scope;
mod segments;
mod streams;
mod subject;
mod table;
mod work;

pub use device::{CudaConfig, CudaDevice, SegmentSource};
pub use driver::{DRIVER_VARIABLE, Driver};
pub use error::CudaError;
pub use gpu::{Gpu, Pointer};
pub use hold::Held;
pub use kernels::PatternKernels;
pub use measure::{PageCosts, Plain, SegmentCosts, page_costs, segment_costs};
pub use pinned::PinnedDevice;
pub use streams::{CudaStreamHandle, Streams};
pub use subject::CudaSubject;
pub use work::{Mark, Work};
