//! The smallest device, as a stranger asks for it.
#![allow(clippy::unwrap_used)]

mod tune_common;

use serde_json::Value;
use tune_common::{
    EXAMPLE, QUANTISED, assert_schema, blockyard, code, folder, json, stderr, write,
};

const MIB: u64 = 1 << 20;
const FOUR: [&str; 8] = [
    "--policy",
    "pytorch",
    "--policy",
    "pytorch:max_split_size_mb:20",
    "--policy",
    "pytorch:expandable_segments:True",
    "--policy",
    "pytorch:roundup_power2_divisions:8",
];

fn capacities(document: &Value) -> Vec<u64> {
    let results = document["results"].as_array().unwrap();
    results.iter().map(|result| result["min_capacity_bytes"].as_u64().unwrap()).collect()
}

#[test]
fn the_quantised_load_needs_what_is_known_of_it() {
    let coarse = [&["min-capacity", QUANTISED, "--json", "--step", "64MiB"][..], &FOUR].concat();
    let document = json(&coarse);
    assert_eq!(capacities(&document), [19136, 9984, 9984, 10944].map(|mib| mib * MIB));
    let fine = json(&[&["min-capacity", QUANTISED, "--json"][..], &FOUR].concat());
    assert_eq!(capacities(&fine)[0], 19080 * MIB, "36 segments of 530");
    let folder = folder();
    let strange = write(folder.path(), "strange.csv", "f,9\na,0,100,0\n");
    let noticed = json(&["min-capacity", &strange, "--json", "-q"]);
    assert_eq!(noticed["notices"][0]["code"], "unknown-free");
    assert_schema("min-capacity", &[document, fine, noticed]);
}

/// The capacity completes, and the one that is said to fail fails.
#[test]
fn what_is_promised_of_the_answer_holds() {
    let document = json(&["min-capacity", EXAMPLE, "--json"]);
    let result = &document["results"][0];
    let (least, fails) = (&result["min_capacity_bytes"], &result["fails_at_bytes"]);
    let (least, fails) = (least.as_u64().unwrap(), fails.as_u64().unwrap());
    assert!(fails < least && least - fails <= (least / 1000).max(2 * MIB), "{fails} {least}");
    let replay =
        |bytes: u64| blockyard(&["replay", EXAMPLE, "--capacity", &bytes.to_string(), "-q"]);
    assert_eq!((code(&replay(least)), code(&replay(fails))), (0, 3));
}

#[test]
fn bad_input_is_said() {
    let folder = folder();
    let empty = write(folder.path(), "empty.csv", "# nothing\n");
    let output = blockyard(&["min-capacity", &empty]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("empty.csv"), "{}", stderr(&output));
    let output = blockyard(&["min-capacity", QUANTISED, "--step", "0"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("--step 0: expected a size above 0"));
    let output = blockyard(&["min-capacity", QUANTISED, "--policy", "pytorsh"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("did you mean pytorch?"));
}

#[test]
fn none_found_is_said_and_nothing_overflows() {
    let folder = folder();
    let huge = format!("a,0,{},0\na,1,{},0\n", u64::MAX, u64::MAX);
    let huge = write(folder.path(), "huge.csv", &huge);
    let output = blockyard(&["min-capacity", &huge, "-q"]);
    let page = tune_common::stdout(&output);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(page.contains("none found") && page.contains("does not fit in 64 bits"), "{page}");
    assert!(!page.contains("completed;"), "{page}");
}

/// A request that failed in the recording is part of what the device must hold.
#[test]
fn a_recorded_failure_counts_in_the_live_peak() {
    let folder = folder();
    let text = "{\"blockyard_trace\":1}\n{\"k\":\"alloc\",\"id\":0,\"bytes\":6291456}\n\
                {\"k\":\"oom\",\"bytes\":4194304,\"addr\":1048576}\n{\"k\":\"end\",\"events\":2}\n";
    let trace = write(folder.path(), "oom.jsonl", text);
    let document = json(&["min-capacity", &trace, "--json", "-q"]);
    assert_eq!(document["results"][0]["peak_live_bytes"], 10 * MIB, "{document}");
    let tuned = json(&["tune", &trace, "--json", "-q", "--capacity", "8MiB"]);
    assert_eq!(tuned["verdict"], "impossible", "{tuned}");
}
