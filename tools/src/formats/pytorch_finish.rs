//! PyTorch, the end: links the trace of each device and says what a snapshot leaves out.

use std::collections::{BTreeMap, HashSet};

use blockyard::trace::{DeviceTrace, Event, Kind, Recording};
use blockyard::vocab::BlockState;

use super::error::Wrong;
use super::link::{Linked, link};
use super::pytorch::Builder;

impl Builder {
    /// The recording.
    pub fn finish(mut self) -> Result<Recording, Wrong> {
        let mut devices: BTreeMap<u32, DeviceTrace> = BTreeMap::new();
        for (device, events) in std::mem::take(&mut self.traces) {
            devices.entry(device).or_default().events = events;
        }
        for (device, segment) in std::mem::take(&mut self.segments) {
            devices.entry(device).or_default().segments.push(segment);
        }
        devices.retain(|_, trace| !trace.events.is_empty() || !trace.segments.is_empty());
        if devices.is_empty() {
            devices.insert(0, DeviceTrace::default());
        }
        let several = devices.len() > 1;
        for (device, trace) in &mut devices {
            trace.device = *device;
            let prefix = if several { format!("device {device}: ") } else { String::new() };
            self.finish_device(trace, &prefix)?;
        }
        self.finish_notices(devices.values().all(|trace| trace.events.is_empty()));
        let mut recording = self.recording;
        recording.devices = devices.into_values().collect();
        recording.streams = self.streams.into_names();
        recording.pools = self.pools.into_names();
        Ok(recording)
    }

    fn finish_device(&mut self, trace: &mut DeviceTrace, prefix: &str) -> Result<(), Wrong> {
        trace.segments.sort_by_key(|segment| segment.address);
        let ends = |event: &Event| event.address.checked_add(event.bytes).is_some();
        let ranged = |event: &&Event| !matches!(event.kind, Kind::Oom | Kind::Other);
        if let Some(event) = trace.events.iter().filter(ranged).find(|event| !ends(event)) {
            let found = format!("{prefix}{} bytes at {:#x}", event.bytes, event.address);
            return Err(Wrong::new(found, "trace entries that end below 2^64"));
        }
        let linked = link(&mut trace.events)?;
        trace.allocations = linked.allocations;
        let counts = Counts::of(&trace.events);
        self.link_notices(&linked, prefix);
        self.skipped(trace, &counts, prefix);
        self.began_late(trace, &counts, &linked, prefix);
        Ok(())
    }

    fn link_notices(&mut self, linked: &Linked, prefix: &str) {
        if linked.unknown_frees > 0 {
            let count = linked.unknown_frees;
            let first = linked.first_unknown;
            self.recording.notice(
                "unknown-free",
                format!(
                    "{prefix}{count} frees of blocks that the recording never handed out, \
                     the first at entry {first}"
                ),
            );
        }
        if linked.overlaps > 0 {
            let (count, first) = (linked.overlaps, linked.first_overlap);
            self.recording.notice(
                "overlap",
                format!(
                    "{prefix}{count} allocations at an address still in use, \
                     the first at entry {first}: entries are missing"
                ),
            );
        }
    }

    /// Says which actions were skipped, and turns half a free into a whole one.
    fn skipped(&mut self, trace: &mut DeviceTrace, counts: &Counts, prefix: &str) {
        let blocks = trace.segments.iter().flat_map(|segment| &segment.blocks);
        let awaiting =
            blocks.filter(|block| block.state == BlockState::AwaitingFree).count() as u64;
        let (asked, done) = (counts.free_requested, counts.free_completed);
        let half = match (asked, done) {
            (asked, 0) if asked > awaiting => Some((Kind::FreeRequested, "free_completed")),
            (0, done) if done > 0 => Some((Kind::FreeCompleted, "free_requested")),
            _ => None,
        };
        if let Some((kind, skipped)) = half {
            let halves = trace.events.iter_mut().filter(|event| event.kind == kind);
            halves.for_each(|event| event.kind = Kind::Free);
            self.recording.notice(
                "skipped-actions",
                format!("{prefix}no {skipped} entries: each free is taken to be complete"),
            );
        }
        if counts.allocs > 0 && counts.segment_entries == 0 && !trace.segments.is_empty() {
            self.recording.notice(
                "skipped-actions",
                format!(
                    "{prefix}no segment entries though there are segments: they were skipped, \
                     or the recording began when the cache was warm"
                ),
            );
        }
    }

    /// Says that the recording began after the program.
    fn began_late(&mut self, trace: &DeviceTrace, counts: &Counts, linked: &Linked, prefix: &str) {
        let Some(first) = trace.events.first() else { return };
        let begins = matches!(first.kind, Kind::SegmentAlloc | Kind::SegmentMap);
        if begins || trace.segments.is_empty() {
            return;
        }
        let born: HashSet<u64> = trace
            .events
            .iter()
            .filter(|event| event.kind == Kind::SegmentAlloc)
            .map(|event| event.address)
            .collect();
        let plain = || trace.segments.iter().filter(|segment| !segment.expandable);
        let older = plain().filter(|segment| !born.contains(&segment.address)).count();
        if linked.unknown_frees > 0 || (older > 0 && counts.segment_entries > 0) {
            self.recording.notice(
                "history-began-mid-run",
                format!(
                    "{prefix}the recording began when the program was already running: \
                     {} frees of older blocks, {older} of {} segments are older",
                    linked.unknown_frees,
                    plain().count()
                ),
            );
        }
    }

    fn finish_notices(&mut self, no_history: bool) {
        for (action, count) in std::mem::take(&mut self.unknown_actions) {
            let text = format!("{count} entries of the unknown action `{action}` are skipped");
            self.recording.notice("unknown-action", text);
        }
        let overflowed = std::mem::take(&mut self.overflowed);
        if !overflowed.is_empty() {
            let devices: Vec<String> = overflowed.iter().take(16).map(usize::to_string).collect();
            let text = format!(
                "the recording's ring was full on device {}: the oldest entries are lost \
                 (record with a larger max_entries)",
                devices.join(", ")
            );
            self.recording.notice("overflow", text);
        }
        if let Some(address) = self.uneven {
            let text = format!("the blocks of a segment leave gaps, the first at {address:#x}");
            self.recording.notice("uneven-segment", text);
        }
        if no_history {
            self.recording.notice(
                "no-history",
                "only the final state: no trace was recorded \
                 (torch.cuda.memory._record_memory_history)",
            );
        } else if !self.recording.has_pool_ids {
            self.recording.notice(
                "no-pool-ids",
                "trace entries do not name their pool (PyTorch before 2.12): the default pool is \
                 assumed",
            );
        }
    }
}

#[derive(Default)]
struct Counts {
    allocs: u64,
    free_requested: u64,
    free_completed: u64,
    segment_entries: u64,
}

impl Counts {
    fn of(events: &[Event]) -> Self {
        let mut counts = Self::default();
        for event in events {
            match event.kind {
                Kind::Alloc => counts.allocs += 1,
                Kind::FreeRequested => counts.free_requested += 1,
                Kind::FreeCompleted => counts.free_completed += 1,
                Kind::SegmentAlloc | Kind::SegmentFree | Kind::SegmentMap | Kind::SegmentUnmap => {
                    counts.segment_entries += 1
                }
                _ => {}
            }
        }
        counts
    }
}
