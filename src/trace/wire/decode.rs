//! Decode: from lines to a recording.
//!
//! The common path parses each line straight into its type; only a line that does not fit is looked
//! at again ([`diagnose`]) to say which key was wrong. Every number that points somewhere is
//! checked, so that what comes out can be trusted: streams, pools, stacks and markers exist,
//! allocations are below their count.

mod diagnose;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::recording::{
    DeviceTrace, Event, FinalBlock, FinalSegment, Frame, Kind, NO_ALLOCATION, Notice, Recording,
    Stack, StackId,
};
use super::{
    EventRecord, Header, KINDS, MAGIC, Malformed, RECORDS, Record, STATES, SegmentRecord, VERSION,
    class, looks_like, meaning,
};
use crate::vocab::{Class, PoolId, StreamId};

/// Streams and pools that the header does not list may be numbered up to this.
const UNLISTED: u32 = 1 << 16;

/// Allocation numbers may be this far beyond the number of events (a shortened trace keeps its
/// numbers).
const SPARE_ALLOCATIONS: u64 = 1 << 24;

/// Reads a trace. O(its size).
pub fn decode(bytes: &[u8]) -> Result<Recording, Malformed> {
    let mut decoder: Option<Decoder> = None;
    for (index, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let (number, whole) = (index + 1, line.ends_with(b"\n"));
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        match &mut decoder {
            None => decoder = Some(Decoder::new(text, number)?),
            Some(_) if !whole && torn(text) => break,
            Some(decoder) => decoder.line(text, number)?,
        }
    }
    let Some(decoder) = decoder else { return Err(no_header(1, "an empty file")) };
    decoder.finish()
}

/// A last line that was cut in the middle.
fn torn(text: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).is_err_and(|error| error.is_eof())
}

fn no_header(line: usize, found: &str) -> Malformed {
    Malformed {
        line,
        field: None,
        found: found.to_owned(),
        expected: format!("a header like {{\"{MAGIC}\":{VERSION}}}"),
    }
}

/// The kind of any record, without the rest.
#[derive(Deserialize)]
struct KindOnly<'a> {
    #[serde(borrow, default)]
    k: Cow<'a, str>,
}

struct Decoder {
    recording: Recording,
    /// Index of the device whose records are being read.
    device: usize,
    /// Whether the header lists streams and pools.
    lists_streams: bool,
    lists_pools: bool,
    /// The file's numbers of frames and stacks -> ours.
    frames: Vec<u32>,
    stacks: Vec<StackId>,
    /// The line that names the largest allocation.
    highest: Vec<usize>,
    /// Unknown kinds: first line and how often.
    unknown: BTreeMap<String, (usize, u64)>,
    events: u64,
    ended: bool,
}

impl Decoder {
    fn new(text: &[u8], line: usize) -> Result<Self, Malformed> {
        if !looks_like(text) {
            return Err(no_header(line, &diagnose::shortened(&String::from_utf8_lossy(text))));
        }
        refuse_newer(text, line)?;
        let header: Header =
            serde_json::from_slice(text).map_err(|error| diagnose::explain(text, line, &error))?;
        let device = |listed: &super::HeaderDevice| DeviceTrace {
            device: listed.device,
            allocations: listed.allocations,
            ids: listed.ids.clone(),
            ..DeviceTrace::default()
        };
        let mut devices: Vec<_> = header.devices.iter().map(device).collect();
        if devices.is_empty() {
            devices.push(DeviceTrace::default());
        }
        let format = match header.format.is_empty() {
            true => "blockyard-trace".to_owned(),
            false => header.format,
        };
        Ok(Self {
            device: 0,
            lists_streams: !header.streams.is_empty(),
            lists_pools: !header.pools.is_empty(),
            frames: Vec::new(),
            stacks: vec![StackId(0)],
            highest: vec![line; devices.len()],
            unknown: BTreeMap::new(),
            events: 0,
            ended: false,
            recording: Recording {
                format,
                devices,
                settings: header.settings,
                settings_detail: header.settings_detail,
                streams: header.streams,
                pools: header.pools,
                has_pool_ids: header.has_pool_ids,
                says_inputs: header.says_inputs,
                ..Recording::default()
            },
        })
    }

    fn line(&mut self, text: &[u8], line: usize) -> Result<(), Malformed> {
        if self.ended {
            return Err(Malformed {
                line,
                field: None,
                found: diagnose::shortened(&String::from_utf8_lossy(text)),
                expected: "nothing after the end record".to_owned(),
            });
        }
        let explain = |error: &serde_json::Error| diagnose::explain(text, line, error);
        let k = kind_of(text).map_err(|error| explain(&error))?;
        if let Some(kind) = meaning(&KINDS, &k) {
            let record = serde_json::from_slice(text).map_err(|error| explain(&error))?;
            return self.event(kind, record, line);
        }
        if RECORDS.contains(&&*k) {
            let record = serde_json::from_slice(text).map_err(|error| explain(&error))?;
            return self.record(record, line);
        }
        if k.is_empty() {
            return Err(wrong(line, "k", "nothing", "the kind of the record"));
        }
        self.unknown.entry(diagnose::shortened(&k)).or_insert((line, 0)).1 += 1;
        Ok(())
    }

    fn event(&mut self, kind: Kind, r: EventRecord<'_>, line: usize) -> Result<(), Malformed> {
        if kind == Kind::Alloc && r.bytes.is_none() {
            return Err(wrong(line, "bytes", "nothing", diagnose::WHOLE));
        }
        if kind == Kind::Alloc && r.id == NO_ALLOCATION {
            return Err(wrong(line, "id", "nothing", "the allocation's number"));
        }
        if !matches!(kind, Kind::Oom | Kind::Other | Kind::Marker) {
            ends(line, r.addr, r.bytes.unwrap_or_default().max(r.extent))?;
        }
        let stack = match kind {
            Kind::Marker => self.marker(&r, line)?,
            _ => self.stack(r.stack, line)?,
        };
        let event = Event {
            address: r.addr,
            bytes: r.bytes.unwrap_or_default(),
            allocation: r.id,
            stream: self.stream(r.stream, line)?,
            pool: self.pool(r.pool, line)?,
            stack,
            extent: r.extent,
            order: r.order,
            class: r.class.map(|text| side(line, &text)).transpose()?,
            line: r.line,
            time_us: r.us,
            kind,
        };
        let device = &mut self.recording.devices[self.device];
        if r.id != NO_ALLOCATION && r.id >= device.allocations {
            device.allocations = r.id + 1;
            self.highest[self.device] = line;
        }
        device.events.push(event);
        self.events += u64::from(kind.counts());
        Ok(())
    }

    fn marker(&mut self, r: &EventRecord<'_>, line: usize) -> Result<StackId, Malformed> {
        let known = self.recording.markers.len() as u32;
        match r.again {
            Some(index) => below(line, "again", index, known).map(StackId),
            None => {
                let text = r.text.as_deref().unwrap_or_default();
                self.recording.markers.push(text.to_owned());
                Ok(StackId(known))
            }
        }
    }

    fn record(&mut self, record: Record, line: usize) -> Result<(), Malformed> {
        match record {
            Record::Device { i } => {
                self.device = below(line, "i", i, self.recording.devices.len() as u32)? as usize;
            }
            Record::Frame { i, name, file, line: at } => {
                next(line, i, self.frames.len())?;
                let frame = Frame { name, file, line: at };
                self.frames.push(self.recording.stacks.frame(frame));
            }
            Record::Stack { i, tag, frames } => {
                next(line, i, self.stacks.len())?;
                let known = self.frames.len() as u32;
                let ours = |frame| below(line, "frames", frame, known).map(|at| at as usize);
                let frames = frames.into_iter().map(|frame| Ok(self.frames[ours(frame)?]));
                let frames = frames.collect::<Result<_, _>>()?;
                self.stacks.push(self.recording.stacks.stack(Stack { tag, frames }));
            }
            Record::MarkerText { text } => self.recording.markers.push(text),
            Record::Segment(segment) => self.segment(segment, line)?,
            Record::Notice { code, text } => {
                self.recording.notices.push(Notice { code: code.into(), text });
            }
            Record::End { events } if events == self.events => self.ended = true,
            Record::End { events } => {
                let expected = format!("{} (the events that precede it)", self.events);
                return Err(wrong(line, "events", &events.to_string(), &expected));
            }
        }
        Ok(())
    }

    fn segment(&mut self, r: SegmentRecord, line: usize) -> Result<(), Malformed> {
        let mut blocks = Vec::with_capacity(r.blocks.len());
        for block in r.blocks {
            let Some(state) = meaning(&STATES, &block.state) else {
                return Err(wrong(
                    line,
                    "state",
                    &diagnose::quoted(&block.state),
                    &one_of(&STATES),
                ));
            };
            ends(line, block.addr, block.bytes)?;
            let stack = self.stack(block.stack, line)?;
            let (address, bytes, requested) = (block.addr, block.bytes, block.requested);
            blocks.push(FinalBlock { address, bytes, requested, state, stack });
        }
        let class = side(line, &r.class)?;
        ends(line, r.addr, r.bytes)?;
        let (start, length) = r.range.unwrap_or_default();
        ends(line, start, length)?;
        let segment = FinalSegment {
            address: r.addr,
            bytes: r.bytes,
            stream: self.stream(r.stream, line)?,
            pool: self.pool(r.pool, line)?,
            class,
            expandable: r.expandable,
            range: r.range,
            order: r.order,
            stack: self.stack(r.stack, line)?,
            blocks,
        };
        self.recording.devices[self.device].segments.push(segment);
        Ok(())
    }

    fn stack(&self, id: u32, line: usize) -> Result<StackId, Malformed> {
        match self.stacks.get(id as usize) {
            Some(&ours) => Ok(ours),
            None => below(line, "stack", id, self.stacks.len() as u32).map(StackId),
        }
    }

    fn stream(&mut self, number: u32, line: usize) -> Result<StreamId, Malformed> {
        let streams = &mut self.recording.streams;
        if !self.lists_streams && number < UNLISTED {
            streams.extend(streams.len() as u64..=u64::from(number));
        }
        below(line, "stream", number, streams.len() as u32).map(StreamId)
    }

    fn pool(&mut self, number: u32, line: usize) -> Result<PoolId, Malformed> {
        let pools = &mut self.recording.pools;
        if !self.lists_pools && number < UNLISTED {
            pools.extend((pools.len() as u64..=u64::from(number)).map(|name| (0, name)));
        }
        below(line, "pool", number, pools.len() as u32).map(PoolId)
    }

    fn finish(mut self) -> Result<Recording, Malformed> {
        for (device, &line) in self.recording.devices.iter().zip(&self.highest) {
            let most = device.events.len() as u64 + SPARE_ALLOCATIONS;
            if u64::from(device.allocations) > most {
                let last = device.allocations - 1;
                let expected = "allocations numbered densely from 0";
                return Err(wrong(line, "id", &last.to_string(), expected));
            }
        }
        if !self.unknown.is_empty() {
            let text = skipped(&self.unknown);
            self.recording.notice("skipped-record", text);
        }
        if !self.ended {
            let text = "the trace ends without its end record: it may have been cut short";
            self.recording.notice("cut-short", text);
        }
        Ok(self.recording)
    }
}

/// Every key that the reader knows, for the test that holds it to the schema.
#[cfg(test)]
pub(super) fn known_keys() -> impl Iterator<Item = &'static str> {
    diagnose::KEYS.iter().map(|(key, _)| *key)
}

/// The kind of a record; empty if it has none.
fn kind_of(text: &[u8]) -> Result<Cow<'_, str>, serde_json::Error> {
    if let Some(rest) = text.strip_prefix(b"{\"k\":\"") {
        let end = rest.iter().take(32).position(|byte| !matches!(byte, b'a'..=b'z' | b'_'));
        let word = end.filter(|&end| rest[end] == b'"').map(|end| &rest[..end]);
        if let Some(word) = word.and_then(|word| std::str::from_utf8(word).ok()) {
            return Ok(Cow::Borrowed(word));
        }
    }
    serde_json::from_slice::<KindOnly<'_>>(text).map(|only| only.k)
}

/// A newer version is refused by name, whatever else its header holds.
fn refuse_newer(text: &[u8], line: usize) -> Result<(), Malformed> {
    #[derive(Deserialize)]
    struct VersionOnly {
        blockyard_trace: u64,
    }
    match serde_json::from_slice::<VersionOnly>(text) {
        Ok(only) if (1..=VERSION).contains(&only.blockyard_trace) => Ok(()),
        Ok(only) => {
            let expected = format!("at most {VERSION} (a newer blockyard wrote this trace)");
            let expected = if only.blockyard_trace == 0 { "1".to_owned() } else { expected };
            Err(wrong(line, MAGIC, &only.blockyard_trace.to_string(), &expected))
        }
        Err(error) => Err(diagnose::explain(text, line, &error)),
    }
}

fn skipped(unknown: &BTreeMap<String, (usize, u64)>) -> String {
    let count: u64 = unknown.values().map(|(_, count)| count).sum();
    let first = unknown.values().map(|(line, _)| *line).min().unwrap_or_default();
    let mut names: Vec<_> = unknown.keys().take(4).map(|name| format!("\"{name}\"")).collect();
    if unknown.len() > names.len() {
        names.push("...".to_owned());
    }
    let names = names.join(", ");
    format!("records of unknown kinds were skipped: {count} ({names}), the first in line {first}")
}

fn wrong(line: usize, field: &str, found: &str, expected: &str) -> Malformed {
    Malformed {
        line,
        field: Some(field.to_owned()),
        found: found.to_owned(),
        expected: expected.to_owned(),
    }
}

fn below(line: usize, field: &str, found: u32, count: u32) -> Result<u32, Malformed> {
    let expected = || format!("a number below {count}, as the lines before define it");
    match found < count {
        true => Ok(found),
        false => Err(wrong(line, field, &found.to_string(), &expected())),
    }
}

fn ends(line: usize, address: u64, bytes: u64) -> Result<(), Malformed> {
    match address.checked_add(bytes) {
        Some(_) => Ok(()),
        None => Err(wrong(line, "bytes", &bytes.to_string(), "address and bytes below 2^64")),
    }
}

fn next(line: usize, found: u32, count: usize) -> Result<(), Malformed> {
    match found as usize == count {
        true => Ok(()),
        false => Err(wrong(line, "i", &found.to_string(), &format!("{count}, the next number"))),
    }
}

fn side(line: usize, text: &str) -> Result<Class, Malformed> {
    class(text).ok_or_else(|| wrong(line, "class", &diagnose::quoted(text), "small or large"))
}

fn one_of<T>(table: &[(T, &str)]) -> String {
    let names: Vec<_> = table.iter().map(|(_, name)| *name).collect();
    format!("one of {}", names.join(", "))
}
