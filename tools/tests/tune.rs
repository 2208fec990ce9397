//! Tuning: workloads with known answers, and the promises of the command.
#![allow(clippy::unwrap_used)]

mod tune_common;

use serde_json::Value;
use tune_common::{
    EXAMPLE, QUANTISED, STREAMS, assert_schema, blockyard, code, folder, json, stderr, stdout,
    with_threads, workloads, write,
};

const MIB: u64 = 1 << 20;

fn tuned(trace: &str, more: &[&str]) -> Value {
    let folder = folder();
    let path = write(folder.path(), "trace.csv", trace);
    json(&[&["tune", "--json", &path][..], more].concat())
}

fn recommended(document: &Value) -> &str {
    document["recommended"]["policy"].as_str().unwrap_or("")
}

fn advice(document: &Value) -> Vec<&str> {
    let advice = document["advice"].as_array().unwrap();
    advice.iter().map(|one| one["code"].as_str().unwrap()).collect()
}

/// A split limit, in MiB.
fn limit(policy: &str) -> Option<u64> {
    policy.split_once("max_split_size_mb:")?.1.split(',').next()?.parse().ok()
}

#[test]
fn a_quantised_load_gets_a_split_limit_or_expandable_segments() {
    let document = json(&["tune", "--json", QUANTISED]);
    assert_eq!(document["verdict"], "change");
    let policy = recommended(&document);
    let small = limit(policy).is_some_and(|limit| limit <= 512);
    assert!(policy.contains("expandable_segments:True") || small, "{policy}");
    assert!(document["recommended"]["min_capacity_bytes"].as_u64().unwrap() <= 9984 * MIB);
    assert_eq!(document["in_use"]["min_capacity_bytes"], 19080 * MIB);
    let paste = document["paste"].as_str().unwrap();
    assert!(paste.starts_with("PYTORCH_CUDA_ALLOC_CONF="), "{paste}");
}

#[test]
fn a_growing_cache_gets_no_tiny_limit_unless_it_must() {
    let trace = workloads::growing_cache();
    for more in [&[][..], &["--capacity", "640MiB"], &["--capacity", "1GiB"]] {
        let document = tuned(&trace, more);
        let small = limit(recommended(&document)).is_some_and(|limit| limit < 64);
        assert!(!small, "{more:?}: {}", document["sentence"]);
    }
    let forced = tuned(&trace, &["--capacity", "534MiB"]);
    assert_eq!(limit(recommended(&forced)), Some(20), "{}", forced["sentence"]);
    assert!(forced["recommended"]["device_allocs"].as_u64().unwrap() > 1000);
    assert!(advice(&forced).contains(&"driver-calls"), "the price is said");
}

#[test]
fn where_nothing_is_to_be_won_nothing_is_recommended() {
    for (name, trace) in
        [("first step", workloads::first_step()), ("checkpointing", workloads::checkpointing())]
    {
        let document = tuned(&trace, &[]);
        assert_eq!(document["verdict"], "no-change", "{name}: {}", document["sentence"]);
        assert_eq!(document["paste"], Value::Null);
        assert!(document["sentence"].as_str().unwrap().starts_with("no change worth it"));
    }
}

#[test]
fn one_shot_streams_are_beyond_any_setting() {
    let document = json(&["tune", "--json", STREAMS]);
    assert_eq!(document["verdict"], "no-change", "{}", document["sentence"]);
    assert_eq!(advice(&document), ["reuse-streams"]);
    let one = document["one_stream"]["peak_reserved_bytes"].as_u64().unwrap();
    assert!(one * 4 < document["in_use"]["peak_reserved_bytes"].as_u64().unwrap());
}

#[test]
fn workspaces_of_all_sizes_get_a_limit_or_expandable_segments() {
    let document = tuned(&workloads::workspaces(), &[]);
    let policy = recommended(&document);
    assert!(limit(policy).is_some() || policy.contains("expandable"), "{}", document["sentence"]);
    assert!(!policy.contains("divisions"), "{policy}");
}

#[test]
fn varying_length_fits_a_small_device_at_a_price_that_is_said() {
    let trace = workloads::varying_length();
    let document = tuned(&trace, &["--capacity", "6000MiB", "--all"]);
    assert_eq!(document["verdict"], "change");
    let policy = recommended(&document);
    assert!(policy.contains("expandable_segments:True") || limit(policy) == Some(20), "{policy}");
    let rows = document["rows"].as_array().unwrap();
    let row = |text: &str| rows.iter().find(|row| row["policy"] == text).unwrap();
    assert_eq!(document["in_use"]["completes"], false);
    assert_eq!(row("pytorch:roundup_power2_divisions:8")["completes"], false);
    assert_eq!(row("pytorch:max_split_size_mb:20")["completes"], true);
    assert_eq!(document["traces"][0]["steps"], 60);
    assert!(row(policy)["driver_calls_per_step"].as_f64().unwrap() > 0.0, "the price is said");
    let short = tuned(&trace, &["--capacity", "5000MiB"]);
    assert_eq!(short["verdict"], "impossible");
    assert!(short["sentence"].as_str().unwrap().contains("739.00 MiB"), "{}", short["sentence"]);
}

#[test]
fn flushes_a_step_are_thrash_even_without_a_failure() {
    let step = |step: u64| {
        let (first, second) = (2 * step, 2 * step + 1);
        let size = 60 * MIB;
        format!("m,step {step}\na,{first},{size},0\nf,{first}\na,{second},{size},1\nf,{second}\n")
    };
    let trace: String = (0..20).map(step).collect();
    let document = tuned(&trace, &["--capacity", "100MiB"]);
    let base = &document["in_use"];
    assert_eq!(base["completes"], true, "{}", document["sentence"]);
    assert_eq!(base["retries"], 39, "every change of the stream flushes the cache");
    assert!(base["retries_per_step"].as_f64().unwrap() > 1.0, "{base}");
    assert_eq!(base["thrashes"], true);
    assert_eq!(advice(&document), ["reuse-streams", "thrash"]);
    assert_eq!(document["one_stream"]["retries"], 0);
}

/// Sizes that fall: no oversize block serves the next one, in a private pool that may not release.
#[test]
fn a_pool_that_gets_worse_forbids_a_recommendation() {
    let folder = folder();
    let path = write(folder.path(), "pools.jsonl", &two_pools());
    let document = json(&["tune", "--json", &path, "--objective", "reserved", "--all"]);
    let rows = document["rows"].as_array().unwrap();
    let worse =
        |row: &&Value| row["pools"].as_array().unwrap().iter().any(|pool| pool["worse"] == true);
    let bad: Vec<&str> =
        rows.iter().filter(worse).map(|row| row["policy"].as_str().unwrap()).collect();
    assert!(bad.contains(&"pytorch:max_split_size_mb:20"), "{bad:?}");
    assert!(!bad.contains(&recommended(&document)), "{}", document["sentence"]);
    let base = document["in_use"]["pools"].as_array().unwrap();
    assert_eq!(base.len(), 2, "figures by pool");
}

/// The quantised load in the default pool, and a buffer that gets smaller in a private one.
fn two_pools() -> String {
    use blockyard::trace::{DeviceTrace, Event, Kind, Recording, file};
    use blockyard::vocab::PoolId;
    let mut trace = DeviceTrace::default();
    let alloc = |trace: &mut DeviceTrace, mib: u64, pool: u32| {
        let allocation = trace.allocations;
        trace.allocations += 1;
        let event = Event::new(Kind::Alloc);
        let pool = PoolId(pool);
        trace.events.push(Event { bytes: mib * MIB, allocation, pool, ..event });
        allocation
    };
    let free = |trace: &mut DeviceTrace, allocation: u32, pool: u32| {
        let event = Event::new(Kind::Free);
        trace.events.push(Event { allocation, pool: PoolId(pool), ..event });
    };
    for layer in 0..36 {
        let temporary = alloc(&mut trace, 530, 0);
        free(&mut trace, temporary, 0);
        alloc(&mut trace, 270, 0);
        let buffer = alloc(&mut trace, 2000 - 30 * layer, 1);
        free(&mut trace, buffer, 1);
    }
    let recording = Recording {
        format: "blockyard".into(),
        streams: vec![0],
        pools: vec![(0, 0), (0, 1)],
        has_pool_ids: true,
        devices: vec![trace],
        ..Recording::default()
    };
    let mut text = Vec::new();
    file::write_to(&mut text, &recording).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn the_run_that_died_gets_settings_that_complete() {
    let document = json(&["tune", "--json", EXAMPLE]);
    assert_eq!(document["verdict"], "change");
    assert_eq!(document["objective"], "fit");
    let policy = recommended(&document);
    let capacity = document["traces"][0]["capacity_bytes"].to_string();
    let replay = ["replay", EXAMPLE, "-q", "--policy", policy, "--capacity", &capacity];
    assert_eq!(code(&blockyard(&replay)), 0, "{policy}");
    let ours = json(&["tune", "--json", EXAMPLE, "--for", "blockyard"]);
    assert_eq!(ours["in_use"]["completes"], true);
    assert_eq!(ours["verdict"], "no-change", "{}", ours["sentence"]);
    let alone = json(&["tune", "--json", STREAMS]);
    assert_schema("tune", &[document, ours, alone]);
}

#[test]
fn of_several_traces_the_worst_one_counts() {
    let folder = folder();
    let cache = write(folder.path(), "cache.csv", &workloads::growing_cache());
    let both = json(&["tune", "--json", QUANTISED, &cache]);
    let alone = json(&["tune", "--json", QUANTISED]);
    assert_eq!(both["traces"].as_array().unwrap().len(), 2);
    assert_eq!(both["in_use"]["min_capacity_bytes"], alone["in_use"]["min_capacity_bytes"]);
    assert!(both["in_use"]["device_allocs"].as_u64() > alone["in_use"]["device_allocs"].as_u64());
}

#[test]
fn a_search_is_the_same_for_any_threads_and_can_be_taken_up_again() {
    let folder = folder();
    let trace = write(folder.path(), "trace.csv", &workloads::checkpointing());
    let state = folder.path().join("state").to_string_lossy().into_owned();
    let run = |threads: usize, more: &[&str]| {
        stdout(&with_threads(threads, &[&["tune", "--json", &trace][..], more].concat()))
    };
    let alone = run(1, &[]);
    assert_eq!(run(3, &[]), alone);
    assert_eq!(run(2, &["--resume", &state]), alone);
    let whole = std::fs::read_to_string(&state).unwrap();
    // As after a crash: half of the results, the last one cut off.
    std::fs::write(&state, &whole[..whole.len() / 2]).unwrap();
    assert_eq!(run(2, &["--resume", &state]), alone);
    let again = std::fs::read_to_string(&state).unwrap();
    assert_eq!(again.lines().filter(|line| line.ends_with('}')).count(), whole.lines().count());
    let other = blockyard(&["tune", &trace, "--resume", &state, "--objective", "reserved"]);
    assert_eq!(code(&other), 2);
    assert!(stderr(&other).contains("the state of another search"), "{}", stderr(&other));
}

#[test]
fn results_in_the_state_are_believed() {
    let folder = folder();
    let state = folder.path().join("state").to_string_lossy().into_owned();
    let run = || json(&["tune", "--json", QUANTISED, "--resume", &state]);
    run();
    let text = std::fs::read_to_string(&state).unwrap();
    std::fs::write(&state, text.replace("\"min_capacity\":20006830080", "\"min_capacity\":77"))
        .unwrap();
    assert_eq!(run()["in_use"]["min_capacity_bytes"], 77, "it is not measured again");
}

#[test]
fn the_page_says_first_what_to_do() {
    let page = stdout(&blockyard(&["tune", QUANTISED, "--quiet"]));
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tune_page.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(golden, &page).unwrap();
    }
    assert_eq!(page, std::fs::read_to_string(golden).unwrap(), "BLESS=1 writes it anew");
}

#[test]
fn exit_codes_and_bad_input() {
    let output = blockyard(&["tune", QUANTISED, "--capacity", "5GiB"]);
    assert_eq!(code(&output), 3, "nothing completes there");
    let folder = folder();
    let empty = write(folder.path(), "empty.csv", "# nothing\n");
    for (arguments, text) in [
        (&["tune", &empty][..], "empty.csv"),
        (&["tune", QUANTISED, "--worth", "101"], "--worth"),
        (
            &["tune", QUANTISED, "--policy", "pytorch:max_split:1"],
            "did you mean max_split_size_mb?",
        ),
        (&["tune", QUANTISED, "--resume", &empty], "not a state of blockyard tune"),
        (&["tune"], "TRACE"),
    ] {
        let output = blockyard(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(stderr(&output).contains(text), "{arguments:?}: {}", stderr(&output));
    }
}

/// A row that was given up was not seen to fail.
#[test]
fn what_was_given_up_neither_completes_nor_fails() {
    let trace = QUANTISED.replace("quantised-load", "growing-scratch");
    let document = json(&["tune", &trace, "--json", "-q", "--objective", "driver-calls"]);
    let mut given_up = 0;
    for row in document["rows"].as_array().unwrap() {
        assert_eq!(row["completes"].is_null(), row["given_up"] == true, "{row}");
        given_up += usize::from(row["given_up"] == true);
    }
    assert!(given_up > 0, "no row was given up: this shows nothing");
}
