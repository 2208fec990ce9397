//! Build: from the heap's view, or a recording's last segments, and events to a snapshot.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::recording::{
    Event, FinalBlock, FinalSegment, Frame, Interner, Kind, Recording, Stack, StackId,
};
use super::{Annotation, Block, Frames, Origin, Segment, Setting, Settings, Snapshot, TraceEntry};
use crate::vocab::{
    Address, BlockState, BlockView, HeapView, PoolId, SegmentView, StreamId, Ticket,
};

/// The file of the one frame by which a tag without call stack is shown: viewers show frames only.
pub const TAG_FILE: &str = "<tag>";

/// Device numbers from here on are not padded for with empty histories, but refused.
const DEVICES: u32 = 1 << 10;

/// What the numbers in views and events stand for.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// Call stacks and tags.
    pub stacks: &'a Interner,
    /// Names of streams.
    pub streams: &'a [u64],
    /// Names of pools.
    pub pools: &'a [(u64, u64)],
    /// Texts of markers.
    pub markers: &'a [String],
}

impl<'a> Names<'a> {
    /// The names in a recording.
    #[must_use]
    pub fn of(recording: &'a Recording) -> Self {
        Self {
            stacks: &recording.stacks,
            streams: &recording.streams,
            pools: &recording.pools,
            markers: &recording.markers,
        }
    }

    fn stream(&self, stream: StreamId) -> u64 {
        self.streams.get(stream.0 as usize).copied().unwrap_or(u64::from(stream.0))
    }

    fn pool(&self, pool: PoolId) -> (u64, u64) {
        self.pools.get(pool.0 as usize).copied().unwrap_or((0, u64::from(pool.0)))
    }
}

/// Gathers a snapshot, device by device.
pub struct Builder<'a> {
    names: Names<'a>,
    snapshot: Snapshot,
    frames: HashMap<u32, Arc<Frame>>,
    stacks: HashMap<StackId, (Arc<str>, Frames)>,
}

impl<'a> Builder<'a> {
    /// An empty snapshot.
    #[must_use]
    pub fn new(names: Names<'a>) -> Self {
        let snapshot = Snapshot {
            segments: Vec::new(),
            device_traces: Vec::new(),
            allocator_settings: Settings::default(),
            external_annotations: Vec::new(),
            blockyard: Origin { version: env!("CARGO_PKG_VERSION"), policy: None, at_event: None },
        };
        Self { names, snapshot, frames: HashMap::new(), stacks: HashMap::new() }
    }

    /// Which policy made the heap, and how many events of the recording precede the moment.
    #[must_use]
    pub fn origin(mut self, policy: Option<&str>, at_event: Option<u64>) -> Self {
        self.snapshot.blockyard.policy = policy.map(str::to_owned);
        self.snapshot.blockyard.at_event = at_event;
        self
    }

    /// Adds a setting. Setting a name again replaces it.
    pub fn setting(&mut self, name: &str, value: Setting) {
        let settings = &mut self.snapshot.allocator_settings.0;
        match settings.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => settings.push((name.to_owned(), value)),
        }
    }

    /// Adds the settings that a recording names.
    pub fn settings_of(&mut self, recording: &Recording) {
        if let Some(text) = &recording.settings {
            self.setting("PYTORCH_CUDA_ALLOC_CONF", Setting::Text(text.clone()));
        }
        for (name, text) in &recording.settings_detail {
            self.setting(name, Setting::parse(text));
        }
    }

    /// Adds a device's heap. `stack_of` knows where a live request was made. O(its blocks).
    pub fn view(&mut self, device: u32, view: &HeapView, stack_of: impl Fn(Ticket) -> StackId) {
        for segment in segments_of(view, stack_of) {
            self.segment(device, &segment);
        }
    }

    /// Adds one segment of a device. Unmapped blocks must have been taken out: see
    /// [`Builder::view`].
    pub fn segment(&mut self, device: u32, segment: &FinalSegment) {
        let total = |states: &[BlockState], size: fn(&FinalBlock) -> u64| -> u64 {
            let counted = segment.blocks.iter().filter(|block| states.contains(&block.state));
            counted.map(size).sum()
        };
        let active = [BlockState::Allocated, BlockState::AwaitingFree];
        let frames = self.stack(segment.stack).1;
        let blocks = segment.blocks.iter().filter_map(|block| self.block(block)).collect();
        self.snapshot.segments.push(Segment {
            device,
            address: segment.address,
            total_size: segment.bytes,
            allocated_size: total(&active[..1], |block| block.bytes),
            active_size: total(&active, |block| block.bytes),
            requested_size: total(&active, |block| block.requested),
            stream: self.names.stream(segment.stream),
            segment_type: segment.class.name(),
            segment_pool_id: self.names.pool(segment.pool),
            is_expandable: segment.expandable,
            frames,
            blocks,
        });
    }

    fn block(&mut self, block: &FinalBlock) -> Option<Block> {
        let state = match block.state {
            BlockState::Allocated => "active_allocated",
            BlockState::AwaitingFree => "active_pending_free",
            BlockState::Free => "inactive",
            BlockState::Unmapped => return None,
        };
        Some(Block {
            address: block.address,
            size: block.bytes,
            requested_size: block.requested,
            state,
            frames: self.stack(block.stack).1,
        })
    }

    /// Adds a device's history. Events that PyTorch's history has no word for (uses by other
    /// streams, emptied caches, requests of zero bytes) are left out. O(events).
    ///
    /// Fails if the device's number is absurd: the history's place in the snapshot is that number.
    pub fn history(&mut self, device: u32, events: &[Event]) -> Result<(), AbsurdDevice> {
        if device >= DEVICES {
            return Err(AbsurdDevice(device));
        }
        let mut entries = Vec::with_capacity(events.len());
        for event in events {
            match event.kind {
                kind if is_block(kind) && event.address == 0 => {}
                Kind::Marker => self.marker(device, event),
                Kind::Free => {
                    entries.push(self.entry("free_requested", event));
                    entries.push(self.entry("free_completed", event));
                }
                kind => entries.extend(action(kind).map(|action| self.entry(action, event))),
            }
        }
        let traces = &mut self.snapshot.device_traces;
        if traces.len() <= device as usize {
            traces.resize_with(device as usize + 1, Vec::new);
        }
        traces[device as usize].append(&mut entries);
        Ok(())
    }

    fn entry(&mut self, action: &'static str, event: &Event) -> TraceEntry {
        let (user_metadata, frames) = self.stack(event.stack);
        let oom = event.kind == Kind::Oom;
        TraceEntry {
            action,
            addr: (!oom).then_some(event.address),
            device_free: oom.then_some(event.address),
            size: event.bytes,
            stream: self.names.stream(event.stream),
            time_us: event.time_us,
            compile_context: "N/A",
            user_metadata,
            pool_id: self.names.pool(event.pool),
            frames,
        }
    }

    fn marker(&mut self, device: u32, event: &Event) {
        let name = self.names.markers.get(event.stack.0 as usize).cloned().unwrap_or_default();
        let time_us = event.time_us;
        let annotation = Annotation { name, stage: "START", device, time_us };
        self.snapshot.external_annotations.push(annotation);
    }

    /// The tag and the frames of a stack, each built once.
    fn stack(&mut self, id: StackId) -> (Arc<str>, Frames) {
        if let Some(known) = self.stacks.get(&id) {
            return known.clone();
        }
        let names = self.names;
        let unknown = Stack::default();
        let stack = names.stacks.stacks.get(id.0 as usize).unwrap_or(&unknown);
        let mut frames: Vec<_> = stack.frames.iter().filter_map(|&at| self.frame(at)).collect();
        if frames.is_empty() && !stack.tag.is_empty() {
            let (name, file) = (stack.tag.clone(), TAG_FILE.to_owned());
            frames.push(Arc::new(Frame { name, file, line: 0 }));
        }
        let built = (Arc::from(stack.tag.as_str()), Frames(Arc::new(frames)));
        self.stacks.insert(id, built.clone());
        built
    }

    fn frame(&mut self, index: u32) -> Option<Arc<Frame>> {
        let frame = self.names.stacks.frames.get(index as usize)?;
        Some(self.frames.entry(index).or_insert_with(|| Arc::new(frame.clone())).clone())
    }

    /// The snapshot, its segments by device and address.
    #[must_use]
    pub fn finish(mut self) -> Snapshot {
        let last = self.snapshot.segments.iter().map(|segment| segment.device as usize + 1).max();
        let devices = last.unwrap_or_default().min(DEVICES as usize);
        let traces = &mut self.snapshot.device_traces;
        traces.resize_with(devices.max(traces.len()), Vec::new);
        self.snapshot.segments.sort_by_key(|segment| (segment.device, segment.address));
        self.snapshot
    }
}

/// A device number that no machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbsurdDevice(pub u32);

impl std::fmt::Display for AbsurdDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "device {} has no place in a snapshot, which holds at most {DEVICES}", self.0)
    }
}

impl std::error::Error for AbsurdDevice {}

/// Whether events of this kind are about a block.
fn is_block(kind: Kind) -> bool {
    matches!(kind, Kind::Alloc | Kind::Free | Kind::FreeRequested | Kind::FreeCompleted)
}

/// PyTorch's word for events of this kind, if it has one.
fn action(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Alloc => "alloc",
        Kind::FreeRequested => "free_requested",
        Kind::FreeCompleted => "free_completed",
        Kind::SegmentAlloc => "segment_alloc",
        Kind::SegmentFree => "segment_free",
        Kind::SegmentMap => "segment_map",
        Kind::SegmentUnmap => "segment_unmap",
        Kind::Oom => "oom",
        Kind::Snapshot => "snapshot",
        Kind::Free
        | Kind::Use
        | Kind::EmptyCache
        | Kind::EmptyCacheMarker
        | Kind::Trim
        | Kind::Retire
        | Kind::CaptureBegin
        | Kind::CaptureEnd
        | Kind::Limit
        | Kind::RangeAlloc
        | Kind::RangeFree
        | Kind::Passed
        | Kind::Marker
        | Kind::Other => return None,
    })
}

/// The segments of a view, of page-mapped ones each mapped range.
pub(in crate::trace) fn segments_of(
    view: &HeapView,
    stack_of: impl Fn(Ticket) -> StackId,
) -> Vec<FinalSegment> {
    let ranges =
        view.segments.iter().flat_map(|segment| mapped_ranges(segment).map(move |r| (segment, r)));
    ranges.map(|(segment, range)| final_segment(segment, range, &stack_of)).collect()
}

/// The runs of blocks that have memory.
fn mapped_ranges(segment: &SegmentView) -> impl Iterator<Item = &[BlockView]> {
    let unmapped = |block: &BlockView| block.state == BlockState::Unmapped;
    segment.blocks.split(unmapped).filter(|range| !range.is_empty())
}

fn final_segment(
    segment: &SegmentView,
    range: &[BlockView],
    stack_of: &impl Fn(Ticket) -> StackId,
) -> FinalSegment {
    let block = |block: &BlockView| FinalBlock {
        address: block.address.0,
        bytes: block.bytes,
        requested: block.requested,
        state: block.state,
        stack: match block.state {
            BlockState::Allocated | BlockState::AwaitingFree => stack_of(block.ticket),
            BlockState::Free | BlockState::Unmapped => StackId(0),
        },
    };
    let Address(address) = range.first().map_or(segment.base, |first| first.address);
    FinalSegment {
        address,
        bytes: range.iter().map(|block| block.bytes).sum(),
        stream: segment.stream,
        pool: segment.pool,
        class: segment.class,
        expandable: segment.expandable,
        range: segment.expandable.then_some((segment.base.0, segment.bytes)),
        order: u32::try_from(segment.order).unwrap_or(u32::MAX),
        stack: StackId(0),
        blocks: range.iter().map(block).collect(),
    }
}
