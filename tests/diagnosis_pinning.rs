//! Pinning, held against the engine: once the blocks that are said to be in the way are gone, the request
//! that failed is served.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use blockyard::diagnosis::pinning::smallest;
use blockyard::lab::rng::Rng;
use blockyard::policy::settings::policy_from;
use blockyard::vocab::{MIB, Verdict};
use common::Rig;

/// Random lives until a request fails by the arrangement of blocks; then the blocks in the way are freed.
/// Gives whether that came about.
fn one(spec: &str, seed: u64) -> bool {
    let mut rng = Rng::new(seed);
    let mut rig = Rig::new(policy_from(spec, None).unwrap().policy, 400);
    let mut live: Vec<u64> = Vec::new();
    for id in 0..300u64 {
        let mib = [1, 2, 5, 12, 30, 60][rng.below(6) as usize];
        let bytes = mib * MIB - rng.below(4096) * 128;
        let stream = rng.below(2) as u32;
        match rig.request(id, bytes, stream, 0) {
            Ok(_) => live.push(id),
            Err(report) => {
                let view = rig.heap.view();
                let pinning = smallest(&view, &report, rig.heap.policy(), |p| rig.heap.gives(p));
                let arranged =
                    matches!(report.verdict, Verdict::Fragmentation | Verdict::OtherStream);
                let Some(pinning) = pinning.filter(|pinning| arranged && !pinning.pins.is_empty())
                else {
                    let gone = live.swap_remove(rng.below(live.len() as u64) as usize);
                    rig.free(gone);
                    continue;
                };
                for pin in &pinning.pins {
                    rig.free(pin.ticket.0);
                }
                let served = rig.request(id, bytes, stream, 0);
                assert!(served.is_ok(), "{spec}, seed {seed}: {pinning:?}\n{report}");
                return true;
            }
        }
        if rng.below(5) < 2 {
            let gone = live.swap_remove(rng.below(live.len() as u64) as usize);
            rig.free(gone);
        }
    }
    false
}

#[test]
fn without_the_pins_the_request_is_served() {
    for spec in
        ["pytorch", "pytorch-expandable", "pytorch:max_split_size_mb:20", "blockyard-native"]
    {
        let came_about = (0..40).filter(|&seed| one(spec, seed)).count();
        assert!(came_about >= 5, "{spec}: only {came_about}");
    }
}
