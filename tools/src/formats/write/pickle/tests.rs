//! Tests: a pickle read back by a small machine equals the JSON of the same snapshot.

use blockyard::trace::snapshot::{Builder, Names};
use blockyard::trace::{Event, FinalBlock, FinalSegment, Frame, Interner, Kind, Stack};
use blockyard::vocab::{BlockState, Class, PoolId, StreamId};
use serde_json::{Map, Value};

use super::*;

/// Reads exactly the opcodes that the writer uses. Tuples become lists.
fn unpickled(bytes: &[u8]) -> Value {
    let (mut stack, mut marks, mut memo) = (Vec::<Value>::new(), Vec::new(), Vec::<Value>::new());
    let mut at = 0;
    let mut take = |count: usize| {
        at += count;
        &bytes[at - count..at]
    };
    let number =
        |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
    loop {
        match take(1)[0] {
            PROTO => assert_eq!(take(1), [2]),
            STOP => break,
            MARK => marks.push(stack.len()),
            EMPTY_DICT => stack.push(Value::Object(Map::new())),
            EMPTY_LIST => stack.push(Value::Array(Vec::new())),
            SETITEMS => {
                let items = stack.split_off(marks.pop().expect("a mark"));
                let dict = stack.last_mut().and_then(Value::as_object_mut).expect("a dict");
                for pair in items.chunks(2) {
                    let key = pair[0].as_str().expect("a text").to_owned();
                    assert!(dict.insert(key, pair[1].clone()).is_none(), "a key twice");
                }
            }
            APPENDS => {
                let items = stack.split_off(marks.pop().expect("a mark"));
                assert!(items.len() <= BATCH, "more than the viewer takes at once");
                stack.last_mut().and_then(Value::as_array_mut).expect("a list").extend(items);
            }
            TUPLE2 => {
                let pair = stack.split_off(stack.len() - 2);
                stack.push(Value::Array(pair));
            }
            NONE => stack.push(Value::Null),
            NEWTRUE => stack.push(true.into()),
            NEWFALSE => stack.push(false.into()),
            BININT1 => stack.push(number(take(1)).into()),
            BININT2 => stack.push(number(take(2)).into()),
            BININT => stack.push((number(take(4)) as i32).into()),
            LONG1 => match take(1)[0] {
                8 => stack.push((number(take(8)) as i64).into()),
                length => {
                    let digits = take(usize::from(length));
                    assert_eq!(digits[8], 0, "positive");
                    stack.push(number(&digits[..8]).into());
                }
            },
            BINFLOAT => {
                let digits = take(8).try_into().expect("eight bytes");
                stack.push(f64::from_be_bytes(digits).into());
            }
            BINUNICODE => {
                let length = number(take(4)) as usize;
                stack.push(std::str::from_utf8(take(length)).expect("text").into());
            }
            opcode @ (BINPUT | LONG_BINPUT) => {
                let width = if opcode == BINPUT { 1 } else { 4 };
                assert_eq!(number(take(width)) as usize, memo.len());
                memo.push(stack.last().expect("something").clone());
            }
            BINGET => stack.push(memo[number(take(1)) as usize].clone()),
            LONG_BINGET => stack.push(memo[number(take(4)) as usize].clone()),
            opcode => panic!("opcode {opcode:#x}"),
        }
    }
    assert_eq!((stack.len(), marks.len()), (1, 0));
    stack.remove(0)
}

/// Two devices, private pools, numbers of every width, and more texts than short references.
fn example() -> Snapshot {
    let mut stacks = Interner::default();
    let frames: Vec<_> = (0..300)
        .map(|line| stacks.frame(Frame { name: format!("f{line}"), file: "a.py".into(), line }))
        .collect();
    let first = stacks.stack(Stack { tag: String::new(), frames: frames[..200].to_vec() });
    let second = stacks.stack(Stack { tag: "relu µ".into(), frames: frames[100..].to_vec() });
    let markers = ["step 0".to_owned()];
    let (streams, pools) = ([0, u64::MAX], [(0, 0), (7, 70_000)]);
    let mut builder = Builder::new(Names {
        stacks: &stacks,
        streams: &streams,
        pools: &pools,
        markers: &markers,
    })
    .origin(Some("blockyard"), None);
    for (name, text) in [
        ("limit", "-1"),
        ("low", "-9000000000"),
        ("share", "0.8"),
        ("on", "true"),
        ("t", "{\"1\":4}"),
    ] {
        builder.setting(name, Setting::parse(text));
    }
    let block = FinalBlock {
        address: 0x2000_0000_0000,
        bytes: 512,
        requested: 300,
        state: BlockState::Allocated,
        stack: second,
    };
    for device in [0, 1] {
        builder.segment(
            device,
            &FinalSegment {
                address: 0x2000_0000_0000,
                bytes: 2 << 20,
                stream: StreamId(1),
                pool: PoolId(1),
                class: Class::Small,
                expandable: device == 1,
                range: None,
                order: 0,
                stack: first,
                blocks: vec![block, FinalBlock { state: BlockState::Free, ..block }],
            },
        );
        let event =
            |kind, stack, bytes, address| Event { stack, bytes, address, ..Event::new(kind) };
        let events = [
            event(Kind::SegmentAlloc, first, 2 << 20, 1 << 45),
            event(Kind::Alloc, second, 300, 1 << 45),
            event(Kind::Free, first, 300, u64::MAX),
            event(Kind::Oom, second, 5 << 30, 1 << 20),
            Event::new(Kind::Marker),
        ];
        builder.history(device, &events).expect("a device");
    }
    builder.history(1, &[Event::new(Kind::Snapshot); 2 * BATCH + 1]).expect("a device");
    builder.finish()
}

#[test]
fn the_pickle_says_what_the_json_says() {
    let snapshot = example();
    let (mut pickle, mut json) = (Vec::new(), Vec::new());
    write(&snapshot, &mut pickle).expect("written");
    snapshot.to_json(&mut json).expect("written");
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(unpickled(&pickle), json);
}

#[test]
fn shared_call_stacks_are_written_once() {
    let mut pickle = Vec::new();
    write(&example(), &mut pickle).expect("written");
    let count =
        |text: &str| pickle.windows(text.len()).filter(|part| *part == text.as_bytes()).count();
    assert_eq!((count("filename"), count("f150"), count("active_allocated")), (1, 1, 1));
}
