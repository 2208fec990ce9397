//! Record: what a recorder keeps, and what it hands over to be written down. All sizes are bytes.
//!
//! Plain data: filled by the allocator, written by `trace`, which do not know each other.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::change::Change;
use super::protocol::Target;
use super::units::{Address, PoolId, StreamId, Ticket};
use super::view::HeapView;

/// An interned tag: a name inside another tag. What it is called is known to `allocator::tags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TagId(pub u32);

impl TagId {
    /// No tag.
    pub const NONE: Self = Self(0);
}

/// An interned call stack. Its frames are known to `allocator::stacks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct CallStackId(pub u32);

impl CallStackId {
    /// No call stack.
    pub const NONE: Self = Self(0);
}

/// One frame of a call stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function.
    pub name: String,
    /// The file.
    pub file: String,
    /// The line, from 1; 0 if unknown.
    pub line: u32,
}

/// Who made a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Origin {
    /// The tag in force.
    pub tag: TagId,
    /// Where in the program.
    pub stack: CallStackId,
}

/// Who made the request that has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Mark {
    /// The request.
    pub ticket: Ticket,
    /// Who made it.
    pub origin: Origin,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A block was asked for.
    Asked {
        /// The stream.
        stream: StreamId,
        /// The pool.
        pool: PoolId,
        /// Whose it is.
        tag: TagId,
        /// Where in the program, if call stacks are captured.
        stack: CallStackId,
    },
    /// A change of the core. Of a segment or range that goes, [`Record::bytes`] says which it was:
    /// the first ever had 0.
    Changed(Change),
    /// Another stream uses the block that starts there.
    Used {
        /// Where the block starts.
        address: Address,
        /// The using stream.
        stream: StreamId,
    },
    /// Idle memory was to go back to the driver.
    Trim {
        /// How much, and whose.
        target: Target,
        /// The target is a pool without users.
        retired: bool,
    },
    /// A private pool has no users left.
    Retire(PoolId),
    /// A capture began, or else ended.
    Capture {
        /// It began.
        begins: bool,
    },
    /// The limit changed.
    Limit {
        /// It was this before.
        before: Option<u64>,
        /// From now on.
        bytes: Option<u64>,
    },
    /// The driver gave a range of addresses for pages.
    RangeGiven {
        /// Where it starts.
        base: Address,
        /// Its size.
        bytes: u64,
    },
    /// The driver took a range of addresses back; [`Record::bytes`] says which it was.
    RangeTaken {
        /// Where it started.
        base: Address,
        /// Its size.
        bytes: u64,
    },
    /// A stream was asked, or waited for: all its fences but the newest so many had passed.
    Passed {
        /// The stream.
        stream: StreamId,
        /// How many had not.
        behind: u64,
    },
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which record it is, ever: the first has 0.
    pub sequence: u64,
    /// Microseconds since 1970 at the last reading of the clock before it; 0: the clock is off.
    pub time_us: u64,
    /// The request, where it is one's.
    pub ticket: Ticket,
    /// The client's size, of a request; of a segment or range that goes, which it was.
    pub bytes: u64,
    /// What happened.
    pub what: What,
}

/// Everything that an allocator can tell of itself at one moment: its heap, and the records that
/// lead up to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    /// The device's number.
    pub device: u32,
    /// The policy's name.
    pub policy: String,
    /// The device's memory, where known.
    pub device_bytes: Option<u64>,
    /// The most that may be reserved, where a limit is set.
    pub limit_bytes: Option<u64>,
    /// The last records, oldest first.
    pub records: Vec<Record>,
    /// How many records were lost before them.
    pub lost: u64,
    /// The heap after the last record.
    pub view: HeapView,
    /// Private pools without users that have memory after the last record, or gave it back in one.
    pub retired: Vec<PoolId>,
    /// How many captures are under way after the last record.
    pub captures: u64,
    /// Who made requests whose blocks are live, and of some that are not any more.
    pub marks: Vec<Mark>,
    /// The driver's handles of streams, by their numbers.
    pub streams: Vec<u64>,
    /// What the tags are called.
    pub tags: BTreeMap<TagId, String>,
    /// The frames of the call stacks, innermost first.
    pub stacks: BTreeMap<CallStackId, Vec<Frame>>,
}
