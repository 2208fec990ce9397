//! Cases: the naive twin against what PyTorch 2.15's own allocator did with the same requests.
//!
//! `tests/data/cases` holds small request sequences and the real allocator's figures under several
//! settings. If the twin equals them all it may be used to doubt the heap.
#![allow(clippy::unwrap_used, reason = "the data are ours: a wrong file is a failed test")]

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use blockyard::lab::twin::Twin;
use blockyard::policy::{Backing, Policy, presets, size};
use blockyard::vocab::{MIB, PoolId, StreamId, Ticket};
use serde::Deserialize;

/// A group's cases by name.
type Cases = BTreeMap<String, Case>;

#[derive(Deserialize)]
struct Case {
    capacity_bytes: u64,
    /// By settings text.
    pytorch: BTreeMap<String, Expected>,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Expected {
    oom: bool,
    first_oom_line: i64,
    peak_requested: u64,
    peak_allocated: u64,
    peak_reserved: u64,
    final_allocated: u64,
    final_reserved: u64,
    num_device_alloc: u64,
    num_device_free: u64,
    #[serde(rename = "cuMemMap")]
    pages_mapped: u64,
    #[serde(rename = "cuMemUnmap")]
    pages_unmapped: u64,
    num_alloc_retries: u64,
    num_ooms: u64,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases")
}

/// The text of a file that lies there as it is or compressed.
fn text(path: &Path) -> String {
    let bytes = fs::read(path).or_else(|_| {
        let packed = PathBuf::from(format!("{}.zst", path.display()));
        fs::read(packed).and_then(|bytes| zstd::decode_all(&bytes[..]))
    });
    String::from_utf8(bytes.unwrap_or_else(|error| panic!("{}: {error}", path.display()))).unwrap()
}

/// The settings text that the cases use, and no more of it.
fn policy(settings: &str) -> Policy {
    let mut policy = presets::pytorch();
    let mut rest = if settings == "default" { "" } else { settings };
    let mut rounding = None;
    while !rest.is_empty() {
        let (key, value) = rest.split_once(':').unwrap();
        let end = if value.starts_with('[') {
            value.find(']').unwrap() + 1
        } else {
            value.find(',').unwrap_or(value.len())
        };
        let value = &value[..end];
        rest = rest[key.len() + 1 + end..].trim_start_matches(',');
        let mib = || value.parse::<u64>().unwrap() * MIB;
        match key {
            "max_split_size_mb" => policy.max_split = mib(),
            "max_non_split_rounding_mb" => rounding = Some(mib()),
            "large_segment_size_mb" => policy.large_segment = mib(),
            "garbage_collection_threshold" => policy.collect_threshold = value.parse().unwrap(),
            "per_process_memory_fraction" => policy.memory_fraction = value.parse().unwrap(),
            "roundup_power2_divisions" => policy.divisions = divisions(value),
            "expandable_segments" => policy.backing = Backing::Pages { small: 2 * MIB, large: 0 },
            other => panic!("no case uses {other}"),
        }
    }
    policy.max_non_split_rounding = rounding.unwrap_or(policy.large_segment);
    if let Backing::Pages { large, .. } = &mut policy.backing {
        *large = policy.large_segment;
    }
    policy
}

/// One number for all sizes, or a list by MiB: the first entry also rules all smaller sizes, `>`
/// all larger ones.
fn divisions(value: &str) -> [u32; size::DIVISION_ENTRIES] {
    let mut table = [0; size::DIVISION_ENTRIES];
    let mut next = 0;
    for entry in value.trim_matches(['[', ']']).split(',') {
        let Some((key, steps)) = entry.split_once(':') else {
            return [entry.parse().unwrap(); size::DIVISION_ENTRIES];
        };
        let steps = steps.parse().unwrap();
        if key == ">" {
            table[next..].fill(steps);
        } else {
            let index = key.parse::<u64>().unwrap().ilog2() as usize;
            table[if next == 0 { 0 } else { index }..=index].fill(steps);
            next = index + 1;
        }
    }
    table
}

/// Runs a sequence of requests; stops at the first out-of-memory, or ignores that allocation from
/// then on.
fn run(csv: &str, capacity: u64, policy: Policy, go_on: bool) -> Expected {
    let mut twin = Twin::new(policy, Some(capacity), true);
    let (mut failed, mut first_oom) = (HashSet::new(), None);
    for (line, row) in (1..).zip(csv.lines()) {
        let fields: Vec<&str> = row.split(',').collect();
        let number = |at: usize| fields[at].parse::<u64>().unwrap();
        let stream = |at: usize| StreamId(number(at) as u32);
        if fields[0] != "e" && failed.contains(&number(1)) {
            continue;
        }
        match fields[0] {
            "a" => {
                let (ticket, pool) = (Ticket(number(1)), PoolId::DEFAULT);
                if twin.alloc(ticket, number(2), stream(3), pool).is_none() {
                    failed.insert(number(1));
                    first_oom.get_or_insert(line);
                    if !go_on {
                        break;
                    }
                }
            }
            "f" => twin.free(Ticket(number(1))),
            "r" => twin.use_on(Ticket(number(1)), stream(2)),
            "e" => {
                twin.trim();
            }
            other => panic!("line {line}: {other}"),
        }
    }
    let figures = *twin.figures();
    Expected {
        oom: first_oom.is_some(),
        first_oom_line: first_oom.unwrap_or(-1),
        peak_requested: figures.peak_requested,
        peak_allocated: figures.peak_allocated,
        peak_reserved: figures.peak_reserved,
        final_allocated: figures.allocated,
        final_reserved: figures.reserved,
        num_device_alloc: figures.device_allocs,
        num_device_free: figures.device_frees,
        pages_mapped: figures.pages_mapped,
        pages_unmapped: figures.pages_unmapped,
        num_alloc_retries: figures.retries,
        num_ooms: figures.ooms,
    }
}

/// How many runs of a group there are; every one that differs is shown before the test fails.
fn hold(group: &str, go_on: bool) -> usize {
    let folder = folder().join(group);
    let cases: Cases = serde_json::from_str(&text(&folder.join("expected.json"))).unwrap();
    let (mut runs, mut wrong) = (0, 0);
    for (name, case) in &cases {
        let csv = text(&folder.join(format!("{name}.csv")));
        for (settings, expected) in &case.pytorch {
            runs += 1;
            let got = run(&csv, case.capacity_bytes, policy(settings), go_on);
            if got != *expected {
                wrong += 1;
                eprintln!("{name} [{settings}]\n  pytorch {expected:?}\n  twin    {got:?}");
            }
        }
    }
    assert_eq!(wrong, 0, "{wrong} of {runs} runs of {group} differ");
    runs
}

#[test]
fn sequences_end_as_in_pytorch() {
    assert_eq!(hold("sequences", false), 13 * 6);
}

#[test]
fn random_requests_end_as_in_pytorch() {
    assert_eq!(hold("random", true), 40 * 14);
}
