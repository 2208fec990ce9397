//! Consistency: whether a recording can have happened.
//!
//! Owns [`Finding`], and the pass that looks for frees of unknown blocks, double frees, live blocks that overlap,
//! blocks outside all memory, totals above reserved memory or the device, and a final state that contradicts the
//! history. Asked by the tools. A recording that began when the program was already running is whole: what it
//! cannot know is a note, never a finding.

pub(crate) mod memory;

use std::collections::{HashMap, HashSet};

use crate::diagnosis::consistency::memory::{Known, Ranges};
use crate::diagnosis::owners;
use crate::lab::replay::known_capacity;
use crate::trace::{DeviceTrace, Event, Kind, NO_ALLOCATION, Recording};
use crate::vocab::Human;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// It cannot have happened, or it is a race.
    Error,
    /// Figures may be wrong, or something looks forgotten.
    Warning,
    /// Worth knowing.
    Note,
}

impl Severity {
    /// A word for programs and people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// A place in the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// What happened there.
    pub what: &'static str,
    /// The event, counted from 0; `None`: before the recording.
    pub event: Option<u32>,
    /// The line of a text file, from 1; else 0.
    pub line: u32,
    /// Whose it is.
    pub owner: String,
}

/// Something found, once for each code with how often it occurs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A word for programs.
    pub code: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// A sentence about the first occurrence.
    pub text: String,
    /// How often.
    pub count: u64,
    /// The first event at which it shows.
    pub event: Option<u32>,
    /// Places of the first occurrence.
    pub sites: Vec<Site>,
}

/// Findings in the making, and where in the trace the pass stands.
pub(super) struct Log<'a> {
    recording: &'a Recording,
    trace: &'a DeviceTrace,
    /// The number of each entry's event.
    numbers: Vec<u32>,
    found: Vec<Finding>,
    places: HashMap<(&'static str, Severity), usize>,
}

impl<'a> Log<'a> {
    pub fn new(recording: &'a Recording, trace: &'a DeviceTrace) -> Self {
        let mut seen = 0u32;
        let number = |event: &Event| {
            let number = seen;
            seen += u32::from(event.kind.counts());
            number
        };
        let numbers = trace.events.iter().map(number).collect();
        Self { recording, trace, numbers, found: Vec::new(), places: HashMap::new() }
    }

    /// A finding at an entry; `say` is asked at its first occurrence only.
    pub fn add(
        &mut self,
        severity: Severity,
        code: &'static str,
        entry: Option<usize>,
        say: impl FnOnce(&Self) -> (String, Vec<Site>),
    ) {
        if let Some(&place) = self.places.get(&(code, severity)) {
            self.found[place].count += 1;
            return;
        }
        let (text, sites) = say(self);
        let event = entry.map(|entry| self.numbers[entry]);
        self.places.insert((code, severity), self.found.len());
        self.found.push(Finding { code, severity, text, count: 1, event, sites });
    }

    /// An entry as a place. `whose` is the entry that says whose block it is, where that is another.
    pub fn site(&self, what: &'static str, entry: usize, whose: Option<usize>) -> Site {
        let event = &self.trace.events[entry];
        let stack = self.trace.events[whose.unwrap_or(entry)].stack;
        Site {
            what,
            event: Some(self.numbers[entry]),
            line: event.line,
            owner: self.recording.stacks.label(stack),
        }
    }

    /// A stream as people know it: its number, with the file's own name where that differs.
    pub fn stream_name(&self, number: u32) -> String {
        match self.recording.streams.get(number as usize) {
            Some(&raw) if raw != u64::from(number) => format!("{number} ({raw:#x})"),
            _ => number.to_string(),
        }
    }

    /// The findings, errors first.
    pub fn into_findings(self) -> Vec<Finding> {
        let mut found = self.found;
        found.sort_by_key(|finding| (finding.severity, finding.event));
        found
    }
}

/// Every contradiction in one device's part of a recording. O(entries · log live blocks).
#[must_use]
pub fn check(recording: &Recording, trace: &DeviceTrace, capacity: Option<u64>) -> Vec<Finding> {
    let mut pass = Pass::new(recording, trace, capacity);
    for (entry, event) in trace.events.iter().enumerate() {
        pass.entry(entry, event);
    }
    pass.final_state();
    pass.frames();
    pass.notices();
    pass.log.into_findings()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Unborn,
    Live,
    GivenBack,
    Done,
}

/// An entry that stands for "before the recording".
const BEFORE: usize = usize::MAX;

struct Pass<'a> {
    log: Log<'a>,
    trace: &'a DeviceTrace,
    lives: Vec<Life>,
    births: Vec<usize>,
    /// Blocks not given back, with the entry of their birth.
    live: Known<usize>,
    live_bytes: u128,
    older: HashMap<u64, owners::Block>,
    /// Where blocks were given back last, by address.
    freed: HashMap<u64, usize>,
    /// Blocks of no bytes, by address: they may share it with another block, and their frees then name that one.
    hollow: HashMap<u64, u32>,
    /// Unknown blocks that were given back and not completed.
    pending: HashSet<u64>,
    /// All memory, where the recording tells.
    memory: Option<Ranges>,
    /// Memory that came since the recording began.
    fresh: Ranges,
    capacity: Option<u64>,
    known: Option<u64>,
}

impl<'a> Pass<'a> {
    fn new(recording: &'a Recording, trace: &'a DeviceTrace, capacity: Option<u64>) -> Self {
        let older = owners::older(trace);
        let mut live = Known::default();
        for (&address, block) in &older {
            live.put(address, address.saturating_add(block.bytes), BEFORE);
        }
        Self {
            log: Log::new(recording, trace),
            trace,
            lives: vec![Life::Unborn; trace.allocations as usize],
            births: vec![BEFORE; trace.allocations as usize],
            live,
            live_bytes: older.values().map(|block| u128::from(block.bytes)).sum(),
            older,
            freed: HashMap::new(),
            hollow: HashMap::new(),
            pending: HashSet::new(),
            memory: memory_before(trace),
            fresh: Ranges::default(),
            capacity,
            known: largest_known_capacity(trace),
        }
    }

    fn entry(&mut self, entry: usize, event: &Event) {
        let (start, end) = (event.address, event.address.saturating_add(event.bytes));
        match event.kind {
            Kind::Alloc => self.born(entry, event),
            Kind::Free | Kind::FreeRequested | Kind::FreeCompleted => self.gone(entry, event),
            Kind::SegmentAlloc | Kind::SegmentMap => {
                self.fresh.add(start, end);
                if self.memory.as_mut().is_some_and(|memory| memory.add(start, end)) {
                    self.log.add(Severity::Error, "segment-overlap", Some(entry), |log| {
                        let text = format!("the driver gave {start:#x}, which was held already");
                        (text, vec![log.site("segment", entry, None)])
                    });
                }
            }
            Kind::SegmentFree | Kind::SegmentUnmap => self.released(entry, start, end),
            _ => return,
        }
        self.totals(entry);
    }

    fn born(&mut self, entry: usize, event: &Event) {
        let allocation = event.allocation as usize;
        if self.lives[allocation] != Life::Unborn {
            let first = self.births[allocation];
            self.log.add(Severity::Error, "born-twice", Some(entry), |log| {
                let text = format!("allocation {} is handed out twice", event.allocation);
                (text, vec![log.site("first", first, None), log.site("again", entry, None)])
            });
            return;
        }
        self.lives[allocation] = Life::Live;
        self.births[allocation] = entry;
        self.live_bytes += u128::from(event.bytes);
        if event.address != 0 && event.bytes == 0 {
            *self.hollow.entry(event.address).or_default() += 1;
        }
        if event.address == 0 || event.bytes == 0 {
            return;
        }
        let (start, end) = (event.address, event.address + event.bytes);
        if let Some((other, birth)) = self.live.hit(start, end) {
            self.overlap(entry, event, other, birth);
        }
        self.live.put(start, end, entry);
        self.freed.remove(&start);
        if self.memory.as_ref().is_some_and(|memory| !memory.covers(start, end)) {
            self.log.add(Severity::Error, "outside-memory", Some(entry), |log| {
                let text =
                    format!("a block of {} bytes at {start:#x} lies in no segment", event.bytes);
                (text, vec![log.site("alloc", entry, None)])
            });
        }
    }

    fn overlap(&mut self, entry: usize, event: &Event, other: u64, birth: usize) {
        self.log.add(Severity::Error, "overlap", Some(entry), |log| {
            let text = format!(
                "a block of {} bytes is handed out at {:#x} while the block at {other:#x} lives: a free is \
                 missing, or the same memory has two owners",
                event.bytes, event.address
            );
            let first = match birth {
                BEFORE => before(),
                birth => log.site("alloc", birth, None),
            };
            (text, vec![first, log.site("alloc", entry, None)])
        });
    }

    fn gone(&mut self, entry: usize, event: &Event) {
        if event.allocation == NO_ALLOCATION {
            return self.stranger_gone(entry, event);
        }
        let allocation = event.allocation as usize;
        let birth = self.births[allocation];
        let completes = event.kind == Kind::FreeCompleted;
        match self.lives[allocation] {
            Life::Unborn => self.unknown_free(entry, event),
            Life::Live => {
                let born = &self.trace.events[birth];
                self.live_bytes -= u128::from(born.bytes);
                if self.live.hit(born.address, born.address + 1) == Some((born.address, birth)) {
                    self.live.take(born.address);
                }
                self.freed.insert(born.address, entry);
                let done = event.kind != Kind::FreeRequested;
                self.lives[allocation] = if done { Life::Done } else { Life::GivenBack };
            }
            Life::GivenBack if completes => self.lives[allocation] = Life::Done,
            Life::GivenBack | Life::Done => {
                let first = self.freed.get(&self.trace.events[birth].address).copied();
                self.double_free(entry, Some(birth), first);
            }
        }
    }

    fn double_free(&mut self, entry: usize, birth: Option<usize>, first: Option<usize>) {
        self.log.add(Severity::Error, "double-free", Some(entry), |log| {
            let mut sites: Vec<Site> =
                birth.iter().map(|&birth| log.site("alloc", birth, None)).collect();
            sites.extend(first.map(|first| log.site("first free", first, birth)));
            sites.push(log.site("again", entry, birth));
            ("a block is given back twice".to_string(), sites)
        });
    }

    fn unknown_free(&mut self, entry: usize, event: &Event) {
        self.log.add(Severity::Error, "unknown-free", Some(entry), |log| {
            let text = match event.address {
                0 => "something is given back that is not allocated (never handed out, or given back before)"
                    .to_string(),
                address => format!(
                    "the block at {address:#x} is given back, its memory came within the recording, and no \
                     entry handed it out"
                ),
            };
            (text, vec![log.site("free", entry, None)])
        });
    }

    /// A free of a block that no entry handed out.
    fn stranger_gone(&mut self, entry: usize, event: &Event) {
        let address = event.address;
        if address == 0 {
            return self.unknown_free(entry, event);
        }
        if event.kind == Kind::FreeCompleted && self.pending.remove(&address) {
            return;
        }
        if let Some(&first) = self.freed.get(&address) {
            match self.hollow.get_mut(&address) {
                Some(count) if *count > 0 => *count -= 1,
                _ => self.double_free(entry, None, Some(first)),
            }
            return;
        }
        if event.kind == Kind::FreeRequested {
            self.pending.insert(address);
        }
        self.freed.insert(address, entry);
        if let Some(block) = self.older.remove(&address) {
            self.live_bytes -= u128::from(block.bytes);
            self.live.take(address);
        }
        if self.fresh.covers(address, address + 1) {
            return self.unknown_free(entry, event);
        }
        self.log.add(Severity::Note, "older-blocks", Some(entry), |log| {
            let text = "blocks from before the recording are given back".to_string();
            (text, vec![log.site("first", entry, None)])
        });
    }

    fn released(&mut self, entry: usize, start: u64, end: u64) {
        self.fresh.remove(start, end);
        if self.memory.as_mut().is_some_and(|memory| !memory.remove(start, end)) {
            self.log.add(Severity::Error, "unknown-segment", Some(entry), |log| {
                let text =
                    format!("memory at {start:#x} goes back to the driver that was not held");
                (text, vec![log.site("released", entry, None)])
            });
        }
        if let Some((block, birth)) = self.live.hit(start, end) {
            self.log.add(Severity::Error, "released-live", Some(entry), |log| {
                let text = format!(
                    "memory goes back to the driver while the block at {block:#x} lives in it"
                );
                let born = match birth {
                    BEFORE => before(),
                    birth => log.site("alloc", birth, None),
                };
                (text, vec![born, log.site("released", entry, None)])
            });
        }
    }

    /// Live at most reserved, reserved at most the device.
    fn totals(&mut self, entry: usize) {
        let live = self.live_bytes;
        let reserved = self.memory.as_ref().map(Ranges::bytes);
        if let Some(reserved) = reserved.filter(|&reserved| live > reserved) {
            self.above(
                Severity::Error,
                "live-above-reserved",
                entry,
                live,
                "reserved memory",
                reserved,
            );
        }
        let highest = reserved.map_or(live, |reserved| reserved.max(live));
        if let Some(capacity) = self.capacity.map(u128::from).filter(|&most| highest > most) {
            self.above(Severity::Error, "above-capacity", entry, highest, "the device", capacity);
        } else if let Some(known) = self.known.map(u128::from).filter(|&most| highest > most) {
            let what = "reserved + free at the recorded out-of-memory";
            self.above(Severity::Warning, "above-capacity", entry, highest, what, known);
        }
    }

    fn above(
        &mut self,
        severity: Severity,
        code: &'static str,
        entry: usize,
        value: u128,
        what: &str,
        most: u128,
    ) {
        self.log.add(severity, code, Some(entry), |log| {
            let human = |bytes: u128| Human(u64::try_from(bytes).unwrap_or(u64::MAX)).to_string();
            let text = format!(
                "the curve rises above {what}: {} of {} (frees are missing, or the start is)",
                human(value),
                human(most)
            );
            (text, vec![log.site("here", entry, None)])
        });
    }
}

fn before() -> Site {
    Site { what: "alloc", event: None, line: 0, owner: "before the recording".to_string() }
}

/// All memory before the first entry, where the recording tells: walked backwards from the final segments.
fn memory_before(trace: &DeviceTrace) -> Option<Ranges> {
    let is_memory = |event: &Event| {
        use Kind::{SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap};
        matches!(event.kind, SegmentAlloc | SegmentFree | SegmentMap | SegmentUnmap)
    };
    let first = trace.events.iter().position(is_memory)?;
    let mut memory = Ranges::default();
    if trace.segments.is_empty() {
        let blocks = trace.events[..first].iter().any(|event| event.kind == Kind::Alloc);
        let begins = matches!(trace.events[first].kind, Kind::SegmentAlloc | Kind::SegmentMap);
        return (begins && !blocks).then_some(memory);
    }
    for segment in &trace.segments {
        memory.add(segment.address, segment.address.saturating_add(segment.bytes));
    }
    for event in trace.events.iter().rev() {
        let end = event.address.saturating_add(event.bytes);
        match event.kind {
            Kind::SegmentAlloc | Kind::SegmentMap => {
                memory.remove(event.address, end);
            }
            Kind::SegmentFree | Kind::SegmentUnmap => {
                memory.add(event.address, end);
            }
            _ => {}
        }
    }
    Some(memory)
}

/// The device's memory as the first out-of-memory tells it; others may have given memory back since.
fn largest_known_capacity(trace: &DeviceTrace) -> Option<u64> {
    (!trace.segments.is_empty()).then(|| known_capacity(trace)).flatten()
}

mod final_state;

#[cfg(test)]
mod tests;
