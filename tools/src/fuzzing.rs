//! Fuzzing: the bodies of the fuzz targets, as functions that plain tests call too.
//!
//! Owns [`TARGETS`], one body for each target in `fuzz/`, and what a body demands of the bytes that it is given:
//! any bytes are a value or one error of one line, and a value survives being written and read again. Asked by
//! `fuzz/fuzz_targets/` and `tools/tests/corpora.rs`. Never knows where its bytes come from.

mod tensor;

pub use tensor::views as tensor_views;

use blockyard::lab::fuzzing::{Arena, Duel, NEWEST, Op, heap_inputs};
use blockyard::lab::{Player, Setup, live_peak};
use blockyard::policy::presets;
use blockyard::policy::settings::{
    Effective, Said, SettingsError, from_file_text, parse, parse_own, policy_from, validate,
};
use blockyard::trace::{DeviceTrace, Recording, wire};
use blockyard::vocab::{GIB, MIB};

use crate::formats::read_bytes;

/// The body of a target. Says whether the bytes were a value; panics where a demand is not met.
pub type Body = fn(&[u8]) -> bool;

/// Every target by name. The canary is the one that must fail.
pub const TARGETS: [(&str, Body); 8] = [
    ("canary", canary),
    ("heap_inputs", heap),
    ("native_trace", native_trace),
    ("pickle", pickle),
    ("replay", replay),
    ("settings", settings),
    ("tensor_views", tensor_views),
    ("text_formats", text_formats),
];

/// The bytes behind which the canary's bug is planted.
pub const PLANTED: &[u8] = b"coal";

/// A planted bug: a fuzzer that does not find it finds nothing. It is found byte by byte, by coverage alone.
pub fn canary(bytes: &[u8]) -> bool {
    for (place, wanted) in PLANTED.iter().enumerate() {
        if bytes.get(place) != Some(wanted) {
            return false;
        }
    }
    panic!("the canary found the planted bug, as it must")
}

/// Bytes as what clients and devices do to the heap: see [`heap_inputs`].
pub fn heap(bytes: &[u8]) -> bool {
    heap_inputs(bytes);
    bytes.len() > 2
}

/// Any bytes behind a pickle's first two.
pub fn pickle(bytes: &[u8]) -> bool {
    file(&[b"\x80\x04", bytes].concat())
}

/// How files of the text formats begin; the first byte of an input says which. Nothing: the input is a whole file.
const HEADS: [&[u8]; 6] = [
    b"",
    b"Thread,Time,Action,Pointer,Size,Stream\n",
    b"id,lower,upper,size\n",
    b"{\"kind\":\"replay\",\"event\":\"version\"}\n",
    b"{\"device_traces\":[[",
    b"[{\"address\":0,\"total_size\":512,\"segment_type\":\"small\",\"blocks\":",
];

/// Any bytes behind the head of a text format.
pub fn text_formats(bytes: &[u8]) -> bool {
    let Some((&first, rest)) = bytes.split_first() else { return false };
    file(&[HEADS[usize::from(first) % HEADS.len()], rest].concat())
}

/// A whole file of any format.
fn file(bytes: &[u8]) -> bool {
    match read_bytes("fuzz", bytes) {
        Ok(recording) => survives(&recording),
        Err(error) => refused(&error.to_string()),
    }
}

/// Any bytes as blockyard's own trace.
pub fn native_trace(bytes: &[u8]) -> bool {
    match wire::decode(bytes) {
        Ok(recording) => survives(&recording),
        Err(malformed) => refused(&malformed.to_string()),
    }
}

/// Whatever was read, our own format can hold it.
fn survives(recording: &Recording) -> bool {
    let mut bytes = Vec::new();
    wire::encode(recording, &mut bytes).unwrap_or_else(|error| panic!("not written: {error}"));
    let again = wire::decode(&bytes).unwrap_or_else(|error| panic!("not read again: {error}"));
    assert!(again == *recording, "read again as another recording");
    true
}

/// Any file that can be read is replayed, on a device with and without a limit, under both kinds of policies, and
/// against its own answers.
pub fn replay(bytes: &[u8]) -> bool {
    let Ok(recording) = read_bytes("fuzz", bytes) else { return false };
    let setups = [
        Setup { continue_on_oom: true, ..Setup::simulated(presets::pytorch(), Some(GIB)) },
        Setup { continue_on_oom: true, ..Setup::simulated(presets::blockyard(), Some(GIB)) },
        Setup::simulated(presets::pytorch(), None),
        Setup::recorded(presets::pytorch()),
    ];
    for trace in &recording.devices {
        setups.iter().for_each(|setup| replays(&recording, trace, setup.clone()));
    }
    true
}

/// One replay ends or says why not, and leaves the heap sound.
fn replays(recording: &Recording, trace: &DeviceTrace, setup: Setup) {
    let played = Player::new(recording, trace, setup, ()).and_then(|mut player| {
        while player.run(1 << 12)? {}
        player.heap().audit().unwrap_or_else(|violation| panic!("{violation}"));
        Ok(live_peak(trace, player.warm()))
    });
    if let Err(error) = played {
        refused(&error.to_string());
    }
}

/// Any text as settings: each way in which a text becomes a policy.
pub fn settings(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let ours = format!("blockyard-native:{text}");
    let theirs = format!("pytorch:{text}");
    let parsed = [said(parse(text), parse), said(parse_own(text), parse_own)];
    let policies = [
        in_force(policy_from(text, None)),
        in_force(policy_from("pytorch", Some(text))),
        in_force(policy_from(&theirs, None)),
        in_force(policy_from(&ours, None)),
        in_force(from_file_text("fuzz.toml", text)),
        in_force(from_file_text("fuzz.json", text)),
    ];
    parsed.contains(&true) || policies.contains(&true)
}

/// What was understood means the same when it is said again.
fn said(read: Result<Said, SettingsError>, parse: fn(&str) -> Result<Said, SettingsError>) -> bool {
    let said = match read {
        Ok(said) => said,
        Err(error) => return refused(&error.to_string()),
    };
    let one = |setting: &blockyard::policy::settings::Setting| {
        format!("{}:{}", setting.key.name(), setting.text)
    };
    let text = said.settings().iter().map(one).collect::<Vec<_>>().join(",");
    let again = parse(&text).unwrap_or_else(|error| panic!("{text:?} is refused: {error}"));
    assert_eq!(again.settings().len(), said.settings().len(), "{text:?}");
    for (new, old) in again.settings().iter().zip(said.settings()) {
        assert_eq!((new.key, &new.text, &new.value), (old.key, &old.text, &old.value));
    }
    true
}

/// What is in force is sound, can be shown, and can be run.
fn in_force(read: Result<Effective, SettingsError>) -> bool {
    let effective = match read {
        Ok(effective) => effective,
        Err(error) => return refused(&error.to_string()),
    };
    validate(&effective.policy).unwrap_or_else(|error| panic!("in force, yet {error}"));
    effective.warnings.iter().for_each(|warning| one_line(&warning.to_string()));
    let rows = effective.to_string();
    assert_eq!(rows.lines().count(), effective.entries.len() + 1, "a row for each setting");
    rows.lines().for_each(one_line);
    run(&effective);
    true
}

/// Heap and twin agree under a policy on sizes on both sides of each of its limits.
fn run(effective: &Effective) {
    let policy = &effective.policy;
    let limits = [policy.small_limit, policy.large_direct, policy.large_segment, policy.max_split];
    let sizes = limits.into_iter().flat_map(|limit| [limit, limit.saturating_add(1)]);
    let mut duel = Duel::new(policy, Arena { capacity: GIB, granule: MIB, immediate: true });
    let mut ops = vec![Op::Alloc(1, 0, 0), Op::Alloc(3 * MIB, 1, 0), Op::Use(0, 1)];
    ops.extend(sizes.map(|bytes| Op::Alloc(bytes, 0, 0)));
    ops.extend([Op::Free(0), Op::Free(NEWEST), Op::Alloc(700, 0, 0), Op::Free(0)]);
    ops.extend([Op::Alloc(u64::MAX, 0, 0), Op::Free(1), Op::Alloc(5 * MIB, 0, 0), Op::Trim]);
    for op in ops {
        duel.step(op).unwrap_or_else(|text| panic!("{op:?}: {text} under {policy:?}"));
    }
}

fn refused(error: &str) -> bool {
    one_line(error);
    false
}

fn one_line(text: &str) {
    assert!(!text.is_empty() && !text.contains(char::is_control), "not one line: {text:?}");
}
