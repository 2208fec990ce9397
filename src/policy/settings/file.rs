//! File: a settings file, TOML or JSON, to a policy.
//!
//! Keys are PyTorch's and this project's, flat, and two more: `preset`, the policy to begin with
//! (`pytorch` if absent), and `name`, what the policy is called in results (the file's name if
//! absent).

use std::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use serde::de::{MapAccess, Visitor};
use serde_json::Value as Json;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    Effective, Key, Place, Said, SettingsError, Source, apply,
    keys::nearest,
    parse::{self, Dialect},
    spec,
};
use crate::policy::presets;

/// The policy that a settings file describes. `name` is the file's name: it tells JSON (`.json`, or
/// a text that begins with a brace) from TOML, and is said in errors and sources.
///
/// # Errors
/// The first key that is unknown or value that cannot be taken, with the line.
pub fn from_file_text(name: &str, text: &str) -> Result<Effective, SettingsError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let json = name.ends_with(".json") || text.trim_start().starts_with('{');
    let lines = if json { from_json(text) } else { from_toml(text) };
    lines.and_then(|lines| effective(name, &lines)).map_err(|error| error.origin(name))
}

/// One key of a file: its value as a settings text would spell it, or what is wrong with its type.
struct Line {
    key: String,
    value: Result<String, &'static str>,
    number: usize,
}

fn effective(name: &str, lines: &[Line]) -> Result<Effective, SettingsError> {
    let mut base = presets::pytorch();
    let mut title = name;
    let mut said = Said::default();
    for line in lines {
        let place = Place::Line(line.number);
        let value = line.value.as_deref();
        match (line.key.as_str(), value) {
            ("preset", Ok(preset)) => {
                base = spec::preset(preset).map_err(|error| error.key("preset").at(place))?;
            }
            ("name", Ok(name)) => title = name,
            ("preset" | "name", Err(found)) => {
                let error = SettingsError::new(format!("expected a text, found {found}"));
                return Err(error.key(&line.key).at(place));
            }
            (key, value) => {
                let key = known(key).map_err(|error| error.at(place))?;
                let value = value.map_err(|found| {
                    let expected = key.kind().expected();
                    let problem = format!("expected {expected}, found {found}");
                    SettingsError::new(problem).of(key).at(place)
                })?;
                said.set(key, value, Some(place))?;
            }
        }
    }
    let mut effective = apply(base, &said, Source::File(name.into()))?;
    effective.policy.name = title.into();
    Ok(effective)
}

/// The key of that name; the hint knows the file's own two as well.
fn known(name: &str) -> Result<Key, SettingsError> {
    parse::key(name, Dialect::Own).map_err(|error| {
        match nearest(name, ["preset", "name"].into_iter()) {
            Some(meant) if !error.problem.contains("did you mean") => {
                SettingsError::new(format!("unknown setting; did you mean {meant}?")).key(name)
            }
            _ => error,
        }
    })
}

fn line_of(text: &str, byte: usize) -> usize {
    let before = &text.as_bytes()[..byte.min(text.len())];
    before.iter().filter(|&&letter| letter == b'\n').count() + 1
}

fn from_toml(text: &str) -> Result<Vec<Line>, SettingsError> {
    let table = DeTable::parse(text).map_err(|error| {
        let line = line_of(text, error.span().map_or(0, |span| span.start));
        let problem = error.message().lines().collect::<Vec<_>>().join(", ");
        SettingsError::new(format!("not TOML: {problem}")).at(Place::Line(line))
    })?;
    let mut keys: Vec<_> = table.get_ref().iter().collect();
    keys.sort_by_key(|(key, _)| key.span().start);
    let line = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let key: &Spanned<std::borrow::Cow<'_, str>> = key;
        Line {
            key: key.get_ref().to_string(),
            value: toml_text(value.get_ref()),
            number: line_of(text, key.span().start),
        }
    };
    Ok(keys.into_iter().map(line).collect())
}

fn toml_text(value: &DeValue<'_>) -> Result<String, &'static str> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.to_string()),
        DeValue::Float(number) => Ok(number.to_string()),
        DeValue::Boolean(on) => Ok(flag(*on).into()),
        DeValue::Table(table) => {
            let pairs = table
                .iter()
                .map(|(size, value)| Ok((size.get_ref().to_string(), toml_text(value.get_ref())?)));
            pairs.collect::<Result<_, _>>().map(list)
        }
        DeValue::Datetime(_) => Err("a date"),
        DeValue::Array(_) => Err("an array"),
    }
}

const fn flag(on: bool) -> &'static str {
    if on { "True" } else { "False" }
}

/// Pairs as a list of a settings text: sizes rising, `>` last.
fn list(mut pairs: Vec<(String, String)>) -> String {
    pairs.sort_by_key(|(size, _)| size.parse().unwrap_or(u64::MAX));
    let pairs: Vec<_> = pairs.iter().map(|(size, value)| format!("{size}:{value}")).collect();
    format!("[{}]", pairs.join(","))
}

fn from_json(text: &str) -> Result<Vec<Line>, SettingsError> {
    let Pairs(pairs) = serde_json::from_str(text).map_err(|error| {
        let full = error.to_string();
        let problem = full.split(" at line ").next().unwrap_or_default();
        SettingsError::new(format!("not a JSON object: {problem}")).at(Place::Line(error.line()))
    })?;
    let mut from = 0;
    let mut lines = Vec::new();
    for (key, value) in pairs {
        from = place_of(text, &key, from);
        let number = line_of(text, from);
        lines.push(Line { key, value: json_text(&value), number });
    }
    Ok(lines)
}

fn json_text(value: &Json) -> Result<String, &'static str> {
    match value {
        Json::String(text) => Ok(text.clone()),
        Json::Number(number) => Ok(number.to_string()),
        Json::Bool(on) => Ok(flag(*on).into()),
        Json::Object(table) => {
            let pairs = table.iter().map(|(size, value)| Ok((size.clone(), json_text(value)?)));
            pairs.collect::<Result<_, _>>().map(list)
        }
        Json::Null => Err("null"),
        Json::Array(_) => Err("an array"),
    }
}

/// Where a key of a flat JSON object stands, searched from `from` on; `from` itself if its spelling
/// is escaped.
fn place_of(text: &str, key: &str, from: usize) -> usize {
    let quoted = format!("\"{key}\"");
    let rest = text.get(from..).unwrap_or_default();
    let mut hits = rest.match_indices(&quoted).map(|(at, _)| at);
    let is_key = |at: &usize| rest[at + quoted.len()..].trim_start().starts_with(':');
    hits.find(is_key).map_or(from, |at| from + at + 1)
}

/// A JSON object in the order of the text, repeated keys included.
struct Pairs(Vec<(String, Json)>);

impl<'de> serde::Deserialize<'de> for Pairs {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor)
    }
}

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Pairs;

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("an object of settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Pairs(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Concern, Value};
    use super::*;
    use crate::{
        policy::Backing,
        vocab::{MIB, Order},
    };

    fn error(name: &str, text: &str) -> String {
        from_file_text(name, text).unwrap_err().to_string()
    }

    #[test]
    fn toml_and_json_say_the_same() {
        let toml = "# a comment\npreset = \"blockyard\"\nmax_split_size_mb = 64\n\
                    tie_order = \"address\"\nevict_private = false\n\
                    garbage_collection_threshold = 0.5\nper_process_memory_fraction = 1\n\
                    roundup_power2_divisions = { 256 = 1, 64 = 2, \">\" = 8 }\nlarge_page_mb = 4\n";
        let json = r#"{"preset": "blockyard", "max_split_size_mb": 64, "tie_order": "address",
            "evict_private": false, "garbage_collection_threshold": 0.5,
            "per_process_memory_fraction": 1, "large_page_mb": "4",
            "roundup_power2_divisions": {"256": 1, "64": 2, ">": 8}}"#;
        let mut first = from_file_text("x.toml", toml).unwrap();
        let second = from_file_text("x.json", json).unwrap();
        assert_eq!(first.policy.name, "x.toml");
        first.policy.name = "x.json".into();
        assert_eq!(first.policy, second.policy);
        assert_eq!(first.policy.max_split, 64 * MIB);
        assert_eq!(first.policy.order, Order::Address);
        assert_eq!(first.policy.backing, Backing::Pages { small: 2 * MIB, large: 4 * MIB });
        assert_eq!(first.policy.divisions[..10], [2, 2, 2, 2, 2, 2, 2, 0, 1, 8]);
        assert!(!first.policy.evict_private);
        let source = &first.entry(Key::TieOrder).source;
        assert_eq!(source, &Source::File("x.toml".into()));
        assert_eq!(first.entry(Key::EvictPrivate).requested.as_deref(), Some("False"));
    }

    #[test]
    fn an_empty_file_is_pytorch() {
        let mut policy = from_file_text("x.toml", "name = \"mine\"").unwrap().policy;
        assert_eq!(policy.name, "mine");
        policy.name = "pytorch".into();
        assert_eq!(policy, presets::pytorch());
    }

    #[test]
    fn errors_name_file_line_key_and_what_was_expected() {
        for (name, text, wanted) in [
            ("x.toml", "a", "x.toml:1: not TOML:"),
            (
                "x.toml",
                "tie_order = \"address\"\n\nmax_split_size = 1\n",
                "x.toml:3: max_split_size: unknown setting; did you mean max_split_size_mb?",
            ),
            (
                "x.toml",
                "presets = \"a\"",
                "x.toml:1: presets: unknown setting; did you mean preset?",
            ),
            (
                "x.toml",
                "\npreset = \"torch\"",
                "x.toml:2: preset \"torch\": unknown policy, expected pytorch,",
            ),
            ("x.toml", "\npreset = [1]", "x.toml:2: preset: expected a text, found an array"),
            (
                "x.toml",
                "max_split_size_mb = [1]",
                "x.toml:1: max_split_size_mb: expected a whole number of MiB, at least 1, \
                 found an array",
            ),
            (
                "x.toml",
                "evict_private = 1",
                "x.toml:1: evict_private \"1\": expected exactly True or False",
            ),
            (
                "x.toml",
                "\nmax_split_size_mb = 19",
                "x.toml:2: max_split_size_mb \"19\": expected at least 20, the \
                 large_segment_size_mb in force",
            ),
            (
                "x.toml",
                "preset = \"blockyard\"\nlarge_page_mb = 3",
                "x.toml:2: large_page_mb \"3\": expected a multiple of 2 MiB, is 3 MiB",
            ),
            ("x.toml", "[other]\na = 1", "x.toml:1: other: unknown setting"),
            (
                "x.json",
                "{\n\"tie_order\": \"address\",\n \"tie_ordr\" : 1}",
                "x.json:3: tie_ordr: unknown setting; did you mean tie_order?",
            ),
            (
                "x.json",
                "{\n\"limit_check\": null}",
                "x.json:2: limit_check: expected segment or exact, found null",
            ),
            ("x.json", "[1]", "x.json:1: not a JSON object:"),
            ("x.json", "", "x.json:1: not a JSON object:"),
        ] {
            let found = error(name, text);
            assert!(found.starts_with(wanted), "{found}\n{wanted}");
            assert_eq!(found.lines().count(), 1, "{found}");
        }
    }

    #[test]
    fn deep_nesting_is_an_error() {
        for open in ["[", "{a=", "{\"a\":"] {
            let deep = open.repeat(200_000);
            assert!(from_file_text("x.toml", &format!("a = {deep}")).is_err());
            assert!(from_file_text("x.json", &deep).is_err());
        }
    }

    #[test]
    fn a_repeated_key_is_said() {
        let twice = r#"{"max_split_size_mb": 30, "max_split_size_mb": 40}"#;
        let effective = from_file_text("x.json", twice).unwrap();
        assert_eq!(effective.policy.max_split, 40 * MIB);
        assert_eq!(effective.warnings[0].concern, Concern::Duplicate);
        let mut said = Said::default();
        said.set(Key::MaxSplitSizeMb, "30", None).unwrap();
        assert_eq!(said.get(Key::MaxSplitSizeMb).unwrap().value, Value::Bytes(30 * MIB));
    }
}
