//! Alarm: thresholds that call the program when memory gets tight.
//!
//! Looked at after driver calls that moved memory, and when asked; never on the way of a request
//! that the cache serves. An alarm goes off once on the way up and is armed again when its share
//! has fallen below a lower bound. Callbacks run with no lock held and may use the allocator.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::CachingAllocator;
use super::hooks::HookId;
use super::shell::Shared;
use super::sync::{AtomicUsize, Ordering};

/// Which share a threshold is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pressure {
    /// Reserved bytes, of the limit or of the device's memory, whichever is less. No share where
    /// neither is known.
    ReservedOfLimit,
    /// Bytes that are free and cannot go back, because live blocks lie in the same segment or page,
    /// of reserved bytes: fragmentation. Takes O(blocks) to find out.
    PinnedOfReserved,
}

/// When an alarm goes off, and when it is armed again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// The share.
    pub pressure: Pressure,
    /// It goes off when the share is at or above this: from 0 to 1.
    pub above: f64,
    /// It is armed again when the share is below this; `above`, if that is less.
    pub rearm_below: f64,
}

/// An alarm that went off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alarm {
    /// What was crossed.
    pub threshold: Threshold,
    /// Reserved, or pinned and free, in bytes.
    pub part_bytes: u64,
    /// The limit, or reserved, in bytes.
    pub whole_bytes: u64,
}

type Callback = dyn Fn(&Alarm) + Send + Sync;

struct Entry {
    id: HookId,
    threshold: Threshold,
    armed: bool,
    callback: Arc<Callback>,
}

#[derive(Default)]
pub(crate) struct Alarms {
    entries: Mutex<Vec<Entry>>,
    count: AtomicUsize,
}

impl Alarms {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was here.
    pub(super) fn remove(&self, id: HookId) -> bool {
        let mut entries = self.entries();
        let place = entries.iter().position(|entry| entry.id == id);
        let removed = place.map(|place| entries.remove(place));
        // What the callback owns is dropped with no lock held.
        drop(entries);
        if removed.is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        removed.is_some()
    }
}

impl CachingAllocator {
    /// Calls `callback` when a threshold is crossed upwards, and again only after the share has
    /// been below the lower bound. A panic of the callback is caught.
    pub fn on_pressure(
        &self,
        threshold: Threshold,
        callback: impl Fn(&Alarm) + Send + Sync + 'static,
    ) -> HookId {
        let (alarms, id) = (&self.shared.watch.alarms, self.shared.hooks.name());
        alarms.entries().push(Entry { id, threshold, armed: true, callback: Arc::new(callback) });
        alarms.count.fetch_add(1, Ordering::Relaxed);
        id
    }

    /// Looks at the thresholds now. Happens by itself after driver calls that moved memory.
    pub fn check_pressure(&self) {
        self.shared.check_alarms();
    }
}

impl Shared {
    /// Called with no lock held.
    pub(super) fn check_alarms(&self) {
        if self.watch.alarms.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        for (alarm, callback) in self.due() {
            // What panics here has nothing to do with the request that is being served.
            let _ = catch_unwind(AssertUnwindSafe(|| callback(&alarm)));
        }
    }

    /// The alarms that go off now. Figures are read under the alarms' own lock, so that looks are
    /// in the order of their figures.
    fn due(&self) -> Vec<(Alarm, Arc<Callback>)> {
        let mut entries = self.watch.alarms.entries();
        let of = |pressure| {
            let asked = entries.iter().any(|entry| entry.threshold.pressure == pressure);
            asked.then(|| self.parts(pressure)).flatten()
        };
        let (reserved, pinned) = (of(Pressure::ReservedOfLimit), of(Pressure::PinnedOfReserved));
        let mut due = Vec::new();
        for entry in entries.iter_mut() {
            let parts = match entry.threshold.pressure {
                Pressure::ReservedOfLimit => reserved,
                Pressure::PinnedOfReserved => pinned,
            };
            let Some((part_bytes, whole_bytes)) = parts else { continue };
            if entry.crosses(part_bytes as f64 / whole_bytes.max(1) as f64) {
                let alarm = Alarm { threshold: entry.threshold, part_bytes, whole_bytes };
                due.push((alarm, Arc::clone(&entry.callback)));
            }
        }
        due
    }

    fn parts(&self, pressure: Pressure) -> Option<(u64, u64)> {
        let inner = self.locked();
        let reserved = inner.heap.reserved();
        match pressure {
            Pressure::ReservedOfLimit => {
                let bounds = inner.heap.limit().into_iter().chain(self.total);
                bounds.min().map(|whole| (reserved, whole))
            }
            Pressure::PinnedOfReserved => {
                let rows = inner.heap.usage().into_iter();
                Some((rows.map(|row| row.3.pinned_free_bytes).sum(), reserved))
            }
        }
    }
}

impl Entry {
    /// Whether the alarm goes off at this share.
    fn crosses(&mut self, share: f64) -> bool {
        let Threshold { above, rearm_below, .. } = self.threshold;
        if self.armed && share >= above {
            self.armed = false;
            return true;
        }
        self.armed |= share < rearm_below.min(above);
        false
    }
}
