//! Encode: from a recording to lines.
//!
//! Frames and stacks are written in the order of their numbers, each at the latest before the first
//! line that names it, so that a reader of a cut file can resolve everything it has.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;

use super::super::recording::{DeviceTrace, Event, FinalSegment, Kind, Recording};
use super::{
    BlockRecord, EventRecord, Header, HeaderDevice, KINDS, Record, STATES, SegmentRecord, VERSION,
    spelling,
};

/// Writes the recording, one record a line. O(its size). Fails if the writer does, or with
/// [`io::ErrorKind::InvalidInput`] if an event names a stack or a marker that the recording lacks.
pub fn encode(recording: &Recording, out: &mut impl Write) -> io::Result<()> {
    let mut encoder =
        Encoder { recording, out, buffer: Vec::new(), frames: 0, stacks: 1, markers: 0 };
    encoder.put(&header(recording))?;
    for (index, device) in recording.devices.iter().enumerate() {
        if index > 0 {
            encoder.put(&Record::Device { i: index as u32 })?;
        }
        for event in &device.events {
            encoder.event(event)?;
        }
        for segment in &device.segments {
            encoder.segment(segment)?;
        }
    }
    encoder.rest()
}

struct Encoder<'a, W> {
    recording: &'a Recording,
    out: &'a mut W,
    buffer: Vec<u8>,
    /// How many frames, stacks and markers are written.
    frames: usize,
    stacks: usize,
    markers: usize,
}

/// Lines are gathered up to this many bytes before they are written.
const CHUNK: usize = 1 << 16;

impl<W: Write> Encoder<'_, W> {
    fn put(&mut self, record: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.buffer, record)?;
        self.buffer.push(b'\n');
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        let mut record = EventRecord {
            k: Cow::Borrowed(spelling(&KINDS, event.kind)),
            id: event.allocation,
            bytes: (event.bytes != 0 || event.kind == Kind::Alloc).then_some(event.bytes),
            addr: event.address,
            stream: event.stream.0,
            pool: event.pool.0,
            stack: 0,
            text: None,
            again: None,
            extent: event.extent,
            order: event.order,
            class: event.class.map(|class| Cow::Borrowed(class.name())),
            line: event.line,
            us: event.time_us,
        };
        if event.kind == Kind::Marker {
            self.marker(event.stack.0, &mut record)?;
        } else {
            self.stacks_through(event.stack.0)?;
            record.stack = event.stack.0;
        }
        self.put(&record)
    }

    fn marker(&mut self, index: u32, record: &mut EventRecord<'_>) -> io::Result<()> {
        let wanted = index as usize;
        let Some(text) = self.recording.markers.get(wanted) else {
            return Err(dangling("marker", index));
        };
        if wanted < self.markers {
            record.again = Some(index);
            return Ok(());
        }
        self.markers_before(wanted)?;
        record.text = Some(Cow::Owned(text.clone()));
        self.markers = wanted + 1;
        Ok(())
    }

    fn markers_before(&mut self, end: usize) -> io::Result<()> {
        while self.markers < end {
            let text = self.recording.markers[self.markers].clone();
            self.put(&Record::MarkerText { text })?;
            self.markers += 1;
        }
        Ok(())
    }

    fn stacks_through(&mut self, id: u32) -> io::Result<()> {
        if (id as usize) < self.stacks {
            return Ok(());
        }
        if id as usize >= self.recording.stacks.stacks.len() {
            return Err(dangling("stack", id));
        }
        while self.stacks <= id as usize {
            let stack = &self.recording.stacks.stacks[self.stacks];
            if let Some(&last) = stack.frames.iter().max() {
                self.frames_through(last)?;
            }
            let (tag, frames) = (stack.tag.clone(), stack.frames.clone());
            self.put(&Record::Stack { i: self.stacks as u32, tag, frames })?;
            self.stacks += 1;
        }
        Ok(())
    }

    fn frames_through(&mut self, id: u32) -> io::Result<()> {
        if id as usize >= self.recording.stacks.frames.len() {
            return Err(dangling("frame", id));
        }
        while self.frames <= id as usize {
            let frame = self.recording.stacks.frames[self.frames].clone();
            let i = self.frames as u32;
            self.put(&Record::Frame { i, name: frame.name, file: frame.file, line: frame.line })?;
            self.frames += 1;
        }
        Ok(())
    }

    fn segment(&mut self, segment: &FinalSegment) -> io::Result<()> {
        self.stacks_through(segment.stack.0)?;
        let mut blocks = Vec::with_capacity(segment.blocks.len());
        for block in &segment.blocks {
            self.stacks_through(block.stack.0)?;
            blocks.push(BlockRecord {
                addr: block.address,
                bytes: block.bytes,
                requested: block.requested,
                state: spelling(&STATES, block.state).to_owned(),
                stack: block.stack.0,
            });
        }
        self.put(&Record::Segment(SegmentRecord {
            addr: segment.address,
            bytes: segment.bytes,
            stream: segment.stream.0,
            pool: segment.pool.0,
            class: segment.class.name().to_owned(),
            expandable: segment.expandable,
            range: segment.range,
            order: segment.order,
            stack: segment.stack.0,
            blocks,
        }))
    }

    /// What no event named, the notices and the end.
    fn rest(mut self) -> io::Result<()> {
        let stacks = &self.recording.stacks;
        if let Some(last) = stacks.stacks.len().checked_sub(1) {
            self.stacks_through(last as u32)?;
        }
        if let Some(last) = stacks.frames.len().checked_sub(1) {
            self.frames_through(last as u32)?;
        }
        self.markers_before(self.recording.markers.len())?;
        for notice in &self.recording.notices {
            let (code, text) = (notice.code.to_string(), notice.text.clone());
            self.put(&Record::Notice { code, text })?;
        }
        self.put(&Record::End { events: self.recording.event_count() as u64 })?;
        self.flush()
    }
}

fn header(recording: &Recording) -> Header {
    let device = |trace: &DeviceTrace| HeaderDevice {
        device: trace.device,
        allocations: trace.allocations,
        ids: trace.ids.clone(),
    };
    Header {
        blockyard_trace: VERSION,
        format: recording.format.clone(),
        devices: recording.devices.iter().map(device).collect(),
        settings: recording.settings.clone(),
        settings_detail: recording.settings_detail.clone(),
        streams: recording.streams.clone(),
        pools: recording.pools.clone(),
        has_pool_ids: recording.has_pool_ids,
        says_inputs: recording.says_inputs,
    }
}

fn dangling(what: &str, id: u32) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("the recording names {what} {id} but does not have it"),
    )
}
