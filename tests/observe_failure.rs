//! Observe failures: a program that dies leaves a file that can be read.
//!
//! The programs are the tests marked `ignore` of this file, run by name in a process of their own.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use blockyard::allocator::{CachingAllocator, Config, FailureCause};
use blockyard::device::{SimConfig, SimDevice};
use blockyard::policy::presets;
use blockyard::trace::{Kind, Recording, file, write_records};
use blockyard::vocab::MIB;

const FILE: &str = "BLOCKYARD_TEST_FILE";

fn allocator() -> CachingAllocator {
    let device = SimDevice::new(SimConfig::with_capacity(100 * MIB));
    let config = Config::with_policy(presets::blockyard_native());
    CachingAllocator::new(device, Config { record: 1 << 10, ..config })
}

/// As [`allocator`], writing to the file that the parent names.
fn writing() -> CachingAllocator {
    let path = PathBuf::from(std::env::var_os(FILE).unwrap());
    let allocator = allocator();
    allocator.write_on_failure(move |cause, dump| {
        write_records(&path, dump).unwrap();
        std::fs::write(path.with_extension("cause"), format!("{cause:?}")).unwrap();
    });
    allocator
}

/// Runs one of the programs. Its file, the cause it wrote, and what it said.
fn child(name: &str) -> (Recording, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("failed.trace");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
        .env(FILE, &path)
        .output()
        .unwrap();
    assert!(!output.status.success(), "{name} should have died");
    let cause = std::fs::read_to_string(path.with_extension("cause")).unwrap();
    (file::read(&path).unwrap(), cause, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn kinds(recording: &Recording) -> Vec<Kind> {
    recording.devices[0].events.iter().map(|event| event.kind).collect()
}

#[test]
#[ignore = "a program of another test"]
fn dies_of_a_panic() {
    let allocator = writing();
    let _buffer = allocator.default_stream().alloc(3 * MIB).unwrap();
    panic!("planted {}", 7);
}

#[test]
fn a_panic_leaves_the_ring_and_the_old_hook_is_called() {
    let (recording, cause, said) = child("dies_of_a_panic");
    assert_eq!(kinds(&recording), [Kind::SegmentAlloc, Kind::Alloc]);
    assert_eq!(recording.devices[0].segments.len(), 1);
    assert!(cause.starts_with("Panic(") && cause.contains("planted 7"), "{cause}");
    assert!(cause.contains("observe_failure.rs:"), "{cause}");
    assert!(said.contains("planted 7"), "{said}");
}

#[test]
#[ignore = "a program of another test"]
fn dies_of_memory() {
    let allocator = writing();
    let _buffer = allocator.default_stream().alloc(30 * MIB).unwrap();
    if let Err(error) = allocator.default_stream().alloc(90 * MIB) {
        eprintln!("{error}");
        std::process::abort();
    }
}

#[test]
fn an_out_of_memory_leaves_the_ring() {
    let (recording, cause, _) = child("dies_of_memory");
    assert_eq!(kinds(&recording), [Kind::SegmentAlloc, Kind::Alloc, Kind::Oom]);
    assert!(cause.starts_with("OutOfMemory(") && cause.contains("Capacity"), "{cause}");
}

/// A panic in a destructor while another unwinds would end the process before anything is written
/// a second time; here the writer itself panics, and the device's memory runs out inside it.
#[test]
#[ignore = "a program of another test"]
fn dies_with_a_writer_that_fails() {
    let path = PathBuf::from(std::env::var_os(FILE).unwrap());
    let allocator = Arc::new(writing());
    let inner = Arc::clone(&allocator);
    allocator.write_on_failure(move |_, _| {
        assert!(inner.default_stream().alloc(900 * MIB).is_err());
        let note: &Path = &path.with_extension("note");
        assert!(!note.exists(), "called twice");
        std::fs::write(note, "").unwrap();
        panic!("the second writer fails");
    });
    let _buffer = allocator.default_stream().alloc(3 * MIB).unwrap();
    panic!("planted");
}

#[test]
fn a_writer_that_fails_harms_nobody() {
    let (recording, cause, said) = child("dies_with_a_writer_that_fails");
    assert_eq!(kinds(&recording), [Kind::SegmentAlloc, Kind::Alloc]);
    assert!(cause.contains("planted"), "{cause}");
    assert!(said.contains("the second writer fails") && said.contains("planted"), "{said}");
    assert!(!said.contains("called twice"), "{said}");
}

#[test]
fn writers_hear_of_every_failure_and_a_panicking_one_of_no_consequence() {
    let allocator = allocator();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    allocator.write_on_failure(move |cause, dump| {
        // The panics of other tests in this process are told too.
        if matches!(cause, FailureCause::OutOfMemory(_)) {
            assert_eq!(dump.device_bytes, Some(100 * MIB));
            count.fetch_add(1, Ordering::Relaxed);
            panic!("planted");
        }
    });
    for _ in 0..2 {
        let error = allocator.default_stream().alloc(101 * MIB).unwrap_err();
        assert!(error.out_of_memory().is_some());
    }
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}
