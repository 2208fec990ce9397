//! Tests: the wire's decisions, one by one, and that the schema and the code name the same keys.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::recording::{
    DeviceTrace, Event, FinalBlock, FinalSegment, Frame, NO_ALLOCATION, Recording, Stack, StackId,
};
use super::*;
use crate::vocab::{PoolId, StreamId};

fn trace(lines: &[&str]) -> Result<Recording, Malformed> {
    let mut text = String::from("{\"blockyard_trace\":1}\n");
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    decode(text.as_bytes())
}

fn refusal(lines: &[&str]) -> String {
    trace(lines).expect_err("refused").to_string()
}

/// A recording in which every key of the format is written.
fn everything() -> Recording {
    let mut recording = Recording {
        format: "csv".into(),
        settings: Some("max_split_size_mb:128".into()),
        settings_detail: vec![("max_split_size".into(), "-1".into())],
        streams: vec![0, 77],
        pools: vec![(0, 0), (1, 0)],
        markers: vec!["never shown".into(), "step 0".into()],
        has_pool_ids: true,
        says_inputs: true,
        ..Recording::default()
    };
    recording.notice("overflow", "the oldest events are missing");
    let frame = Frame { name: "forward".into(), file: "model.py".into(), line: 7 };
    let frame = recording.stacks.frame(frame);
    let stack = recording.stacks.stack(Stack { tag: "matmul".into(), frames: vec![frame] });
    let event = Event {
        address: 4096,
        bytes: 512,
        allocation: 0,
        stream: StreamId(1),
        pool: PoolId(1),
        stack,
        extent: 1024,
        line: 3,
        order: 2,
        class: Some(Class::Small),
        time_us: 9,
        kind: Kind::Alloc,
    };
    let marker = Event { stack: StackId(1), ..Event::new(Kind::Marker) };
    let block = FinalBlock {
        address: 4096,
        bytes: 512,
        requested: 500,
        state: BlockState::Allocated,
        stack,
    };
    let segment = FinalSegment {
        address: 4096,
        bytes: 512,
        stream: StreamId(1),
        pool: PoolId(1),
        class: Class::Small,
        expandable: true,
        range: Some((4096, 1 << 20)),
        order: 4,
        stack,
        blocks: vec![block],
    };
    let events = vec![event, marker, marker];
    let first =
        DeviceTrace { device: 2, events, allocations: 1, ids: vec![77], segments: vec![segment] };
    recording.devices = vec![first, DeviceTrace { device: 3, ..DeviceTrace::default() }];
    recording
}

fn encoded(recording: &Recording) -> String {
    let mut bytes = Vec::new();
    encode(recording, &mut bytes).expect("encoded");
    String::from_utf8(bytes).expect("text")
}

#[test]
fn a_small_trace_reads_as_it_looks() {
    let recording = trace(&[
        r#"{"k":"alloc","id":0,"bytes":512}"#,
        r#"{"k":"marker","text":"step 1"}"#,
        r#"{"k":"free","id":0}"#,
        r#"{"k":"end","events":2}"#,
    ]);
    let recording = recording.expect("read");
    assert_eq!(recording.format, "blockyard-trace");
    assert_eq!((&recording.streams[..], &recording.pools[..]), (&[0][..], &[(0, 0)][..]));
    let [device] = &recording.devices[..] else { panic!("one device") };
    let kinds: Vec<_> = device.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [Kind::Alloc, Kind::Marker, Kind::Free]);
    assert_eq!((device.allocations, device.events[0].bytes), (1, 512));
    assert_eq!(recording.markers, ["step 1"]);
    assert!(recording.notices.is_empty());
}

#[test]
fn what_is_written_for_everything() {
    let text = encoded(&everything());
    let lines: Vec<_> = text.lines().collect();
    let alloc = r#"{"k":"alloc","id":0,"bytes":512,"addr":4096,"stream":1,"pool":1,"stack":1,"line":3,"us":9}"#;
    assert_eq!(lines[1], r#"{"k":"frame","i":0,"name":"forward","file":"model.py","line":7}"#);
    assert_eq!(lines[2], r#"{"k":"stack","i":1,"tag":"matmul","frames":[0]}"#);
    assert_eq!(lines[3], alloc);
    assert_eq!(lines[4], r#"{"k":"marker_text","text":"never shown"}"#);
    assert_eq!(lines[5], r#"{"k":"marker","text":"step 0"}"#);
    assert_eq!(lines[6], r#"{"k":"marker","again":1}"#);
    assert_eq!(lines.last(), Some(&r#"{"k":"end","events":1}"#));
    assert_eq!(decode(text.as_bytes()).as_ref(), Ok(&everything()));
}

#[test]
fn the_new_is_skipped_and_the_newer_refused() {
    let recording = trace(&[
        r#"{"k":"alloc","id":0,"bytes":512,"colour":"red"}"#,
        r#"{"k":"weather","bytes":"sunny"}"#,
        r#"{"bytes":[1],"k":"weather"}"#,
        r#"{"k":"end","events":1}"#,
    ]);
    let notices = recording.expect("read").notices;
    assert_eq!(notices.len(), 1);
    assert_eq!(notices[0].code, "skipped-record");
    assert!(notices[0].text.ends_with("2 (\"weather\"), the first in line 3"), "{notices:?}");
    let newer = decode(b"{\"blockyard_trace\":2,\"devices\":\"none\"}").expect_err("refused");
    assert_eq!(
        newer.to_string(),
        "line 1: field \"blockyard_trace\": found 2, expected at most 1 (a newer blockyard wrote this trace)"
    );
}

#[test]
fn w2_refusals_name_line_field_and_expectation() {
    for (line, text) in [
        (
            r#"{"k":"alloc","id":0,"bytes":"x"}"#,
            r#"line 2: field "bytes": found "x", expected a non-negative integer"#,
        ),
        (
            r#"{"k":"alloc","id":0}"#,
            r#"line 2: field "bytes": found nothing, expected a non-negative integer"#,
        ),
        (
            r#"{"k":"alloc","bytes":1}"#,
            r#"line 2: field "id": found nothing, expected the allocation's number"#,
        ),
        (
            r#"{"k":"free","bytes":2,"addr":18446744073709551614}"#,
            r#"line 2: field "bytes": found 2, expected address and bytes below 2^64"#,
        ),
        (
            r#"{"k":"segment","addr":18446744073709551615,"bytes":1,"class":"small"}"#,
            r#"line 2: field "bytes": found 1, expected address and bytes below 2^64"#,
        ),
        (
            r#"{"k":"free","id":-1}"#,
            r#"line 2: field "id": found -1, expected an integer from 0 to 4294967295"#,
        ),
        (
            r#"{"k":"free","id":4294967294}"#,
            r#"line 2: field "id": found 4294967294, expected allocations numbered densely from 0"#,
        ),
        (
            r#"{"k":"free","id":0,"stack":3}"#,
            r#"line 2: field "stack": found 3, expected a number below 1, as the lines before define it"#,
        ),
        (
            r#"{"k":"stack","i":1,"frames":[0]}"#,
            r#"line 2: field "frames": found 0, expected a number below 0, as the lines before define it"#,
        ),
        (r#"{"k":"frame","i":5}"#, r#"line 2: field "i": found 5, expected 0, the next number"#),
        (r#"{"k":"frame"}"#, r#"line 2: field "i": found nothing, expected a value"#),
        (r#"{"id":0}"#, r#"line 2: field "k": found nothing, expected the kind of the record"#),
        (
            r#"{"k":"end","events":4}"#,
            r#"line 2: field "events": found 4, expected 0 (the events that precede it)"#,
        ),
        (
            r#"{"k":"segment","addr":0,"bytes":1,"class":"tiny"}"#,
            r#"line 2: field "class": found "tiny", expected small or large"#,
        ),
        (
            r#"{"k":"segment","addr":0,"bytes":1,"class":"small","blocks":[{"addr":-2}]}"#,
            r#"line 2: field "blocks[0].addr": found -2, expected a non-negative integer"#,
        ),
        ("[1]", "line 2: found [1], expected a JSON object"),
    ] {
        assert_eq!(refusal(&[line]), text);
    }
    let syntax = refusal(&["{\"k\":\"free\",,}"]);
    assert!(syntax.starts_with("line 2: found bad JSON at column 13 near"), "{syntax}");
    assert!(refusal(&[r#"{"k":"end","events":0}"#, "{}"]).contains("nothing after the end record"));
    let header = decode(b"a,1,512,0\n").expect_err("no trace").to_string();
    assert_eq!(header, "line 1: found a,1,512,0, expected a header like {\"blockyard_trace\":1}");
}

#[test]
fn a_cut_file_is_read_up_to_the_cut_and_says_so() {
    let text = encoded(&everything());
    let cut = text.find("\"marker_text\"").expect("there");
    let recording = decode(&text.as_bytes()[..cut]).expect("read");
    assert_eq!(recording.devices[0].events.len(), 1);
    assert_eq!(recording.notices[0].code, "cut-short");
}

#[test]
fn what_the_recording_lacks_cannot_be_written() {
    let mut recording = everything();
    recording.devices[0].events[0].stack = StackId(9);
    let error = encode(&recording, &mut Vec::new()).expect_err("refused");
    assert_eq!(error.to_string(), "the recording names stack 9 but does not have it");
    let mut marker = everything();
    marker.devices[0].events[1].stack = StackId(NO_ALLOCATION);
    assert!(encode(&marker, &mut Vec::new()).is_err());
}

/// Every key in a JSON value.
fn keys_of(value: &Value, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            keys.extend(object.keys().cloned());
            object.values().for_each(|value| keys_of(value, keys));
        }
        Value::Array(list) => list.iter().for_each(|value| keys_of(value, keys)),
        _ => {}
    }
}

/// Every key that a schema names under `properties`.
fn properties_of(schema: &Value, keys: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::Object(properties)) = object.get("properties") {
                keys.extend(properties.keys().cloned());
            }
            object.values().for_each(|value| properties_of(value, keys));
        }
        Value::Array(list) => list.iter().for_each(|value| properties_of(value, keys)),
        _ => {}
    }
}

#[test]
fn schema_code_and_diagnosis_name_the_same_keys() {
    let schema = include_str!("../../../docs/trace.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    let (mut stated, mut written) = (BTreeSet::new(), BTreeSet::new());
    properties_of(&schema, &mut stated);
    for line in encoded(&everything()).lines() {
        keys_of(&serde_json::from_str(line).expect("JSON"), &mut written);
    }
    let diagnosed: BTreeSet<_> = decode::known_keys().map(str::to_owned).collect();
    assert_eq!(stated, written);
    assert_eq!(stated, diagnosed);
}

#[test]
fn the_schema_lists_every_kind_and_state() {
    let schema = include_str!("../../../docs/trace.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    let listed = |path: &str| -> BTreeSet<String> {
        let list = schema.pointer(path).and_then(Value::as_array).expect(path);
        list.iter().map(|name| name.as_str().expect("a text").to_owned()).collect()
    };
    let kinds: BTreeSet<_> = KINDS.iter().map(|(_, name)| (*name).to_owned()).collect();
    assert_eq!(listed("/$defs/event/properties/k/enum"), kinds);
    let states: BTreeSet<_> = STATES.iter().map(|(_, name)| (*name).to_owned()).collect();
    assert_eq!(listed("/$defs/block/properties/state/enum"), states);
    for record in RECORDS {
        let stated = schema.pointer(&format!("/$defs/{record}/properties/k/const"));
        assert_eq!(stated.and_then(Value::as_str), Some(record));
    }
}
