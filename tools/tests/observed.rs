//! Observed: what a running allocator wrote down, read by the binary.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use blockyard::allocator::{CachingAllocator, Config, DeviceBuffer};
use blockyard::device::{SimConfig, SimDevice};
use blockyard::policy::presets;
use blockyard::trace::{dump, write_records};
use blockyard::vocab::{Dump, MIB};
use serde_json::Value;

fn blockyard(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_blockyard")).args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = blockyard(arguments);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&output.stderr))
    })
}

/// A program that keeps some of its blocks, and in the end asks for too much.
fn program(record: usize) -> (CachingAllocator, Vec<DeviceBuffer>) {
    let device = SimDevice::new(SimConfig::with_capacity(400 * MIB));
    let config = Config { record, ..Config::with_policy(presets::named("pytorch").unwrap()) };
    let allocator = CachingAllocator::new(device, config);
    let stream = allocator.default_stream();
    let mut kept = Vec::new();
    for round in 0..60 {
        blockyard::tag!(if round % 2 == 0 { "forward" } else { "backward" });
        kept.push(stream.alloc((1 + round % 9) * MIB + 700).unwrap());
        if round % 3 == 2 {
            drop(kept.remove((round as usize * 5) % kept.len()));
            drop(kept.remove(0));
        }
    }
    blockyard::tag!("logits");
    assert!(stream.alloc(380 * MIB).is_err());
    (allocator, kept)
}

fn written(folder: &Path, dump: &Dump) -> String {
    let path: PathBuf = folder.join("run.trace.zst");
    write_records(&path, dump).unwrap();
    path.to_string_lossy().into_owned()
}

#[test]
fn a_whole_run_is_replayed_to_the_address_and_fails_as_it_did() {
    let folder = tempfile::tempdir().unwrap();
    let (allocator, _kept) = program(1 << 12);
    let path = written(folder.path(), &allocator.dump());
    let output = blockyard(&["replay", &path]);
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{page}");
    for part in ["all 60 allocations land at their recorded addresses", "400.00 MiB"] {
        assert!(page.contains(part), "{part:?} is missing in\n{page}");
    }
    let summary = json(&["summary", &path, "--json"]);
    assert_eq!(summary["stats"]["allocation.all.allocated"], 60);
    let map = folder.path().join("map.svg").to_string_lossy().into_owned();
    assert!(blockyard(&["render", &path, "-o", &map]).status.success());
    let map = std::fs::read_to_string(&map).unwrap();
    assert!(map.contains("forward") && map.contains("backward"), "tags stand on the map");
}

#[test]
fn a_ring_without_its_start_is_replayed_from_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let (allocator, _kept) = program(80);
    let dump = allocator.dump();
    assert!(dump.lost > 50);
    let path = written(folder.path(), &dump);
    let output = blockyard(&["replay", &path]);
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &page;
    assert!(
        said.contains(&format!("the recorder lost its {} oldest records", dump.lost)),
        "{said}"
    );
    assert!(page.contains("land at their recorded addresses"), "{page}");
    let picture = folder.path().join("end.svg").to_string_lossy().into_owned();
    let rendered = blockyard(&["render", &path, "-o", &picture]);
    let said = String::from_utf8_lossy(&rendered.stderr).into_owned();
    assert!(rendered.status.success(), "{said}");
    assert!(std::fs::read_to_string(&picture).unwrap().contains("</svg>"));
}

#[test]
fn a_snapshot_is_read_as_one_of_pytorchs() {
    let folder = tempfile::tempdir().unwrap();
    let (allocator, _kept) = program(0);
    let path = folder.path().join("now.json");
    let snapshot = dump::snapshot(&allocator.snapshot());
    snapshot.to_json(std::fs::File::create(&path).unwrap()).unwrap();
    let summary = json(&["summary", &path.to_string_lossy(), "--json"]).to_string();
    assert!(summary.contains(&allocator.memory_allocated().to_string()), "{summary}");
}
