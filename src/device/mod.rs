//! Device: whoever performs the core's wants: a simulated GPU or the host's memory.
//!
//! Owns: the contract of a device call ([`contract`]), the laws that hold on every device ([`laws`]), what
//! calls cost ([`costs`]), and the devices ([`sim`], [`recorded`], [`host`]). Asked by the pump and by replay.
//! Never knows: blocks, pools, policies; a device sees segments, address ranges, pages and fences only.
//!
//! | invariant | in words | held by |
//! |---|---|---|
//! | **D1** | what is granted is aligned to the granularity and disjoint from all else that is granted | [`sim`]'s address space, the host's allocator |
//! | **D2** | a fence passes only after all earlier work on its stream | [`sim`]'s clock |
//! | **D3** | only the calls named by [`contract::may_block`] may wait | the cost model: a fence or a poll costs the same however busy the stream is |

pub mod contract;
pub mod costs;
pub mod host;
pub mod laws;
pub mod random;
pub mod recorded;
pub mod sim;

pub use contract::{CallKind, Calls, Device, fits, may_block};
pub use costs::{CostModel, Price};
pub use host::HostDevice;
pub use recorded::{Deed, Disagreement, RecordedDevice};
pub use sim::{FencePolicy, Placement, Refusals, SimConfig, SimDevice};
