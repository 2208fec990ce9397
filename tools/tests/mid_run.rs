//! Mid-run: recordings whose beginning is lost replay on a simulated device too, with what was there before.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::HashSet;
use std::path::PathBuf;

use blockyard::lab::{Player, Setup};
use blockyard::policy::Policy;
use blockyard::policy::settings::policy_from;
use blockyard::trace::{Event, Kind, NO_ALLOCATION, Recording, wire};
use blockyard::vocab::MIB;
use blockyard_tools::formats;

fn snapshot(name: &str) -> Recording {
    let path = format!("../tests/data/snapshots/{name}.pickle.zst");
    formats::read(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The recording without its first events, as PyTorch's ring of entries leaves it; then the cache is emptied.
fn cut(mut recording: Recording, first: usize) -> Recording {
    let trace = &mut recording.devices[0];
    trace.events.drain(..first);
    let allocs = trace.events.iter().filter(|event| event.kind == Kind::Alloc);
    let born: HashSet<u32> = allocs.map(|event| event.allocation).collect();
    for event in trace.events.iter_mut().filter(|event| !born.contains(&event.allocation)) {
        event.allocation = NO_ALLOCATION;
    }
    trace.events.push(Event::new(Kind::EmptyCache));
    recording
}

fn policy(spec: &str) -> Policy {
    policy_from(spec, None).unwrap().policy
}

/// Replays to the end, audited; says how many segments there were before and what is reserved at the end.
fn replay(recording: &Recording, policy: Policy, capacity: Option<u64>) -> (usize, u64) {
    let setup = Setup { continue_on_oom: true, ..Setup::simulated(policy, capacity) };
    let mut player = Player::new(recording, &recording.devices[0], setup, ()).unwrap();
    while player.run(1000).unwrap() {
        player.heap().audit().unwrap();
    }
    player.heap().audit().unwrap();
    (player.warm().segments.len(), player.heap().reserved())
}

#[test]
fn the_end_of_a_real_run_replays_under_any_policy() {
    for name in ["gpt2_varlen_9g_oom", "gpt2_varlen_expandable", "resnet50_varsize_6g_oom"] {
        let whole = snapshot(name);
        let events = whole.devices[0].events.len();
        for first in [events / 3, events - 100] {
            let late = cut(whole.clone(), first);
            let expandable = name.ends_with("expandable");
            let native = if expandable { "pytorch-expandable" } else { "pytorch" };
            let (before, _) = replay(&late, policy(native), None);
            assert!(before > 0, "{name}: nothing was there before entry {first}");
            replay(&late, policy("blockyard"), None);
            replay(&late, policy("blockyard-native"), Some(16 << 30));
        }
    }
}

fn trace(lines: &str) -> Recording {
    let header = "{\"blockyard_trace\":1,\"has_pool_ids\":true}\n";
    wire::decode(format!("{header}{lines}").as_bytes()).unwrap()
}

/// A segment from before whose block is freed, and which is then released.
const RELEASED: &str = "{\"k\":\"free_requested\",\"bytes\":512,\"addr\":4096}\n\
                        {\"k\":\"free_completed\",\"bytes\":512,\"addr\":4096}\n\
                        {\"k\":\"segment_free\",\"bytes\":2097152,\"addr\":4096}\n";

#[test]
fn what_was_there_before_can_be_released() {
    assert_eq!(replay(&trace(RELEASED), policy("pytorch"), None), (1, 0));
}

#[test]
fn pages_that_were_there_before_can_be_unmapped() {
    let lines = RELEASED.replace("segment_free", "segment_unmap");
    assert_eq!(replay(&trace(&lines), policy("blockyard"), None), (1, 0));
}

#[test]
fn what_was_there_before_takes_memory() {
    let recording = trace(RELEASED);
    let setup = Setup::simulated(policy("pytorch"), Some(MIB));
    let refused = Player::new(&recording, &recording.devices[0], setup, ()).err().unwrap();
    assert_eq!(
        refused.to_string(),
        "the state before the recording cannot be rebuilt: the device has no room for the \
         segment of 2097152 bytes that was at 0x1000"
    );
}

#[test]
fn pages_off_their_borders_are_refused() {
    let lines = RELEASED.replace("segment_free", "segment_unmap").replace("2097152", "1048576");
    let recording = trace(&lines);
    let setup = Setup::simulated(policy("blockyard"), None);
    let refused = Player::new(&recording, &recording.devices[0], setup, ()).err().unwrap();
    assert!(refused.to_string().ends_with("lies off the page borders"), "{refused}");
}
