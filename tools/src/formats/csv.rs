//! CSV: blockyard's own text traces, `a,id,bytes,stream[,tag]`, `f,id`, `r,id,stream`, `e` and
//! `m,text`.
//!
//! Read as bytes and fast: a million events in a fraction of a second. Knows nothing of addresses.

use std::collections::HashMap;

use blockyard::trace::{DeviceTrace, Event, Kind, NO_ALLOCATION, Recording, StackId};
use blockyard::vocab::StreamId;

use super::error::{Wrong, quoted};
use super::numbers::Numbers;
use super::text::{Lines, is_silent, number};

const ROWS: &str = "a,ID,BYTES,STREAM[,TAG] or f,ID or r,ID,STREAM or e or m,TEXT";

/// Reads a text trace.
pub(crate) fn read(bytes: &[u8]) -> Result<Recording, Wrong> {
    let mut reader = Reader::new();
    for (line, text) in Lines::new(bytes) {
        if !is_silent(text) {
            reader.row(line, text)?;
        }
    }
    Ok(reader.finish())
}

/// Whether a line that says something looks like a row of this format.
pub(crate) fn is_row(line: &[u8]) -> bool {
    matches!(line, [b'e'] | [b'a' | b'f' | b'r' | b'm', b',', ..])
}

struct Reader<'a> {
    recording: Recording,
    trace: DeviceTrace,
    streams: Numbers<u64>,
    tags: HashMap<&'a [u8], StackId>,
    live: Live,
    /// The events at which the allocations were born.
    births: Vec<u32>,
    /// Their ids, kept from the first that is not the allocation's number.
    ids: Vec<u64>,
    unknown: u64,
    first_unknown: u32,
}

impl<'a> Reader<'a> {
    fn new() -> Self {
        Self {
            recording: Recording { format: "csv".into(), has_pool_ids: true, ..Default::default() },
            trace: DeviceTrace::default(),
            streams: Numbers::keeping_small(),
            tags: HashMap::new(),
            live: Live::default(),
            births: Vec::new(),
            ids: Vec::new(),
            unknown: 0,
            first_unknown: 0,
        }
    }

    #[inline]
    fn row(&mut self, line: u32, text: &'a [u8]) -> Result<(), Wrong> {
        match text {
            [b'a', b',', rest @ ..] => self.alloc(line, rest),
            [b'f', b',', rest @ ..] => self.free(line, rest),
            [b'r', b',', rest @ ..] => self.used(line, rest),
            [b'm', b',', rest @ ..] => self.marker(line, rest),
            [b'e'] => self.push(line, Event::new(Kind::EmptyCache)),
            _ => Err(Wrong::line(line, quoted(text), ROWS)),
        }
    }

    fn alloc(&mut self, line: u32, rest: &'a [u8]) -> Result<(), Wrong> {
        let short = || Wrong::line(line, "too few fields", "a,ID,BYTES,STREAM[,TAG]");
        let (id, rest) = field(rest).ok_or_else(short)?;
        let (size, rest) = field(rest).ok_or_else(short)?;
        let (stream, tag) = field(rest).unwrap_or((rest, b""));
        let id = number(id, "the id", line)?;
        let size = number(size, "the size", line)?;
        let stream = number(stream, "the stream", line)?;
        let allocation = self.births.len() as u32;
        if self.live.insert(id, allocation) {
            let found = format!("id {id} is allocated again before it is freed");
            return Err(Wrong::line(line, found, "a new id, or f,ID first"));
        }
        let at = u32::try_from(self.trace.events.len())
            .ok()
            .filter(|&at| at != NO_ALLOCATION)
            .ok_or_else(|| Wrong::line(line, "more than 4,294,967,294 events", "fewer"))?;
        self.births.push(at);
        if !self.ids.is_empty() {
            self.ids.push(id);
        } else if id != u64::from(allocation) {
            self.ids = (0..u64::from(allocation)).chain([id]).collect();
        }
        let event = Event {
            bytes: size,
            allocation,
            stream: StreamId(self.streams.number(stream)?),
            stack: self.tag(line, tag)?,
            ..Event::new(Kind::Alloc)
        };
        self.push(line, event)
    }

    fn free(&mut self, line: u32, rest: &[u8]) -> Result<(), Wrong> {
        if memchr::memchr(b',', rest).is_some() {
            return Err(Wrong::line(line, "too many fields", "f,ID"));
        }
        let id = number(rest, "the id", line)?;
        let allocation = self.live.remove(id);
        let event = match allocation {
            None => self.stranger(line, Kind::Free),
            Some(allocation) => {
                let born = self.birth(allocation);
                let Event { bytes, stream, .. } = born;
                Event { bytes, stream, allocation, ..Event::new(Kind::Free) }
            }
        };
        self.push(line, event)
    }

    fn used(&mut self, line: u32, rest: &[u8]) -> Result<(), Wrong> {
        let (id, stream) =
            field(rest).ok_or_else(|| Wrong::line(line, "too few fields", "r,ID,STREAM"))?;
        let id = number(id, "the id", line)?;
        let stream = StreamId(self.streams.number(number(stream, "the stream", line)?)?);
        let event = match self.live.get(id) {
            None => self.stranger(line, Kind::Use),
            Some(allocation) => {
                let bytes = self.birth(allocation).bytes;
                Event { bytes, allocation, ..Event::new(Kind::Use) }
            }
        };
        self.push(line, Event { stream, ..event })
    }

    fn marker(&mut self, line: u32, text: &[u8]) -> Result<(), Wrong> {
        if text == b"empty_cache" {
            return self.push(line, Event::new(Kind::EmptyCacheMarker));
        }
        let text = utf8(text, "the marker", line)?.to_string();
        let index = self.recording.markers.len() as u32;
        self.recording.markers.push(text);
        self.push(line, Event { stack: StackId(index), ..Event::new(Kind::Marker) })
    }

    fn push(&mut self, line: u32, event: Event) -> Result<(), Wrong> {
        self.trace.events.push(Event { line, ..event });
        Ok(())
    }

    fn birth(&self, allocation: u32) -> Event {
        self.trace.events[self.births[allocation as usize] as usize]
    }

    fn stranger(&mut self, line: u32, kind: Kind) -> Event {
        if self.unknown == 0 {
            self.first_unknown = line;
        }
        self.unknown += 1;
        Event::new(kind)
    }

    fn tag(&mut self, line: u32, tag: &'a [u8]) -> Result<StackId, Wrong> {
        if let Some(&id) = self.tags.get(tag) {
            return Ok(id);
        }
        let id = self.recording.stacks.tag(utf8(tag, "the tag", line)?);
        self.tags.insert(tag, id);
        Ok(id)
    }

    fn finish(mut self) -> Recording {
        if self.unknown > 0 {
            let Self { unknown, first_unknown, .. } = self;
            self.recording.notice(
                "unknown-free",
                format!(
                    "{unknown} frees or uses of ids that are not allocated, \
                     the first in line {first_unknown}; they are skipped"
                ),
            );
        }
        self.trace.allocations = self.births.len() as u32;
        self.trace.ids = self.ids;
        self.recording.streams = self.streams.into_names();
        self.recording.pools = vec![(0, 0)];
        self.recording.devices = vec![self.trace];
        self.recording
    }
}

/// The bytes up to the first comma, and those after it.
#[inline]
fn field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b',')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

fn utf8<'a>(bytes: &'a [u8], what: &str, line: u32) -> Result<&'a str, Wrong> {
    std::str::from_utf8(bytes).map_err(|_| {
        Wrong::line(line, format!("{what} {} is not UTF-8", quoted(bytes)), "UTF-8 text")
    })
}

/// Which ids are allocated. Ids are mostly small and only grow: those stand in a table; others in
/// a map.
#[derive(Default)]
struct Live {
    /// Allocation + 1 by id; 0: not allocated.
    table: Vec<u32>,
    rest: HashMap<u64, u32>,
    inserted: u64,
}

impl Live {
    /// Whether the id was already there.
    #[inline]
    fn insert(&mut self, id: u64, allocation: u32) -> bool {
        self.inserted += 1;
        // An id stays where it first was put, so the table never grows over one that is in the map.
        if id >= self.table.len() as u64 {
            if id > self.inserted * 4 + 1024 || self.rest.contains_key(&id) {
                return self.rest.insert(id, allocation).is_some();
            }
            let length = (id as usize + 1).max(self.table.len() * 2);
            self.table.resize(length, 0);
            return self.adopt(id, allocation);
        }
        std::mem::replace(&mut self.table[id as usize], allocation + 1) != 0
    }

    /// Puts an id in the table that has just grown to hold it, and moves those there that it now
    /// covers.
    fn adopt(&mut self, id: u64, allocation: u32) -> bool {
        if !self.rest.is_empty() {
            let length = self.table.len() as u64;
            let table = &mut self.table;
            self.rest.retain(|&id, allocation| {
                if id < length {
                    table[id as usize] = *allocation + 1;
                }
                id >= length
            });
        }
        std::mem::replace(&mut self.table[id as usize], allocation + 1) != 0
    }

    #[inline]
    fn get(&self, id: u64) -> Option<u32> {
        match self.table.get(id as usize) {
            Some(&slot) => slot.checked_sub(1),
            None => self.rest.get(&id).copied(),
        }
    }

    #[inline]
    fn remove(&mut self, id: u64) -> Option<u32> {
        match self.table.get_mut(id as usize) {
            Some(slot) => std::mem::take(slot).checked_sub(1),
            None => self.rest.remove(&id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_becomes_an_event() {
        let text = "# c\na,7,100,3,f:x,y\r\n\nr,7,0\nm,step 1\ne\nm,empty_cache\nf,7\na,7,0,0\n";
        let recording = read(text.as_bytes()).unwrap();
        let trace = &recording.devices[0];
        let kinds: Vec<Kind> = trace.events.iter().map(|event| event.kind).collect();
        use Kind::{Alloc, EmptyCache, EmptyCacheMarker, Free, Marker, Use};
        let expected = [Alloc, Use, Marker, EmptyCache, EmptyCacheMarker, Free, Alloc];
        assert_eq!(kinds, expected);
        assert_eq!(trace.ids, [7, 7], "the file's own numbers");
        assert_eq!(trace.allocations, 2);
        assert_eq!(recording.streams, [0, 1, 2, 3], "small numbers are kept");
        let alloc = trace.events[0];
        assert_eq!((alloc.line, alloc.bytes, alloc.stream), (2, 100, StreamId(3)));
        assert_eq!(recording.stacks.label(alloc.stack), "f:x,y");
        let free = trace.events[5];
        assert_eq!((free.allocation, free.bytes, free.line), (0, 100, 8));
        assert_eq!(recording.markers, ["step 1"]);
        assert!(recording.notices.is_empty());
    }

    #[test]
    fn strangers_are_counted_and_doubles_refused() {
        let recording = read(b"f,9\na,1,8,0\nr,3,0\n").unwrap();
        assert_eq!(recording.notices[0].code, "unknown-free");
        assert!(recording.notices[0].text.contains("2 frees or uses"));
        assert!(recording.notices[0].text.contains("line 1"));
        let error = read(b"a,1,8,0\na,1,8,0\n").unwrap_err().of("x").to_string();
        assert!(error.starts_with("x: line 2: id 1 is allocated again"), "{error}");
    }

    #[test]
    fn wild_ids_are_found_again_whichever_store_holds_them() {
        let mut live = Live::default();
        let mut twin = HashMap::new();
        let mut seed = 1u64;
        for step in 0..20_000u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let id = (seed >> 40) % if step % 3 == 0 { 60_000 } else { 3_000 };
            if seed >> 63 == 0 {
                assert_eq!(live.get(id), twin.get(&id).copied());
                assert_eq!(live.remove(id), twin.remove(&id));
            } else {
                assert_eq!(live.insert(id, step), twin.insert(id, step).is_some());
            }
        }
    }
}
