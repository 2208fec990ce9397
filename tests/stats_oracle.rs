//! Oracle: statistics that are folded from changes equal a recount of the heap, after every event
//! of whole workloads.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use blockyard::lab::fuzzing::policies;
use blockyard::policy::Policy;
use blockyard::vocab::MIB;
use common::Rig;

/// The workloads that lie under `tests/data/cases` as they are.
fn workloads() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases/sequences");
    let mut all = vec![("mixed".to_string(), MIXED.to_string())];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "csv") {
            all.push((path.display().to_string(), fs::read_to_string(path).unwrap()));
        }
    }
    all
}

/// Two streams, uses, trims, zero bytes, frees in another order.
const MIXED: &str = "\
a,0,1,0\na,1,0,0\na,2,1048577,1\nr,2,0\nf,2\na,3,3000000,0\nf,0\na,4,700,0\na,5,30000000,1\nr,5,2\nr,5,3\nf,5\n\
a,6,30000000,1\ne\nf,3\na,7,512,1\nf,4\ne\na,8,200000000,0\nf,7\nf,8\nf,6\nf,1\ne\n";

/// Plays a workload; the rig compares after every event. Returns how many requests failed.
fn play(csv: &str, policy: Policy, mib: u64) -> u64 {
    let mut rig = Rig::new(policy, mib);
    let mut held = BTreeSet::new();
    let mut failed = 0;
    for row in csv.lines() {
        let fields: Vec<&str> = row.split(',').collect();
        let number = |at: usize| fields[at].parse::<u64>().unwrap();
        match fields[0] {
            "a" if number(2) == 0 => {}
            "a" => match rig.request(number(1), number(2), number(3) as u32, 0) {
                Ok(_) => drop(held.insert(number(1))),
                Err(_) => failed += 1,
            },
            "f" if held.remove(&number(1)) => rig.free(number(1)),
            "r" if held.contains(&number(1)) => rig.use_on(number(1), number(2) as u32),
            "e" => drop(rig.trim()),
            _ => {}
        }
    }
    let usage = rig.usage();
    assert_eq!(usage.reserved_bytes, rig.stats.reserved_bytes());
    assert_eq!(usage.allocated_bytes, rig.stats.allocated_bytes());
    let free = usage.releasable_bytes + usage.pinned_free_bytes;
    assert_eq!(
        usage.allocated_bytes + usage.awaiting_free_bytes + free,
        usage.reserved_bytes,
        "H1"
    );
    held.into_iter().for_each(|id| rig.free(id));
    rig.trim();
    assert_eq!(rig.stats.reserved_bytes(), 0);
    failed
}

#[test]
fn folded_statistics_equal_a_recount_after_every_event() {
    let mut failed = 0;
    for (name, csv) in workloads() {
        let tight = if name == "mixed" { 120 } else { 400 };
        for (policy_name, policy, unit) in policies() {
            if unit == MIB {
                play(&csv, policy.clone(), 20_000);
                failed += play(&csv, policy, tight);
            } else {
                assert!(policy_name.starts_with("tiny"));
            }
        }
    }
    assert!(failed > 0, "failures are part of it");
}
