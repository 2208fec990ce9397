//! Hazards: copies that are still under way, by the storage that they use.
//!
//! Asked by places before they touch a storage: who writes waits for every copy of it, who reads for
//! those that write it. Never knows what waiting is: a stream is held back, or the host stops.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::compute::{ComputeError, Region};
use crate::vocab::{Address, StreamId};

/// A place in a stream's work, behind a copy.
pub trait Milestone: Send + Sync + fmt::Debug {
    /// Whether the stream has come so far.
    fn passed(&self) -> bool;

    /// Stops the host until it has.
    ///
    /// # Errors
    /// The device's.
    fn wait(&self) -> Result<(), ComputeError>;

    /// Holds later work of a stream of the same device back until it has.
    ///
    /// # Errors
    /// The device's.
    fn hold_back(&self, stream: StreamId) -> Result<(), ComputeError>;
}

/// A milestone that several storages wait for.
pub type Reached = Arc<dyn Milestone>;

/// Copies under way.
#[derive(Debug, Default)]
pub(super) struct Hazards(Mutex<HashMap<Address, Vec<(Reached, bool)>>>);

impl Hazards {
    /// A copy uses the storage until then, and perhaps writes it.
    pub(super) fn note(&self, memory: Region, reached: Reached, writes: bool) {
        let mut all = self.0.lock();
        let copies = all.entry(memory.address).or_default();
        copies.retain(|(reached, _)| !reached.passed());
        copies.push((reached, writes));
    }

    /// Before a storage is read, or written: `stop` is called with each copy that stands in the way.
    pub(super) fn before(
        &self,
        memory: Region,
        writes: bool,
        stop: impl Fn(&dyn Milestone) -> Result<(), ComputeError>,
    ) -> Result<(), ComputeError> {
        let copies: Vec<Reached> = {
            let mut all = self.0.lock();
            let Some(copies) = all.get_mut(&memory.address) else { return Ok(()) };
            copies.retain(|(reached, _)| !reached.passed());
            let ahead = copies.iter().filter(|(_, written)| writes || *written);
            let ahead = ahead.map(|(reached, _)| Arc::clone(reached)).collect();
            if copies.is_empty() {
                all.remove(&memory.address);
            }
            ahead
        };
        copies.iter().try_for_each(|reached| stop(&**reached))
    }

    /// The storage goes; its memory is kept from others by the allocator.
    pub(super) fn forget(&self, memory: Region) {
        let gone = self.0.lock().remove(&memory.address);
        drop(gone);
    }
}
