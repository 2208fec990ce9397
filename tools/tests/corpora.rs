//! Corpora: every input in `fuzz/corpus/` through the body of its fuzz target, without a fuzzer.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use blockyard_tools::fuzzing::{Body, PLANTED, TARGETS, canary};

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

fn names_in(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(fuzz().join(folder)).unwrap();
    let name = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_string();
    entries.map(|entry| name(entry.unwrap().path())).collect()
}

/// The inputs of one target, each with its name.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(fuzz().join("corpus").join(target)).unwrap();
    let read = |path: PathBuf| (path.display().to_string(), fs::read(path).unwrap());
    entries.map(|entry| read(entry.unwrap().path())).collect()
}

#[test]
fn every_target_has_a_program_a_manifest_entry_and_a_corpus() {
    // The body of `ffi_calls` calls a C interface: it lies beside that, and so does the test of its corpus.
    let names = TARGETS.iter().map(|(name, _)| *name).chain(["ffi_calls"]);
    let targets: BTreeSet<String> = names.map(String::from).collect();
    assert_eq!(names_in("fuzz_targets"), targets);
    assert_eq!(names_in("corpus"), targets);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for (target, _) in TARGETS {
        assert!(manifest.contains(&format!("name = \"{target}\"")), "{target} is not declared");
        let path = fuzz().join(format!("fuzz_targets/{target}.rs"));
        let program = fs::read_to_string(path).unwrap();
        assert!(program.contains("blockyard_tools::fuzzing::"), "{target} has a body of its own");
    }
}

#[test]
fn every_input_is_a_value_or_one_error() {
    let mut bytes = 0;
    for (target, body) in TARGETS {
        let corpus = corpus(target);
        bytes += corpus.iter().map(|(_, input)| input.len()).sum::<usize>();
        let values = corpus.iter().filter(|(name, input)| holds(body, name, input)).count();
        assert!(target == "canary" || values > 0, "{target}: no input is a value");
        assert!(target == "heap_inputs" || values < corpus.len(), "{target}: none is an error");
    }
    assert!(bytes < 1 << 20, "the corpora have {bytes} bytes");
}

/// Puts one input to a body; a failure names it.
fn holds(body: Body, name: &str, input: &[u8]) -> bool {
    println!("{name}");
    body(input)
}

#[test]
fn the_canary_dies_of_the_planted_bytes_only() {
    assert!(catch_unwind(|| canary(&[PLANTED, b" and more"].concat())).is_err());
    assert!(!canary(&PLANTED[..PLANTED.len() - 1]));
}
