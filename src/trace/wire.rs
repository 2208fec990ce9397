//! Wire: the records of our own trace format, one JSON object on each line.
//!
//! Owns the names of the keys, the version and the spelling of each kind; [`encode`] writes a
//! [`Recording`] and [`decode`] reads one. Asked by [`super::file`]. Never knows a file system or a
//! compression.
//!
//! **W1** `decode(encode(x)) == x`. **W2** any bytes give a value or an error with a line, never a
//! panic. `docs/trace-format.md` explains the format, `docs/trace.schema.json` states it.
//!
//! [`Recording`]: super::recording::Recording

mod decode;
mod encode;

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::recording::{Kind, NO_ALLOCATION};
use crate::vocab::{BlockState, Class};

pub use decode::decode;
pub use encode::encode;

/// The version that is written, and the newest that is read. It rises only when an older reader
/// would misread a file; new keys and new kinds of records do not raise it.
pub const VERSION: u64 = 1;

/// The key of the header that names the version, and by which the format is recognised.
pub const MAGIC: &str = "blockyard_trace";

/// Whether these bytes begin like a trace: a first line that is an object with the key [`MAGIC`].
#[must_use]
pub fn looks_like(bytes: &[u8]) -> bool {
    let start = bytes.trim_ascii_start();
    let line = start.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let head = &line[..line.len().min(1 << 16)];
    let key = format!("\"{MAGIC}\"");
    head.starts_with(b"{") && head.windows(key.len()).any(|window| window == key.as_bytes())
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The line, from 1.
    pub line: usize,
    /// The key whose value is wrong, if it is one key's.
    pub field: Option<String>,
    /// What stands there, shortened.
    pub found: String,
    /// What should.
    pub expected: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        if let Some(field) = &self.field {
            write!(f, "field \"{field}\": ")?;
        }
        write!(f, "found {}, expected {}", self.found, self.expected)
    }
}

impl std::error::Error for Malformed {}

/// Every kind of event and its spelling; those that PyTorch has are spelled as there.
const KINDS: [(Kind, &str); 23] = [
    (Kind::Alloc, "alloc"),
    (Kind::Free, "free"),
    (Kind::FreeRequested, "free_requested"),
    (Kind::FreeCompleted, "free_completed"),
    (Kind::Use, "use"),
    (Kind::EmptyCache, "empty_cache"),
    (Kind::EmptyCacheMarker, "empty_cache_marker"),
    (Kind::Trim, "trim"),
    (Kind::Retire, "retire"),
    (Kind::CaptureBegin, "capture_begin"),
    (Kind::CaptureEnd, "capture_end"),
    (Kind::Limit, "limit"),
    (Kind::RangeAlloc, "range_alloc"),
    (Kind::RangeFree, "range_free"),
    (Kind::Passed, "passed"),
    (Kind::SegmentAlloc, "segment_alloc"),
    (Kind::SegmentFree, "segment_free"),
    (Kind::SegmentMap, "segment_map"),
    (Kind::SegmentUnmap, "segment_unmap"),
    (Kind::Oom, "oom"),
    (Kind::Snapshot, "snapshot"),
    (Kind::Marker, "marker"),
    (Kind::Other, "other"),
];

/// Every state of a block and its spelling; those that PyTorch has are spelled as there.
const STATES: [(BlockState, &str); 4] = [
    (BlockState::Allocated, "active_allocated"),
    (BlockState::AwaitingFree, "active_pending_free"),
    (BlockState::Free, "inactive"),
    (BlockState::Unmapped, "unmapped"),
];

fn spelling<T: Copy + PartialEq>(table: &[(T, &'static str)], value: T) -> &'static str {
    table.iter().find(|(one, _)| *one == value).map_or("", |(_, name)| name)
}

fn meaning<T: Copy>(table: &[(T, &str)], text: &str) -> Option<T> {
    table.iter().find(|(_, name)| *name == text).map(|(one, _)| *one)
}

fn class(text: &str) -> Option<Class> {
    Class::BOTH.into_iter().find(|class| class.name() == text)
}

fn zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

const fn unknown_allocation() -> u32 {
    NO_ALLOCATION
}

fn no_allocation(id: &u32) -> bool {
    *id == NO_ALLOCATION
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    blockyard_trace: u64,
    /// What kind of file the recording was read from, if it was converted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    format: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    devices: Vec<HeaderDevice>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settings: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    settings_detail: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    streams: Vec<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pools: Vec<(u64, u64)>,
    #[serde(default, skip_serializing_if = "zero")]
    has_pool_ids: bool,
    #[serde(default, skip_serializing_if = "zero")]
    says_inputs: bool,
}

/// A device in the header.
#[derive(Serialize, Deserialize)]
struct HeaderDevice {
    device: u32,
    #[serde(default, skip_serializing_if = "zero")]
    allocations: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ids: Vec<u64>,
}

/// An event. Keys that are absent are 0 (`id`: none).
#[derive(Serialize, Deserialize)]
struct EventRecord<'a> {
    #[serde(borrow)]
    k: Cow<'a, str>,
    #[serde(default = "unknown_allocation", skip_serializing_if = "no_allocation")]
    id: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "zero")]
    addr: u64,
    #[serde(default, skip_serializing_if = "zero")]
    stream: u32,
    #[serde(default, skip_serializing_if = "zero")]
    pool: u32,
    #[serde(default, skip_serializing_if = "zero")]
    stack: u32,
    /// Of a marker: its text, or which earlier text it repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    again: Option<u32>,
    #[serde(default, skip_serializing_if = "zero")]
    extent: u64,
    #[serde(default, skip_serializing_if = "zero")]
    order: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "zero")]
    line: u32,
    #[serde(default, skip_serializing_if = "zero")]
    us: u64,
}

/// Everything that is not an event.
#[derive(Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "snake_case")]
enum Record {
    /// Later events are of this device (an index into the header's list).
    Device { i: u32 },
    /// A frame of call stacks; `i` counts from 0.
    Frame {
        i: u32,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        name: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        file: String,
        #[serde(default, skip_serializing_if = "zero")]
        line: u32,
    },
    /// A call stack or tag; `i` counts from 1 (0 is the empty stack).
    Stack {
        i: u32,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        tag: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        frames: Vec<u32>,
    },
    /// The text of a marker that no event shows in this place.
    MarkerText { text: String },
    /// A segment of the current device when the recording ended.
    Segment(SegmentRecord),
    /// What the reader of the original file had to leave out.
    Notice { code: String, text: String },
    /// The last line: how many events the file has, so that a cut file is known as one.
    End { events: u64 },
}

/// The kinds of [`Record`].
const RECORDS: [&str; 7] = ["device", "frame", "stack", "marker_text", "segment", "notice", "end"];

/// A final segment.
#[derive(Serialize, Deserialize)]
struct SegmentRecord {
    addr: u64,
    bytes: u64,
    #[serde(default, skip_serializing_if = "zero")]
    stream: u32,
    #[serde(default, skip_serializing_if = "zero")]
    pool: u32,
    class: String,
    #[serde(default, skip_serializing_if = "zero")]
    expandable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    range: Option<(u64, u64)>,
    #[serde(default, skip_serializing_if = "zero")]
    order: u32,
    #[serde(default, skip_serializing_if = "zero")]
    stack: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    blocks: Vec<BlockRecord>,
}

/// A block of a final segment.
#[derive(Serialize, Deserialize)]
struct BlockRecord {
    addr: u64,
    bytes: u64,
    #[serde(default, skip_serializing_if = "zero")]
    requested: u64,
    state: String,
    #[serde(default, skip_serializing_if = "zero")]
    stack: u32,
}

#[cfg(test)]
mod tests;
