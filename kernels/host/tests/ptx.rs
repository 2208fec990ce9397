//! PTX: what is committed is of these sources, and has the kernels of the host build with the same
//! parameters.
#![allow(missing_docs, clippy::unwrap_used)]

use blockyard_kernels_host::kernels;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Kernels by name, with the bytes of each parameter.
type Signatures = BTreeMap<String, Vec<u32>>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn ending(suffix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == suffix)).collect();
    found.sort();
    found
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is wrong with a PTX, given the hash of each source by name and the sources that it must
/// tell.
fn complaints(ptx: &str, hash: impl Fn(&str) -> String, needed: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let mut told = Vec::new();
    let mut sealed = false;
    let mut rest = ptx;
    while let Some((line, below)) = rest.split_once('\n').filter(|_| !sealed) {
        rest = below;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["//", "source", name, "sha256", sum] => {
                told.push(name.to_string());
                if hash(name) != sum {
                    found.push(format!("{name} has changed since"));
                }
            }
            ["//", "text", "sha256", sum] => {
                sealed = true;
                if sha256(below.as_bytes()) != sum {
                    found.push("its text was changed by hand".into());
                }
            }
            ["//", "compiler", _] | ["//", "options", ..] => {}
            _ => found.push(format!("an unknown line: {line}")),
        }
    }
    if told != needed {
        found.push(format!("tells of {told:?}, is made of {needed:?}"));
    }
    if !sealed {
        found.push("has no hash of its text".into());
    }
    found
}

/// A source and what it includes, directly or not.
fn inputs(source: &str) -> Vec<String> {
    let mut found = vec![source.to_string()];
    let mut at = 0;
    while at < found.len() {
        let text = fs::read_to_string(folder().join(&found[at])).unwrap();
        for line in text.lines().filter_map(|line| line.strip_prefix("#include \"")) {
            let name = line.split('"').next().unwrap().to_string();
            if !found.contains(&name) {
                found.push(name);
            }
        }
        at += 1;
    }
    found
}

#[test]
fn every_ptx_is_of_its_sources() {
    let sources = ending("cu");
    assert_eq!(sources.len(), ending("ptx").len(), "one PTX for each source");
    for source in sources {
        let name = source.file_name().unwrap().to_str().unwrap();
        let ptx = fs::read_to_string(source.with_extension("ptx")).unwrap();
        let hash = |name: &str| sha256(&fs::read(folder().join(name)).unwrap());
        let inputs = inputs(name);
        let found = complaints(&ptx, hash, &inputs);
        assert!(found.is_empty(), "{name}: {found:?}; run tools/kernels.py");

        assert_eq!(
            complaints(&ptx, |_| String::new(), &inputs).len(),
            inputs.len(),
            "other sources"
        );
        assert_eq!(complaints(&format!("{ptx} "), hash, &inputs).len(), 1, "another text");
        assert_eq!(complaints(&ptx, hash, &inputs[1..]).len(), 1, "an include that came or went");
    }
}

/// The entries of a PTX. A parameter is `.param .u64 name` or `.param .align 8 .b8 name[200]`.
fn entries(ptx: &str) -> Signatures {
    let mut found = Signatures::new();
    for entry in ptx.split(".entry ").skip(1) {
        let (name, rest) = entry.split_once('(').unwrap();
        let (list, _) = rest.split_once(')').unwrap();
        let params = list.split(',').map(str::trim).filter(|param| !param.is_empty());
        found.insert(name.to_string(), params.map(parameter).collect());
    }
    found
}

fn parameter(param: &str) -> u32 {
    if let Some((_, array)) = param.split_once('[') {
        return array.trim_end_matches(']').parse().unwrap();
    }
    let bits =
        param.split_whitespace().nth(1).unwrap().trim_start_matches(|c: char| !c.is_numeric());
    bits.parse::<u32>().unwrap() / 8
}

fn host() -> Signatures {
    let rows = kernels();
    let found: Signatures =
        rows.iter().map(|kernel| (kernel.name.to_string(), kernel.arg_sizes.to_vec())).collect();
    assert_eq!(found.len(), rows.len(), "two kernels of one name");
    found
}

#[test]
fn the_host_build_has_the_kernels_of_the_ptx() {
    let texts = ending("ptx").into_iter().map(|path| fs::read_to_string(path).unwrap());
    let device: Signatures = texts.flat_map(|text| entries(&text)).collect();
    assert!(device.len() > 100, "only {} entries were understood", device.len());
    assert_eq!(device, host());
}

/// One line of the documentation, braces and types expanded: each kernel and its parameters.
fn documented(line: &str) -> Option<Vec<(String, Vec<u32>)>> {
    let (name, params) = line.trim().strip_suffix(')')?.split_once('(')?;
    let size = |param: &str| match param.split_once(": ").unwrap().1 {
        "address" | "u64" | "f64" => 8,
        "u32" | "f32" => 4,
        "Shape" => 200,
        other => panic!("what is {other}?"),
    };
    let sizes: Vec<u32> = params.split(", ").map(size).collect();
    let mut names = vec![String::new()];
    for (place, part) in name.split(['{', '}']).enumerate() {
        let part = if part == "T" { "f64,f32,f16,bf16,i64,i32,i16,i8,u8,bool" } else { part };
        let choices: Vec<&str> =
            if place % 2 == 1 { part.split(',').collect() } else { vec![part] };
        names = names
            .iter()
            .flat_map(|name| choices.iter().map(move |c| format!("{name}{c}")))
            .collect();
    }
    Some(names.into_iter().map(|name| (name, sizes.clone())).collect())
}

#[test]
fn the_documentation_lists_every_kernel() {
    let text = fs::read_to_string(folder().join("../docs/kernels.md")).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("  by_"));
    let mut listed: Signatures = lines.filter_map(documented).flatten().collect();
    listed.retain(|name, _| !is_cast_to_itself(name));
    assert_eq!(listed, host());
}

fn is_cast_to_itself(name: &str) -> bool {
    let types = name.strip_prefix("by_cast_").and_then(|types| types.split_once('_'));
    types.is_some_and(|(from, to)| from == to)
}
