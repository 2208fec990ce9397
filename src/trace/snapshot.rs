//! x
/// x
pub struct Snapshot;
