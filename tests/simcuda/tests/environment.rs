//! Environment: what `SIMCUDA_*` says, in processes of their own: this program again, as a child.
#![allow(missing_docs, clippy::unwrap_used, unsafe_code)]

mod common;
use common::*;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

/// Runs one of the parts below in a child with these variables.
fn child(part: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", part, "--nocapture"]);
    command.envs(variables.iter().copied()).output().unwrap()
}

#[track_caller]
fn succeeds(part: &str, variables: &[(&str, &str)]) -> String {
    let output = child(part, variables);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}{}", String::from_utf8_lossy(&output.stdout));
    words
}

#[test]
#[ignore = "a part: run as a child"]
fn part_machine() {
    let (mut context, mut value, mut free, mut total, mut name) = (0, 0, 0, 0, [0; 64]);
    ok(cuInit(0));
    ok(cuDevicePrimaryCtxRetain(&mut context, 2));
    ok(cuCtxSetCurrent(context));
    ok(cuMemGetInfo_v2(&mut free, &mut total));
    assert_eq!((free, total), ((24 << 30) - (300 << 20), 24 << 30));
    ok(cuDeviceGetName(&mut name, 64, 2));
    assert!(name.starts_with(b"toy\0"));
    let attributes = [(75, 9), (76, 0), (102, 0), (115, 0), (16, 4), (33, 3)];
    for (attribute, expected) in attributes {
        ok(cuDeviceGetAttribute(&mut value, attribute, 2));
        assert_eq!(value, expected, "attribute {attribute}");
    }
    assert_eq!(cuDeviceGetAttribute(&mut value, 75, 3), 101);
    let mut address = 0;
    assert_eq!(cuMemAddressReserve(&mut address, PAGE, 0, 0, 0), 801);
    alloc(100);
    assert_eq!(alive("bytes"), (300 << 20) + PAGE);
}

#[test]
fn the_machine_is_as_the_environment_says() {
    let variables = [
        ("SIMCUDA_DEVICES", "3"),
        ("SIMCUDA_MEMORY", "24G"),
        ("SIMCUDA_CONTEXT_BYTES", "300M"),
        ("SIMCUDA_NAME", "toy"),
        ("SIMCUDA_CC", "9.0"),
        ("SIMCUDA_PROCESSORS", "4"),
        ("SIMCUDA_VMM", "0"),
        ("SIMCUDA_POOLS", "0"),
        ("SIMCUDA_CHARGE", "2M"),
    ];
    succeeds("part_machine", &variables);
    let words = succeeds(
        "part_faults",
        &[("SIMCUDA_FAIL", "cuMemAlloc:2:2"), ("SIMCUDA_MEMORY", "much"), ("SIMCUDA_REPORT", "1")],
    );
    assert!(words.contains("SIMCUDA_MEMORY=\"much\" is not understood"), "{words}");
    assert!(words.contains("{\"simcuda\":{\"allocations\":2,"), "{words}");
}

#[test]
#[ignore = "a part: run as a child"]
fn part_faults() {
    let (mut context, mut none) = (0, 0);
    ok(cuInit(0));
    ok(cuDevicePrimaryCtxRetain(&mut context, 0));
    ok(cuCtxSetCurrent(context));
    alloc(8);
    assert_eq!(cuMemAlloc_v2(Some(&mut none), 8), 2);
    alloc(8);
}

#[test]
fn calls_are_traced() {
    let path = std::env::temp_dir().join(format!("simcuda-trace-{}", std::process::id()));
    let variables = [("SIMCUDA_FAIL", "cuMemAlloc:2:2"), ("SIMCUDA_TRACE", path.to_str().unwrap())];
    succeeds("part_faults", &variables);
    let trace = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let calls: Vec<&str> = trace.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect();
    let expected = [
        "cuInit -> 0",
        "cuDevicePrimaryCtxRetain -> 0",
        "cuCtxSetCurrent -> 0",
        "cuMemAlloc_v2 -> 0",
        "cuMemAlloc_v2 -> 2",
        "cuMemAlloc_v2 -> 0",
    ];
    assert_eq!(calls, expected);
}

#[test]
#[ignore = "a part: run as a child"]
fn part_before_init() {
    let (mut address, mut context) = (0, 0);
    assert_eq!(cuMemAlloc_v2(Some(&mut address), 8), 3);
    assert_eq!(cuDevicePrimaryCtxRetain(&mut context, 0), 3);
    ok(cuInit(0));
    assert_eq!(cuMemAlloc_v2(Some(&mut address), 8), 201, "no context");
}

#[test]
#[ignore = "a part: run as a child"]
fn part_no_device() {
    assert_eq!(cuInit(0), 100);
}

#[test]
fn nothing_goes_before_its_time() {
    succeeds("part_before_init", &[]);
    succeeds("part_no_device", &[("SIMCUDA_DEVICES", "0")]);
}

#[test]
#[ignore = "a part: run as a child"]
fn part_touch() {
    let _machine = Machine::new();
    let (mut at, mut handle) = (0, 0);
    ok(cuMemAddressReserve(&mut at, PAGE, 0, 0, 0));
    ok(cuMemCreate(&mut handle, PAGE, &PROPERTIES, 0));
    ok(cuMemMap(at, PAGE, 0, handle, 0));
    if std::env::var("TOUCH").unwrap() == "accessible" {
        ok(cuMemSetAccess(at, PAGE, &FULL, 1));
    }
    // SAFETY: none: without access this ends the process, which is what is tried.
    unsafe { *(at as *mut u8) = 1 };
}

#[test]
fn memory_without_access_cannot_be_touched_by_the_host() {
    assert!(child("part_touch", &[("TOUCH", "accessible")]).status.success());
    let status = child("part_touch", &[("TOUCH", "mapped only")]).status;
    assert_eq!(status.signal(), Some(11), "a segmentation fault");
}

#[test]
#[ignore = "a part: run as a child"]
fn part_leave() {
    let _machine = Machine::new();
    let (a, s) = (alloc(8), stream(0));
    for _ in 0..1000 {
        ok(cuMemsetD8Async(a, 1, 8, s));
    }
}

#[test]
fn a_process_may_end_with_work_on_its_way() {
    succeeds("part_leave", &[("SIMCUDA_JITTER", "3:2000"), ("SIMCUDA_REPORT", "1")]);
}
