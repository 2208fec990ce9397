//! Trace: what holds for every recording (W1) and for every file (W2).
#![cfg(feature = "std")]

use blockyard::trace::{
    DeviceTrace, Event, FinalBlock, FinalSegment, Frame, Interner, Kind, NO_ALLOCATION, Notice,
    Recording, Stack, StackId, file, wire,
};
use blockyard::vocab::{BlockState, Class, PoolId, StreamId};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const KINDS: [Kind; 22] = [
    Kind::Alloc,
    Kind::FreeRequested,
    Kind::FreeCompleted,
    Kind::Free,
    Kind::Use,
    Kind::EmptyCache,
    Kind::Trim,
    Kind::Retire,
    Kind::CaptureBegin,
    Kind::CaptureEnd,
    Kind::Limit,
    Kind::RangeAlloc,
    Kind::RangeFree,
    Kind::Passed,
    Kind::SegmentAlloc,
    Kind::SegmentFree,
    Kind::SegmentMap,
    Kind::SegmentUnmap,
    Kind::Oom,
    Kind::Snapshot,
    Kind::Marker,
    Kind::Other,
];

/// How many of each name a recording has: what its events may point at.
#[derive(Clone, Copy, Debug)]
struct Counts {
    streams: u32,
    pools: u32,
    stacks: u32,
    markers: u32,
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-c]{1,3}", any::<String>()]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..1_u64 << 20, any::<u64>()]
}

fn interner() -> impl Strategy<Value = Interner> {
    let frames = vec((text(), text(), any::<u32>()), 0..6);
    let stacks = vec((text(), vec(any::<prop::sample::Index>(), 0..4)), 0..6);
    (frames, stacks).prop_map(|(frames, stacks)| {
        let mut interner = Interner::default();
        for (name, file, line) in frames {
            interner.frame(Frame { name, file, line });
        }
        for (tag, picks) in stacks {
            let count = interner.frames.len();
            let pick = |index: prop::sample::Index| index.index(count) as u32;
            let frames =
                if count == 0 { Vec::new() } else { picks.into_iter().map(pick).collect() };
            interner.stack(Stack { tag, frames });
        }
        interner
    })
}

fn event(counts: Counts) -> impl Strategy<Value = Event> {
    let places = (0..counts.streams, 0..counts.pools, 0..counts.stacks, 0..counts.markers.max(1));
    let allocation = prop_oneof![Just(NO_ALLOCATION), 0..40_u32];
    let times = (prop_oneof![Just(0), any::<u32>()], number());
    (select(&KINDS[..]), number(), number(), allocation, places, times).prop_map(
        move |(
            kind,
            address,
            bytes,
            allocation,
            (stream, pool, stack, marker),
            (line, time_us),
        )| {
            let kind = match kind {
                Kind::Marker if counts.markers == 0 => Kind::Other,
                kind => kind,
            };
            let stack = StackId(if kind == Kind::Marker { marker } else { stack });
            let (stream, pool) = (StreamId(stream), PoolId(pool));
            let unnamed = kind == Kind::Alloc && allocation == NO_ALLOCATION;
            let allocation = if unnamed { 0 } else { allocation };
            let bytes = bytes.min(u64::MAX - address);
            let (extent, order, class) = (bytes / 2, line / 3, Class::BOTH.get(line as usize % 3));
            Event {
                address,
                bytes,
                allocation,
                stream,
                pool,
                stack,
                extent,
                line,
                order,
                class: class.copied(),
                time_us,
                kind,
            }
        },
    )
}

fn segment(counts: Counts) -> impl Strategy<Value = FinalSegment> {
    let states = select(vec![
        BlockState::Allocated,
        BlockState::AwaitingFree,
        BlockState::Free,
        BlockState::Unmapped,
    ]);
    let block = (number(), number(), number(), states, 0..counts.stacks).prop_map(
        |(address, bytes, requested, state, stack)| {
            let (stack, bytes) = (StackId(stack), bytes.min(u64::MAX - address));
            FinalBlock { address, bytes, requested, state, stack }
        },
    );
    let places = (0..counts.streams, 0..counts.pools, 0..counts.stacks);
    let class = select(Class::BOTH.to_vec());
    (number(), number(), places, class, any::<bool>(), vec(block, 0..4)).prop_map(
        |(address, bytes, (stream, pool, stack), class, expandable, blocks)| {
            let (stream, pool, stack) = (StreamId(stream), PoolId(pool), StackId(stack));
            let bytes = bytes.min(u64::MAX - address);
            let range = expandable.then_some((address, bytes));
            let order = stack.0;
            FinalSegment {
                address,
                bytes,
                stream,
                pool,
                class,
                expandable,
                range,
                order,
                stack,
                blocks,
            }
        },
    )
}

fn device(counts: Counts) -> impl Strategy<Value = DeviceTrace> {
    let parts = (vec(event(counts), 0..30), vec(segment(counts), 0..3));
    (any::<u32>(), 0..50_u32, parts).prop_map(|(device, spare, (events, segments))| {
        let ids = events.iter().map(|event| event.allocation).filter(|&id| id != NO_ALLOCATION);
        let allocations = ids.max().map_or(0, |highest| highest + 1).max(spare);
        DeviceTrace { device, events, allocations, ids: vec![9; spare as usize], segments }
    })
}

prop_compose! {
    fn frame_of_recording()(
        stacks in interner(),
        streams in vec(number(), 1..4),
        pools in vec((number(), number()), 1..4),
        markers in vec(text(), 0..4),
        format in "[a-z-]{1,12}",
        settings in prop::option::of(text()),
        settings_detail in vec((text(), text()), 0..3),
        notices in vec((text(), text()), 0..3),
        has_pool_ids in any::<bool>(),
    ) -> Recording {
        let notice = |(code, text): (String, String)| Notice { code: code.into(), text };
        let notices = notices.into_iter().map(notice).collect();
        Recording {
            format, devices: Vec::new(), settings, settings_detail, streams, pools, stacks, markers,
            notices, has_pool_ids,
        }
    }
}

fn recording() -> impl Strategy<Value = Recording> {
    frame_of_recording().prop_flat_map(|recording| {
        let counts = Counts {
            streams: recording.streams.len() as u32,
            pools: recording.pools.len() as u32,
            stacks: recording.stacks.stacks.len() as u32,
            markers: recording.markers.len() as u32,
        };
        vec(device(counts), 1..3)
            .prop_map(move |devices| Recording { devices, ..recording.clone() })
    })
}

fn encoded(recording: &Recording) -> Vec<u8> {
    let mut bytes = Vec::new();
    file::write_to(&mut bytes, recording).expect("written");
    bytes
}

proptest! {
    #[test]
    fn w1_what_is_written_is_read(recording in recording()) {
        let bytes = encoded(&recording);
        prop_assert!(wire::looks_like(&bytes));
        prop_assert_eq!(wire::decode(&bytes), Ok(recording));
    }

    #[test]
    fn w2_any_bytes_give_a_value_or_an_error(bytes in vec(any::<u8>(), 0..200)) {
        let mut headed = b"{\"blockyard_trace\":1}\n".to_vec();
        headed.extend(&bytes);
        for bytes in [bytes, headed] {
            if let Err(error) = file::read_bytes("x", &bytes) {
                prop_assert!(!error.to_string().contains('\n'));
            }
        }
    }

    #[test]
    fn w2_a_damaged_trace_gives_a_value_or_an_error(
        recording in recording(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..6),
    ) {
        let mut bytes = encoded(&recording);
        for (place, byte, how) in damage {
            let at = place.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.truncate(at + 1),
                _ => bytes.insert(at, b"0123456789{}[],:\"\n"[byte as usize % 18]),
            }
        }
        match file::read_bytes("x", &bytes) {
            Ok(read) => prop_assert!(resolves(&read)),
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }
}

/// Everything that the recording's events name exists.
fn resolves(recording: &Recording) -> bool {
    let event = |device: &DeviceTrace, event: &Event| {
        let stacks = match event.kind {
            Kind::Marker => recording.markers.len(),
            _ => recording.stacks.stacks.len(),
        };
        (event.stack.0 as usize) < stacks
            && (event.stream.0 as usize) < recording.streams.len()
            && (event.pool.0 as usize) < recording.pools.len()
            && (event.allocation == NO_ALLOCATION || event.allocation < device.allocations)
    };
    let device = |device: &DeviceTrace| device.events.iter().all(|one| event(device, one));
    !recording.devices.is_empty() && recording.devices.iter().all(device)
}

/// A million events of a program with a handful of call stacks.
fn million() -> Recording {
    let mut recording = Recording {
        format: "csv".into(),
        streams: vec![0],
        pools: vec![(0, 0)],
        ..Recording::default()
    };
    let tags: Vec<_> = (0..500).map(|n| recording.stacks.tag(&format!("f:mm@layer{n}"))).collect();
    let mut device = DeviceTrace { allocations: 500_000, ..DeviceTrace::default() };
    for id in 0..500_000_u32 {
        let line = id * 2 + 1;
        let bytes = u64::from(id) * 977 % (1 << 30);
        let stack = tags[id as usize % tags.len()];
        let alloc = Event { bytes, allocation: id, stack, line, ..Event::new(Kind::Alloc) };
        device.events.push(alloc);
        let line = line + 1;
        device.events.push(Event { allocation: id, line, ..Event::new(Kind::Free) });
    }
    recording.devices.push(device);
    recording
}

#[test]
fn a_million_events_survive_every_suffix() {
    let folder = std::env::temp_dir().join(format!("blockyard-trace-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let recording = million();
    let mut sizes = Vec::new();
    for name in ["x.trace", "x.trace.zst", "x.trace.gz"] {
        let path = folder.join(name);
        file::write(&path, &recording).expect("written");
        assert_eq!(file::read(&path).expect("read"), recording, "{name}");
        sizes.push(std::fs::metadata(&path).expect("a file").len());
    }
    std::fs::remove_dir_all(&folder).expect("removed");
    assert!(sizes[1] * 4 < sizes[0] && sizes[2] * 4 < sizes[0], "compressed: {sizes:?}");
}

#[test]
#[ignore = "prints how long a million events take; run with --release --nocapture"]
fn how_long_a_million_events_take() {
    let recording = million();
    for _ in 0..3 {
        let start = std::time::Instant::now();
        let bytes = encoded(&recording);
        let written = start.elapsed();
        let start = std::time::Instant::now();
        let read = wire::decode(&bytes).expect("read");
        println!("{} bytes: encode {written:?}, decode {:?}", bytes.len(), start.elapsed());
        assert_eq!(read.event_count(), 1_000_000);
    }
}

/// Every example in the documentation is read, after a header where it has none.
#[test]
fn the_documents_examples_are_read() {
    let document = include_str!("../docs/trace-format.md");
    let examples: Vec<_> = document.split("```json\n").skip(1).collect();
    assert_eq!(examples.len(), 3);
    for example in examples {
        let example = example.split("```").next().expect("an end");
        let header = "{\"blockyard_trace\":1,\"devices\":[{\"device\":0},{\"device\":1}]}\n";
        let whole = example.starts_with("{\"blockyard_trace\"");
        let text = if whole { example.to_owned() } else { format!("{header}{example}") };
        let end = if text.contains("\"end\"") { "" } else { "{\"k\":\"end\",\"events\":0}" };
        let recording = file::read_bytes("document", format!("{text}{end}").as_bytes());
        let notices = recording.expect("read").notices;
        assert!(notices.iter().all(|notice| notice.code == "overflow"), "{notices:?}");
    }
}

#[test]
fn errors_name_the_file() {
    let bytes = b"{\"blockyard_trace\":1}\n\n{\"k\":\"alloc\",\"id\":0,\"bytes\":\"x\"}\n";
    let error = file::read_bytes("run.trace", bytes).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "run.trace: line 3: field \"bytes\": found \"x\", expected a non-negative integer"
    );
    let missing = file::read("no/such/file").expect_err("refused");
    assert!(missing.to_string().starts_with("no/such/file: "), "{missing}");
    let cut = file::read_bytes("cut.zst", &[0x28, 0xb5, 0x2f, 0xfd, 1]).expect_err("refused");
    assert!(cut.to_string().starts_with("cut.zst: "), "{cut}");
}
