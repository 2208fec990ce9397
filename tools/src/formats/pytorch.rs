//! PyTorch: the schema of its memory snapshots, whether pickled or JSON, turned into a recording.
//!
//! A [`Builder`] takes trace entries, segments and settings one by one and finishes the recording.
//! Every version of the schema is accepted: missing keys, both spellings of states, snapshots that
//! are only a list of segments. It never knows how the file was encoded ([`Tree`] does).

use std::collections::{BTreeMap, HashMap, HashSet};

use blockyard::trace::{
    Event, FinalSegment, Frame, Kind, NO_ALLOCATION, Recording, Stack, StackId,
};
use blockyard::vocab::{PoolId, StreamId};

use super::error::Wrong;
use super::numbers::Numbers;
use super::tree::Tree;

/// The innermost frames that are kept of a stack.
const DEEPEST_STACK: usize = 1000;
/// Frames that may be repeated for the sake of tags, over the whole file.
const TAG_FRAMES: usize = 4 << 20;
/// Different unknown actions that are told apart.
const UNKNOWN_ACTIONS: usize = 16;
/// The key of the settings text.
const CONF: &str = "PYTORCH_CUDA_ALLOC_CONF";

/// A recording in the making.
pub(crate) struct Builder {
    pub(super) recording: Recording,
    pub(super) streams: Numbers<u64>,
    pub(super) pools: Numbers<(u64, u64)>,
    /// Segments with their device.
    pub(super) segments: Vec<(u32, FinalSegment)>,
    /// Entries by device.
    pub(super) traces: BTreeMap<u32, Vec<Event>>,
    pub(super) unknown_actions: BTreeMap<String, u64>,
    /// Devices whose trace the file says has overflowed.
    pub(super) overflowed: Vec<usize>,
    /// The first segment whose blocks do not tile it.
    pub(super) uneven: Option<u64>,
    stacks: HashMap<u32, StackId>,
    last_stack: Option<(u32, StackId)>,
    frames: HashMap<u32, u32>,
    tagged: HashMap<(StackId, String), StackId>,
    tag_frames: usize,
    /// Containers that may stand in one place only.
    claimed: HashSet<u32>,
    tag: Option<String>,
}

impl Builder {
    /// Nothing yet.
    pub fn new(format: &str) -> Self {
        Self {
            recording: Recording { format: format.to_string(), ..Default::default() },
            streams: Numbers::new(0),
            pools: Numbers::new((0, 0)),
            segments: Vec::new(),
            traces: BTreeMap::new(),
            unknown_actions: BTreeMap::new(),
            overflowed: Vec::new(),
            uneven: None,
            stacks: HashMap::new(),
            last_stack: None,
            frames: HashMap::new(),
            tagged: HashMap::new(),
            tag_frames: 0,
            claimed: HashSet::new(),
            tag: None,
        }
    }

    /// The file is only a list of segments.
    pub fn only_segments(&mut self) {
        self.recording.format = "pytorch-segments".into();
    }

    // Trace entries

    /// One key of a trace entry. Unknown keys say nothing.
    #[inline]
    pub fn entry<T: Tree>(&mut self, event: &mut Event, key: &[u8], value: T) -> Result<(), Wrong> {
        match key {
            b"action" => event.kind = self.action(value)?,
            b"addr" => event.address = value.natural("trace entry: addr")?,
            b"device_free" => event.address = value.natural("trace entry: device_free")?,
            b"size" => event.bytes = value.natural("trace entry: size")?,
            b"stream" => event.stream = self.stream(value, "trace entry: stream")?,
            b"time_us" => event.time_us = value.natural("trace entry: time_us")?,
            b"pool_id" => {
                event.pool = self.pool(value, "trace entry: pool_id")?;
                self.recording.has_pool_ids = true;
            }
            b"frames" => event.stack = self.stack(value)?,
            b"user_metadata" => {
                self.tag = value.text().filter(|text| !text.is_empty()).map(Into::into)
            }
            _ => {}
        }
        Ok(())
    }

    /// The keys of an entry are complete.
    #[inline]
    pub fn end_entry(&mut self, event: &mut Event) {
        if let Some(tag) = self.tag.take() {
            event.stack = self.tagged(event.stack, tag);
        }
    }

    /// The entries of a device.
    pub fn trace(&mut self, device: usize, events: Vec<Event>) -> Result<(), Wrong> {
        let device = device_number(device as u64)?;
        if events.len() >= NO_ALLOCATION as usize {
            return Err(Wrong::new("more than 4,294,967,294 trace entries", "fewer"));
        }
        self.traces.insert(device, events);
        Ok(())
    }

    fn action<T: Tree>(&mut self, value: T) -> Result<Kind, Wrong> {
        let Some(text) = value.text() else {
            return Err(value.wrong("trace entry: action", "a string such as alloc"));
        };
        Ok(match kind_of(text.as_bytes()) {
            Some(kind) => kind,
            None => {
                let known = self.unknown_actions.len();
                if let Some(count) = self.unknown_actions.get_mut(&*text) {
                    *count += 1;
                } else if known < UNKNOWN_ACTIONS {
                    self.unknown_actions.insert(text.into_owned(), 1);
                }
                Kind::Other
            }
        })
    }

    pub(super) fn stream<T: Tree>(&mut self, value: T, what: &str) -> Result<StreamId, Wrong> {
        Ok(StreamId(self.streams.number(value.natural(what)?)?))
    }

    pub(super) fn pool<T: Tree>(&mut self, value: T, what: &str) -> Result<PoolId, Wrong> {
        let pair = value.pair().ok_or_else(|| value.wrong(what, "a pair of whole numbers"))?;
        Ok(PoolId(self.pools.number(pair)?))
    }

    // Stacks

    /// The number of a list of frames. A list that occurs often is looked at once.
    #[inline]
    pub(super) fn stack<T: Tree>(&mut self, value: T) -> Result<StackId, Wrong> {
        let identity = value.identity();
        if let (Some(identity), Some((last, stack))) = (identity, self.last_stack)
            && identity == last
        {
            return Ok(stack);
        }
        if let Some(&stack) = identity.and_then(|identity| self.stacks.get(&identity)) {
            self.last_stack = identity.map(|identity| (identity, stack));
            return Ok(stack);
        }
        let stack = self.new_stack(value)?;
        if let Some(identity) = identity {
            self.stacks.insert(identity, stack);
        }
        Ok(stack)
    }

    fn new_stack<T: Tree>(&mut self, value: T) -> Result<StackId, Wrong> {
        if value.is_none() {
            return Ok(StackId(0));
        }
        let items = value.list("frames")?;
        if items.len() > DEEPEST_STACK {
            let text = format!("stacks deeper than {DEEPEST_STACK} frames are cut there");
            self.recording.notice("long-stack", text);
        }
        let mut frames = Vec::with_capacity(items.len().min(DEEPEST_STACK));
        for item in items.into_iter().take(DEEPEST_STACK) {
            frames.push(self.frame(item).map_err(|wrong| value.at(wrong))?);
        }
        Ok(self.recording.stacks.stack(Stack { tag: String::new(), frames }))
    }

    fn frame<T: Tree>(&mut self, value: T) -> Result<u32, Wrong> {
        let identity = value.identity();
        if let Some(&frame) = identity.and_then(|identity| self.frames.get(&identity)) {
            return Ok(frame);
        }
        if !value.is_dict() {
            return Err(value.wrong("a frame", "a dict with name, filename and line"));
        }
        let text = |key: &str| value.get(key).and_then(T::text).unwrap_or_default().into_owned();
        let line = value.get("line").and_then(T::integer).unwrap_or(0);
        let frame = self.recording.stacks.frame(Frame {
            name: text("name"),
            file: text("filename"),
            line: u32::try_from(line).unwrap_or(0),
        });
        if let Some(identity) = identity {
            self.frames.insert(identity, frame);
        }
        Ok(frame)
    }

    /// The stack with the program's own word for the place.
    fn tagged(&mut self, stack: StackId, tag: String) -> StackId {
        let key = (stack, tag);
        if let Some(&id) = self.tagged.get(&key) {
            return id;
        }
        let stacks = &mut self.recording.stacks;
        let frames = stacks.stacks.get(stack.0 as usize).map_or(&[][..], |stack| &stack.frames);
        if self.tag_frames + frames.len() > TAG_FRAMES {
            self.recording
                .notice("tags-dropped", "too many different user_metadata: some are left out");
            return stack;
        }
        self.tag_frames += frames.len();
        let frames = frames.to_vec();
        let id = stacks.stack(Stack { tag: key.1.clone(), frames });
        self.tagged.insert(key, id);
        id
    }

    /// Refuses a second appearance of something that makes sense in one place only; without this,
    /// a small file could ask for the same million blocks a million times.
    pub fn claim<T: Tree>(&mut self, value: T, what: &str) -> Result<(), Wrong> {
        match value.identity() {
            Some(identity) if !self.claimed.insert(identity) => {
                let wrong = Wrong::new(format!("{what} occurs twice"), "separate objects");
                Err(value.at(wrong))
            }
            _ => Ok(()),
        }
    }

    // Settings and flags

    /// The allocator's settings; some versions put the overflow flags among them.
    pub fn settings<T: Tree>(&mut self, value: T) -> Result<(), Wrong> {
        let entries = value.entries().ok_or_else(|| value.wrong("allocator_settings", "a dict"))?;
        for (key, setting) in entries {
            match &*key {
                CONF => {
                    let text = setting.text().unwrap_or_default();
                    self.recording.settings = Some(text.into_owned());
                }
                "trace_alloc_overflowed" => self.overflow(setting),
                "trace_alloc_max_entries" => {}
                _ => self.recording.settings_detail.push((key.into_owned(), setting_text(setting))),
            }
        }
        Ok(())
    }

    /// Which devices lost entries: a list of bools, or one bool for all.
    pub fn overflow<T: Tree>(&mut self, value: T) {
        let is_set = |value: T| value.bool().unwrap_or(value.integer().unwrap_or(0) != 0);
        match value.items() {
            Some(items) => {
                let set = items.into_iter().enumerate().filter(|(_, flag)| is_set(*flag));
                self.overflowed.extend(set.map(|(device, _)| device));
            }
            None if is_set(value) => self.overflowed.push(0),
            None => {}
        }
    }
}

/// What an action means; nothing if no version of PyTorch is known to write it.
fn kind_of(action: &[u8]) -> Option<Kind> {
    Some(match action {
        b"alloc" => Kind::Alloc,
        b"free_requested" => Kind::FreeRequested,
        b"free_completed" => Kind::FreeCompleted,
        b"segment_alloc" => Kind::SegmentAlloc,
        b"segment_free" => Kind::SegmentFree,
        b"segment_map" => Kind::SegmentMap,
        b"segment_unmap" => Kind::SegmentUnmap,
        b"oom" => Kind::Oom,
        b"snapshot" => Kind::Snapshot,
        b"annotate" | b"user_defined" => Kind::Other,
        _ => return None,
    })
}

/// A setting as text; a dict as `[key:value,...]`.
fn setting_text<T: Tree>(value: T) -> String {
    let scalar = |value: T| value.scalar().unwrap_or_else(|| value.describe().into_owned());
    match value.entries() {
        Some(entries) => {
            let parts = entries.into_iter().map(|(key, value)| format!("{key}:{}", scalar(value)));
            format!("[{}]", parts.collect::<Vec<_>>().join(","))
        }
        None => scalar(value),
    }
}

pub(super) fn device_number(device: u64) -> Result<u32, Wrong> {
    const MOST: u64 = 1024;
    u32::try_from(device)
        .ok()
        .filter(|_| device < MOST)
        .ok_or_else(|| Wrong::new(format!("device {device}"), "a device number below 1024"))
}

/// The complaint that a file holds something else than a snapshot.
pub(crate) fn not_a_snapshot<T: Tree>(value: T) -> Wrong {
    let found = match value.entries() {
        Some(entries) if entries.is_empty() => "an empty dict".to_string(),
        Some(entries) => {
            let keys = entries.iter().take(6).map(|(key, _)| format!("`{key}`"));
            format!("a dict with {}", keys.collect::<Vec<_>>().join(", "))
        }
        None => format!("the top value is {}", value.describe()),
    };
    Wrong::byte(
        0,
        found,
        "a memory snapshot: a dict with segments and device_traces, or a list of segments",
    )
}
