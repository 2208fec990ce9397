//! Genuine PyTorch snapshots replay address-exact: every allocation at its recorded address, every released
//! group and the reserved curve as recorded.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use blockyard::lab::{Player, Setup};
use blockyard::ledger::Metric;
use blockyard::policy::settings::policy_from;
use blockyard::trace::{Kind, Recording};
use blockyard::vocab::{BlockState, HeapView};
use blockyard_tools::formats;

fn snapshots() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/snapshots");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 17, "only {} snapshots are here", files.len());
    files
}

/// Peak of the reserved bytes as the recording's own segment entries have it.
fn recorded_peak(recording: &Recording) -> i64 {
    let mut reserved = 0;
    let mut peak = 0;
    for event in &recording.devices[0].events {
        reserved += match event.kind {
            Kind::SegmentAlloc | Kind::SegmentMap => event.bytes as i64,
            Kind::SegmentFree | Kind::SegmentUnmap => -(event.bytes as i64),
            _ => 0,
        };
        peak = peak.max(reserved);
    }
    peak
}

/// Blocks that are not unmapped, as (address, bytes, state), of the engine and of the file.
fn blocks(view: &HeapView) -> Vec<(u64, u64, BlockState)> {
    let all = view.segments.iter().flat_map(|segment| &segment.blocks);
    all.filter(|block| block.state != BlockState::Unmapped)
        .map(|block| (block.address.0, block.bytes, block.state))
        .collect()
}

#[test]
fn own_snapshots_replay_address_exact() {
    for file in snapshots() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let recording = formats::read(&file).unwrap();
        let trace = &recording.devices[0];
        let policy = policy_from("pytorch", recording.settings.as_deref()).unwrap().policy;
        let mut player = Player::new(&recording, trace, Setup::recorded(policy), ()).unwrap();
        while player.run(1000).unwrap() {
            player.heap().audit().unwrap_or_else(|violation| panic!("{name}: {violation}"));
            let view = player.heap().view();
            assert_eq!(player.stats().disagreement(&view), None, "{name}: R1");
        }
        let exact = player.exact();
        assert!(exact.holds(), "{name}: {exact:?}");
        assert!(exact.allocs > 10, "{name}: {exact:?}");
        let peak = player.stats().peak(Metric::ReservedBytes) as i64;
        assert_eq!(peak, recorded_peak(&recording), "{name}: reserved peak");
        let mut expected: Vec<_> = trace
            .segments
            .iter()
            .flat_map(|segment| &segment.blocks)
            .map(|block| (block.address, block.bytes, block.state))
            .collect();
        expected.sort_by_key(|block| block.0);
        assert_eq!(blocks(&player.heap().view()), expected, "{name}: the final state");
    }
}

/// The comparison can fail: the older tie rule, a wrong split limit, and a lost release are each noticed.
#[test]
fn a_wrong_rule_is_noticed() {
    let read = |name: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/snapshots/");
        formats::read(&PathBuf::from(format!("{folder}{name}.pickle.zst"))).unwrap()
    };
    let holds = |recording: &Recording, spec: &str| {
        let policy = policy_from(spec, recording.settings.as_deref()).unwrap().policy;
        let trace = &recording.devices[0];
        let mut player = Player::new(recording, trace, Setup::recorded(policy), ()).unwrap();
        while player.run(1 << 20).unwrap() {}
        player.exact().holds()
    };
    let limited = read("gpt2_varlen_9g_split128");
    assert!(holds(&limited, "pytorch") && !holds(&limited, "pytorch:"));
    assert!(!holds(&limited, "pytorch:max_split_size_mb:256"));
    let mut retried = read("gpt2_xl_40g_retry");
    assert!(holds(&retried, "pytorch"));
    let events = &mut retried.devices[0].events;
    let lost = events.iter().position(|event| event.kind == Kind::SegmentFree).unwrap();
    events.remove(lost);
    assert!(!holds(&retried, "pytorch"), "a release that was not recorded");
}
