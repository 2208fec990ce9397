//! Recording: a program's memory history in memory, whatever file it came from. All sizes are bytes.
//!
//! Streams and private pools are dense numbers in order of first appearance (stream 0 and pool 0 are the
//! defaults); [`Recording::streams`] and [`Recording::pools`] keep the names they had in the file.

use std::borrow::Cow;
use std::collections::HashMap;

pub use crate::vocab::Frame;
use crate::vocab::{Class, PoolId, StreamId};

/// A whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// What kind of file it was: `csv`, `pytorch-pickle`, `pytorch-json`, `pytorch-segments`, `rmm-csv`,
    /// `umpire-replay`, `blockyard-trace`.
    pub format: String,
    /// One for each device in the file, in its order; never empty.
    pub devices: Vec<DeviceTrace>,
    /// The settings text in force (PyTorch's `PYTORCH_CUDA_ALLOC_CONF`), if the file carries one.
    pub settings: Option<String>,
    /// Further settings that the file names, as name and text (`max_split_size` = `-1`, ...).
    pub settings_detail: Vec<(String, String)>,
    /// The file's names of streams: dense number -> raw handle or number in the file.
    pub streams: Vec<u64>,
    /// The file's names of pools: dense number -> PyTorch's pair.
    pub pools: Vec<(u64, u64)>,
    /// Call stacks and tags, interned; entry 0 is empty.
    pub stacks: Interner,
    /// Text of markers.
    pub markers: Vec<String>,
    /// What the reader had to leave out or assume, each said once.
    pub notices: Vec<Notice>,
    /// Whether trace entries name their pool (PyTorch from 2.12). Older releases break ties by address.
    pub has_pool_ids: bool,
    /// Whether everything that the program asked for is an event, and so is what the driver said of
    /// ranges and fences: nothing has to be guessed from what it led to.
    pub says_inputs: bool,
}

/// One device's part of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceTrace {
    /// The device's number in the file.
    pub device: u32,
    /// Events and markers in the order in which they happened.
    pub events: Vec<Event>,
    /// How many allocations the events name: tickets run from 0 to this.
    pub allocations: u32,
    /// The file's own number of each allocation; empty where those are 0, 1, 2 and so on, or it has none.
    pub ids: Vec<u64>,
    /// The segments when the recording ended, if the file has them.
    pub segments: Vec<FinalSegment>,
}

/// One entry. Meanings of the fields depend on the kind. What lies at an address ends below 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Address in the recording: of the block, segment or range; `Oom`: free bytes on the device; 0 if the
    /// format has none.
    pub address: u64,
    /// Client size of a block; size of a segment or range; rounded size of a failed request. `Trim`: how much;
    /// `Limit`: the limit, [`NO_LIMIT`] if none; `Passed`: how many fences had not.
    pub bytes: u64,
    /// The block's own size where an entry gives back a block from before the recording; 0: not known.
    pub extent: u64,
    /// Which allocation of this device's trace: dense from 0; [`NO_ALLOCATION`] where none is known
    /// (a free of a block from before the recording) or none is meant; an `Alloc` always has one.
    pub allocation: u32,
    /// The stream of the block or segment; of `Use`: the using stream.
    pub stream: StreamId,
    /// The pool.
    pub pool: PoolId,
    /// The call stack or tag; of `Marker`: index into [`Recording::markers`].
    pub stack: StackId,
    /// Line in a text file, from 1; else 0.
    pub line: u32,
    /// Of a segment or range that goes: which it was, where known; the first ever has 0.
    pub order: u32,
    /// The side of the pool, of a range.
    pub class: Option<Class>,
    /// Microseconds, where the file has them (never sort by it).
    pub time_us: u64,
    /// What happened.
    pub kind: Kind,
}

/// [`Event::allocation`] where none is known.
pub const NO_ALLOCATION: u32 = u32::MAX;

/// [`Event::bytes`] of a `Limit` that is none.
pub const NO_LIMIT: u64 = u64::MAX;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A block was handed out (of zero bytes: a null pointer).
    Alloc,
    /// The client gave a block back, and the recording says separately when it became reusable.
    FreeRequested,
    /// A block became reusable.
    FreeCompleted,
    /// The client gave a block back, and the recording says no more (text traces).
    Free,
    /// Another stream uses a block.
    Use,
    /// The cache was emptied by the program.
    EmptyCache,
    /// A marker says that the program emptied its cache: as `EmptyCache`, but it does not count.
    EmptyCacheMarker,
    /// The program gave back so many bytes of what was idle, or all that was idle in one private pool.
    Trim,
    /// A private pool has no users left.
    Retire,
    /// A capture began.
    CaptureBegin,
    /// A capture ended.
    CaptureEnd,
    /// The limit from now on.
    Limit,
    /// The driver gave a range of addresses for pages.
    RangeAlloc,
    /// The driver took a range of addresses back.
    RangeFree,
    /// A stream was asked, or waited for: all its fences but the newest so many had passed.
    Passed,
    /// The driver gave a segment.
    SegmentAlloc,
    /// The driver took a segment back.
    SegmentFree,
    /// Pages were mapped.
    SegmentMap,
    /// Pages were unmapped.
    SegmentUnmap,
    /// A request failed.
    Oom,
    /// Someone took a snapshot.
    Snapshot,
    /// Text in the trace; not an event in the count of events.
    Marker,
    /// An entry that the reader knows but that does nothing here (`annotate`, `user_defined`).
    Other,
}

impl Kind {
    /// Whether entries of this kind count as events (`design`: markers and comments do not).
    #[must_use]
    pub const fn counts(self) -> bool {
        !matches!(self, Self::Marker | Self::EmptyCacheMarker)
    }
}

impl DeviceTrace {
    /// The file's own number of an allocation.
    #[must_use]
    pub fn id_of(&self, allocation: u32) -> u64 {
        self.ids.get(allocation as usize).copied().unwrap_or(u64::from(allocation))
    }
}

impl Event {
    /// An event of this kind with everything else empty.
    #[must_use]
    pub const fn new(kind: Kind) -> Self {
        Self {
            address: 0,
            bytes: 0,
            allocation: NO_ALLOCATION,
            stream: StreamId(0),
            pool: PoolId(0),
            stack: StackId(0),
            extent: 0,
            line: 0,
            order: 0,
            class: None,
            time_us: 0,
            kind,
        }
    }
}

/// One segment as the recording ended (of an expandable one: one contiguous mapped range).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalSegment {
    /// Where it starts.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Its stream.
    pub stream: StreamId,
    /// Its pool.
    pub pool: PoolId,
    /// The side of the pool.
    pub class: Class,
    /// Page-mapped.
    pub expandable: bool,
    /// Of a page-mapped one: the address range it lies in, as where it starts and its size, where known.
    pub range: Option<(u64, u64)>,
    /// Which segment or range it is, where known: the first ever has 0.
    pub order: u32,
    /// Where it was requested.
    pub stack: StackId,
    /// Its blocks in address order.
    pub blocks: Vec<FinalBlock>,
}

/// One block as the recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalBlock {
    /// Where it starts.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// The client's size.
    pub requested: u64,
    /// Live, awaiting free or free.
    pub state: crate::vocab::BlockState,
    /// Where it was requested.
    pub stack: StackId,
}

/// Something the reader had to leave out or assume. Shown as a warning, in `--json` under `notices`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// A word for programs: `overflow`, `no-pool-ids`, `unknown-free`, `skipped-action`, `no-history`, ...
    pub code: Cow<'static, str>,
    /// A sentence for people.
    pub text: String,
}

/// A key and a text that hang on something.
pub type Attachment = (String, String);

/// An interned call stack or tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StackId(pub u32);

/// A call stack, innermost frame first, or a tag.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Stack {
    /// The program's own word for the place, if any.
    pub tag: String,
    /// Indices into [`Interner::frames`], innermost first.
    pub frames: Vec<u32>,
}

/// Frames and stacks, each kept once.
#[derive(Clone, Debug)]
pub struct Interner {
    /// Every frame once.
    pub frames: Vec<Frame>,
    /// Every stack once; entry 0 is empty.
    pub stacks: Vec<Stack>,
    by_frame: HashMap<Frame, u32>,
    by_stack: HashMap<Stack, u32>,
}

/// The same frames and stacks under the same numbers.
impl PartialEq for Interner {
    fn eq(&self, other: &Self) -> bool {
        self.frames == other.frames && self.stacks == other.stacks
    }
}

impl Eq for Interner {}

impl Default for Interner {
    fn default() -> Self {
        let mut empty = Self {
            frames: Vec::new(),
            stacks: Vec::new(),
            by_frame: HashMap::new(),
            by_stack: HashMap::new(),
        };
        empty.stack(Stack::default());
        empty
    }
}

impl Interner {
    /// The number of this frame. O(1).
    pub fn frame(&mut self, frame: Frame) -> u32 {
        if let Some(&id) = self.by_frame.get(&frame) {
            return id;
        }
        let id = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.by_frame.insert(frame, id);
        id
    }

    /// The number of this stack. O(its length).
    pub fn stack(&mut self, stack: Stack) -> StackId {
        if let Some(&id) = self.by_stack.get(&stack) {
            return StackId(id);
        }
        let id = self.stacks.len() as u32;
        self.stacks.push(stack.clone());
        self.by_stack.insert(stack, id);
        StackId(id)
    }

    /// The number of this tag. O(its length).
    pub fn tag(&mut self, tag: &str) -> StackId {
        if tag.is_empty() {
            return StackId(0);
        }
        self.stack(Stack { tag: tag.to_string(), frames: Vec::new() })
    }

    /// What a person calls this stack: its tag, else its innermost frame outside library internals, else
    /// the innermost one; empty if nothing is known.
    #[must_use]
    pub fn label(&self, id: StackId) -> String {
        let Some(stack) = self.stacks.get(id.0 as usize) else { return String::new() };
        if !stack.tag.is_empty() {
            return stack.tag.clone();
        }
        let frame = |&index: &u32| self.frames.get(index as usize);
        let python =
            stack.frames.iter().filter_map(frame).find(|frame| frame.file.ends_with(".py"));
        python
            .or_else(|| stack.frames.first().and_then(frame))
            .map(|frame| format!("{} ({}:{})", frame.name, frame.file, frame.line))
            .unwrap_or_default()
    }
}

impl Recording {
    /// Events that count, over all devices.
    #[must_use]
    pub fn event_count(&self) -> usize {
        self.devices
            .iter()
            .map(|device| device.events.iter().filter(|event| event.kind.counts()).count())
            .sum()
    }

    /// Notes something once.
    pub fn notice(&mut self, code: &'static str, text: impl Into<String>) {
        let notice = Notice { code: code.into(), text: text.into() };
        if !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }
}
