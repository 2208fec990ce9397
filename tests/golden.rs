//! Golden reports: the text of an out-of-memory error, for each cause.
//!
//! The text is the interface: `tests/golden` holds it to the letter. `BLOCKYARD_BLESS=1` writes it
//! anew.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;

use blockyard::device::{CallKind, FencePolicy, Refusals, SimConfig};
use blockyard::policy::settings::policy_from;
use blockyard::policy::{Policy, presets};
use blockyard::vocab::{Fault, MIB, Report, Verdict};
use common::Rig;

fn rig(spec: &str, mib: u64) -> Rig {
    Rig::new(policy_from(spec, None).unwrap().policy, mib)
}

fn compare(report: &Report, verdict: Verdict) {
    assert_eq!(report.verdict, verdict, "{report}");
    let name = format!("tests/golden/oom-{}.txt", verdict.name());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&name);
    let text = format!("{report}\n");
    if std::env::var_os("BLOCKYARD_BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "{name} differs; BLOCKYARD_BLESS=1 writes it anew");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "a line is too long: {text}");
}

#[test]
fn fragmentation() {
    let mut rig = rig("pytorch", 16384);
    rig.alloc(0, 11104);
    rig.free(0);
    (1..=30).for_each(|id| rig.alloc(id, 16));
    compare(&rig.fail(11104), Verdict::Fragmentation);
}

#[test]
fn capacity() {
    let mut rig = rig("blockyard", 16384);
    rig.alloc(0, 12000);
    rig.alloc(1, 3000);
    rig.free(1);
    compare(&rig.fail(6000), Verdict::Capacity);
}

/// The fence could not be recorded, and the driver still refuses: nobody can say when the memory is
/// free.
#[test]
fn awaiting_free() {
    let refusals =
        Refusals::default().and_random(1, 1_000_000, &[CallKind::Fence], Fault::OutOfMemory);
    let fences = FencePolicy::OnlyWhenWaited;
    let config = SimConfig { fences, refusals, ..SimConfig::with_capacity(100 * MIB) };
    let mut rig = Rig::on(presets::blockyard(), config);
    rig.alloc(0, 80);
    rig.use_on(0, 1);
    rig.free(0);
    compare(&rig.fail(60), Verdict::AwaitingFree);
}

#[test]
fn other_stream() {
    let mut rig = rig("blockyard-native", 10240);
    for stream in 0..8u32 {
        rig.request(100, 1024 * MIB, stream, 0).unwrap();
        rig.free(100);
        rig.request(u64::from(stream), 2 * MIB, stream, 0).unwrap();
    }
    compare(&rig.fail(4096), Verdict::OtherStream);
}

#[test]
fn other_pool() {
    let mut rig = rig("pytorch", 100);
    rig.alloc(0, 98);
    rig.free(0);
    rig.alloc(1, 2);
    rig.alloc(2, 1);
    rig.alloc(3, 1);
    compare(&rig.fail(1), Verdict::OtherPool);
}

#[test]
fn private_pool() {
    let mut rig = rig("pytorch", 80);
    rig.request(0, 60 * MIB, 0, 1).unwrap();
    rig.free(0);
    compare(&rig.request(1, 70 * MIB, 0, 1).unwrap_err(), Verdict::PrivatePool);
}

#[test]
fn limit() {
    let mut rig = Rig::new(Policy { memory_fraction: 0.5, ..presets::blockyard() }, 16384);
    rig.alloc(0, 6000);
    compare(&rig.fail(4000), Verdict::Limit);
}

#[test]
fn granularity() {
    compare(&rig("pytorch-expandable", 90).fail(90), Verdict::Granularity);
}

#[test]
fn impossible_size() {
    let mut rig = rig("blockyard", 80 * 1024);
    rig.alloc(0, 1000);
    compare(&rig.fail(100 * 1024), Verdict::ImpossibleSize);
}

/// Another process holds 40 GiB of the card.
#[test]
fn hidden_consumer() {
    let config = SimConfig { hidden: 40 * 1024 * MIB, ..SimConfig::with_capacity(80 * 1024 * MIB) };
    let mut rig = Rig::on(presets::blockyard(), config);
    rig.alloc(0, 30 * 1024);
    compare(&rig.fail(20 * 1024), Verdict::HiddenConsumer);
}
