//! Csv: the plain text trace, `a,<id>,<bytes>,<stream>[,<tag>]`, `f,<id>`, `r,<id>,<stream>`, `e`,
//! `m,<text>`.
//!
//! It holds requests only, those that failed among them. What it has no row for is left out
//! (segments, whose recorded life a replay does not need; private pools, said once). A free becomes
//! `f` where the client asked for it; if its memory became reusable only later, and no row says
//! which stream held it, an `r` on another stream comes before.

use std::io::{self, Write};

use blockyard::trace::{DeviceTrace, Event, Kind, NO_ALLOCATION, Recording, StackId};
use blockyard::vocab::StreamId;

/// Writes one device's trace. O(events).
pub fn write(recording: &Recording, device: &DeviceTrace, out: &mut impl Write) -> io::Result<()> {
    let mut writer = Writer {
        recording,
        out: io::BufWriter::with_capacity(1 << 16, out),
        blocks: vec![Block::default(); device.allocations as usize],
        labels: vec![None; recording.stacks.stacks.len()],
        failures: 0,
    };
    writeln!(
        writer.out,
        "# rows: a,<id>,<bytes>,<stream>[,<tag>] | f,<id> | r,<id>,<stream> | e | m,<text>"
    )?;
    if device.events.iter().any(|event| event.pool.0 != 0 && event.kind == Kind::Alloc) {
        writeln!(writer.out, "# private pools are left out: all requests are to the default pool")?;
    }
    for (index, event) in device.events.iter().enumerate() {
        writer.event(event, &device.events[index + 1..])?;
    }
    writer.out.flush()
}

/// What is known of one allocation.
#[derive(Clone, Copy, Default)]
struct Block {
    stream: StreamId,
    live: bool,
    /// A row says that another stream uses it.
    used: bool,
}

struct Writer<'a, W: Write> {
    recording: &'a Recording,
    out: io::BufWriter<W>,
    blocks: Vec<Block>,
    /// Labels of stacks, each made once.
    labels: Vec<Option<String>>,
    failures: u64,
}

impl<W: Write> Writer<'_, W> {
    fn event(&mut self, event: &Event, later: &[Event]) -> io::Result<()> {
        match event.kind {
            Kind::Alloc => self.alloc(event),
            Kind::Free => self.free(event, false),
            Kind::FreeRequested => self.free(event, !completes_at_once(event, later)),
            Kind::FreeCompleted => self.free(event, false),
            Kind::Use => self.used(event),
            Kind::EmptyCache => writeln!(self.out, "e"),
            Kind::EmptyCacheMarker => writeln!(self.out, "m,empty_cache"),
            Kind::Oom => self.failed(event),
            Kind::Marker => {
                let text = self.recording.markers.get(event.stack.0 as usize);
                writeln!(self.out, "m,{}", one_line(text.map_or("", String::as_str)))
            }
            Kind::SegmentAlloc
            | Kind::SegmentFree
            | Kind::Trim
            | Kind::Retire
            | Kind::CaptureBegin
            | Kind::CaptureEnd
            | Kind::Limit
            | Kind::RangeAlloc
            | Kind::RangeFree
            | Kind::Passed
            | Kind::SegmentMap
            | Kind::SegmentUnmap
            | Kind::Snapshot
            | Kind::Other => Ok(()),
        }
    }

    fn alloc(&mut self, event: &Event) -> io::Result<()> {
        let (id, stream) = (event.allocation, event.stream);
        let Some(block) = self.blocks.get_mut(id as usize) else { return Ok(()) };
        *block = Block { stream, live: true, used: false };
        write!(self.out, "a,{id},{},{}", event.bytes, self.name(stream))?;
        let tag = self.label(event.stack);
        if !tag.is_empty() {
            write!(self.out, ",{tag}")?;
        }
        writeln!(self.out)
    }

    /// A request that failed is a request: under the same capacity a replay fails at it too.
    fn failed(&mut self, event: &Event) -> io::Result<()> {
        let id = self.blocks.len() as u64 + self.failures;
        self.failures += 1;
        writeln!(
            self.out,
            "# the next request failed with {} bytes free on the device",
            event.address
        )?;
        let stream = self.name(event.stream);
        writeln!(self.out, "a,{id},{},{stream},out of memory", event.bytes)
    }

    /// The file's own number of a stream.
    fn name(&self, stream: StreamId) -> u64 {
        let named = self.recording.streams.get(stream.0 as usize);
        named.copied().unwrap_or(u64::from(stream.0))
    }

    fn free(&mut self, event: &Event, pending: bool) -> io::Result<()> {
        let id = event.allocation;
        let Some(block) = self.blocks.get_mut(id as usize).filter(|block| block.live) else {
            return Ok(());
        };
        block.live = false;
        if pending && !block.used {
            writeln!(self.out, "r,{id},{}", another(block.stream))?;
        }
        writeln!(self.out, "f,{id}")
    }

    fn used(&mut self, event: &Event) -> io::Result<()> {
        let id = event.allocation;
        let Some(block) = self.blocks.get_mut(id as usize).filter(|block| block.live) else {
            return Ok(());
        };
        block.used |= block.stream != event.stream;
        writeln!(self.out, "r,{id},{}", self.name(event.stream))
    }

    fn label(&mut self, id: StackId) -> String {
        let Some(slot) = self.labels.get_mut(id.0 as usize) else { return String::new() };
        let stacks = &self.recording.stacks;
        slot.get_or_insert_with(|| one_line(&stacks.label(id))).clone()
    }
}

/// Whether the memory is reusable as soon as the client gave it back.
fn completes_at_once(event: &Event, later: &[Event]) -> bool {
    let next = later.iter().find(|later| later.kind.counts());
    next.is_some_and(|next| {
        next.kind == Kind::FreeCompleted
            && next.allocation == event.allocation
            && event.allocation != NO_ALLOCATION
    })
}

/// A stream other than this one.
fn another(stream: StreamId) -> u32 {
    u32::from(stream.0 == 0)
}

/// The text without line breaks.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: Kind, allocation: u32) -> Event {
        Event { allocation, bytes: 100, ..Event::new(kind) }
    }

    fn rows(recording: &Recording, device: &DeviceTrace) -> Vec<String> {
        let mut text = Vec::new();
        write(recording, device, &mut text).expect("written");
        let text = String::from_utf8(text).expect("text");
        text.lines().skip(1).map(str::to_owned).collect()
    }

    #[test]
    fn requests_become_rows() {
        let mut recording = Recording { markers: vec!["step\n0".into()], ..Recording::default() };
        let stack = recording.stacks.tag("f:mm@a,b");
        let events = vec![
            Event { stack, stream: StreamId(2), ..event(Kind::Alloc, 0) },
            Event { stack: StackId(0), ..Event::new(Kind::Marker) },
            Event { stream: StreamId(1), ..event(Kind::Use, 0) },
            event(Kind::Free, 0),
            event(Kind::SegmentAlloc, NO_ALLOCATION),
            Event::new(Kind::EmptyCache),
            Event { address: 7, ..event(Kind::Oom, NO_ALLOCATION) },
            event(Kind::Free, NO_ALLOCATION),
        ];
        let device = DeviceTrace { events, allocations: 1, ..DeviceTrace::default() };
        let expected = [
            "a,0,100,2,f:mm@a,b",
            "m,step 0",
            "r,0,1",
            "f,0",
            "e",
            "# the next request failed with 7 bytes free on the device",
            "a,1,100,0,out of memory",
        ];
        assert_eq!(rows(&recording, &device), expected);
    }

    #[test]
    fn a_late_completion_shows_as_a_use_by_another_stream() {
        let events = vec![
            event(Kind::Alloc, 0),
            event(Kind::Alloc, 1),
            event(Kind::Alloc, 2),
            event(Kind::FreeRequested, 0),
            event(Kind::FreeCompleted, 0),
            event(Kind::FreeRequested, 1),
            event(Kind::Alloc, 3),
            event(Kind::FreeCompleted, 1),
            event(Kind::FreeCompleted, 2),
            event(Kind::FreeRequested, 3),
        ];
        let device = DeviceTrace { events, allocations: 4, ..DeviceTrace::default() };
        let rows = rows(&Recording::default(), &device);
        let expected = [
            "a,0,100,0",
            "a,1,100,0",
            "a,2,100,0",
            "f,0",
            "r,1,1",
            "f,1",
            "a,3,100,0",
            "f,2",
            "r,3,1",
            "f,3",
        ];
        assert_eq!(rows, expected);
    }
}
