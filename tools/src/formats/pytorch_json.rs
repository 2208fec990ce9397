//! JSON snapshots: the schema of PyTorch's memory snapshots as JSON, as the official viewer also
//! opens it.
//!
//! Trace entries and segments are read one at a time, so that only one stands in memory as JSON.

use std::borrow::Cow;
use std::fmt;

use blockyard::trace::{Event, Kind, Recording};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::error::{Place, Wrong};
use super::pytorch::Builder;
use super::tree::Tree;

/// What a file of JSON should be.
pub(crate) const EXPECTED: &str =
    "a memory snapshot: an object with segments or device_traces, or a list of segments";

/// Reads a JSON snapshot.
pub(crate) fn read(input: &[u8]) -> Result<Recording, Wrong> {
    let mut reader = Reader { builder: Builder::new("pytorch-json"), wrong: None };
    let mut json = serde_json::Deserializer::from_slice(input);
    let read = Top(&mut reader).deserialize(&mut json).and_then(|()| json.end());
    match read {
        Ok(()) => reader.builder.finish(),
        Err(error) => {
            let place = Place::Byte(offset(input, &error));
            let wrong = reader.wrong.unwrap_or_else(|| syntax(&error));
            Err(wrong.at(place))
        }
    }
}

fn syntax(error: &serde_json::Error) -> Wrong {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    Wrong::new(text[..end].to_string(), EXPECTED)
}

/// The offset that an error's line and column mean.
fn offset(input: &[u8], error: &serde_json::Error) -> u64 {
    if error.is_eof() {
        return input.len() as u64;
    }
    let mut start = 0;
    for _ in 1..error.line() {
        match memchr::memchr(b'\n', &input[start..]) {
            Some(end) => start += end + 1,
            None => break,
        }
    }
    (start + error.column().saturating_sub(1)).min(input.len()) as u64
}

struct Reader {
    builder: Builder,
    /// The complaint that made the parser stop.
    wrong: Option<Wrong>,
}

impl Reader {
    /// Keeps the complaint and stops the parser.
    fn stop<E: Error>(&mut self, wrong: Wrong) -> E {
        self.wrong = Some(wrong);
        E::custom("stopped")
    }

    fn event(&mut self, entry: &Value) -> Result<Event, Wrong> {
        let mut event = Event::new(Kind::Other);
        let Some(object) = entry.as_object().filter(|object| object.contains_key("action")) else {
            return Err(entry.wrong("a trace entry", "an object with an action"));
        };
        for (key, value) in object {
            self.builder.entry(&mut event, key.as_bytes(), value)?;
        }
        self.builder.end_entry(&mut event);
        Ok(event)
    }
}

/// The whole file.
struct Top<'r>(&'r mut Reader);

impl<'de> DeserializeSeed<'de> for Top<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        self.0.builder.only_segments();
        Segments(self.0).visit_seq(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let reader = self.0;
        let mut known = false;
        let mut keys = Vec::new();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            known |= matches!(&*key, "segments" | "device_traces");
            match &*key {
                "segments" => map.next_value_seed(Segments(&mut *reader))?,
                "device_traces" => map.next_value_seed(Traces(&mut *reader))?,
                "allocator_settings" => {
                    let settings: Value = map.next_value()?;
                    if !settings.is_null()
                        && let Err(wrong) = reader.builder.settings(&settings)
                    {
                        return Err(reader.stop(wrong));
                    }
                }
                "trace_alloc_overflowed" => reader.builder.overflow(&map.next_value::<Value>()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    if keys.len() < 6 {
                        keys.push(format!("`{key}`"));
                    }
                }
            }
        }
        if known {
            return Ok(());
        }
        let found = match keys.is_empty() {
            true => "an empty object".to_string(),
            false => format!("an object with {}", keys.join(", ")),
        };
        Err(reader.stop(Wrong::new(found, EXPECTED).at(Place::Byte(0))))
    }
}

/// A list of segments.
struct Segments<'r>(&'r mut Reader);

impl<'de> DeserializeSeed<'de> for Segments<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Segments<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of segments")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(segment) = seq.next_element::<Value>()? {
            if let Err(wrong) = self.0.builder.segment(&segment) {
                return Err(self.0.stop(wrong));
            }
        }
        Ok(())
    }
}

/// The traces of all devices.
struct Traces<'r>(&'r mut Reader);

impl<'de> DeserializeSeed<'de> for Traces<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Traces<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of one list of trace entries for each device")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut device = 0;
        while let Some(events) = seq.next_element_seed(Trace(&mut *self.0))? {
            if let Err(wrong) = self.0.builder.trace(device, events) {
                return Err(self.0.stop(wrong));
            }
            device += 1;
        }
        Ok(())
    }
}

/// The trace of one device.
struct Trace<'r>(&'r mut Reader);

impl<'de> DeserializeSeed<'de> for Trace<'_> {
    type Value = Vec<Event>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Event>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Trace<'_> {
    type Value = Vec<Event>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of trace entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Event>, A::Error> {
        let mut events = Vec::new();
        while let Some(entry) = seq.next_element::<Value>()? {
            match self.0.event(&entry) {
                Ok(event) => events.push(event),
                Err(wrong) => return Err(self.0.stop(wrong)),
            }
        }
        Ok(events)
    }
}
