//! The smallest device: what is promised of it, on random traces under several policies.
#![allow(missing_docs, clippy::unwrap_used)]

use blockyard::diagnosis::capacity::{Fineness, min_capacity};
use blockyard::diagnosis::search::{Bound, Subject};
use blockyard::lab::rng::Rng;
use blockyard::policy::settings::policy_from;
use blockyard::trace::{DeviceTrace, Event, Kind, Recording};
use blockyard::vocab::{MIB, StreamId};

fn random(seed: u64, events: usize) -> DeviceTrace {
    let mut rng = Rng::new(seed);
    let mut trace = DeviceTrace::default();
    let mut live: Vec<u32> = Vec::new();
    for _ in 0..events {
        if rng.bits() % 100 < 45 && !live.is_empty() {
            let allocation = live.swap_remove((rng.bits() % live.len() as u64) as usize);
            trace.events.push(Event { allocation, ..Event::new(Kind::Free) });
            continue;
        }
        let allocation = trace.allocations;
        trace.allocations += 1;
        live.push(allocation);
        let bytes = ((rng.bits() % 64 + 1) * MIB) >> (rng.bits() % 8);
        let stream = StreamId((rng.bits() % 2) as u32);
        trace.events.push(Event { bytes, allocation, stream, ..Event::new(Kind::Alloc) });
    }
    trace
}

#[test]
fn it_completes_and_one_step_below_fails() {
    for seed in 0..12 {
        let recording = Recording { has_pool_ids: true, ..Recording::default() };
        let trace = random(seed, 400);
        let subject = Subject::new(&recording, &trace);
        for spec in ["pytorch", "pytorch:max_split_size_mb:20", "pytorch-expandable", "blockyard"] {
            let policy = policy_from(spec, None).unwrap().policy;
            let fineness = Fineness { step: 2 * MIB, parts: 1000 };
            let found = min_capacity(&subject, &policy, fineness).unwrap().unwrap();
            let at = |capacity| subject.measure(&policy, Some(capacity), None).unwrap();
            assert!(found.bytes >= subject.live_peak, "{seed} {spec}");
            assert_eq!(at(found.bytes), found.measured, "{seed} {spec}: the replay is that one");
            assert!(found.measured.completes, "{seed} {spec}");
            let below = found.bytes - 2 * MIB;
            assert!(below < subject.live_peak || found.fails_at == below, "{seed} {spec}");
            assert!(found.fails_at == 0 || !at(found.fails_at).completes, "{seed} {spec}");
        }
    }
}

#[test]
fn a_replay_that_is_beaten_is_given_up() {
    let recording = Recording { has_pool_ids: true, ..Recording::default() };
    let trace = random(1, 4000);
    let subject = Subject::new(&recording, &trace);
    let policy = policy_from("pytorch", None).unwrap().policy;
    let whole = subject.measure(&policy, None, None).unwrap();
    assert!(whole.completes && !whole.given_up);
    let bound = |reserved, calls| Some(Bound { reserved, calls });
    let beaten = subject.measure(&policy, None, bound(0, 0)).unwrap();
    assert!(beaten.given_up && !beaten.completes);
    let equal = subject.measure(&policy, None, bound(whole.peak_reserved, whole.calls())).unwrap();
    assert_eq!(equal, whole, "what is as good is followed to its end");
}
