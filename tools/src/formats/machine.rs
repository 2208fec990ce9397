//! Machine: the stack, the marks and the memo of a pickle being run, and checked reads of the file.
//!
//! Nothing here knows an opcode. Every read and every pop is checked, nothing recurses, and the
//! stack and the memo cannot outgrow the file.

use super::arena::{Arena, Node, Object, Value};
use super::error::Wrong;
use super::pickle::Fold;

/// Deepest nesting of marks; a snapshot has about six.
const DEEPEST: usize = 1000;

/// A pickle being run.
pub(crate) struct Machine<'a> {
    pub arena: Arena<'a>,
    /// The next byte.
    pub at: usize,
    /// The opcode being run.
    pub opcode_at: usize,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: Vec<Option<Object>>,
    /// Most values on the stack.
    limit: usize,
}

impl<'a> Machine<'a> {
    /// A machine at the start of this file.
    pub fn new(input: &'a [u8]) -> Self {
        Self {
            arena: Arena::new(input),
            at: 0,
            opcode_at: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            // Sized from the file, so that a long trace is not copied as it grows.
            memo: Vec::with_capacity(input.len() / 28),
            limit: input.len() / 4 + (1 << 12),
        }
    }

    // Reading

    /// The complaint that the file ends too early.
    pub fn truncated(&self, what: &str) -> Wrong {
        let end = self.arena.input.len();
        Wrong::byte(
            end,
            format!("the file ends inside {what}"),
            "a whole pickle that ends with STOP",
        )
    }

    /// The next byte.
    #[inline]
    pub fn byte(&mut self, what: &str) -> Result<u8, Wrong> {
        let byte = *self.arena.input.get(self.at).ok_or_else(|| self.truncated(what))?;
        self.at += 1;
        Ok(byte)
    }

    /// The next bytes, as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Wrong> {
        let array = self.arena.input.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let array = *array.ok_or_else(|| self.truncated(what))?;
        self.at += N;
        Ok(array)
    }

    /// The next little-endian number.
    #[inline]
    pub fn u32(&mut self, what: &str) -> Result<u32, Wrong> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// The next bytes: where they start.
    #[inline]
    pub fn take(&mut self, length: u64, what: &str) -> Result<usize, Wrong> {
        let left = (self.arena.input.len() - self.at) as u64;
        if length > left {
            let found = format!("{what} of {length} bytes where {left} are left");
            return Err(Wrong::new(found, "a whole file"));
        }
        let start = self.at;
        self.at += length as usize;
        Ok(start)
    }

    /// Pushes a text of this many bytes.
    #[inline]
    pub fn text(&mut self, length: u64) -> Result<(), Wrong> {
        let start = self.take(length, "a string")?;
        let text = self.arena.text_at(start, length as usize);
        self.push(Value::Object(text))
    }

    /// A two's complement little-endian integer of this many bytes.
    #[inline]
    pub fn long(&mut self, length: usize) -> Result<(), Wrong> {
        let start = self.take(length as u64, "an integer")?;
        let bytes = &self.arena.input[start..start + length];
        let negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
        let fill = if negative { 0xff } else { 0 };
        let value = if bytes.len() <= 16 {
            let mut wide = [fill; 16];
            wide[..bytes.len()].copy_from_slice(bytes);
            integer(i128::from_le_bytes(wide))
        } else {
            Value::Wide
        };
        self.push(value)
    }

    // Stack and memo

    /// The complaint that the stack is too short.
    pub fn underflow(&self) -> Wrong {
        Wrong::new("an opcode that needs more values than there are", "a well-formed pickle")
    }

    /// Pushes a value.
    #[inline]
    pub fn push(&mut self, value: Value) -> Result<(), Wrong> {
        if self.stack.len() >= self.limit {
            return Err(Wrong::new(
                "more values at once than a snapshot of this size can hold",
                "a memory snapshot",
            ));
        }
        self.stack.push(value);
        Ok(())
    }

    /// The lowest value that the current mark lets an opcode take.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    /// Takes the top value.
    #[inline]
    pub fn pop(&mut self) -> Result<Value, Wrong> {
        if self.stack.len() <= self.floor() {
            return Err(self.underflow());
        }
        self.stack.pop().ok_or_else(|| self.underflow())
    }

    /// Drops the top value, or the mark on top.
    pub fn discard(&mut self) -> Result<(), Wrong> {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(|_| ())
    }

    /// Drops everything down to the last mark.
    pub fn discard_to_mark(&mut self) -> Result<(), Wrong> {
        let mark = self.unmark()?;
        self.stack.truncate(mark);
        Ok(())
    }

    /// Pushes the top value again.
    pub fn duplicate(&mut self) -> Result<(), Wrong> {
        let top = *self.stack.last().ok_or_else(|| self.underflow())?;
        self.push(top)
    }

    /// Sets a mark.
    pub fn mark(&mut self) -> Result<(), Wrong> {
        if self.marks.len() >= DEEPEST {
            let found = format!("values nested deeper than {DEEPEST}");
            return Err(Wrong::new(found, "a memory snapshot"));
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    /// Takes the last mark: the height of the stack there.
    pub fn unmark(&mut self) -> Result<usize, Wrong> {
        self.marks.pop().ok_or_else(|| Wrong::new("an opcode that needs a mark", "MARK before it"))
    }

    /// Pushes a new list or dict.
    pub fn open(&mut self, node: Node) -> Result<(), Wrong> {
        let object = self.arena.node(node)?;
        self.push(Value::Object(object))
    }

    /// Pushes a memo entry.
    #[inline]
    pub fn get(&mut self, index: usize) -> Result<(), Wrong> {
        match self.memo.get(index) {
            Some(Some(object)) => self.push(Value::Object(*object)),
            _ => Err(Wrong::new(format!("memo entry {index}, never stored"), "an earlier entry")),
        }
    }

    /// Stores the top value as the next memo entry.
    #[inline]
    pub fn memoize(&mut self) -> Result<(), Wrong> {
        self.put(self.memo.len())
    }

    /// Stores the top value in the memo.
    #[inline]
    pub fn put(&mut self, index: usize) -> Result<(), Wrong> {
        let top = *self.stack.last().ok_or_else(|| self.underflow())?;
        let object = match top {
            Value::Object(object) => Some(object),
            _ => None,
        };
        if index == self.memo.len() {
            self.memo.push(object);
            return Ok(());
        }
        if index >= self.arena.input.len() / 2 {
            let found = format!("memo index {index} in a file of {} bytes", self.arena.input.len());
            return Err(Wrong::new(found, "indices that count up from 0"));
        }
        if index >= self.memo.len() {
            self.memo.resize(index + 1, None);
        }
        self.memo[index] = object;
        Ok(())
    }

    // Lists, dicts and tuples

    /// Makes a tuple of this many values.
    pub fn tuple(&mut self, length: usize) -> Result<(), Wrong> {
        let start = self.stack.len().checked_sub(length).filter(|&start| start >= self.floor());
        let start = start.ok_or_else(|| self.underflow())?;
        let tuple = self.arena.tuple(self.opcode_at, &self.stack[start..])?;
        self.stack.truncate(start);
        self.push(Value::Object(tuple))
    }

    /// A tuple of everything down to the last mark.
    pub fn tuple_from_mark(&mut self) -> Result<(), Wrong> {
        let mark = self.unmark()?;
        self.tuple(self.stack.len() - mark)
    }

    /// The node under the values from here on.
    fn target(&self, start: usize, what: &str) -> Result<u32, Wrong> {
        let below = start.checked_sub(1).filter(|&below| below >= self.floor());
        match below.and_then(|below| self.stack.get(below)) {
            Some(Value::Object(Object::Node(node))) => Ok(*node),
            Some(&value) => Err(Wrong::new(
                format!("items for {}", self.arena.describe(value)),
                format!("a {what}"),
            )),
            None => Err(self.underflow()),
        }
    }

    /// Adds the values after the mark to the list before it.
    pub fn appends(&mut self) -> Result<(), Wrong> {
        let start = self.unmark()?;
        self.append_from(start)
    }

    /// Adds the top value to the list below it.
    pub fn append(&mut self) -> Result<(), Wrong> {
        let start = self.stack.len().checked_sub(1).ok_or_else(|| self.underflow())?;
        self.append_from(start)
    }

    fn append_from(&mut self, start: usize) -> Result<(), Wrong> {
        let node = self.target(start, "list")?;
        self.arena.append(self.opcode_at, node, &self.stack[start..])?;
        self.stack.truncate(start);
        Ok(())
    }

    /// Makes a list of the values after the mark.
    pub fn list_from_mark(&mut self) -> Result<(), Wrong> {
        let start = self.unmark()?;
        let list = self.arena.node(Node::EmptyList)?;
        self.stack.insert(start, Value::Object(list));
        self.append_from(start + 1)
    }

    /// Makes a dict of the items after the mark.
    pub fn dict_from_mark(&mut self, fold: &mut impl Fold) -> Result<(), Wrong> {
        let start = self.unmark()?;
        let dict = self.arena.node(Node::EmptyDict)?;
        self.stack.insert(start, Value::Object(dict));
        self.items_from(start + 1, fold)
    }

    /// Adds the items after the mark to the dict before it.
    pub fn set_items(&mut self, fold: &mut impl Fold) -> Result<(), Wrong> {
        let start = self.unmark()?;
        self.items_from(start, fold)
    }

    /// Adds the top two values to the dict below them.
    pub fn set_item(&mut self, fold: &mut impl Fold) -> Result<(), Wrong> {
        let start = self.stack.len().checked_sub(2).ok_or_else(|| self.underflow())?;
        self.items_from(start, fold)
    }

    fn items_from(&mut self, start: usize, fold: &mut impl Fold) -> Result<(), Wrong> {
        let node = self.target(start, "dict")?;
        let items = &self.stack[start..];
        if !items.len().is_multiple_of(2) {
            return Err(Wrong::new("a key without a value", "keys and values in turn"));
        }
        let row = match self.arena.nodes.get(node as usize) {
            Some(&Node::Row(row)) => Some(row),
            Some(Node::EmptyDict | Node::Dict(_)) if fold.is_row(&self.arena, items) => {
                let row = fold.new_row()?;
                let earlier = self.arena.become_row(node, row);
                fold.fill(&self.arena, row, &earlier)?;
                Some(row)
            }
            _ => None,
        };
        match row {
            Some(row) => fold.fill(&self.arena, row, items)?,
            None => self.arena.insert(self.opcode_at, node, items)?,
        }
        self.stack.truncate(start);
        Ok(())
    }
}

/// The value of an integer.
pub(crate) fn integer(value: i128) -> Value {
    if let Ok(value) = i64::try_from(value) {
        return Value::Int(value);
    }
    u64::try_from(value).map_or(Value::Wide, Value::Nat)
}
