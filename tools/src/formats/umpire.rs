//! Umpire: LLNL Umpire's replay logs, one JSON object a line, in the old and the new spelling.
//!
//! All allocators of the log are taken as one device; the allocator's name becomes the tag.

use std::collections::HashMap;

use blockyard::trace::{DeviceTrace, Event, Kind, Recording, StackId};
use serde::Deserialize;
use serde_json::Value;

use super::error::{Wrong, quoted};
use super::link::link;
use super::rmm::link_notices;
use super::text::{Lines, is_silent, pointer};

/// Whether a line that says something is an entry of such a log.
pub(crate) fn is_entry(line: &[u8]) -> bool {
    serde_json::from_slice::<Entry>(line).is_ok_and(|entry| entry.name().is_some())
}

/// Reads a log.
pub(crate) fn read(bytes: &[u8]) -> Result<Recording, Wrong> {
    let mut log = Log::default();
    for (line, text) in Lines::new(bytes).filter(|(_, text)| !is_silent(text)) {
        let entry: Entry = serde_json::from_slice(text).map_err(|error| {
            let found = format!("{} ({error})", quoted(text));
            Wrong::line(line, found, "one JSON object of an Umpire replay log")
        })?;
        log.entry(line, &entry)?;
    }
    log.finish()
}

/// One line. `category` and `name` are of the new spelling, `kind` and `event` of the old one.
#[derive(Deserialize)]
struct Entry {
    category: Option<String>,
    name: Option<String>,
    kind: Option<String>,
    event: Option<String>,
    #[serde(default)]
    numeric_args: HashMap<String, Value>,
    #[serde(default)]
    string_args: HashMap<String, Value>,
    #[serde(default)]
    tags: HashMap<String, Value>,
    #[serde(default)]
    payload: HashMap<String, Value>,
    result: Option<Value>,
    #[serde(default)]
    timestamp: Value,
}

impl Entry {
    fn is_old(&self) -> bool {
        self.kind.as_deref() == Some("replay")
    }

    fn name(&self) -> Option<&str> {
        if self.is_old() {
            return self.event.as_deref();
        }
        self.category.as_ref().and(self.name.as_deref())
    }

    fn word(&self, key: &str) -> Option<&str> {
        let result = || self.result.as_ref().and_then(|result| result.get(key));
        let tables = [&self.string_args, &self.payload, &self.tags];
        let found = tables.into_iter().find_map(|table| table.get(key)).or_else(result);
        found.and_then(Value::as_str)
    }

    fn pointer(&self, key: &str, line: u32) -> Result<Option<u64>, Wrong> {
        self.word(key).map(|word| pointer(word.as_bytes(), key, line)).transpose()
    }

    fn size(&self, line: u32) -> Result<u64, Wrong> {
        let size = self.numeric_args.get("size").or_else(|| self.payload.get("size"));
        size.and_then(Value::as_u64).ok_or_else(|| {
            let found = size.map_or("no size".into(), |size| format!("size {size}"));
            Wrong::line(line, found, "a whole number of bytes")
        })
    }
}

/// A reallocation between its two lines.
struct Moving {
    /// The old pointer.
    old: u64,
    /// The new size.
    bytes: u64,
    /// How many events there were before: some reallocations are logged with an allocation and a
    /// deallocation inside them.
    since: usize,
}

#[derive(Default)]
struct Log {
    recording: Recording,
    events: Vec<Event>,
    /// Names of allocators by their reference.
    names: HashMap<String, StackId>,
    /// A reallocation that has begun.
    moving: Option<Moving>,
}

impl Log {
    fn entry(&mut self, line: u32, entry: &Entry) -> Result<(), Wrong> {
        let Some(name) = entry.name() else {
            let found = "an object without category and name, or kind and event";
            return Err(Wrong::line(line, found, "an entry of an Umpire replay log"));
        };
        match name {
            "allocate" => self.allocate(line, entry),
            "deallocate" => self.deallocate(line, entry),
            "reallocate" => self.reallocate(line, entry),
            "make_memory_resource" | "make_allocator" | "makeMemoryResource" | "makeAllocator" => {
                self.name_allocator(entry);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The old spelling logs an allocation twice: before, without a pointer, and after, with it.
    fn allocate(&mut self, line: u32, entry: &Entry) -> Result<(), Wrong> {
        let bytes = entry.size(line)?;
        let key = if entry.is_old() { "memory_ptr" } else { "pointer" };
        let Some(address) = entry.pointer(key, line)? else {
            if entry.is_old() {
                return Ok(());
            }
            return Err(Wrong::line(line, "allocate without a pointer", "string_args.pointer"));
        };
        let stack = self.tag(entry);
        self.push(line, entry, Event { address, bytes, stack, ..Event::new(Kind::Alloc) });
        Ok(())
    }

    fn deallocate(&mut self, line: u32, entry: &Entry) -> Result<(), Wrong> {
        let key = if entry.is_old() { "memory_ptr" } else { "pointer" };
        let address = entry
            .pointer(key, line)?
            .ok_or_else(|| Wrong::line(line, "deallocate without a pointer", key.to_string()))?;
        self.push(line, entry, Event { address, ..Event::new(Kind::Free) });
        Ok(())
    }

    /// Two lines: what is asked (old pointer, size), then where it went.
    fn reallocate(&mut self, line: u32, entry: &Entry) -> Result<(), Wrong> {
        if let Some(old) = entry.pointer("current_ptr", line)? {
            let since = self.events.len();
            self.moving = Some(Moving { old, bytes: entry.size(line)?, since });
        }
        let Some(address) = entry.pointer("new_ptr", line)? else { return Ok(()) };
        let Some(Moving { old, bytes, since }) = self.moving.take() else {
            return Err(Wrong::line(line, "a new_ptr alone", "current_ptr and size before it"));
        };
        let inside = self.events.get(since..).unwrap_or_default();
        let seen = |kind, address| {
            inside.iter().any(|event| event.kind == kind && event.address == address)
        };
        let (freed, born) = (seen(Kind::Free, old), seen(Kind::Alloc, address));
        if old != 0 && !freed {
            self.push(line, entry, Event { address: old, ..Event::new(Kind::Free) });
        }
        if address != 0 && !born {
            let stack = self.tag(entry);
            self.push(line, entry, Event { address, bytes, stack, ..Event::new(Kind::Alloc) });
        }
        Ok(())
    }

    fn push(&mut self, line: u32, entry: &Entry, event: Event) {
        let time_us = entry.timestamp.as_u64().unwrap_or(0) / 1000;
        self.events.push(Event { line, time_us, ..event });
    }

    fn name_allocator(&mut self, entry: &Entry) {
        let bare = entry.result.as_ref().and_then(Value::as_str);
        let name = entry.word("allocator_name").or_else(|| entry.word("name"));
        let reference = entry.word("allocator_ref").or(bare);
        if let (Some(name), Some(reference)) = (name, reference) {
            let tag = self.recording.stacks.tag(name);
            self.names.insert(reference.to_string(), tag);
        }
    }

    fn tag(&mut self, entry: &Entry) -> StackId {
        let reference = entry.word("allocator_ref");
        let known = reference.and_then(|reference| self.names.get(reference));
        known.copied().unwrap_or_else(|| {
            let name = entry.word("allocator_name").unwrap_or("");
            self.recording.stacks.tag(name)
        })
    }

    fn finish(mut self) -> Result<Recording, Wrong> {
        let linked = link(&mut self.events)?;
        let mut recording = self.recording;
        recording.format = "umpire-replay".into();
        recording.has_pool_ids = true;
        recording.streams = vec![0];
        recording.pools = vec![(0, 0)];
        link_notices(&mut recording, &linked, &self.events);
        recording.devices = vec![DeviceTrace {
            events: self.events,
            allocations: linked.allocations,
            ..Default::default()
        }];
        Ok(recording)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = r#"{"category":"operation","name":"make_memory_resource","string_args":{"allocator_ref":"0x1"},"tags":{"allocator_name":"HOST"}}
{"category":"operation","name":"allocate","numeric_args":{"size":128},"string_args":{"allocator_ref":"0x1","pointer":"0x10"},"timestamp":5000}
{"category":"operation","name":"reallocate","numeric_args":{"size":64},"string_args":{"allocator_ref":"0x1","current_ptr":"0x10"}}
{"category":"operation","name":"reallocate","numeric_args":{},"string_args":{"allocator_ref":"0x1","new_ptr":"0x20"}}
{"category":"operation","name":"reallocate","numeric_args":{"size":9},"string_args":{"allocator_ref":"0x1","current_ptr":"0x20"}}
{"category":"operation","name":"allocate","numeric_args":{"size":9},"string_args":{"allocator_ref":"0x1","pointer":"0x30"}}
{"category":"operation","name":"deallocate","string_args":{"allocator_ref":"0x1","pointer":"0x20"}}
{"category":"operation","name":"reallocate","numeric_args":{},"string_args":{"allocator_ref":"0x1","new_ptr":"0x30"}}
"#;

    #[test]
    fn the_new_spelling_is_read_and_a_reallocation_is_two_events() {
        let recording = read(NEW.as_bytes()).unwrap();
        let trace = &recording.devices[0];
        let seen: Vec<_> = trace.events.iter().map(|e| (e.kind, e.allocation, e.bytes)).collect();
        use Kind::{Alloc, Free};
        assert_eq!(
            seen,
            [(Alloc, 0, 128), (Free, 0, 0), (Alloc, 1, 64), (Alloc, 2, 9), (Free, 1, 0)],
            "the second reallocation was logged in parts"
        );
        assert_eq!(recording.stacks.label(trace.events[0].stack), "HOST");
        assert!(recording.notices.is_empty());
    }

    #[test]
    fn the_old_spelling_counts_an_allocation_once() {
        let log = r#"# comment
{"kind":"replay","event":"makeMemoryResource","payload":{"name":"DEVICE"},"result":"0x7"}
{"kind":"replay","event":"allocate","payload":{"allocator_ref":"0x7","size":3}}
{"kind":"replay","event":"allocate","payload":{"allocator_ref":"0x7","size":3},"result":{"memory_ptr":"0x30"}}
{"kind":"replay","event":"deallocate","payload":{"allocator_ref":"0x7","memory_ptr":"0x30"}}
"#;
        let recording = read(log.as_bytes()).unwrap();
        assert_eq!(recording.event_count(), 2);
        assert_eq!(recording.stacks.label(recording.devices[0].events[0].stack), "DEVICE");
    }
}
