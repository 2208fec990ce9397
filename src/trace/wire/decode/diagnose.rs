//! Diagnose: which key of a line is wrong, and what should stand there.
//!
//! Asked only once a line failed to parse; knows the shape of every key of the format.

use serde_json::Value;

use super::super::{MAGIC, Malformed};

/// What a size, address or number must be.
pub(super) const WHOLE: &str = "a non-negative integer";

/// The shape of a value.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    U64,
    U32,
    Text,
    Flag,
    /// A list of values, each of which is described by the text.
    List(&'static str),
    /// A list of objects with the same keys as records.
    Records,
}

/// Every key of the format. The same key has the same shape wherever it stands.
pub(super) const KEYS: [(&str, Shape); 38] = [
    (MAGIC, Shape::U64),
    ("format", Shape::Text),
    ("devices", Shape::Records),
    ("device", Shape::U32),
    ("allocations", Shape::U32),
    ("ids", Shape::List("a list of non-negative integers")),
    ("settings", Shape::Text),
    ("settings_detail", Shape::List("a list of pairs of texts")),
    ("streams", Shape::List("a list of non-negative integers")),
    ("pools", Shape::List("a list of pairs of non-negative integers")),
    ("has_pool_ids", Shape::Flag),
    ("says_inputs", Shape::Flag),
    ("k", Shape::Text),
    ("id", Shape::U32),
    ("bytes", Shape::U64),
    ("addr", Shape::U64),
    ("stream", Shape::U32),
    ("pool", Shape::U32),
    ("stack", Shape::U32),
    ("text", Shape::Text),
    ("again", Shape::U32),
    ("line", Shape::U32),
    ("us", Shape::U64),
    ("i", Shape::U32),
    ("name", Shape::Text),
    ("file", Shape::Text),
    ("tag", Shape::Text),
    ("frames", Shape::List("a list of non-negative integers")),
    ("extent", Shape::U64),
    ("order", Shape::U32),
    ("class", Shape::Text),
    ("expandable", Shape::Flag),
    ("range", Shape::List("a pair of non-negative integers")),
    ("blocks", Shape::Records),
    ("requested", Shape::U64),
    ("state", Shape::Text),
    ("code", Shape::Text),
    ("events", Shape::U64),
];

impl Shape {
    fn expected(self) -> &'static str {
        match self {
            Self::U64 => WHOLE,
            Self::U32 => "an integer from 0 to 4294967295",
            Self::Text => "a text",
            Self::Flag => "true or false",
            Self::List(what) => what,
            Self::Records => "a list of objects",
        }
    }

    fn fits(self, value: &Value) -> bool {
        match self {
            Self::U64 => value.is_u64(),
            Self::U32 => value.as_u64().is_some_and(|number| u32::try_from(number).is_ok()),
            Self::Text => value.is_string(),
            Self::Flag => value.is_boolean(),
            Self::List(_) | Self::Records => value.is_array(),
        }
    }
}

/// Why this line, which failed with `error`, cannot be read.
pub(super) fn explain(text: &[u8], line: usize, error: &serde_json::Error) -> Malformed {
    let malformed = |field, found: String, expected: &str| Malformed {
        line,
        field,
        found,
        expected: expected.to_owned(),
    };
    let value: Value = match serde_json::from_slice(text) {
        Ok(value) => value,
        Err(error) => {
            let near = near(text, error.column());
            return malformed(None, near, "one JSON object on each line");
        }
    };
    if !value.is_object() {
        return malformed(None, shortened(&value.to_string()), "a JSON object");
    }
    match culprit(&value, "") {
        Some((field, found, expected)) => malformed(Some(field), found, expected),
        None => generic(line, &value, error),
    }
}

/// The first key whose value has the wrong shape.
fn culprit(value: &Value, prefix: &str) -> Option<(String, String, &'static str)> {
    let object = value.as_object()?;
    for (key, shape) in &KEYS {
        let Some(value) = object.get(*key) else { continue };
        let path = format!("{prefix}{key}");
        if !shape.fits(value) {
            return Some((path, shortened(&value.to_string()), shape.expected()));
        }
        if let (Shape::Records, Some(list)) = (shape, value.as_array()) {
            let inner = |(at, one): (usize, &Value)| culprit(one, &format!("{prefix}{key}[{at}]."));
            if let Some(found) = list.iter().enumerate().find_map(inner) {
                return Some(found);
            }
        }
    }
    None
}

/// What the parser said, without its own idea of a line number.
fn generic(line: usize, value: &Value, error: &serde_json::Error) -> Malformed {
    let said = error.to_string();
    let said = said.split(" at line ").next().unwrap_or_default().replace('`', "\"");
    if let Some(key) = said.strip_prefix("missing field ") {
        return Malformed {
            line,
            field: Some(key.trim_matches('"').to_owned()),
            found: "nothing".to_owned(),
            expected: "a value".to_owned(),
        };
    }
    Malformed {
        line,
        field: None,
        found: shortened(&value.to_string()),
        expected: format!("a record that fits its kind ({said})"),
    }
}

/// The text around a column (from 1).
fn near(text: &[u8], column: usize) -> String {
    let from = column.saturating_sub(20).min(text.len());
    let until = (column + 20).min(text.len());
    let part = shortened(&String::from_utf8_lossy(&text[from..until]));
    format!("bad JSON at column {column} near {}", quoted(&part))
}

/// At most forty characters of a text, on one line.
pub(super) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(40).map(visible).collect();
    if text.chars().nth(40).is_some() {
        short.push_str("...");
    }
    short
}

fn visible(character: char) -> char {
    if character.is_control() { ' ' } else { character }
}

/// A text in quotation marks.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", shortened(text))
}
