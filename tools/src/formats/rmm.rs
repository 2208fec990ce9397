//! RMM: the log that RAPIDS RMM's logging adaptor writes, `Thread,Time,Action,Pointer,Size,Stream`.
//!
//! Blocks are named by pointer. Streams are handles in hexadecimal (RMM's own reader takes them
//! all for 0).

use blockyard::trace::{DeviceTrace, Event, Kind, Recording};
use blockyard::vocab::StreamId;

use super::error::{Wrong, quoted};
use super::link::{Linked, link};
use super::numbers::Numbers;
use super::text::{Lines, decimal, is_silent, number, pointer};

const HEADER: [&str; 6] = ["Thread", "Time", "Action", "Pointer", "Size", "Stream"];
const DAY_US: u64 = 86_400_000_000;

/// Whether a first line is the header of such a log.
pub(crate) fn is_header(line: &[u8]) -> bool {
    let has = |name: &str| fields(line).any(|field| field == name.as_bytes());
    has("Action") && has("Pointer") && has("Size")
}

/// Reads a log.
pub(crate) fn read(bytes: &[u8]) -> Result<Recording, Wrong> {
    let mut lines = Lines::new(bytes).filter(|(_, text)| !is_silent(text));
    let (line, header) = lines.next().unwrap_or((1, b""));
    let mut log = Log::new(columns(line, header)?);
    for (line, text) in lines {
        log.row(line, text)?;
    }
    log.finish()
}

fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Where each column of [`HEADER`] stands.
fn columns(line: u32, header: &[u8]) -> Result<[usize; 6], Wrong> {
    let mut columns = [0; 6];
    for (column, name) in columns.iter_mut().zip(HEADER) {
        *column = fields(header).position(|field| field == name.as_bytes()).ok_or_else(|| {
            let found = format!("the header {} has no column {name}", quoted(header));
            Wrong::line(line, found, HEADER.join(","))
        })?;
    }
    Ok(columns)
}

struct Log {
    columns: [usize; 6],
    streams: Numbers<u64>,
    events: Vec<Event>,
    failures: u64,
    first_failure: u32,
    /// Microseconds of the days before, and the time of day of the last row.
    midnight: u64,
    last: u64,
}

impl Log {
    fn new(columns: [usize; 6]) -> Self {
        Self {
            columns,
            streams: Numbers::new(0),
            events: Vec::new(),
            failures: 0,
            first_failure: 0,
            midnight: 0,
            last: 0,
        }
    }

    fn row(&mut self, line: u32, text: &[u8]) -> Result<(), Wrong> {
        let mut row = [&b""[..]; 6];
        for (slot, &column) in row.iter_mut().zip(&self.columns) {
            *slot = fields(text).nth(column).ok_or_else(|| {
                Wrong::line(line, format!("too few fields in {}", quoted(text)), HEADER.join(","))
            })?;
        }
        let [_, time, action, address, size, stream] = row;
        let kind = match action {
            b"allocate" => Kind::Alloc,
            b"free" => Kind::Free,
            b"allocate failure" => Kind::Other,
            _ => {
                let found = format!("action {}", quoted(action));
                return Err(Wrong::line(line, found, "allocate, free or allocate failure"));
            }
        };
        if kind == Kind::Other {
            self.failures += 1;
            self.first_failure = if self.failures == 1 { line } else { self.first_failure };
        }
        let address = pointer(address, "the pointer", line)?;
        let bytes = number(size, "the size", line)?;
        let stream = StreamId(self.streams.number(stream_of(stream, line)?)?);
        let time_us = self.time(time, line)?;
        self.events.push(Event { address, bytes, stream, line, time_us, ..Event::new(kind) });
        Ok(())
    }

    /// Microseconds since the midnight before the first row; the log has only the time of day.
    fn time(&mut self, text: &[u8], line: u32) -> Result<u64, Wrong> {
        let now = time_of_day(text).ok_or_else(|| {
            Wrong::line(line, format!("time {}", quoted(text)), "HH:MM:SS.microseconds")
        })?;
        if now + DAY_US / 2 < self.last {
            self.midnight += DAY_US;
        }
        self.last = now;
        Ok(self.midnight + now)
    }

    fn finish(mut self) -> Result<Recording, Wrong> {
        let linked = link(&mut self.events)?;
        let mut recording =
            Recording { format: "rmm-csv".into(), has_pool_ids: true, ..Default::default() };
        if self.failures > 0 {
            let Self { failures, first_failure, .. } = self;
            recording.notice(
                "allocate-failure",
                format!(
                    "{failures} failed allocations in the log, the first in line {first_failure}"
                ),
            );
        }
        link_notices(&mut recording, &linked, &self.events);
        recording.streams = self.streams.into_names();
        recording.pools = vec![(0, 0)];
        let Self { events, .. } = self;
        let allocations = linked.allocations;
        recording.devices = vec![DeviceTrace { events, allocations, ..Default::default() }];
        Ok(recording)
    }
}

/// Says what did not fit when the events of a text log were linked.
pub(crate) fn link_notices(recording: &mut Recording, linked: &Linked, events: &[Event]) {
    let line = |index: usize| events.get(index).map_or(0, |event| event.line);
    if linked.unknown_frees > 0 {
        let (count, line) = (linked.unknown_frees, line(linked.first_unknown));
        recording.notice(
            "unknown-free",
            format!("{count} frees of pointers that were not allocated, the first in line {line}"),
        );
    }
    if linked.overlaps > 0 {
        let (count, line) = (linked.overlaps, line(linked.first_overlap));
        recording.notice(
            "overlap",
            format!("{count} allocations at a pointer still in use, the first in line {line}"),
        );
    }
}

fn stream_of(text: &[u8], line: u32) -> Result<u64, Wrong> {
    match decimal(text) {
        Some(stream) => Ok(stream),
        None => pointer(text, "the stream", line),
    }
}

/// Microseconds since midnight of `HH:MM:SS.micros` (one to six digits, or none).
fn time_of_day(text: &[u8]) -> Option<u64> {
    let mut parts = text.splitn(3, |&byte| byte == b':');
    let (hours, minutes) = (decimal(parts.next()?)?, decimal(parts.next()?)?);
    let mut seconds = parts.next()?.splitn(2, |&byte| byte == b'.');
    let whole = decimal(seconds.next()?)?;
    let fraction = seconds.next().unwrap_or(b"0");
    if fraction.is_empty() || fraction.len() > 6 || hours > 23 || minutes > 59 || whole > 60 {
        return None;
    }
    let micros = decimal(fraction)? * 10u64.pow(6 - fraction.len() as u32);
    Some((hours * 3600 + minutes * 60 + whole) * 1_000_000 + micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "Thread,Time,Action,Pointer,Size,Stream\n\
        1,23:59:59.999999,allocate,0x7f0000000000,1024,0\n\
        1,00:00:00.000001,allocate,0x7f0000100000,2048,0x2\n\
        2,00:00:00.5,allocate failure,(nil),99999999,0x2\n\
        1,00:00:01.000000,free,0x7f0000000000,1024,0\n\
        1,00:00:02.000000,free,0x7f00deadbeef,1,0x55d0c0ffee00\n";

    #[test]
    fn a_log_is_read_with_its_hexadecimal_streams() {
        let recording = read(LOG.as_bytes()).unwrap();
        let events = &recording.devices[0].events;
        assert_eq!(recording.streams, [0, 2, 0x55d0_c0ff_ee00]);
        assert_eq!(events[1].stream, StreamId(1));
        assert_eq!(events[1].time_us, DAY_US + 1);
        assert_eq!(events[2].kind, Kind::Other);
        assert_eq!((events[3].kind, events[3].allocation, events[3].line), (Kind::Free, 0, 5));
        let codes: Vec<&str> =
            recording.notices.iter().map(|notice| notice.code.as_ref()).collect();
        assert_eq!(codes, ["allocate-failure", "unknown-free"]);
    }

    #[test]
    fn columns_may_stand_in_another_order() {
        let log = "Action,Stream,Pointer,Size,Time,Thread\nallocate,0x1,0x10,5,01:02:03.4,9\n";
        let event = read(log.as_bytes()).unwrap().devices[0].events[0];
        assert_eq!((event.address, event.bytes, event.time_us), (16, 5, 3_723_400_000));
    }
}
