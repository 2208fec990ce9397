//! Reading: genuine snapshots read whole, against figures obtained independently, and encodings
//! agree.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use blockyard::trace::{Kind, NO_ALLOCATION, Recording};
use blockyard_tools::formats::{read, read_bytes};

fn path_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/data/snapshots/{name}.pickle.zst"))
}

fn snapshot(name: &str) -> Recording {
    read(&path_of(name)).unwrap()
}

/// What CPython's own `pickle` module finds in a snapshot.
struct Expected {
    name: &'static str,
    /// alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map,
    /// segment_unmap, oom, snapshot
    actions: [usize; 9],
    segments: usize,
    blocks: usize,
    /// Sum of the sizes of `alloc` entries.
    allocated: u64,
    /// Sum of `total_size`.
    reserved: u64,
    /// Sum of `requested_size` of blocks.
    requested: u64,
    /// Different stacks in the trace.
    stacks: usize,
    streams: usize,
    pools: usize,
    settings: &'static str,
    /// Sum of `time_us`, modulo 2^64.
    times: u64,
}

macro_rules! expected {
    ($($name:ident $actions:tt $segments:literal $blocks:literal $allocated:literal $reserved:literal
       $requested:literal $stacks:literal $streams:literal $pools:literal $settings:literal
       $times:literal;)*) => {
        [$(Expected {
            name: stringify!($name),
            actions: $actions,
            segments: $segments,
            blocks: $blocks,
            allocated: $allocated,
            reserved: $reserved,
            requested: $requested,
            stacks: $stacks,
            streams: $streams,
            pools: $pools,
            settings: $settings,
            times: $times,
        }),*]
    };
}

#[rustfmt::skip]
const EXPECTED: [Expected; 17] = expected! {
    basic_protocol5 [13, 8, 8, 5, 0, 0, 0, 0, 0] 5 8 830603820 828375040 817889316 17 1 1 "" 61063680808335755;
    bert [8425, 7814, 7814, 166, 0, 0, 0, 0, 0] 166 766 67570628336 7860125696 4841670576 93 1 1 "" 6603623930668130804;
    efficientnet [4470, 3894, 3894, 126, 0, 0, 0, 0, 0] 126 719 19207114544 3363831808 2890952968 75 1 1 "" 3794812474930849173;
    gpt2_12g_oom [595, 445, 445, 138, 2, 0, 0, 1, 0] 136 285 12601332192 9923723264 9363884032 33 1 1 "" 2920279249908535323;
    gpt2_compile_graphs [1619, 1387, 1387, 75, 6, 0, 0, 0, 0] 69 293 6118737808 2220883968 1109090836 972 2 2 "" 8035263383624931862;
    gpt2_fp16_fused [10391, 9794, 9794, 111, 0, 0, 0, 0, 0] 111 717 101935408288 6442450944 3875557988 58 1 1 "" 17147886415945250376;
    gpt2_medium_checkpointing [11872, 10993, 10993, 108, 0, 0, 0, 0, 0] 108 921 172132317807 11525947392 7154851848 64 1 1 "" 5662404451091710387;
    gpt2_varlen [17771, 17324, 17324, 138, 0, 0, 0, 0, 0] 138 608 185284017311 11523850240 7091575556 50 1 1 "" 2158185155020535362;
    gpt2_varlen_9g_oom [3787, 3079, 3079, 126, 0, 0, 0, 1, 0] 126 826 43351506990 8550088704 9556874608 51 1 1 "" 18089222810297780982;
    gpt2_varlen_9g_split128 [17771, 17324, 17324, 222, 70, 0, 0, 0, 0] 152 622 185284017311 9353297920 8489515780 50 1 1 "max_split_size_mb:128" 2434769992609502200;
    gpt2_varlen_expandable [17771, 17324, 17324, 0, 0, 130, 0, 0, 0] 2 479 185284017311 9361686528 1683545860 50 1 1 "expandable_segments:True" 2143817683105570496;
    gpt2_xl_40g_retry [12911, 11168, 11168, 1154, 113, 0, 0, 0, 0] 1041 2443 176011856842 40097546240 38250258448 50 1 1 "" 10238590778619234504;
    llama_small [9298, 8852, 8852, 362, 0, 0, 0, 0, 0] 362 720 153976713035 15145631744 11088408840 90 1 1 "" 12252015638181805900;
    resnet50_8g_oom_protocol2 [441, 119, 119, 58, 0, 0, 0, 1, 0] 58 372 8968437704 8386510848 7887229384 200 1 1 "" 1325440390518129694;
    resnet50_varsize [9690, 9206, 9206, 131, 0, 0, 0, 0, 0] 131 622 69805544552 6461325312 4423039776 243 1 1 "" 13812733493020709342;
    resnet50_varsize_6g_oom [3969, 3485, 3485, 252, 163, 0, 0, 1, 0] 89 573 51778884904 6394216448 5966967916 237 1 1 "" 1946736946250230709;
    vit [5034, 4575, 4575, 134, 0, 0, 0, 0, 0] 134 594 46396772225 3785359360 3311638404 68 1 1 "" 7268259293205025085;
};

const ACTIONS: [Kind; 9] = [
    Kind::Alloc,
    Kind::FreeRequested,
    Kind::FreeCompleted,
    Kind::SegmentAlloc,
    Kind::SegmentFree,
    Kind::SegmentMap,
    Kind::SegmentUnmap,
    Kind::Oom,
    Kind::Snapshot,
];

#[test]
fn genuine_snapshots_read_as_cpython_reads_them() {
    for expected in &EXPECTED {
        let recording = snapshot(expected.name);
        let name = expected.name;
        assert_eq!(recording.format, "pytorch-pickle", "{name}");
        assert_eq!(recording.devices.len(), 1, "{name}");
        assert!(recording.has_pool_ids, "{name}");
        assert!(recording.notices.is_empty(), "{name}: {:?}", recording.notices);
        assert_eq!(recording.settings.as_deref(), Some(expected.settings), "{name}");
        let trace = &recording.devices[0];
        let count = |kind| trace.events.iter().filter(|event| event.kind == kind).count();
        assert_eq!(ACTIONS.map(count), expected.actions, "{name}");
        assert_eq!(trace.events.len(), expected.actions.iter().sum::<usize>(), "{name}");
        assert_eq!(trace.allocations as usize, expected.actions[0], "{name}");
        let allocs = trace.events.iter().filter(|event| event.kind == Kind::Alloc);
        assert_eq!(allocs.map(|event| event.bytes).sum::<u64>(), expected.allocated, "{name}");
        let times = trace.events.iter().map(|event| event.time_us);
        assert_eq!(times.fold(0, u64::wrapping_add), expected.times, "{name}");
        let different = |number: fn(&blockyard::trace::Event) -> u32| {
            let mut numbers: Vec<u32> = trace.events.iter().map(number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers.len()
        };
        assert_eq!(different(|event| event.stack.0), expected.stacks, "{name}");
        assert_eq!(different(|event| event.stream.0), expected.streams, "{name}");
        assert_eq!(different(|event| event.pool.0), expected.pools, "{name}");
        check_segments(trace, expected);
    }
}

fn check_segments(trace: &blockyard::trace::DeviceTrace, expected: &Expected) {
    let name = expected.name;
    let blocks = || trace.segments.iter().flat_map(|segment| &segment.blocks);
    assert_eq!(trace.segments.len(), expected.segments, "{name}");
    assert_eq!(blocks().count(), expected.blocks, "{name}");
    let reserved: u64 = trace.segments.iter().map(|segment| segment.bytes).sum();
    assert_eq!(reserved, expected.reserved, "{name}");
    assert_eq!(blocks().map(|block| block.bytes).sum::<u64>(), reserved, "{name}");
    assert_eq!(blocks().map(|block| block.requested).sum::<u64>(), expected.requested, "{name}");
}

#[test]
fn every_free_finds_its_allocation() {
    let recording = snapshot("gpt2_varlen_9g_oom");
    let mut addresses = Vec::new();
    for event in &recording.devices[0].events {
        match event.kind {
            Kind::Alloc => addresses.push(event.address),
            Kind::FreeRequested | Kind::FreeCompleted => {
                assert_ne!(event.allocation, NO_ALLOCATION);
                assert_eq!(addresses[event.allocation as usize], event.address);
            }
            _ => assert_eq!(event.allocation, NO_ALLOCATION),
        }
    }
    let oom = recording.devices[0].events.iter().find(|event| event.kind == Kind::Oom).unwrap();
    assert!(oom.address > 1 << 30, "1.04 GiB were free on the device, {}", oom.address);
}

#[test]
fn stacks_and_settings_are_kept() {
    let recording = snapshot("basic_protocol5");
    let first = recording.devices[0].events[0];
    assert_eq!(recording.stacks.label(first.stack), "<module> (train/t_basic.py:3)");
    let detail = |key: &str| {
        let found = recording.settings_detail.iter().find(|(name, _)| name == key);
        found.map(|(_, text)| text.as_str())
    };
    assert_eq!(detail("max_split_size"), Some("-1"));
    assert_eq!(detail("expandable_segments"), Some("false"));
    assert!(detail("roundup_power2_divisions").unwrap().starts_with("[1:0,2:0,"));
}

/// A snapshot as JSON, by way of the recording (it holds what the schema holds).
fn as_json(recording: &Recording) -> String {
    use serde_json::{Value, json};
    let name = |kind| match kind {
        Kind::Alloc => "alloc",
        Kind::FreeRequested => "free_requested",
        Kind::FreeCompleted => "free_completed",
        Kind::SegmentAlloc => "segment_alloc",
        Kind::SegmentFree => "segment_free",
        Kind::Oom => "oom",
        other => panic!("{other:?}"),
    };
    let frames = |stack: blockyard::trace::StackId| -> Value {
        let frames = &recording.stacks.stacks[stack.0 as usize].frames;
        let frame = |&frame: &u32| {
            let frame = &recording.stacks.frames[frame as usize];
            json!({"name": frame.name, "filename": frame.file, "line": frame.line})
        };
        frames.iter().map(frame).collect()
    };
    let trace = &recording.devices[0];
    let entries: Vec<Value> = trace
        .events
        .iter()
        .map(|event| {
            let address = if event.kind == Kind::Oom { "device_free" } else { "addr" };
            json!({
                "action": name(event.kind), address: event.address, "size": event.bytes,
                "stream": recording.streams[event.stream.0 as usize], "time_us": event.time_us,
                "pool_id": recording.pools[event.pool.0 as usize], "frames": frames(event.stack),
            })
        })
        .collect();
    json!({"device_traces": [[], entries], "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""}})
        .to_string()
}

#[test]
fn json_says_what_the_pickle_says() {
    let pickled = snapshot("resnet50_8g_oom_protocol2");
    let read = read_bytes("x.json", as_json(&pickled).as_bytes()).unwrap();
    assert_eq!(read.format, "pytorch-json");
    assert_eq!(read.devices.len(), 1, "a device without entries is dropped");
    assert_eq!(read.devices[0].device, 1, "and the others keep their number");
    assert_eq!(read.devices[0].events.len(), pickled.devices[0].events.len());
    for (a, b) in read.devices[0].events.iter().zip(&pickled.devices[0].events) {
        assert_eq!(read.stacks.label(a.stack), pickled.stacks.label(b.stack));
        assert_eq!(blockyard::trace::Event { stack: b.stack, ..*a }, *b);
    }
    assert_eq!(read.settings.as_deref(), Some(""));
}

#[test]
fn old_and_odd_snapshots_are_read() {
    let old = r#"[{"device":0,"address":4096,"total_size":3072,"stream":0,"segment_type":"small","blocks":[
        {"size":1024,"state":"active_allocated","history":[{"addr":4096,"real_size":1000,
            "frames":[{"name":"f","filename":"a.py","line":3}]},{"addr":4096,"real_size":7,"frames":[]}]},
        {"size":512,"state":"active_awaiting_free"},{"size":1536,"state":"inactive"}]}]"#;
    let recording = read_bytes("old", old.as_bytes()).unwrap();
    assert_eq!(recording.format, "pytorch-segments");
    assert_eq!(recording.notices[0].code, "no-history");
    let blocks = &recording.devices[0].segments[0].blocks;
    let seen: Vec<_> = blocks.iter().map(|block| (block.address, block.requested)).collect();
    assert_eq!(seen, [(4096, 1000), (5120, 512), (5632, 0)]);
    assert_eq!(recording.stacks.label(blocks[0].stack), "f (a.py:3)");
}

fn codes(json: &str) -> Vec<String> {
    let recording = read_bytes("x", json.as_bytes()).unwrap();
    recording.notices.iter().map(|notice| notice.code.to_string()).collect()
}

#[test]
fn what_a_snapshot_leaves_out_is_said() {
    let segment = r#"{"address":0,"total_size":512,"segment_type":"small","blocks":[
        {"size":512,"state":"inactive"}]}"#;
    let with = |entries: &str, more: &str| {
        format!(r#"{{"segments":[{segment}],"device_traces":[[{entries}]]{more}}}"#)
    };
    let pool = r#""pool_id":[0,0]"#;
    let mid_run = format!(
        r#"{{"action":"free_requested","addr":8,"size":8,{pool}}},
           {{"action":"free_completed","addr":8,"size":8,{pool}}}"#
    );
    assert_eq!(codes(&with(&mid_run, "")), ["unknown-free", "history-began-mid-run"]);
    let half = format!(
        r#"{{"action":"segment_alloc","addr":0,"size":512,{pool}}},
           {{"action":"alloc","addr":8,"size":8,{pool}}},
           {{"action":"free_requested","addr":8,"size":8,{pool}}}"#
    );
    assert_eq!(codes(&with(&half, "")), ["skipped-actions"]);
    let kinds: Vec<Kind> = read_bytes("x", with(&half, "").as_bytes()).unwrap().devices[0]
        .events
        .iter()
        .map(|event| event.kind)
        .collect();
    assert_eq!(kinds, [Kind::SegmentAlloc, Kind::Alloc, Kind::Free]);
    let odd = r#"{"action":"segment_alloc","addr":0,"size":512},{"action":"dance"}"#;
    assert_eq!(codes(&with(odd, "")), ["unknown-action", "no-pool-ids"]);
    let twice = format!(
        r#"{{"action":"segment_alloc","addr":0,"size":512,{pool}}},
           {{"action":"alloc","addr":8,"size":8,{pool}}},{{"action":"alloc","addr":8,"size":8,{pool}}}"#
    );
    assert_eq!(codes(&with(&twice, "")), ["overlap"]);
    let known = format!(r#"{{"action":"segment_alloc","addr":0,"size":512,{pool}}}"#);
    for flags in [
        r#","trace_alloc_overflowed":[true]"#,
        r#","allocator_settings":{"trace_alloc_overflowed":[true],"trace_alloc_max_entries":[5]}"#,
    ] {
        assert_eq!(codes(&with(&known, flags)), ["overflow"]);
    }
    let annotated = format!(
        r#"{{"action":"segment_alloc","addr":0,"size":512,{pool}}},
           {{"action":"annotate","addr":0,"user_metadata":"kv","frames":[{{"name":"f"}}],{pool}}}"#
    );
    let recording = read_bytes("x", with(&annotated, "").as_bytes()).unwrap();
    let event = recording.devices[0].events[1];
    assert_eq!(event.kind, Kind::Other);
    assert_eq!(recording.stacks.label(event.stack), "kv");
}

#[test]
fn compressed_files_are_opened() {
    use std::io::Write;
    let text = b"a,1,100,0\nf,1\n";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text).unwrap();
    let zstd = zstd::encode_all(&text[..], 1).unwrap();
    for bytes in [gzip.finish().unwrap(), zstd] {
        let recording = read_bytes("x", &bytes).unwrap();
        assert_eq!((recording.format.as_str(), recording.event_count()), ("csv", 2));
    }
}

#[test]
fn every_pickle_protocol_is_read() {
    let text = b"(dp0\nVdevice_traces\np1\n(lp2\n(lp3\n(dp4\nVaction\np5\nVsegment_alloc\np6\n\
        sVaddr\np7\nL122706120933376L\nsVsize\np8\nI2097152\nsVpool_id\np9\n(I0\nI3\ntp10\n\
        saas.";
    let binary = b"\x80\x02}q\0X\x0d\0\0\0device_tracesq\x01]q\x02]q\x03}q\x04(X\x06\0\0\0action\
        X\x0d\0\0\0segment_allocX\x04\0\0\0addr\x8a\x06\0\0\xe0\xc0\x99\x6fX\x04\0\0\0size\
        J\0\0 \0X\x07\0\0\0pool_idK\0K\x03\x86uaas.";
    for bytes in [&text[..], &binary[..]] {
        let recording = read_bytes("x", bytes).unwrap();
        let event = recording.devices[0].events[0];
        assert_eq!((event.kind, event.bytes), (Kind::SegmentAlloc, 2 << 20));
        assert_eq!(recording.pools[event.pool.0 as usize], (0, 3));
        assert_eq!(event.address >> 40, 0x6f);
    }
}

#[test]
fn files_that_cannot_be_opened_are_named() {
    let missing = read(Path::new("/no/such/file.pickle")).unwrap_err().to_string();
    assert!(missing.starts_with("/no/such/file.pickle: cannot be read ("), "{missing}");
    let folder = read(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap_err().to_string();
    assert!(folder.ends_with(": a directory; expected a file"), "{folder}");
}

#[test]
fn a_trace_of_its_own_is_read_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("misleading.pickle");
    std::fs::write(&path, zstd::encode_all(&b"a,1,100,0,w\nf,1\n"[..], 1).unwrap()).unwrap();
    let recording = read(&path).unwrap();
    assert_eq!((recording.format.as_str(), recording.event_count()), ("csv", 2));
}
