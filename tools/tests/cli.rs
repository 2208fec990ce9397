//! The binary as a stranger uses it: exit codes, JSON names, messages, pictures.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/gpt2_varlen_9g_oom.pickle");

fn blockyard(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_blockyard")).args(arguments).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = blockyard(arguments);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&output.stderr))
    })
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A folder for this test's files.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path: PathBuf = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}

#[test]
fn the_example_fails_by_fragmentation_and_is_reproduced() {
    let output = blockyard(&["replay", EXAMPLE]);
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(code(&output), 3, "{page}");
    for part in [
        "all 3,787 allocations land at their recorded addresses",
        "9.00 GiB (reserved + free at the recorded out-of-memory)",
        "cause: fragmentation: 1.89 GiB are free in the cache",
        "pinned free        1.89 GiB",
    ] {
        assert!(page.contains(part), "{part:?} is missing in\n{page}");
    }
    assert_eq!(stderr(&output), "", "nothing but the page in a pipe");
}

#[test]
fn json_has_the_names_that_others_rely_on() {
    let document =
        json(&["replay", EXAMPLE, "--json", "--policy", "pytorch", "--policy", "blockyard"]);
    assert_eq!(document["format"], "pytorch-pickle");
    assert_eq!(document["events"], 10_072);
    let results = document["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    for key in [
        "policy",
        "effective_settings",
        "device",
        "driver",
        "capacity_bytes",
        "allocs",
        "frees",
        "peak_live_bytes",
        "peak_requested_bytes",
        "peak_allocated_bytes",
        "peak_active_bytes",
        "peak_reserved_bytes",
        "final_allocated_bytes",
        "final_reserved_bytes",
        "segments_allocated",
        "segments_freed",
        "device_allocs",
        "device_frees",
        "pages_mapped",
        "pages_unmapped",
        "device_nanos",
        "retries",
        "ooms",
        "out_of_memory",
        "exact",
        "nanos_per_event",
    ] {
        assert!(results.iter().all(|result| result.get(key).is_some()), "{key}");
    }
    let failure = &results[0]["out_of_memory"];
    assert_eq!(failure["verdict"], "fragmentation");
    assert_eq!(
        failure["report"]["pinned_free_bytes"],
        results[0]["out_of_memory"]["report"]["own_free_bytes"].as_u64().unwrap()
            + failure["report"]["other_class_free_bytes"].as_u64().unwrap()
    );
    assert_eq!(results[1]["out_of_memory"], Value::Null, "blockyard serves it");
}

#[test]
fn exactness_is_checked_on_request() {
    let document = json(&["replay", EXAMPLE, "--json", "--expect-exact"]);
    let result = &document["results"][0];
    assert_eq!(result["driver"], "recorded");
    assert_eq!(result["exact"]["checked"], 3787);
    assert_eq!(result["exact"]["matched"], 3787);
    assert_eq!(code(&blockyard(&["replay", EXAMPLE, "--expect-exact"])), 0);
    let wrong = blockyard(&[
        "replay",
        EXAMPLE,
        "--expect-exact",
        "--policy",
        "pytorch:max_split_size_mb:64",
    ]);
    assert_eq!(code(&wrong), 4);
    assert!(stderr(&wrong).contains("not exact"));
}

#[test]
fn a_csv_names_line_and_id_of_the_failure() {
    let folder = folder();
    let trace =
        write(folder.path(), "t.csv", "# mine\na,7,4194304,0\nf,7\nm,step\na,9,30000000,0\n");
    let document = json(&["replay", &trace, "--json", "--capacity", "20MiB"]);
    let failure = &document["results"][0]["out_of_memory"];
    assert_eq!(
        (&failure["line"], &failure["id"], &failure["event"]),
        (&5.into(), &9.into(), &2.into())
    );
    assert_eq!(failure["verdict"], "impossible-size");
    assert_eq!(document["events"], 3, "markers and comments are not events");
}

#[test]
fn bad_usage_and_bad_input_exit_2_with_one_clear_line() {
    let folder = folder();
    let broken = write(folder.path(), "broken.csv", "a,1,100,0\nb,2\n");
    let cases: [(&[&str], &str); 9] = [
        (&["replay", "no-such-file"], "no-such-file"),
        (&["replay", &broken], "line 2"),
        (&["replay", EXAMPLE, "--policy", "pytorhc"], "unknown policy"),
        (&["replay", EXAMPLE, "--policy", "pytorch:max_split_size:1"], "max_split_size_mb"),
        (&["replay", EXAMPLE, "--capacity", "24XiB"], "24XiB"),
        (&["replay", EXAMPLE, "--device", "7"], "no device 7"),
        (&["render", EXAMPLE, "-o", "picture.gif"], ".svg or .png"),
        (&["summary", EXAMPLE, "--at", "marker:nothing"], "no marker"),
        (&["summary", EXAMPLE, "--at", "99999999"], "no event 99999999"),
    ];
    for (arguments, expected) in cases {
        let output = blockyard(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        let text = stderr(&output);
        assert!(text.contains(expected), "{arguments:?}: {text}");
        assert!(!text.contains("panicked"), "{text}");
        assert!(output.stdout.is_empty(), "no half a result: {arguments:?}");
    }
}

#[test]
fn summary_has_pytorchs_keys_and_the_books_of_pools() {
    let document = json(&["summary", EXAMPLE, "--json", "-q"]);
    let stats = &document["stats"];
    assert_eq!(stats["allocated_bytes.all.current"], 6_521_889_280u64);
    assert_eq!(stats["num_ooms"], 1);
    assert!(stats.as_object().unwrap().len() >= 108 + 8 + 6);
    let pools = document["pools"].as_array().unwrap();
    let reserved: u64 = pools.iter().map(|pool| pool["reserved_bytes"].as_u64().unwrap()).sum();
    assert_eq!(stats["reserved_bytes.all.current"], reserved);
    for key in [
        "releasable_bytes",
        "pinned_free_bytes",
        "awaiting_free_bytes",
        "largest_free_bytes",
        "rounding_bytes",
    ] {
        assert!(pools.iter().all(|pool| pool[key].is_u64()), "{key}");
    }
}

#[test]
fn every_view_is_written_in_both_formats() {
    let folder = folder();
    for view in
        ["map", "timeline", "address-time", "histogram", "fragmentation", "compare", "fleet"]
    {
        for suffix in ["svg", "png"] {
            let path = folder.path().join(format!("{view}.{suffix}"));
            let output = blockyard(&[
                "render",
                EXAMPLE,
                "-q",
                "--view",
                view,
                "-o",
                &path.to_string_lossy(),
            ]);
            assert_eq!(code(&output), 0, "{view}: {}", stderr(&output));
            let bytes = std::fs::read(&path).unwrap();
            let start: &[u8] = if suffix == "svg" { b"<svg" } else { b"\x89PNG" };
            let head = &bytes[..bytes.len().min(200)];
            assert!(head.windows(start.len()).any(|window| window == start), "{view}.{suffix}");
            assert!(bytes.len() < 2_000_000, "{view}.{suffix} has {} bytes", bytes.len());
        }
    }
}

#[test]
fn conversions_keep_what_the_replay_needs() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let direct = json(&["replay", EXAMPLE, "--json", "--policy", "pytorch:"]);
    let figures = |document: &Value| {
        let result = &document["results"][0];
        ["peak_allocated_bytes", "peak_reserved_bytes", "device_allocs", "ooms"]
            .map(|key| result[key].clone())
    };
    for name in ["a.jsonl.zst", "a.json", "a.pickle", "a.jsonl", "a.json.gz"] {
        let to = path(name);
        let output = blockyard(&["convert", EXAMPLE, &to, "-q"]);
        assert_eq!(code(&output), 0, "{name}: {}", stderr(&output));
        let converted = json(&["replay", &to, "--json", "--policy", "pytorch:", "-q"]);
        assert_eq!(figures(&converted), figures(&direct), "{name}");
        let exact = json(&["replay", &to, "--json", "--expect-exact", "-q"]);
        assert_eq!(exact["results"][0]["exact"]["matched"], 3787, "{name}");
    }
    let csv = path("a.csv.zst");
    assert_eq!(code(&blockyard(&["convert", EXAMPLE, &csv, "-q"])), 0);
    let replayed = json(&["replay", &csv, "--json", "-q", "--capacity", "80GiB"]);
    assert_eq!(replayed["results"][0]["allocs"], 3788, "with the request that failed");
    let again = json(&["replay", &csv, "--json", "-q", "--capacity", "9GiB"]);
    assert_eq!(again["results"][0]["out_of_memory"]["verdict"], "fragmentation");
    let plan = path("plan.csv");
    assert_eq!(code(&blockyard(&["convert", &csv, &plan, "--to", "planner", "-q"])), 0);
    assert!(std::fs::read_to_string(&plan).unwrap().starts_with("id,lower,upper,size"));
}

#[test]
fn a_text_trace_becomes_a_snapshot_by_a_replay() {
    let folder = folder();
    let trace = write(folder.path(), "t.csv", "a,0,3000000,0,mine\na,1,100,0\nf,0\nr,1,2\nf,1\n");
    let snapshot = folder.path().join("s.json").to_string_lossy().into_owned();
    let output = blockyard(&["replay", &trace, "--snapshot", "1", "-o", &snapshot]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&std::fs::read(&snapshot).unwrap()).unwrap();
    let segments = document["segments"].as_array().unwrap();
    assert_eq!(segments.len(), 2);
    let actions: Vec<&str> = document["device_traces"][0]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["action"].as_str().unwrap())
        .collect();
    assert_eq!(actions, ["segment_alloc", "alloc", "segment_alloc", "alloc"]);
    assert_eq!(
        code(&blockyard(&["replay", &snapshot, "--expect-exact", "-q"])),
        0,
        "it replays itself"
    );
}

#[test]
fn several_files_are_one_document() {
    let folder = folder();
    write(folder.path(), "rank0.csv", "a,0,100,0\n");
    write(folder.path(), "rank1.csv", "a,0,3000000,0\n");
    let document = json(&["replay", &folder.path().to_string_lossy(), "--json"]);
    let files = document["files"].as_array().unwrap();
    assert_eq!(files.len(), 2);
    assert_eq!(files[1]["results"][0]["peak_reserved_bytes"], 20 << 20);
    write(folder.path(), "rank2.csv", "nonsense\n");
    let output = blockyard(&["replay", &folder.path().to_string_lossy(), "--json"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("rank2.csv"));
}

#[test]
fn settings_are_shown_with_their_source() {
    let document = json(&[
        "settings",
        "pytorch:max_split_size_mb:128,garbage_collection_threshold:0.8",
        "--json",
    ]);
    let split = &document["effective_settings"]["max_split_size_mb"];
    assert_eq!((&split["requested"], &split["effective"]), (&"128".into(), &"128 MiB".into()));
    assert!(document["warnings"].to_string().contains("garbage_collection_threshold"));
    let own = Command::new(env!("CARGO_BIN_EXE_blockyard"))
        .args(["settings"])
        .env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
        .output()
        .unwrap();
    let page = String::from_utf8_lossy(&own.stdout).into_owned();
    assert!(page.contains("PYTORCH_CUDA_ALLOC_CONF"), "{page}");
}

#[test]
fn help_completions_and_manual_are_there() {
    for arguments in [
        &["--help"][..],
        &["replay", "--help"],
        &["render", "--help"],
        &["man"],
        &["completions", "bash"],
        &["completions", "zsh"],
        &["completions", "fish"],
    ] {
        let output = blockyard(arguments);
        assert_eq!(code(&output), 0, "{arguments:?}");
        assert!(output.stdout.len() > 200, "{arguments:?}");
    }
    let help = String::from_utf8_lossy(&blockyard(&["--help"]).stdout).into_owned();
    assert!(help.contains("Exit codes"));
    assert_eq!(code(&blockyard(&[])), 2);
}

/// What the README shows can be pasted into a file and replayed.
#[test]
fn the_trace_of_the_readme_replays_as_it_stands() {
    let readme = include_str!("../../README.md");
    let (_, below) = readme.split_once("A trace can be written by hand").unwrap();
    let text = below.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = folder();
    let path = write(folder.path(), "hand.csv", text);
    let document = json(&["replay", &path, "--json"]);
    assert_eq!((&document["events"], &document["results"][0]["allocs"]), (&4.into(), &1.into()));
}

/// Nobody reads what is said on standard error: the exit code says it all the same.
#[test]
fn a_closed_standard_error_changes_no_exit_code() {
    let folder = folder();
    let note = write(folder.path(), "note.csv", "a,0,512,0\nf,7\n");
    let note = note.as_str();
    for (arguments, expected) in [
        (vec!["replay", "nosuch.file"], 2),
        (vec!["replay", note, "nosuch.file"], 2),
        (vec!["replay", note], 0),
        (vec!["replay", "--nonsense"], 2),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_blockyard"))
            .args(&arguments)
            .stderr(writer)
            .output()
            .unwrap();
        assert_eq!(code(&output), expected, "{arguments:?}");
    }
}
