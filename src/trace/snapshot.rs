//! Snapshot: the heap at one moment and its history, in the shape of PyTorch's memory snapshots.
//!
//! Owns the keys and their order, so that the JSON of a [`Snapshot`] opens in PyTorch's own viewer;
//! one key more, `blockyard`, says who wrote it. Filled by a [`Builder`]. Asked by the tools. Never
//! knows how the heap came to be, nor any encoding but JSON (the pickle is written in the tools,
//! from the same types).
//!
//! `docs/snapshot.schema.json` states the shape.

mod build;

use std::io;
use std::sync::Arc;

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use super::recording::Frame;

pub(super) use build::segments_of;
pub use build::{AbsurdDevice, Builder, Names, TAG_FILE};

/// A whole snapshot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    /// Segments of all devices, by device and address.
    pub segments: Vec<Segment>,
    /// What happened: the list's index is the device's number.
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// The settings in force.
    pub allocator_settings: Settings,
    /// Markers.
    pub external_annotations: Vec<Annotation>,
    /// Who wrote it.
    pub blockyard: Origin,
}

impl Snapshot {
    /// Writes it as JSON.
    pub fn to_json(&self, out: impl io::Write) -> io::Result<()> {
        let mut out = io::BufWriter::with_capacity(1 << 16, out);
        serde_json::to_writer(&mut out, self)?;
        io::Write::flush(&mut out)
    }
}

/// One segment; of a page-mapped one, one contiguous mapped range. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Segment {
    /// The device's number.
    pub device: u32,
    /// Where it starts.
    pub address: u64,
    /// Its size.
    pub total_size: u64,
    /// Blocks handed out.
    pub allocated_size: u64,
    /// Blocks handed out or awaiting free.
    pub active_size: u64,
    /// What the clients of active blocks asked for.
    pub requested_size: u64,
    /// The program's name of its stream.
    pub stream: u64,
    /// `small` or `large`.
    pub segment_type: &'static str,
    /// The program's name of its pool.
    pub segment_pool_id: (u64, u64),
    /// Page-mapped.
    pub is_expandable: bool,
    /// Where it was requested.
    pub frames: Frames,
    /// Its blocks; they tile it.
    pub blocks: Vec<Block>,
}

/// One block. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Block {
    /// Where it starts.
    pub address: u64,
    /// Its size.
    pub size: u64,
    /// The client's size.
    pub requested_size: u64,
    /// `active_allocated`, `active_pending_free` or `inactive`.
    pub state: &'static str,
    /// Where it was requested.
    pub frames: Frames,
}

/// One entry of the history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceEntry {
    /// What happened.
    pub action: &'static str,
    /// Where; absent in `oom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addr: Option<u64>,
    /// Free bytes on the device; only in `oom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_free: Option<u64>,
    /// Bytes.
    pub size: u64,
    /// The program's name of the stream.
    pub stream: u64,
    /// Microseconds, 0 if unknown.
    pub time_us: u64,
    /// Always `N/A`: what was being compiled is not recorded.
    pub compile_context: &'static str,
    /// The tag of the call stack, if it has one.
    #[serde(serialize_with = "text")]
    pub user_metadata: Arc<str>,
    /// The program's name of the pool.
    pub pool_id: (u64, u64),
    /// The call stack.
    pub frames: Frames,
}

fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

/// A marker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Annotation {
    /// Its text.
    pub name: String,
    /// Always `START`: a marker is a point in time.
    pub stage: &'static str,
    /// The device in whose history it stands.
    pub device: u32,
    /// Microseconds, 0 if unknown.
    pub time_us: u64,
}

/// Who wrote a snapshot, and of what moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// The version of this crate.
    pub version: &'static str,
    /// The policy that made the heap; null if another allocator did.
    pub policy: Option<String>,
    /// How many events of the recording precede the moment; null: all.
    pub at_event: Option<u64>,
}

/// A call stack. Copies share one list, so that an encoder can write it once.
#[derive(Clone, Debug, PartialEq)]
pub struct Frames(pub Arc<Vec<Arc<Frame>>>);

impl Serialize for Frames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            name: &'a str,
            filename: &'a str,
            line: u32,
        }
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for frame in self.0.iter() {
            let Frame { name, file, line } = &**frame;
            list.serialize_element(&Written { name, filename: file, line: *line })?;
        }
        list.end()
    }
}

/// Settings by name, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings(pub Vec<(String, Setting)>);

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, setting) in &self.0 {
            map.serialize_entry(name, setting)?;
        }
        map.end()
    }
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Setting {
    /// On or off.
    Flag(bool),
    /// A whole number; -1 stands for no limit.
    Integer(i64),
    /// A share.
    Float(f64),
    /// Anything else.
    Text(String),
    /// A table, such as the rounding steps by size.
    Table(Settings),
}

impl Setting {
    /// From text, as a recording keeps it: a JSON value if it is one of these, else the text
    /// itself.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let lower = match text {
            "True" => "true",
            "False" => "false",
            other => other,
        };
        serde_json::from_str(lower)
            .ok()
            .and_then(Self::of)
            .unwrap_or_else(|| Self::Text(text.into()))
    }

    fn of(value: serde_json::Value) -> Option<Self> {
        use serde_json::Value;
        Some(match value {
            Value::Bool(flag) => Self::Flag(flag),
            Value::Number(number) => match number.as_i64() {
                Some(integer) => Self::Integer(integer),
                None => Self::Float(number.as_f64()?),
            },
            Value::String(text) => Self::Text(text),
            Value::Object(object) => {
                let entry = |(name, value)| Some((name, Self::of(value)?));
                Self::Table(Settings(object.into_iter().map(entry).collect::<Option<_>>()?))
            }
            Value::Null | Value::Array(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests;
