//! Dump: the allocator's state and records as plain data, taken while the program goes on.
//!
//! Under the lock stands only what must be of one moment: a walk over the blocks and two copies of
//! memory, into room that was made before. Names are looked up after.

use std::collections::{BTreeMap, BTreeSet};
#[cfg(not(loom))]
use std::time::{Duration, Instant};

use super::CachingAllocator;
use super::shell::{Inner, Shared};
use crate::policy::{Policy, presets};
use crate::vocab::{Change, Dump, Mark, Origin, PoolId, Record, Ticket, What};

impl CachingAllocator {
    /// The heap at this moment, with tags and call stacks of its blocks. O(blocks) under the lock.
    #[must_use]
    pub fn snapshot(&self) -> Dump {
        self.shared.dump(false)
    }

    /// The heap at this moment and the records that lead up to it. O(blocks + records) under the
    /// lock.
    #[must_use]
    pub fn dump(&self) -> Dump {
        self.shared.dump(true)
    }

    /// The recorder's records, oldest first, and how many were lost before them.
    #[must_use]
    pub fn records(&self) -> (Vec<Record>, u64) {
        let room = self.shared.locked().books.recorder.room();
        let mut records = touched(FILLER, room);
        let lost = self.shared.locked().books.recorder.copy_to(&mut records);
        (records, lost)
    }
}

impl CachingAllocator {
    /// Keeps the last so many records from now on, and forgets those so far. 0: none; `usize::MAX`: all, in memory
    /// that grows.
    pub fn set_recording(&self, records: usize) {
        let renewed = self.shared.locked().books.recorder.renewed(records);
        self.shared.watch.look_for_recorder(records > 0);
        let former = std::mem::replace(&mut self.shared.locked().books.recorder, renewed);
        // Given back with no lock held.
        drop(former);
    }
}

impl Shared {
    pub(super) fn dump(&self, records: bool) -> Dump {
        let mut dump = self.room(&needs(&self.locked(), records));
        fill(&self.locked(), &mut dump, records);
        self.name(&mut dump);
        dump
    }

    /// The heap and the records, if the lock can be had within this time: its holder may never give
    /// it back.
    #[cfg(not(loom))]
    pub(super) fn dump_within(&self, patience: Duration) -> Option<Dump> {
        let mut dump = self.room(&self.by_and_by(patience, |inner| needs(inner, true))?);
        self.by_and_by(patience, |inner| fill(inner, &mut dump, true))?;
        self.name(&mut dump);
        Some(dump)
    }

    #[cfg(not(loom))]
    fn by_and_by<T>(&self, patience: Duration, mut look: impl FnMut(&Inner) -> T) -> Option<T> {
        let end = Instant::now() + patience;
        loop {
            if let Some(inner) = self.try_locked() {
                return Some(look(&inner));
            }
            if Instant::now() >= end {
                return None;
            }
            std::thread::yield_now();
        }
    }

    /// An empty dump with room for what will be copied.
    fn room(&self, needs: &Needs) -> Dump {
        Dump {
            records: touched(FILLER, needs.records),
            marks: touched(Mark::default(), needs.marks + needs.marks / 8),
            device: self.watch.device_index,
            device_bytes: self.total,
            ..Dump::default()
        }
    }

    /// Names of streams, tags and call stacks. Called with no lock held.
    fn name(&self, dump: &mut Dump) {
        dump.marks.retain(|mark| mark.origin != Origin::default());
        dump.streams = {
            let streams = self.watch.streams.lock();
            let mut handles = vec![0; streams.len()];
            streams.iter().for_each(|(&handle, id)| handles[id.0 as usize] = handle);
            handles
        };
        let asked = dump.records.iter().filter_map(|record| match record.what {
            What::Asked { tag, stack, .. } => Some(Origin { tag, stack }),
            _ => None,
        });
        let origins = asked.chain(dump.marks.iter().map(|mark| mark.origin));
        let (mut tags, mut stacks) = (BTreeMap::new(), BTreeMap::new());
        for Origin { tag, stack } in origins {
            tags.entry(tag).or_insert_with(|| tag.path());
            stacks.entry(stack).or_insert_with(|| stack.frames());
        }
        (dump.tags, dump.stacks) = (tags, stacks);
    }
}

const FILLER: Record = Record {
    sequence: 0,
    time_us: 0,
    ticket: Ticket(0),
    bytes: 0,
    what: What::Changed(Change::Retried),
};

/// Room for so many, whose pages are there already: none has to come in under the lock.
fn touched<T: Copy>(filler: T, count: usize) -> Vec<T> {
    let mut room = vec![filler; count];
    std::hint::black_box(&mut room).clear();
    room
}

/// How much will be copied.
struct Needs {
    records: usize,
    marks: usize,
}

fn needs(inner: &Inner, records: bool) -> Needs {
    let records = if records { inner.books.recorder.room() } else { 0 };
    Needs { records, marks: inner.marks().len() }
}

/// The policy's name; where the device cannot map pages, that of the policy in force.
fn policy_name(policy: &Policy) -> String {
    let native = presets::blockyard_native();
    let named = Policy { name: native.name.clone(), ..policy.clone() };
    if named == native { native.name } else { policy.name.clone() }
}

/// The pool that gave memory back.
const fn gave(record: &Record) -> Option<PoolId> {
    match record.what {
        What::Changed(Change::SegmentFreed { pool, .. } | Change::Unmapped { pool, .. }) => {
            Some(pool)
        }
        _ => None,
    }
}

/// What must be of one moment.
fn fill(inner: &Inner, dump: &mut Dump, records: bool) {
    dump.view = inner.heap.view();
    dump.marks.extend_from_slice(inner.marks());
    dump.limit_bytes = inner.heap.limit();
    dump.policy.push_str(&policy_name(inner.heap.policy()));
    dump.captures = inner.books.recorder.captures();
    if records {
        dump.lost = inner.books.recorder.copy_to(&mut dump.records);
    }
    let held = dump.view.segments.iter().map(|segment| segment.pool);
    let pools: BTreeSet<PoolId> = held.chain(dump.records.iter().filter_map(gave)).collect();
    dump.retired.extend(pools.into_iter().filter(|&pool| inner.heap.is_retired(pool)));
}
