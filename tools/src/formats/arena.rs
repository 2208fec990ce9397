//! Arena: the values of a pickle, small and copyable, with texts that borrow the file.
//!
//! Lists, dicts and tuples are *nodes*: what is shared in the file is shared here, and its node is
//! its identity. A node takes 8 bytes until it holds something. The arena never grows beyond a
//! small multiple of the file.

use std::borrow::Cow;
use std::collections::HashMap;

use super::error::Wrong;

/// A value on the stack of the machine, or in a list or dict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer that fits.
    Int(i64),
    /// An integer from 2^63 to 2^64 - 1.
    Nat(u64),
    /// An integer of more than 64 bits.
    Wide,
    /// A float.
    Float(f64),
    /// A dict that became a row, by the row's number.
    Row(u32),
    /// What can be named by the memo.
    Object(Object),
}

/// What can be named by the memo: 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// A text of up to 64 KiB: a 40-bit offset into the file and a length.
    Text { high: u8, length: u16, low: u32 },
    /// A longer text, by its place among the long ones.
    Long(u32),
    /// A tuple of two small naturals, by its place among the pairs.
    Pair(u32),
    /// A list, dict or other tuple.
    Node(u32),
}

/// What a node is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// `[]`, with nothing in it yet.
    EmptyList,
    /// `{}`, with nothing in it yet.
    EmptyDict,
    /// A list of values in this slot.
    List(u32),
    /// A list of consecutive rows, as a run.
    Rows(u32),
    /// Keys and values, in turn, in this slot.
    Dict(u32),
    /// Members in this slot.
    Tuple(u32),
    /// A dict that became this row.
    Row(u32),
}

/// Consecutive rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first.
    pub start: u32,
    /// How many.
    pub length: u32,
}

/// All values of one pickle.
pub(crate) struct Arena<'a> {
    /// The file.
    pub input: &'a [u8],
    /// Every list, dict and tuple.
    pub nodes: Vec<Node>,
    slots: Vec<Vec<Value>>,
    /// Where the node of each slot got its first content, in bytes from the start of the file.
    places: Vec<u64>,
    free_slots: Vec<u32>,
    runs: Vec<Run>,
    long: Vec<(u64, u64)>,
    pairs: Vec<(u64, u64)>,
    by_pair: HashMap<(u64, u64), u32>,
    last_pair: Option<((u64, u64), u32)>,
    limit: usize,
}

impl<'a> Arena<'a> {
    /// An empty arena for this file.
    pub fn new(input: &'a [u8]) -> Self {
        Self {
            input,
            nodes: Vec::with_capacity(input.len() / 64),
            slots: Vec::new(),
            places: Vec::new(),
            free_slots: Vec::new(),
            runs: Vec::new(),
            long: Vec::new(),
            pairs: Vec::new(),
            by_pair: HashMap::new(),
            last_pair: None,
            limit: input.len() / 3 + (1 << 12),
        }
    }

    /// A text in the file.
    #[inline]
    pub fn text_at(&mut self, start: usize, length: usize) -> Object {
        let high = u8::try_from(start as u64 >> 32);
        match (u16::try_from(length), high) {
            (Ok(length), Ok(high)) => Object::Text { high, length, low: start as u32 },
            _ => {
                self.long.push((start as u64, length as u64));
                Object::Long(self.long.len() as u32 - 1)
            }
        }
    }

    /// The bytes of a text.
    #[inline]
    pub fn text(&self, object: Object) -> Option<&'a [u8]> {
        let (start, length) = match object {
            Object::Text { high, length, low } => {
                (u64::from(high) << 32 | u64::from(low), u64::from(length))
            }
            Object::Long(index) => *self.long.get(index as usize)?,
            Object::Pair(_) | Object::Node(_) => return None,
        };
        self.input.get(start as usize..(start + length) as usize)
    }

    /// A new node.
    #[inline]
    pub fn node(&mut self, node: Node) -> Result<Object, Wrong> {
        if self.nodes.len() >= self.limit {
            return Err(crowded());
        }
        self.nodes.push(node);
        Ok(Object::Node(self.nodes.len() as u32 - 1))
    }

    /// A tuple of these members.
    pub fn tuple(&mut self, at: usize, members: &[Value]) -> Result<Object, Wrong> {
        if let [a, b] = members
            && let (Some(a), Some(b)) = (natural(*a), natural(*b))
        {
            return Ok(self.pair(a, b));
        }
        let slot = self.slot(at, members)?;
        self.node(Node::Tuple(slot))
    }

    fn pair(&mut self, a: u64, b: u64) -> Object {
        if let Some((pair, index)) = self.last_pair
            && pair == (a, b)
        {
            return Object::Pair(index);
        }
        let next = self.pairs.len() as u32;
        let index = *self.by_pair.entry((a, b)).or_insert(next);
        if index == next {
            self.pairs.push((a, b));
        }
        self.last_pair = Some(((a, b), index));
        Object::Pair(index)
    }

    /// The members of a pair.
    pub fn pair_of(&self, object: Object) -> Option<(u64, u64)> {
        match object {
            Object::Pair(index) => self.pairs.get(index as usize).copied(),
            _ => None,
        }
    }

    fn slot(&mut self, at: usize, values: &[Value]) -> Result<u32, Wrong> {
        if let Some(slot) = self.free_slots.pop() {
            self.slots[slot as usize].extend_from_slice(values);
            self.places[slot as usize] = at as u64;
            return Ok(slot);
        }
        if self.slots.len() >= self.limit / 4 + (1 << 12) {
            return Err(crowded());
        }
        self.slots.push(values.to_vec());
        self.places.push(at as u64);
        Ok(self.slots.len() as u32 - 1)
    }

    /// Adds values to a list.
    pub fn append(&mut self, at: usize, node: u32, values: &[Value]) -> Result<(), Wrong> {
        let Some(&state) = self.nodes.get(node as usize) else { return Err(not_a("list")) };
        if values.is_empty() && matches!(state, Node::EmptyList | Node::List(_) | Node::Rows(_)) {
            return Ok(());
        }
        let state = match (state, self.run_of(values)) {
            (Node::EmptyList, Some(run)) => {
                self.runs.push(run);
                Node::Rows(self.runs.len() as u32 - 1)
            }
            (Node::EmptyList, None) => Node::List(self.slot(at, values)?),
            (Node::List(slot), _) => {
                self.slots[slot as usize].extend_from_slice(values);
                state
            }
            (Node::Rows(index), Some(run)) if self.runs[index as usize].meets(run) => {
                self.runs[index as usize].length += run.length;
                state
            }
            (Node::Rows(index), _) => {
                let Run { start, length } = self.runs[index as usize];
                let rows: Vec<Value> = (start..start + length).map(Value::Row).collect();
                let slot = self.slot(at, &rows)?;
                self.slots[slot as usize].extend_from_slice(values);
                Node::List(slot)
            }
            _ => return Err(not_a("list")),
        };
        self.nodes[node as usize] = state;
        Ok(())
    }

    /// The run that these values are, if they are consecutive rows.
    fn run_of(&self, values: &[Value]) -> Option<Run> {
        let start = self.row_of(*values.first()?)?;
        let follows =
            |(index, &value): (usize, _)| self.row_of(value) == start.checked_add(index as u32);
        let length = u32::try_from(values.len()).ok()?;
        values.iter().enumerate().all(follows).then_some(Run { start, length })
    }

    /// The row that this value is, if it is one.
    #[inline]
    pub fn row_of(&self, value: Value) -> Option<u32> {
        match value {
            Value::Row(row) => Some(row),
            Value::Object(Object::Node(node)) => match self.nodes.get(node as usize) {
                Some(Node::Row(row)) => Some(*row),
                _ => None,
            },
            _ => None,
        }
    }

    /// Adds keys and values, in turn, to a dict.
    pub fn insert(&mut self, at: usize, node: u32, items: &[Value]) -> Result<(), Wrong> {
        match self.nodes.get(node as usize) {
            Some(Node::EmptyDict) if items.is_empty() => {}
            Some(Node::EmptyDict) => {
                let slot = self.slot(at, items)?;
                self.nodes[node as usize] = Node::Dict(slot);
            }
            Some(&Node::Dict(slot)) => self.slots[slot as usize].extend_from_slice(items),
            _ => return Err(not_a("dict")),
        }
        Ok(())
    }

    /// Turns a dict into a row; its items so far come back.
    pub fn become_row(&mut self, node: u32, row: u32) -> Vec<Value> {
        let old = std::mem::replace(&mut self.nodes[node as usize], Node::Row(row));
        match old {
            Node::Dict(slot) => {
                self.free_slots.push(slot);
                std::mem::take(&mut self.slots[slot as usize])
            }
            _ => Vec::new(),
        }
    }

    /// The values of a list or tuple, or the keys and values of a dict.
    pub fn content(&self, node: u32) -> Option<(Node, &[Value])> {
        let state = *self.nodes.get(node as usize)?;
        let values = match state {
            Node::EmptyList | Node::EmptyDict => &[][..],
            Node::List(slot) | Node::Dict(slot) | Node::Tuple(slot) => {
                &self.slots.get(slot as usize)?[..]
            }
            Node::Rows(_) | Node::Row(_) => return None,
        };
        Some((state, values))
    }

    /// The consecutive rows that this list is.
    pub fn rows(&self, node: u32) -> Option<Run> {
        match self.nodes.get(node as usize)? {
            Node::Rows(index) => self.runs.get(*index as usize).copied(),
            _ => None,
        }
    }

    /// Where in the file this node got its content.
    pub fn place(&self, node: u32) -> Option<u64> {
        match self.nodes.get(node as usize)? {
            Node::List(slot) | Node::Dict(slot) | Node::Tuple(slot) => {
                self.places.get(*slot as usize).copied()
            }
            _ => None,
        }
    }

    /// What a person calls this value.
    pub fn describe(&self, value: Value) -> Cow<'static, str> {
        match value {
            Value::None => "None".into(),
            Value::Bool(_) => "a bool".into(),
            Value::Int(value) => format!("the integer {value}").into(),
            Value::Nat(value) => format!("the integer {value}").into(),
            Value::Wide => "an integer of more than 64 bits".into(),
            Value::Float(_) => "a float".into(),
            Value::Row(_) => "a trace entry".into(),
            Value::Object(Object::Text { .. } | Object::Long(_)) => "a string".into(),
            Value::Object(Object::Pair(_)) => "a tuple".into(),
            Value::Object(Object::Node(node)) => match self.nodes.get(node as usize) {
                Some(Node::EmptyList | Node::List(_)) => "a list".into(),
                Some(Node::Rows(_)) => "a list of trace entries".into(),
                Some(Node::EmptyDict | Node::Dict(_)) => "a dict".into(),
                Some(Node::Row(_)) => "a trace entry".into(),
                Some(Node::Tuple(_)) | None => "a tuple".into(),
            },
        }
    }
}

impl Run {
    fn meets(self, next: Self) -> bool {
        self.start.checked_add(self.length) == Some(next.start)
    }
}

fn natural(value: Value) -> Option<u64> {
    match value {
        Value::Int(value) => u64::try_from(value).ok(),
        Value::Nat(value) => Some(value),
        _ => None,
    }
}

fn crowded() -> Wrong {
    Wrong::new("more lists and dicts than a snapshot of this size can hold", "a memory snapshot")
}

fn not_a(what: &str) -> Wrong {
    Wrong::new(format!("an item for something that is not a {what}"), format!("a {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_small() {
        assert_eq!((size_of::<Object>(), size_of::<Node>(), size_of::<Value>()), (8, 8, 16));
    }

    #[test]
    fn rows_in_order_stay_a_run_and_others_become_a_list() {
        let mut arena = Arena::new(b"");
        let Object::Node(list) = arena.node(Node::EmptyList).unwrap() else { panic!() };
        let rows: Vec<Value> =
            (0..4).map(|row| Value::Object(arena.node(Node::Row(row)).unwrap())).collect();
        arena.append(0, list, &rows[..2]).unwrap();
        arena.append(0, list, &rows[2..]).unwrap();
        assert_eq!(arena.rows(list), Some(Run { start: 0, length: 4 }));
        arena.append(0, list, &rows[..1]).unwrap();
        assert_eq!(arena.rows(list), None);
        let (_, values) = arena.content(list).unwrap();
        assert_eq!(values.len(), 5);
        assert_eq!(arena.row_of(values[4]), Some(0));
    }
}
