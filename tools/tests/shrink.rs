//! Shrinking, as a stranger does it.
#![allow(clippy::unwrap_used)]

mod tune_common;

use serde_json::Value;
use tune_common::{
    EXAMPLE, QUANTISED, assert_schema, blockyard, code, folder, json, stderr, stdout, with_threads,
    write,
};

fn shrunk(arguments: &[&str]) -> Value {
    json(&[&["shrink", "--json"][..], arguments].concat())
}

fn rows(text: &str) -> usize {
    text.lines().filter(|line| !line.starts_with('#')).count()
}

#[test]
fn a_run_of_ten_thousand_events_becomes_a_handful() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (part, small) = (path("part.csv"), path("small.csv"));
    let deleted = shrunk(&[EXAMPLE, "--no-merge", "-o", &part]);
    assert_eq!(deleted["verdict"], "fragmentation");
    let text = std::fs::read_to_string(&part).unwrap();
    assert_eq!(rows(&text) as u64, deleted["events"].as_u64().unwrap());
    assert!(rows(&text) < 450, "{}", rows(&text));
    let merged = shrunk(&[EXAMPLE, "-o", &small]);
    let text = std::fs::read_to_string(&small).unwrap();
    assert!(rows(&text) < 60, "{text}");
    for trace in [&part, &small] {
        let replay = json(&["replay", trace, "--json", "--capacity", "9663676416"]);
        let failure = &replay["results"][0]["out_of_memory"];
        assert_eq!(failure["verdict"], "fragmentation", "{trace}");
        let live = replay["results"][0]["peak_live_bytes"].as_u64().unwrap();
        assert!(live <= 9_663_676_416, "what is live and the request would fit");
    }
    assert_schema("shrink", &[deleted, merged]);
}

/// The quantised load on a device that would hold it: what is left is a part of it, or a likeness.
const LOAD: [&str; 3] = [QUANTISED, "--capacity", "12000MiB"];

#[test]
fn the_outcome_does_not_depend_on_threads() {
    let folder = folder();
    let run = |threads: usize| {
        let path = folder.path().join(format!("{threads}.jsonl"));
        let output = path.to_string_lossy().into_owned();
        let arguments = [&["shrink", "-q", "-o", &output][..], &LOAD].concat();
        assert_eq!(code(&with_threads(threads, &arguments)), 0);
        std::fs::read_to_string(path).unwrap()
    };
    let alone = run(1);
    assert!(alone.lines().count() > 3, "{alone}");
    assert_eq!(run(2), alone);
    assert_eq!(run(5), alone);
}

#[test]
fn what_was_shrunk_does_not_shrink_again() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (once, twice) = (path("once.csv"), path("twice.csv"));
    let first = shrunk(&[QUANTISED, "--capacity", "14GiB", "-o", &once]);
    let again = shrunk(&[&once, "--capacity", "14GiB", "-o", &twice]);
    assert_eq!(first["events"], again["events"]);
    assert!(first["events"].as_u64().unwrap() <= 6, "{first}");
    assert_eq!(again["verdict"], "fragmentation");
    assert_eq!(std::fs::read(once).unwrap(), std::fs::read(twice).unwrap());
}

#[test]
fn only_whole_allocations_go_without_merging() {
    let folder = folder();
    let output = folder.path().join("part.csv").to_string_lossy().into_owned();
    shrunk(&[&LOAD[..], &["--no-merge", "-o", &output]].concat());
    let whole = std::fs::read_to_string(QUANTISED).unwrap();
    let sizes: Vec<&str> = whole.lines().filter_map(|line| line.split(',').nth(2)).collect();
    let part = std::fs::read_to_string(&output).unwrap();
    for line in part.lines().filter(|line| line.starts_with('a')) {
        let bytes = line.split(',').nth(2).unwrap();
        assert!(sizes.contains(&bytes), "{line}: no such size in the trace");
    }
}

#[test]
fn reserved_bytes_can_be_kept_instead() {
    let folder = folder();
    let output = folder.path().join("small.csv").to_string_lossy().into_owned();
    let document = shrunk(&[QUANTISED, "--keep", "reserved>12GiB", "-o", &output]);
    assert_eq!(document["verdict"], Value::Null);
    assert!(document["peak_reserved_bytes"].as_u64().unwrap() > 12 << 30);
    assert!(
        document["peak_live_bytes"].as_u64().unwrap() <= 9980 << 20,
        "no more live than before"
    );
    let replay = json(&["replay", &output, "--json"]);
    assert!(replay["results"][0]["peak_reserved_bytes"].as_u64().unwrap() > 12 << 30);
}

#[test]
fn tags_become_numbers_on_request() {
    let folder = folder();
    let text =
        "a,0,5000000000,0,secret weights\na,1,3000000000,0,secret cache\na,2,4000000000,0,other\n";
    let trace = write(folder.path(), "t.csv", text);
    let output = folder.path().join("o.jsonl").to_string_lossy().into_owned();
    let csv = folder.path().join("o.csv").to_string_lossy().into_owned();
    let run = |more: &[&str]| {
        let fixed =
            ["shrink", &trace, "--capacity", "10GiB", "-o", &output, "--csv", &csv, "--no-merge"];
        assert_eq!(code(&blockyard(&[&fixed[..], more].concat())), 0);
        let read = |path: &str| std::fs::read_to_string(path).unwrap();
        (read(&output), read(&csv))
    };
    let (native, text) = run(&[]);
    assert!(native.contains("secret") && text.contains("secret"), "tags stay");
    let (native, text) = run(&["--anonymise"]);
    assert!(!native.contains("secret") && !text.contains("secret"), "{native}{text}");
    assert!(text.contains("owner 0"), "{text}");
}

/// The committed example of a test case is what is written today, and it runs with these tests.
#[test]
fn the_test_case_is_as_committed() {
    let folder = folder();
    let case = folder.path().join("case.rs").to_string_lossy().into_owned();
    let output = folder.path().join("small.jsonl").to_string_lossy().into_owned();
    let arguments = [&LOAD[..], &["-o", &output, "--test-case", &case]].concat();
    let document = shrunk(&arguments);
    assert_eq!(document["verdict"], "fragmentation");
    let written = std::fs::read_to_string(&case).unwrap();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shrink_case.rs");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(golden, &written).unwrap();
    }
    assert_eq!(written, std::fs::read_to_string(golden).unwrap(), "BLESS=1 writes it anew");
}

#[test]
fn a_json_case_has_its_trace_beside_it() {
    let folder = folder();
    let case = folder.path().join("case.json").to_string_lossy().into_owned();
    let output = folder.path().join("small.csv").to_string_lossy().into_owned();
    shrunk(&[&LOAD[..], &["-o", &output, "--test-case", &case]].concat());
    let case: Value = serde_json::from_slice(&std::fs::read(&case).unwrap()).unwrap();
    let trace = folder.path().join(case["trace"].as_str().unwrap());
    let capacity = case["capacity_bytes"].to_string();
    let replay = json(&["replay", &trace.to_string_lossy(), "--json", "--capacity", &capacity]);
    let (failure, expected) =
        (&replay["results"][0]["out_of_memory"], &case["expected"]["out_of_memory"]);
    for key in ["event", "requested_bytes", "verdict"] {
        assert_eq!(failure[key], expected[key], "{key}");
    }
}

#[test]
fn what_cannot_be_shrunk_is_said() {
    let folder = folder();
    let output = folder.path().join("o.csv").to_string_lossy().into_owned();
    let fails = |arguments: &[&str], text: &str| {
        let place = if arguments.contains(&"-o") { vec![] } else { vec!["-o", &output[..]] };
        let all = [&["shrink"][..], &place, arguments].concat();
        let result = blockyard(&all);
        assert_eq!(code(&result), 2, "{arguments:?}");
        assert!(stderr(&result).contains(text), "{arguments:?}: {}", stderr(&result));
        assert_eq!(stdout(&result), "");
    };
    fails(&[QUANTISED], "expected --capacity SIZE");
    fails(&[QUANTISED, "--capacity", "80GiB"], "no request fails under policy pytorch");
    fails(&[QUANTISED, "--keep", "reserved>40GiB"], "never more than 40.00 GiB are reserved");
    fails(&[QUANTISED, "--keep", "allocated>1"], "expected oom or reserved>SIZE");
    fails(&[QUANTISED, "--capacity", "1GiB", "--test-case", "x.py"], "expected .rs or .json");
    fails(&[QUANTISED, "--json", "-o", "-"], "both want standard output");
    fails(&[QUANTISED, "-o", "x.csv.zst"], "expected .csv or .jsonl");
    fails(&["no-such-file.csv", "--capacity", "1GiB"], "no-such-file.csv");
}
