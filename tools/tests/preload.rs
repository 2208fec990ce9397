//! Preload: programs that know nothing of a recorder, with one before their driver.
//!
//! A program in C, linked to the simulated driver, under `LD_PRELOAD`; and one over cudarc, which looks for its driver
//! at run time, by the stand-in. Without a C compiler the tests say that they were skipped.
#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use blockyard::trace::{Event, Kind, Recording, file};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/preload");

/// `libblockyard_preload`, built by the documented command.
fn recorder() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--locked", "-p", "blockyard-preload", "--message-format=json"]);
    let built = done(cargo.current_dir(env!("CARGO_MANIFEST_DIR")));
    let said = String::from_utf8(built.stdout).unwrap();
    let mut names = said.split('"').filter(|text| text.ends_with("libblockyard_preload.so"));
    PathBuf::from(names.next().unwrap())
}

fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}{complained}", output.status);
    output
}

/// A folder with the simulated driver under its true name; `None`: there is no compiler.
fn driver() -> Option<tempfile::TempDir> {
    if Command::new("cc").arg("--version").output().is_err() {
        println!("SKIPPED: there is no C compiler");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let library = blockyard_simcuda::control::library_path().unwrap();
    std::os::unix::fs::symlink(library, folder.path().join("libcuda.so.1")).unwrap();
    Some(folder)
}

/// The program in C with its runtime, in the driver's folder.
fn program(folder: &Path) -> PathBuf {
    let (source, out) = (|name| Path::new(SOURCES).join(name), |name| folder.join(name));
    let cc = |arguments: &[&str], from: PathBuf, to: &Path| {
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1"]).arg(from).arg("-o").arg(to);
        done(cc.args(arguments).arg("-L").arg(folder).arg("-l:libcuda.so.1"));
    };
    cc(&["-shared", "-fPIC"], source("runtime.c"), &out("libcudart.so"));
    cc(&["-pthread", "-lcudart"], source("program.c"), &out("program"));
    out("program")
}

/// Events of a kind, in order.
fn of(recording: &Recording, kind: Kind) -> Vec<Event> {
    let events = recording.devices[0].events.iter().copied();
    events.filter(|event| event.kind == kind).collect()
}

fn tags(recording: &Recording, events: &[Event]) -> Vec<String> {
    events.iter().map(|event| recording.stacks.label(event.stack)).collect()
}

#[test]
fn a_program_in_c_is_recorded_by_preloading() {
    let Some(folder) = driver() else { return };
    let (program, trace) = (program(folder.path()), folder.path().join("run.trace.zst"));
    let mut command = Command::new(&program);
    command.env("LD_PRELOAD", recorder()).env("LD_LIBRARY_PATH", folder.path());
    let output = done(command.env("BLOCKYARD_TRACE", &trace));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "huge: 2\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");

    let recording = file::read(&trace).unwrap();
    let allocs = of(&recording, Kind::Alloc);
    let sizes: Vec<u64> = allocs.iter().map(|event| event.bytes).collect();
    assert_eq!(sizes[..5], [1000, 2000, 3000, 5000, 4000]);
    let expected =
        ["cuMemAlloc", "cuMemAllocAsync", "cuMemAllocManaged", "cudaMalloc", "cuMemAlloc"];
    assert_eq!(tags(&recording, &allocs[..5]), expected, "a call within a call is one");
    assert_eq!((allocs.len(), of(&recording, Kind::Free).len()), (405, 403));
    assert_eq!(of(&recording, Kind::Use).len(), 1, "freed on another stream");
    assert_eq!(allocs[1].stream.0, 1);
    assert_eq!(of(&recording, Kind::SegmentMap)[0].bytes, 2 << 20);
    assert_eq!(of(&recording, Kind::SegmentUnmap).len(), 1);
    let failed = of(&recording, Kind::Oom);
    assert_eq!((failed.len(), failed[0].bytes), (1, 1 << 40));
    assert!(failed[0].address > 15 << 30, "free bytes of a device of 16 GiB");
    the_tools_read(&trace);
}

fn the_tools_read(trace: &Path) {
    let read = |arguments: &[&str]| {
        let mut blockyard = Command::new(env!("CARGO_BIN_EXE_blockyard"));
        let output = blockyard.args(arguments).arg("--json").arg(trace).output().unwrap();
        let page: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(page["format"], "blockyard-preload", "{page:#}");
        (output.status.code().unwrap(), page)
    };
    let (code, page) = read(&["summary"]);
    assert_eq!(code, 0, "{page:#}");
    let (code, page) = read(&["replay", "--capacity", "16GiB", "--continue-on-oom"]);
    let result = &page["results"][0];
    assert_eq!((code, &result["allocs"], &result["ooms"]), (3, &405.into(), &1.into()), "{page:#}");
}

#[test]
fn without_a_path_or_with_a_bad_one_the_program_runs_as_before() {
    let Some(folder) = driver() else { return };
    let (program, recorder) = (program(folder.path()), recorder());
    let run = |path: Option<&str>| {
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", &recorder).env("LD_LIBRARY_PATH", folder.path());
        command.envs(path.map(|path| ("BLOCKYARD_TRACE", path)));
        let output = done(&mut command);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "huge: 2\n");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(run(None), "");
    let complaint = run(Some("no-such-folder/run.trace"));
    let first = complaint.lines().next().unwrap();
    assert!(first.starts_with("blockyard-preload: BLOCKYARD_TRACE: no-such-folder"), "{complaint}");
}

#[test]
fn a_program_that_loads_its_driver_is_recorded_by_the_stand_in() {
    let Some(folder) = driver() else { return };
    let (stand_in, trace) = (folder.path().join("stand-in"), folder.path().join("run.trace"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("preload/stand-in.sh");
    done(Command::new(script).arg(recorder()).arg(&stand_in));
    let path = std::env::join_paths([stand_in.as_path(), folder.path()]).unwrap();
    let mut itself = Command::new(std::env::current_exe().unwrap());
    itself.args(["--exact", "the_program_over_cudarc", "--nocapture"]);
    itself.env("PRELOAD_PROGRAM", "1").env("LD_LIBRARY_PATH", path);
    let output = done(itself.env("BLOCKYARD_TRACE", &trace));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("simulated GPU"), "{said}");
    let recording = file::read(&trace).unwrap();
    let allocs = of(&recording, Kind::Alloc);
    assert_eq!(allocs.iter().map(|event| event.bytes).collect::<Vec<_>>(), [4096, 8192]);
    assert_eq!(of(&recording, Kind::Free).len(), 2);
}

/// No test by itself: what the test above runs in a process of its own.
#[test]
fn the_program_over_cudarc() {
    if std::env::var_os("PRELOAD_PROGRAM").is_none() {
        return;
    }
    let context = cudarc::driver::CudaContext::new(0).unwrap();
    println!("{}", context.name().unwrap());
    let stream = context.default_stream();
    let first = stream.alloc_zeros::<u8>(4096).unwrap();
    let second = stream.alloc_zeros::<f32>(2048).unwrap();
    drop((first, second));
    stream.synchronize().unwrap();
}
