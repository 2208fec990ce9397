//! Tests: what a view and a history become, and that the schema and the code name the same keys.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::recording::{Event, Interner, Kind, Stack, StackId};
use super::*;
use crate::vocab::{
    Address, BlockState, BlockView, Class, HeapView, PoolId, SegmentView, StreamId, Ticket,
};

const PAGE: u64 = 2 << 20;

fn block(address: u64, bytes: u64, requested: u64, state: BlockState) -> BlockView {
    BlockView { address: Address(address), bytes, requested, state, ticket: Ticket(4) }
}

/// An expandable segment with a hole between two mapped ranges.
fn holed() -> HeapView {
    let blocks = vec![
        block(PAGE, 512, 500, BlockState::Allocated),
        block(PAGE + 512, PAGE - 512, 0, BlockState::Free),
        block(2 * PAGE, PAGE, 0, BlockState::Unmapped),
        block(3 * PAGE, PAGE, PAGE, BlockState::AwaitingFree),
        block(4 * PAGE, PAGE, 0, BlockState::Unmapped),
    ];
    let segment = SegmentView {
        base: Address(PAGE),
        bytes: 4 * PAGE,
        stream: StreamId(1),
        pool: PoolId(1),
        class: Class::Large,
        expandable: true,
        order: 0,
        blocks,
    };
    HeapView { segments: vec![segment] }
}

fn example() -> Snapshot {
    let mut stacks = Interner::default();
    let frame = stacks.frame(Frame { name: "forward".into(), file: "net.py".into(), line: 3 });
    let called = stacks.stack(Stack { tag: String::new(), frames: vec![frame] });
    let tagged = stacks.tag("relu");
    let markers = ["step 0".to_owned()];
    let names =
        Names { stacks: &stacks, streams: &[0, 77], pools: &[(0, 0), (5, 0)], markers: &markers };
    let mut builder = Builder::new(names).origin(Some("pytorch"), Some(3));
    builder.setting("max_split_size", Setting::parse("-1"));
    builder.setting("PYTORCH_CUDA_ALLOC_CONF", Setting::Text("expandable_segments:True".into()));
    builder.view(0, &holed(), |ticket| if ticket == Ticket(4) { called } else { StackId(0) });
    let alloc = Event {
        address: PAGE,
        bytes: 500,
        allocation: 0,
        stream: StreamId(1),
        pool: PoolId(1),
        stack: tagged,
        time_us: 8,
        ..Event::new(Kind::Alloc)
    };
    let events = [
        alloc,
        Event { kind: Kind::Use, ..alloc },
        Event { kind: Kind::Free, ..alloc },
        Event { address: 99, ..Event::new(Kind::Oom) },
        Event::new(Kind::Marker),
        Event::new(Kind::Alloc),
    ];
    builder.history(0, &events).expect("a device");
    builder.finish()
}

fn json_of(snapshot: &Snapshot) -> Value {
    let mut bytes = Vec::new();
    snapshot.to_json(&mut bytes).expect("written");
    serde_json::from_slice(&bytes).expect("JSON")
}

#[test]
fn an_expandable_segment_is_one_entry_for_each_mapped_range() {
    let json = json_of(&example());
    let segments = json["segments"].as_array().expect("a list");
    assert_eq!(segments.len(), 2);
    let frames = json!([{"name": "forward", "filename": "net.py", "line": 3}]);
    let first = json!({
        "device": 0, "address": PAGE, "total_size": PAGE, "allocated_size": 512, "active_size": 512,
        "requested_size": 500, "stream": 77, "segment_type": "large", "segment_pool_id": [5, 0],
        "is_expandable": true, "frames": [], "blocks": [
            {"address": PAGE, "size": 512, "requested_size": 500, "state": "active_allocated",
             "frames": frames},
            {"address": PAGE + 512, "size": PAGE - 512, "requested_size": 0, "state": "inactive",
             "frames": []},
        ],
    });
    assert_eq!(segments[0], first);
    assert_eq!(segments[1]["address"], 3 * PAGE);
    assert_eq!(
        (&segments[1]["allocated_size"], &segments[1]["active_size"]),
        (&json!(0), &json!(PAGE))
    );
    assert_eq!(segments[1]["blocks"][0]["state"], "active_pending_free");
}

#[test]
fn a_history_is_told_in_pytorchs_words() {
    let json = json_of(&example());
    let trace = json["device_traces"][0].as_array().expect("a list");
    let actions: Vec<_> =
        trace.iter().map(|entry| entry["action"].as_str().expect("a text")).collect();
    assert_eq!(actions, ["alloc", "free_requested", "free_completed", "oom"]);
    let alloc = json!({
        "action": "alloc", "addr": PAGE, "size": 500, "stream": 77, "time_us": 8,
        "compile_context": "N/A", "user_metadata": "relu", "pool_id": [5, 0],
        "frames": [{"name": "relu", "filename": "<tag>", "line": 0}],
    });
    assert_eq!(trace[0], alloc);
    assert_eq!((trace[3].get("addr"), &trace[3]["device_free"]), (None, &json!(99)));
    let marker = json!([{"name": "step 0", "stage": "START", "device": 0, "time_us": 0}]);
    assert_eq!(json["external_annotations"], marker);
    assert_eq!(json["allocator_settings"]["max_split_size"], -1);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(json["blockyard"], json!({"version": version, "policy": "pytorch", "at_event": 3}));
}

#[test]
fn a_history_stands_at_its_devices_number() {
    let stacks = Interner::default();
    let names = Names { stacks: &stacks, streams: &[], pools: &[], markers: &[] };
    let mut builder = Builder::new(names);
    builder.history(2, &[Event::new(Kind::Snapshot)]).expect("a device");
    assert_eq!(builder.history(u32::MAX, &[]), Err(AbsurdDevice(u32::MAX)));
    let lengths: Vec<_> = builder.finish().device_traces.iter().map(Vec::len).collect();
    assert_eq!(lengths, [0, 0, 1]);
    let mut builder = Builder::new(names);
    builder.view(1, &holed(), |_| StackId(9));
    assert_eq!(builder.finish().device_traces.len(), 2);
}

#[test]
fn settings_keep_their_types() {
    for (text, setting) in [
        ("-1", Setting::Integer(-1)),
        ("0.8", Setting::Float(0.8)),
        ("False", Setting::Flag(false)),
        ("true", Setting::Flag(true)),
        ("native:3", Setting::Text("native:3".into())),
        ("", Setting::Text(String::new())),
        ("{\"1\":4}", Setting::Table(Settings(vec![("1".into(), Setting::Integer(4))]))),
        ("[1]", Setting::Text("[1]".into())),
    ] {
        assert_eq!(Setting::parse(text), setting);
    }
}

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
fn schema_and_code_name_the_same_keys() {
    let schema = include_str!("../../../docs/snapshot.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    let mut json = json_of(&example());
    json["allocator_settings"] = json!({});
    let (mut stated, mut written) = (BTreeSet::new(), BTreeSet::new());
    properties_of(&schema, &mut stated);
    keys_of(&json, &mut written);
    assert_eq!(stated, written);
}
