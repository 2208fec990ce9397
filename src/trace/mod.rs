//! Trace: the types that are written down and read back: recordings and snapshots.
//!
//! Asked by the tools and by whoever records. Never knows a device. Our own versioned formats are written here;
//! the formats of other programs are read in the tools.

pub mod dump;
pub mod file;
pub mod recording;
pub mod snapshot;
pub mod wire;

pub use dump::write_records;
pub use file::TraceError;
pub use recording::{
    Attachment, DeviceTrace, Event, FinalBlock, FinalSegment, Frame, Interner, Kind, NO_ALLOCATION,
    NO_LIMIT, Notice, Recording, Stack, StackId,
};
pub use snapshot::Snapshot;
