//! Pickle: a snapshot in Python's pickle, protocol 2, as PyTorch's C++ side writes it.
//!
//! Keys, texts, frames and call stacks are written once and then referred to by number, which keeps
//! a million entries small. Only opcodes that PyTorch's viewer reads are used; pool ids are tuples,
//! as in PyTorch.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use blockyard::trace::snapshot::{
    Annotation, Block, Frames, Origin, Segment, Setting, Settings, Snapshot, TraceEntry,
};

const PROTO: u8 = 0x80;
const STOP: u8 = b'.';
const MARK: u8 = b'(';
const EMPTY_DICT: u8 = b'}';
const SETITEMS: u8 = b'u';
const EMPTY_LIST: u8 = b']';
const APPENDS: u8 = b'e';
const NONE: u8 = b'N';
const NEWTRUE: u8 = 0x88;
const NEWFALSE: u8 = 0x89;
const BININT: u8 = b'J';
const BININT1: u8 = b'K';
const BININT2: u8 = b'M';
const LONG1: u8 = 0x8a;
const BINFLOAT: u8 = b'G';
const BINUNICODE: u8 = b'X';
const TUPLE2: u8 = 0x86;
const BINPUT: u8 = b'q';
const LONG_BINPUT: u8 = b'r';
const BINGET: u8 = b'h';
const LONG_BINGET: u8 = b'j';

/// Bytes gathered before they are written.
const CHUNK: usize = 1 << 16;

/// Items appended to a list at once. PyTorch's viewer passes a batch as the arguments of one call,
/// of which a browser takes some hundred thousand only; Python's own pickler appends as many at
/// once as this.
const BATCH: usize = 1000;

/// Writes the snapshot. O(its size).
pub fn write(snapshot: &Snapshot, out: &mut impl Write) -> io::Result<()> {
    let mut pickler = Pickler {
        out,
        buffer: vec![PROTO, 2],
        memo: 0,
        texts: HashMap::new(),
        shared: HashMap::new(),
    };
    pickler.snapshot(snapshot)?;
    pickler.buffer.push(STOP);
    pickler.flush()
}

struct Pickler<'a, W> {
    out: &'a mut W,
    buffer: Vec<u8>,
    /// How many numbers are given out.
    memo: u32,
    texts: HashMap<&'a str, u32>,
    /// Frames and lists of frames by where they lie; the snapshot keeps them alive.
    shared: HashMap<usize, u32>,
}

impl<'a, W: Write> Pickler<'a, W> {
    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn snapshot(&mut self, snapshot: &'a Snapshot) -> io::Result<()> {
        self.open_dict();
        self.text("segments");
        self.list(&snapshot.segments, Self::segment)?;
        self.text("device_traces");
        self.list(&snapshot.device_traces, |pickler, trace| pickler.list(trace, Self::entry))?;
        self.text("allocator_settings");
        self.settings(&snapshot.allocator_settings);
        self.text("external_annotations");
        self.list(&snapshot.external_annotations, Self::annotation)?;
        self.text("blockyard");
        self.origin(&snapshot.blockyard);
        self.close_dict();
        Ok(())
    }

    fn segment(&mut self, segment: &'a Segment) -> io::Result<()> {
        self.open_dict();
        for (key, number) in [
            ("device", u64::from(segment.device)),
            ("address", segment.address),
            ("total_size", segment.total_size),
            ("allocated_size", segment.allocated_size),
            ("active_size", segment.active_size),
            ("requested_size", segment.requested_size),
            ("stream", segment.stream),
        ] {
            self.number_entry(key, number);
        }
        self.text_entry("segment_type", segment.segment_type);
        self.pair_entry("segment_pool_id", segment.segment_pool_id);
        self.text("is_expandable");
        self.flag(segment.is_expandable);
        self.frames_entry(&segment.frames);
        self.text("blocks");
        self.list(&segment.blocks, Self::block)?;
        self.close_dict();
        Ok(())
    }

    fn block(&mut self, block: &'a Block) -> io::Result<()> {
        self.open_dict();
        self.number_entry("address", block.address);
        self.number_entry("size", block.size);
        self.number_entry("requested_size", block.requested_size);
        self.text_entry("state", block.state);
        self.frames_entry(&block.frames);
        self.close_dict();
        Ok(())
    }

    fn entry(&mut self, entry: &'a TraceEntry) -> io::Result<()> {
        self.open_dict();
        self.text_entry("action", entry.action);
        if let Some(address) = entry.addr {
            self.number_entry("addr", address);
        }
        if let Some(free) = entry.device_free {
            self.number_entry("device_free", free);
        }
        self.number_entry("size", entry.size);
        self.number_entry("stream", entry.stream);
        self.number_entry("time_us", entry.time_us);
        self.text_entry("compile_context", entry.compile_context);
        self.text_entry("user_metadata", &entry.user_metadata);
        self.pair_entry("pool_id", entry.pool_id);
        self.frames_entry(&entry.frames);
        self.close_dict();
        Ok(())
    }

    fn annotation(&mut self, annotation: &'a Annotation) -> io::Result<()> {
        self.open_dict();
        self.text_entry("name", &annotation.name);
        self.text_entry("stage", annotation.stage);
        self.number_entry("device", u64::from(annotation.device));
        self.number_entry("time_us", annotation.time_us);
        self.close_dict();
        Ok(())
    }

    fn origin(&mut self, origin: &'a Origin) {
        self.open_dict();
        self.text_entry("version", origin.version);
        self.text("policy");
        match &origin.policy {
            Some(policy) => self.text(policy),
            None => self.buffer.push(NONE),
        }
        self.text("at_event");
        match origin.at_event {
            Some(event) => self.number(event),
            None => self.buffer.push(NONE),
        }
        self.close_dict();
    }

    fn settings(&mut self, settings: &'a Settings) {
        self.open_dict();
        for (name, setting) in &settings.0 {
            self.text(name);
            match setting {
                Setting::Flag(flag) => self.flag(*flag),
                Setting::Integer(integer) => self.integer(i128::from(*integer)),
                Setting::Float(float) => {
                    self.buffer.push(BINFLOAT);
                    self.buffer.extend(float.to_be_bytes());
                }
                Setting::Text(text) => self.text(text),
                Setting::Table(table) => self.settings(table),
            }
        }
        self.close_dict();
    }

    fn frames_entry(&mut self, frames: &'a Frames) {
        self.text("frames");
        let place = Arc::as_ptr(&frames.0) as usize;
        if self.again(place) {
            return;
        }
        self.buffer.extend([EMPTY_LIST, MARK]);
        for frame in frames.0.iter() {
            let place = Arc::as_ptr(frame) as usize;
            if self.again(place) {
                continue;
            }
            self.open_dict();
            self.text_entry("name", &frame.name);
            self.text_entry("filename", &frame.file);
            self.number_entry("line", u64::from(frame.line));
            self.close_dict();
            let number = self.put();
            self.shared.insert(place, number);
        }
        self.buffer.push(APPENDS);
        let number = self.put();
        self.shared.insert(place, number);
    }

    /// Refers to what lies at this place, if it is written already.
    fn again(&mut self, place: usize) -> bool {
        let known = self.shared.get(&place).copied();
        if let Some(number) = known {
            self.get(number);
        }
        known.is_some()
    }

    fn list<T>(
        &mut self,
        items: &'a [T],
        mut item: impl FnMut(&mut Self, &'a T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.buffer.push(EMPTY_LIST);
        for batch in items.chunks(BATCH) {
            self.buffer.push(MARK);
            for one in batch {
                item(self, one)?;
            }
            self.buffer.push(APPENDS);
            if self.buffer.len() >= CHUNK {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn open_dict(&mut self) {
        self.buffer.extend([EMPTY_DICT, MARK]);
    }

    fn close_dict(&mut self) {
        self.buffer.push(SETITEMS);
    }

    fn number_entry(&mut self, key: &'a str, number: u64) {
        self.text(key);
        self.number(number);
    }

    fn text_entry(&mut self, key: &'a str, text: &'a str) {
        self.text(key);
        self.text(text);
    }

    fn pair_entry(&mut self, key: &'a str, (first, second): (u64, u64)) {
        self.text(key);
        self.number(first);
        self.number(second);
        self.buffer.push(TUPLE2);
    }

    fn text(&mut self, text: &'a str) {
        if let Some(&number) = self.texts.get(text) {
            return self.get(number);
        }
        self.buffer.push(BINUNICODE);
        self.buffer.extend((text.len() as u32).to_le_bytes());
        self.buffer.extend(text.as_bytes());
        let number = self.put();
        self.texts.insert(text, number);
    }

    fn flag(&mut self, flag: bool) {
        self.buffer.push(if flag { NEWTRUE } else { NEWFALSE });
    }

    fn number(&mut self, number: u64) {
        self.integer(i128::from(number));
    }

    fn integer(&mut self, number: i128) {
        let bytes = number.to_le_bytes();
        if (0..1 << 8).contains(&number) {
            self.buffer.extend([BININT1, bytes[0]]);
        } else if (0..1 << 16).contains(&number) {
            self.buffer.extend([BININT2, bytes[0], bytes[1]]);
        } else if i32::try_from(number).is_ok() {
            self.buffer.push(BININT);
            self.buffer.extend(&bytes[..4]);
        } else {
            // Two's complement: 64-bit numbers with the top bit set need a ninth byte for the sign.
            let length = if i64::try_from(number).is_ok() { 8 } else { 9 };
            self.buffer.extend([LONG1, length]);
            self.buffer.extend(&bytes[..usize::from(length)]);
        }
    }

    /// Gives what was written last the next number.
    fn put(&mut self) -> u32 {
        let number = self.memo;
        self.memo += 1;
        self.numbered(BINPUT, LONG_BINPUT, number);
        number
    }

    fn get(&mut self, number: u32) {
        self.numbered(BINGET, LONG_BINGET, number);
    }

    fn numbered(&mut self, short: u8, long: u8, number: u32) {
        match u8::try_from(number) {
            Ok(number) => self.buffer.extend([short, number]),
            Err(_) => {
                self.buffer.push(long);
                self.buffer.extend(number.to_le_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests;
