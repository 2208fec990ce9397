//! Common: the binary, files and schemas, for the tests of the searches.
#![allow(dead_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

pub mod workloads;

/// A training run that died of fragmentation.
pub const EXAMPLE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/gpt2_varlen_9g_oom.pickle");
/// 36 times a buffer of 530 MiB is freed and 270 MiB are kept.
pub const QUANTISED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/cases/sequences/quantised-load.csv");
/// Every request on a stream of its own.
pub const STREAMS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/cases/sequences/one-shot-streams.csv");

pub fn blockyard(arguments: &[&str]) -> Output {
    with_threads(0, arguments)
}

/// With so many threads; 0: as the machine has.
pub fn with_threads(threads: usize, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
    command.args(arguments).env("RAYON_NUM_THREADS", threads.to_string());
    command.output().unwrap()
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn json(arguments: &[&str]) -> Value {
    let output = blockyard(arguments);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", stderr(&output)))
}

pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

pub fn write(folder: &Path, name: &str, text: &str) -> String {
    let path: PathBuf = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}

/// The keys of a document are those that its schema states, all of them required ones.
pub fn assert_schema(name: &str, documents: &[Value]) {
    let path = format!("{}/../docs/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let (mut stated, mut written) = (BTreeSet::new(), BTreeSet::new());
    stated_keys(&schema, &mut stated);
    documents.iter().for_each(|document| written_keys(document, &mut written));
    assert_eq!(stated, written, "docs/{name}.schema.json against what is written");
    for document in documents {
        check(&schema, &schema, document, "$");
    }
}

fn stated_keys(schema: &Value, keys: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::Object(properties)) = object.get("properties") {
                keys.extend(properties.keys().cloned());
            }
            object.values().for_each(|value| stated_keys(value, keys));
        }
        Value::Array(list) => list.iter().for_each(|value| stated_keys(value, keys)),
        _ => {}
    }
}

fn written_keys(document: &Value, keys: &mut BTreeSet<String>) {
    match document {
        Value::Object(object) => {
            keys.extend(object.keys().cloned());
            object.values().for_each(|value| written_keys(value, keys));
        }
        Value::Array(list) => list.iter().for_each(|value| written_keys(value, keys)),
        _ => {}
    }
}

/// Types, required keys and words of a document, by the few keywords that the schemas here use.
fn check(root: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        let target = root.pointer(name.trim_start_matches('#')).unwrap();
        return check(root, target, value, at);
    }
    if let Some(options) = schema.get("anyOf").and_then(Value::as_array) {
        if value.is_null() && options.iter().any(|option| option["type"] == "null") {
            return;
        }
        let other = options.iter().find(|option| option["type"] != "null").unwrap();
        return check(root, other, value, at);
    }
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.clone(),
        Value::Null => Vec::new(),
        kind => vec![kind.clone()],
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    assert!(kinds.is_empty() || kinds.iter().any(|one| one == kind), "{at}: {kind}, not {kinds:?}");
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        assert!(words.contains(value), "{at}: {value} is none of {words:?}");
    }
    if let (Some(object), Some(properties)) = (value.as_object(), schema.get("properties")) {
        for key in schema["required"].as_array().into_iter().flatten() {
            assert!(object.contains_key(key.as_str().unwrap()), "{at}: no {key}");
        }
        for (key, value) in object {
            check(root, &properties[key], value, &format!("{at}.{key}"));
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(root, &schema["items"], item, &format!("{at}[{index}]"));
    }
}
