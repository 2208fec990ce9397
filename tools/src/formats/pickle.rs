//! Pickle: a machine for the plain-data part of Python's pickle protocols that cannot run anything.
//!
//! Opcodes that import, call or build objects are refused by name and offset. Every read is
//! checked, nothing recurses, and memory is bounded by the size of the file. Dicts that a [`Fold`]
//! recognises become rows as soon as their items are there, so that a trace of a million entries
//! never stands in memory as a million dicts.

use super::arena::{Arena, Node, Value};
use super::error::{Place, Wrong, quoted};
use super::machine::{Machine, integer};

/// Who turns dicts into rows.
pub(crate) trait Fold {
    /// Whether these keys and values, in turn, begin a row.
    fn is_row(&self, arena: &Arena<'_>, items: &[Value]) -> bool;
    /// A new empty row.
    fn new_row(&mut self) -> Result<u32, Wrong>;
    /// Adds keys and values, in turn, to a row.
    fn fill(&mut self, arena: &Arena<'_>, row: u32, items: &[Value]) -> Result<(), Wrong>;
}

/// A fold that keeps every dict as it is.
#[cfg(test)]
pub(crate) struct KeepAll;

#[cfg(test)]
impl Fold for KeepAll {
    fn is_row(&self, _: &Arena<'_>, _: &[Value]) -> bool {
        false
    }
    fn new_row(&mut self) -> Result<u32, Wrong> {
        Ok(0)
    }
    fn fill(&mut self, _: &Arena<'_>, _: u32, _: &[Value]) -> Result<(), Wrong> {
        Ok(())
    }
}

/// Runs a pickle: its values and the one it ends with.
pub(crate) fn run<'a>(input: &'a [u8], fold: &mut impl Fold) -> Result<(Arena<'a>, Value), Wrong> {
    let mut machine = Machine::new(input);
    loop {
        machine.opcode_at = machine.at;
        match machine.step(fold) {
            Ok(None) => {}
            Ok(Some(value)) => return Ok((machine.arena, value)),
            Err(wrong) => return Err(wrong.at(Place::Byte(machine.opcode_at as u64))),
        }
    }
}

impl Machine<'_> {
    /// One opcode; at the end, the value.
    #[inline]
    fn step(&mut self, fold: &mut impl Fold) -> Result<Option<Value>, Wrong> {
        let opcode = self.byte("an opcode")?;
        match opcode {
            b'h' => {
                let index = self.byte("a memo index")?;
                self.get(index.into())?;
            }
            b'j' => {
                let index = self.u32("a memo index")?;
                self.get(index as usize)?;
            }
            0x94 => self.memoize()?,
            b'q' => {
                let index = self.byte("a memo index")?;
                self.put(index.into())?;
            }
            b'r' => {
                let index = self.u32("a memo index")?;
                self.put(index as usize)?;
            }
            b'K' => {
                let value = self.byte("an integer")?;
                self.push(Value::Int(value.into()))?;
            }
            b'M' => {
                let bytes = self.array::<2>("an integer")?;
                self.push(Value::Int(u16::from_le_bytes(bytes).into()))?;
            }
            b'J' => {
                let bytes = self.array::<4>("an integer")?;
                self.push(Value::Int(i32::from_le_bytes(bytes).into()))?;
            }
            0x8a => {
                let length = self.byte("an integer")?;
                self.long(length.into())?;
            }
            0x8b => {
                let length = self.u32("an integer")?;
                self.long(length as usize)?;
            }
            b'(' => self.mark()?,
            b'}' => self.open(Node::EmptyDict)?,
            b']' => self.open(Node::EmptyList)?,
            b'u' => self.set_items(fold)?,
            b's' => self.set_item(fold)?,
            b'e' => self.appends()?,
            b'a' => self.append()?,
            0x8c | b'U' | b'C' => {
                let length = self.byte("a string length")?;
                self.text(length.into())?;
            }
            b'X' | b'B' | b'T' => {
                let length = self.u32("a string length")?;
                self.text(length.into())?;
            }
            0x8d | 0x8e => {
                let length = u64::from_le_bytes(self.array::<8>("a string length")?);
                self.text(length)?;
            }
            0x85..=0x87 => self.tuple(usize::from(opcode - 0x84))?,
            b'N' => self.push(Value::None)?,
            0x88 | 0x89 => self.push(Value::Bool(opcode == 0x88))?,
            b'G' => {
                let bytes = self.array::<8>("a float")?;
                self.push(Value::Float(f64::from_be_bytes(bytes)))?;
            }
            b'.' => return self.pop().map(Some),
            _ => self.rare(opcode, fold)?,
        }
        Ok(None)
    }

    /// Opcodes that snapshots use once or never.
    #[cold]
    fn rare(&mut self, opcode: u8, fold: &mut impl Fold) -> Result<(), Wrong> {
        match opcode {
            0x80 => self.protocol(),
            0x95 => self.frame(),
            b')' => self.tuple(0),
            b't' => self.tuple_from_mark(),
            b'l' => self.list_from_mark(),
            b'd' => self.dict_from_mark(fold),
            b'0' => self.discard(),
            b'1' => self.discard_to_mark(),
            b'2' => self.duplicate(),
            b'I' | b'L' | b'F' | b'V' | b'g' | b'p' => self.line_opcode(opcode),
            _ => Err(refusal(opcode)),
        }
    }

    /// Opcodes of the text protocol: an argument up to the end of the line.
    fn line_opcode(&mut self, opcode: u8) -> Result<(), Wrong> {
        let start = self.at;
        let rest = &self.arena.input[start..];
        let length = memchr::memchr(b'\n', rest).ok_or_else(|| self.truncated("a line"))?;
        let line = &rest[..length];
        self.at += length + 1;
        let text = std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)).unwrap_or("?");
        let bad = |what: &str| Wrong::new(quoted(line), what);
        match opcode {
            b'V' if memchr::memchr(b'\\', line).is_none() => {
                let text = self.arena.text_at(start, line.len());
                self.push(Value::Object(text))
            }
            b'V' => Err(bad("a text without escapes (write the pickle with protocol 2 or later)")),
            b'g' => self.get(text.parse().map_err(|_| bad("a memo index"))?),
            b'p' => self.put(text.parse().map_err(|_| bad("a memo index"))?),
            b'F' => self.push(Value::Float(text.parse().map_err(|_| bad("a float"))?)),
            b'I' if text == "00" || text == "01" => self.push(Value::Bool(text == "01")),
            _ => {
                let digits = text.strip_suffix('L').unwrap_or(text);
                let value = digits.parse().map_err(|_| bad("an integer of up to 64 bits"))?;
                self.push(integer(value))
            }
        }
    }

    fn protocol(&mut self) -> Result<(), Wrong> {
        match self.byte("a protocol number")? {
            0..=5 => Ok(()),
            version => Err(Wrong::new(format!("pickle protocol {version}"), "protocol 0 to 5")),
        }
    }

    fn frame(&mut self) -> Result<(), Wrong> {
        let length = u64::from_le_bytes(self.array::<8>("a frame length")?);
        let left = self.arena.input.len() - self.at;
        if length > left as u64 {
            let found = format!("a frame of {length} bytes where {left} are left");
            return Err(Wrong::new(found, "a whole file"));
        }
        Ok(())
    }
}

/// Why an opcode is not run.
fn refusal(opcode: u8) -> Wrong {
    const CODE: [(u8, &str); 15] = [
        (b'c', "GLOBAL"),
        (b'R', "REDUCE"),
        (b'b', "BUILD"),
        (b'i', "INST"),
        (b'o', "OBJ"),
        (b'P', "PERSID"),
        (b'Q', "BINPERSID"),
        (0x81, "NEWOBJ"),
        (0x92, "NEWOBJ_EX"),
        (0x93, "STACK_GLOBAL"),
        (0x82, "EXT1"),
        (0x83, "EXT2"),
        (0x84, "EXT4"),
        (0x97, "NEXT_BUFFER"),
        (0x98, "READONLY_BUFFER"),
    ];
    const DATA: [(u8, &str); 5] = [
        (b'S', "STRING"),
        (0x8f, "EMPTY_SET"),
        (0x90, "ADDITEMS"),
        (0x91, "FROZENSET"),
        (0x96, "BYTEARRAY8"),
    ];
    let name = |table: &[(u8, &'static str)]| {
        table.iter().find(|(code, _)| *code == opcode).map(|(_, name)| *name)
    };
    if let Some(name) = name(&CODE) {
        let found = format!("opcode {name} (0x{opcode:02x}) would run code");
        return Wrong::new(found, "plain data");
    }
    match name(&DATA) {
        Some(name) => Wrong::new(
            format!("opcode {name} (0x{opcode:02x})"),
            "lists, dicts, tuples, strings and numbers",
        ),
        None => Wrong::new(format!("byte 0x{opcode:02x}"), "a pickle opcode"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::arena::Object;
    use super::*;

    fn end(input: &[u8]) -> Result<Value, Wrong> {
        run(input, &mut KeepAll).map(|(_, value)| value)
    }

    #[test]
    fn integers_of_every_width() {
        let cases: [(&[u8], Value); 12] = [
            (b"K\xff.", Value::Int(255)),
            (b"M\xff\xff.", Value::Int(65_535)),
            (b"J\xff\xff\xff\xff.", Value::Int(-1)),
            (b"\x8a\x00.", Value::Int(0)),
            (b"\x8a\x01\x80.", Value::Int(-128)),
            (b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00.", Value::Nat(1 << 63)),
            (b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x01.", Value::Wide),
            (b"\x8b\x02\x00\x00\x00\x00\x01.", Value::Int(256)),
            (b"I-7\n.", Value::Int(-7)),
            (b"I01\n.", Value::Bool(true)),
            (b"L18446744073709551615L\n.", Value::Nat(u64::MAX)),
            (b"\x8a\x11aaaaaaaaaaaaaaaaa.", Value::Wide),
        ];
        for (input, expected) in cases {
            assert_eq!(end(input), Ok(expected), "{input:?}");
        }
    }

    #[test]
    fn a_value_that_holds_itself_ends() {
        let (arena, value) = run(b"\x80\x02]q\x00h\x00a.", &mut KeepAll).unwrap();
        let Value::Object(Object::Node(node)) = value else { panic!("{value:?}") };
        assert_eq!(arena.content(node).unwrap().1, [value]);
    }

    #[test]
    fn marks_are_walls() {
        assert!(end(b"N(0.").is_ok(), "POP takes a mark that lies on top");
        assert!(end(b"K\x01(\x85.").is_err(), "a tuple reaches below a mark");
        assert!(end(b"](K\x01a.").is_err(), "an item reaches below a mark");
        assert!(end(b"(}.").is_ok());
        assert!(end(b"K\x01u.").is_err());
        assert!(end(b"K\x01(Nu.").is_err());
        assert!(end(b"}(Nu.").is_err());
    }

    #[test]
    fn code_is_refused_by_name_and_offset() {
        let wrong = end(b"\x80\x04N\x93.").unwrap_err().of("x.pickle").to_string();
        assert_eq!(
            wrong,
            "x.pickle: byte 3: opcode STACK_GLOBAL (0x93) would run code; expected plain data"
        );
    }

    #[test]
    fn a_small_file_cannot_ask_for_much() {
        assert!(end(b"Nr\xff\xff\xff\x7f.").is_err());
        assert!(end(b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff.").is_err());
        assert!(end(&[b'('; 2000]).is_err());
        assert!(end(&[b']'; 100_000]).is_err());
        assert!(end(&[b'N'; 100_000]).is_err());
    }
}
