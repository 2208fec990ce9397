//! Conformance: allocators in C that keep the rules, and such as break one each, under `blockyard conformance`.
//!
//! The libraries are compiled by the system's compiler; without one the tests say that they were skipped.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance");

/// Both libraries, compiled once; `None`: there is no compiler.
fn library(name: &str) -> Option<PathBuf> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        if Command::new("cc").arg("--version").output().is_err() {
            println!("SKIPPED: there is no C compiler");
            return None;
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance");
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["sound", "broken"] {
            let source = Path::new(SOURCES).join(format!("{name}.c"));
            let flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"];
            let mut cc = Command::new("cc");
            cc.args(flags).arg("-pthread").arg(source).args(["-ldl", "-o"]);
            let done = cc.arg(folder.join(format!("{name}.so"))).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        Some(folder)
    });
    folder.as_ref().map(|folder| folder.join(format!("{name}.so")))
}

fn conformance(library: &Path, symbols: [&str; 2], more: &[&str]) -> Output {
    let mut blockyard = Command::new(env!("CARGO_BIN_EXE_blockyard"));
    blockyard.args(["conformance", "--alloc", symbols[0], "--free", symbols[1]]);
    // Each piece of simulated work takes a while, so that sixty of them outlast one on any machine.
    blockyard.args(more).arg(library).env("SIMCUDA_JITTER", "7:2000").output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The kinds of findings of one check.
fn kinds(report: &Value, check: &str) -> Vec<String> {
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|one| one["name"] == check).unwrap();
    let findings = check["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["kind"].as_str().unwrap().to_owned()).collect()
}

/// What one check finds in an allocator of `broken.c`.
fn broken(symbols: [&str; 2], check: &str, more: &[&str]) -> Vec<String> {
    let Some(library) = library("broken") else { return Vec::new() };
    let options = [&["--json", "--only", check], more].concat();
    let output = conformance(&library, symbols, &options);
    let report = json(&output);
    let found = kinds(&report, check);
    let code = if found.is_empty() { 0 } else { 4 };
    assert_eq!(output.status.code(), Some(code), "{report:#}");
    found
}

#[test]
fn an_allocator_that_keeps_the_rules_passes() {
    let Some(library) = library("sound") else { return };
    let more = ["--reset", "sound_reset", "--threads", "4"];
    let output = conformance(&library, ["sound_alloc", "sound_free"], &more);
    let page = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{page}");
    assert!(page.contains("11 passed, 0 failed, 0 skipped"), "{page}");
    assert!(page.contains("are multiples of 512"), "{page}");
}

/// `libblockyard`, built by the documented command.
fn ours() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--locked", "-p", "blockyard-ffi", "--message-format=json"]);
    let built = cargo.current_dir(root).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let said = String::from_utf8(built.stdout).unwrap();
    let mut names = said.split('"').filter(|text| {
        text.contains("libblockyard.") && text.ends_with(std::env::consts::DLL_SUFFIX)
    });
    PathBuf::from(names.next().unwrap())
}

/// On the process's memory, and on a simulated CUDA driver, of which less is left than is asked for in total.
#[test]
fn ours_passes_on_the_host_and_on_a_driver() {
    let library = ours();
    let driver = blockyard_simcuda::control::library_path().unwrap();
    let on_driver = ["--device", "sim", "--driver", driver.to_str().unwrap()];
    let places = [("host:1GiB", &[][..]), ("cuda:0", &on_driver[..])];
    for (device, options) in places {
        let mut blockyard = Command::new(env!("CARGO_BIN_EXE_blockyard"));
        blockyard.args(["conformance", "--alloc", "blockyard_torch_alloc"]);
        blockyard.args(["--free", "blockyard_torch_free", "--reset", "blockyard_torch_reset"]);
        blockyard.args(options).arg(&library).env("BLOCKYARD_DEVICE", device);
        let output = blockyard.env("SIMCUDA_MEMORY", "2G").output().unwrap();
        let page = String::from_utf8_lossy(&output.stdout);
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{device}: {page}{complaints}");
        assert!(page.contains("11 passed, 0 failed, 0 skipped"), "{device}: {page}");
        println!("{device}: {page}");
    }
}

#[test]
fn each_broken_rule_is_found_and_named() {
    if library("broken").is_none() {
        return;
    }
    assert_eq!(broken(["misaligned_alloc", "sound_free"], "alignment", &[]), ["misaligned"]);
    let overlap = broken(["overlap_alloc", "overlap_free"], "overlap", &[]);
    assert_eq!(overlap, ["overlap", "corrupted"]);
    assert_eq!(broken(["promising_alloc", "sound_free"], "huge", &[]), ["promised"]);
    assert_eq!(broken(["plain_alloc", "leaky_free"], "leak", &[]), ["leak"]);
    assert_eq!(broken(["plain_alloc", "sound_free"], "leak", &[]), [""; 0]);
    let reset = ["--reset", "forgetful_reset"];
    assert_eq!(broken(["forgetful_alloc", "sound_free"], "reset", &reset), ["corrupted"]);
}

#[test]
fn an_allocator_that_is_wrong_under_threads_is_right_on_one() {
    if library("broken").is_none() {
        return;
    }
    let racy = ["racy_alloc", "racy_free"];
    assert_eq!(broken(racy, "stress", &[]), [""; 0]);
    // A race may not happen in one run; a machine on which it never does cannot show it.
    let seeds = ["1", "2", "3", "4", "5"];
    let found = seeds.iter().any(|seed| {
        let found = broken(racy, "threads", &["--threads", "8", "--seed", seed]);
        found.iter().any(|kind| ["overlap", "crash", "corrupted"].contains(&kind.as_str()))
    });
    assert!(found, "five runs of eight threads without a race");
}

#[test]
fn a_cache_that_forgets_about_streams_is_found_on_a_driver_only() {
    if library("broken").is_none() {
        return;
    }
    let unordered = ["unordered_alloc", "unordered_free"];
    let driver = blockyard_simcuda::control::library_path().unwrap();
    let sim = ["--device", "sim", "--driver", driver.to_str().unwrap()];
    assert_eq!(broken(unordered, "streams", &sim), ["order"]);
    assert_eq!(broken(unordered, "overlap", &sim), [""; 0]);
}

#[test]
fn a_crash_and_a_hang_are_findings_with_a_place() {
    let Some(library) = library("broken") else { return };
    let crash =
        conformance(&library, ["plain_alloc", "crashing_free"], &["--json", "--only", "zero"]);
    let report = json(&crash);
    let finding = &report["checks"][1]["findings"][0];
    assert_eq!(finding["kind"], "crash", "{report:#}");
    let text = finding["text"].as_str().unwrap();
    assert!(text.contains("SIGSEGV") && text.contains("freeing a null pointer"), "{text}");
    let hang = broken(["hanging_alloc", "sound_free"], "alignment", &["--timeout", "1"]);
    assert_eq!(hang, ["timeout"]);
}

/// The document has the keys of `docs/conformance.schema.json` and no others, and words of its lists.
#[test]
fn the_document_is_as_its_schema_says() {
    let Some(library) = library("broken") else { return };
    let schema: Value =
        serde_json::from_str(include_str!("../../docs/conformance.schema.json")).unwrap();
    let keys = |value: &Value| {
        value.as_object().unwrap().keys().cloned().collect::<std::collections::BTreeSet<_>>()
    };
    let options = ["--json", "--only", "alignment,zero,reset", "--threads", "2"];
    let report = json(&conformance(&library, ["misaligned_alloc", "sound_free"], &options));
    assert_eq!(keys(&report), keys(&schema["properties"]));
    let (check, finding) = (&schema["$defs"]["check"], &schema["$defs"]["finding"]);
    let checks = report["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 4);
    for one in checks {
        assert_eq!(keys(one), keys(&check["properties"]));
        let outcomes = check["properties"]["outcome"]["enum"].as_array().unwrap();
        assert!(outcomes.contains(&one["outcome"]), "{one}");
    }
    let names = check["properties"]["name"]["enum"].as_array().unwrap();
    let all = conformance(&library, ["plain_alloc", "sound_free"], &["--json", "--only", "taste"]);
    let text = String::from_utf8_lossy(&all.stderr).into_owned();
    assert!(names.iter().all(|name| text.contains(name.as_str().unwrap())), "{text}");
    let found = &checks[1]["findings"][0];
    assert_eq!(keys(found), keys(&finding["properties"]));
    let outcome = |place: usize| checks[place]["outcome"].as_str().unwrap();
    assert_eq!([outcome(1), outcome(2), outcome(3)], ["failed", "failed", "skipped"]);
}

#[test]
fn what_cannot_be_checked_is_bad_usage() {
    let Some(library) = library("sound") else { return };
    let refused = |library: &Path, symbols, more: &[&str]| {
        let output = conformance(library, symbols, more);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = refused(&library, ["sound_alloc", "no_such_free"], &[]);
    assert!(text.contains("no symbol \"no_such_free\""), "{text}");
    let text = refused(Path::new("no-such.so"), ["a", "b"], &[]);
    assert!(text.contains("no-such.so"), "{text}");
    let text = refused(&library, ["sound_alloc", "sound_free"], &["--only", "taste"]);
    assert!(text.contains("alignment"), "the checks are named: {text}");
}
