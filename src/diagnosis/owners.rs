//! Owners: whose the live bytes of a recording are at a moment, counted from the requests alone.
//!
//! Owns the fold of births and ends of blocks, and the grouping by tag, stack or size class. Asked by the other
//! diagnoses. Never replays and never rounds: bytes are the client's. A block that the program has given back is
//! not live, whether or not its memory was reusable yet.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::trace::{DeviceTrace, Event, Kind, NO_ALLOCATION, Recording, StackId};
use crate::vocab::{BlockState, Human};

/// What an owner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The program's own word for the place, else the innermost frame of Python.
    Tag,
    /// The whole call stack.
    Stack,
    /// The size, in classes between powers of two.
    Size,
}

/// A block as its client sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The client's size.
    pub bytes: u64,
    /// Where it was requested.
    pub stack: StackId,
    /// It was there before the recording began.
    pub older: bool,
    live: bool,
}

/// A birth or an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// A block was handed out.
    Born(Block),
    /// A block was given back.
    Gone(Block),
}

/// Which blocks live, as the entries of a trace go by.
#[derive(Clone, Debug)]
pub struct Living {
    older: HashMap<u64, Block>,
    born: Vec<Block>,
    bytes: u128,
    blocks: u64,
}

impl Living {
    /// Before the first entry. O(entries + final blocks).
    #[must_use]
    pub fn before(trace: &DeviceTrace) -> Self {
        let older = older(trace);
        let bytes = older.values().map(|block| u128::from(block.bytes)).sum();
        let blocks = older.len() as u64;
        Self { older, born: vec![Block::default(); trace.allocations as usize], bytes, blocks }
    }

    /// The next entry. O(1).
    pub fn step(&mut self, event: &Event) -> Option<Passage> {
        match event.kind {
            Kind::Alloc => {
                let block =
                    Block { bytes: event.bytes, stack: event.stack, older: false, live: true };
                let slot = self.born.get_mut(event.allocation as usize)?;
                if std::mem::replace(slot, block).live {
                    return None;
                }
                self.bytes += u128::from(block.bytes);
                self.blocks += 1;
                Some(Passage::Born(block))
            }
            Kind::Free | Kind::FreeRequested | Kind::FreeCompleted => {
                let block = match event.allocation {
                    NO_ALLOCATION => self.older.remove(&event.address)?,
                    allocation => std::mem::take(self.born.get_mut(allocation as usize)?),
                };
                if !block.live {
                    return None;
                }
                self.bytes -= u128::from(block.bytes);
                self.blocks -= 1;
                Some(Passage::Gone(block))
            }
            _ => None,
        }
    }

    /// Bytes that live now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(u64::MAX)
    }

    /// Every block that lives now.
    pub fn blocks(&self) -> impl Iterator<Item = Block> {
        self.older.values().chain(&self.born).copied().filter(|block| block.live)
    }
}

/// The blocks from before the recording: those that it gives back without having handed them out, and those
/// that the final state shows and no entry does.
pub(super) fn older(trace: &DeviceTrace) -> HashMap<u64, Block> {
    let mut older = HashMap::new();
    let mut touched: HashSet<u64> = HashSet::new();
    for event in trace.events.iter().filter(|event| event.address != 0) {
        let unknown = event.allocation == NO_ALLOCATION;
        match event.kind {
            Kind::Free | Kind::FreeRequested if unknown && touched.insert(event.address) => {
                let bytes = event.bytes;
                let block = Block { bytes, older: true, live: true, ..Block::default() };
                older.insert(event.address, block);
            }
            Kind::Alloc | Kind::FreeCompleted => {
                touched.insert(event.address);
            }
            _ => {}
        }
    }
    for block in trace.segments.iter().flat_map(|segment| &segment.blocks) {
        if block.state == BlockState::Allocated && !touched.contains(&block.address) {
            let (bytes, stack) = (block.requested, block.stack);
            older.insert(block.address, Block { bytes, stack, older: true, live: true });
        }
    }
    older
}

/// How many entries have gone by when the most bytes live. O(entries).
#[must_use]
pub fn peak(trace: &DeviceTrace) -> usize {
    let mut living = Living::before(trace);
    let mut best = (living.bytes, 0);
    for (index, event) in trace.events.iter().enumerate() {
        living.step(event);
        if living.bytes > best.0 {
            best = (living.bytes, index + 1);
        }
    }
    best.1
}

/// Names of owners, each under one number.
#[derive(Debug)]
pub struct Owners<'a> {
    recording: &'a Recording,
    by: By,
    names: Vec<String>,
    numbers: HashMap<String, u32>,
    of_stack: HashMap<(StackId, bool), u32>,
    of_size: HashMap<u64, u32>,
}

impl<'a> Owners<'a> {
    /// No owner yet.
    #[must_use]
    pub fn new(recording: &'a Recording, by: By) -> Self {
        Self {
            recording,
            by,
            names: Vec::new(),
            numbers: HashMap::new(),
            of_stack: HashMap::new(),
            of_size: HashMap::new(),
        }
    }

    /// The number of a block's owner. O(1) for a stack or size that was seen before.
    pub fn of(&mut self, block: Block) -> u32 {
        if self.by == By::Size {
            let class = block.bytes.checked_next_power_of_two().unwrap_or(u64::MAX);
            if let Some(&number) = self.of_size.get(&class) {
                return number;
            }
            let number = self.number(size_class(block.bytes));
            self.of_size.insert(class, number);
            return number;
        }
        let key = (block.stack, block.older && block.stack == StackId(0));
        if let Some(&number) = self.of_stack.get(&key) {
            return number;
        }
        let number = self.number(self.name_of(block));
        self.of_stack.insert(key, number);
        number
    }

    /// The number of a name.
    pub fn number(&mut self, name: String) -> u32 {
        if let Some(&number) = self.numbers.get(&name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }

    /// What a person calls the owner.
    #[must_use]
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }

    fn name_of(&self, block: Block) -> String {
        let name = match self.by {
            By::Stack => stack_text(self.recording, block.stack),
            By::Tag | By::Size => self.recording.stacks.label(block.stack),
        };
        match (name.is_empty(), block.older) {
            (false, _) => name,
            (true, true) => "(from before the recording)".to_string(),
            (true, false) => "(no tag or stack recorded)".to_string(),
        }
    }
}

/// The tag and every frame, innermost first.
fn stack_text(recording: &Recording, id: StackId) -> String {
    let Some(stack) = recording.stacks.stacks.get(id.0 as usize) else { return String::new() };
    let frames =
        stack.frames.iter().filter_map(|&frame| recording.stacks.frames.get(frame as usize));
    let mut parts: Vec<String> = Vec::with_capacity(stack.frames.len() + 1);
    if !stack.tag.is_empty() {
        parts.push(stack.tag.clone());
    }
    parts.extend(frames.map(|frame| format!("{} ({}:{})", frame.name, frame.file, frame.line)));
    parts.join(" < ")
}

/// The class of a size: above the power of two below it, up to the one that holds it.
#[must_use]
pub fn size_class(bytes: u64) -> String {
    match bytes.checked_next_power_of_two() {
        Some(most) if most <= 512 => "up to 512 B".to_string(),
        Some(most) => format!("{} to {}", Human(most / 2 + 1), Human(most)),
        None => format!("above {}", Human(1 << 63)),
    }
}

/// Bytes and how many blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The client's bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

/// Who holds what at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Everything that lives.
    pub total: Held,
    /// By owner; their sums are the total.
    pub owners: BTreeMap<String, Held>,
}

/// Who holds what after this many entries. O(entries).
#[must_use]
pub fn census(recording: &Recording, trace: &DeviceTrace, entries: usize, by: By) -> Census {
    let mut living = Living::before(trace);
    for event in trace.events.iter().take(entries) {
        living.step(event);
    }
    let mut owners = Owners::new(recording, by);
    let mut held: Vec<Held> = Vec::new();
    for block in living.blocks() {
        let owner = owners.of(block) as usize;
        held.resize(held.len().max(owner + 1), Held::default());
        held[owner].bytes = held[owner].bytes.saturating_add(block.bytes);
        held[owner].blocks += 1;
    }
    let named = held.into_iter().enumerate();
    let named = named.map(|(number, held)| (owners.name(number as u32).to_string(), held));
    Census { total: Held { bytes: living.bytes(), blocks: living.blocks }, owners: named.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{FinalBlock, FinalSegment};
    use crate::vocab::{Class, PoolId, StreamId};

    fn event(kind: Kind, allocation: u32, address: u64, bytes: u64) -> Event {
        Event { allocation, address, bytes, ..Event::new(kind) }
    }

    #[test]
    fn blocks_from_before_are_found_at_both_ends() {
        let none = NO_ALLOCATION;
        let trace = DeviceTrace {
            events: vec![
                event(Kind::Alloc, 0, 4096, 100),
                event(Kind::FreeRequested, none, 8192, 30),
                event(Kind::FreeCompleted, none, 8192, 30),
                event(Kind::FreeRequested, 0, 4096, 100),
                event(Kind::FreeCompleted, 0, 4096, 100),
                event(Kind::FreeCompleted, none, 99, 5),
            ],
            allocations: 1,
            segments: vec![FinalSegment {
                address: 0,
                bytes: 1 << 20,
                stream: StreamId(0),
                pool: PoolId(0),
                class: Class::Small,
                expandable: false,
                range: None,
                order: 0,
                stack: StackId(0),
                blocks: vec![FinalBlock {
                    address: 16384,
                    bytes: 512,
                    requested: 7,
                    state: BlockState::Allocated,
                    stack: StackId(0),
                }],
            }],
            ..DeviceTrace::default()
        };
        let live = |entries| census(&Recording::default(), &trace, entries, By::Tag).total.bytes;
        assert_eq!([0, 1, 2, 3, 4, 6].map(live), [37, 137, 107, 107, 7, 7]);
        assert_eq!(peak(&trace), 1);
    }

    #[test]
    fn size_classes_hold_their_upper_end() {
        for (bytes, class) in [
            (0, "up to 512 B"),
            (512, "up to 512 B"),
            (513, "513 B to 1.00 KiB"),
            (8 << 20, "4.00 MiB to 8.00 MiB"),
            ((8 << 20) + 1, "8.00 MiB to 16.00 MiB"),
            (u64::MAX, "above 8.00 EiB"),
        ] {
            assert_eq!(size_class(bytes), class);
        }
    }
}
