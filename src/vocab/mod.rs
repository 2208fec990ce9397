//! Vocabulary: the nouns that every room shares, and nothing that acts.
//!
//! Owns: units and identifiers ([`units`]), what the core and the world say to each other ([`protocol`]),
//! what happened ([`change`]), what may be looked at ([`view`]), and the out-of-memory report ([`report`]).
//! Never knows: any rule, any list, any device.

pub mod change;
pub mod protocol;
pub mod report;
pub mod units;
pub mod view;

pub use change::{Change, Observe};
pub use protocol::{Answer, Call, Fault, Input, Order, Output, Target, Want};
pub use report::{Human, OutOfMemory, Report, Rung, RungOutcome, Verdict};
pub use units::{
    Address, BlockId, Class, GIB, KIB, LARGEST_SEGMENT, MIB, PoolId, SegmentId, Serial, StreamId,
    Ticket, UNIT,
};
pub use view::{BlockState, BlockView, HeapView, PoolUsage, SegmentView};
