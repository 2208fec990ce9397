//! Device: whoever performs the core's wants: a simulated GPU, the host's memory, a real GPU.
//!
//! Owns: the contract of a device call ([`contract`]), the laws that hold on every device
//! ([`laws`]), what calls cost ([`costs`]), the devices ([`sim`], [`recorded`], [`host`], and
//! `cuda`, with that feature), and a handle to one that was given away ([`shared`]).
//! Asked by the pump and by replay. Never knows: blocks, pools, policies; a device sees segments,
//! address ranges, pages and fences only.
//!
//! - **D1**: what is granted is aligned to the granularity and disjoint from all else that is
//!   granted.
//! - **D2**: a fence passes only after all earlier work on its stream.
//! - **D3**: only the calls that [`contract::may_block`] names may wait; a fence or a poll costs
//!   the same however busy the stream is.
//! - **D5**: what is launched on a stream after it was ordered behind a fence runs only after it.

pub mod contract;
pub mod costs;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod host;
pub mod host_file;
pub mod host_memory;
pub mod laws;
pub mod random;
pub mod recorded;
pub mod shared;
pub mod sim;

pub use contract::{CallKind, Calls, Device, fits, may_block};
pub use costs::{CostModel, Price};
pub use host::HostDevice;
pub use host_file::HostFile;
pub use host_memory::{HostBlock, HostMemory};
pub use recorded::{Deed, Disagreement, RecordedDevice};
pub use shared::SharedDevice;
pub use sim::{FencePolicy, Placement, Refusals, SimConfig, SimDevice};
