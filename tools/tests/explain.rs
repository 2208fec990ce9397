//! Explain, as people type it: user reports as CSV traces, snapshots, pasted messages; text to the
//! letter, JSON by its schema. `BLOCKYARD_BLESS=1` writes the golden files anew.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const MIB: u64 = 1 << 20;

fn explain(arguments: &[&str], folder: &Path, input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_blockyard"))
        .arg("explain")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn json_of(arguments: &[&str], input: &str) -> Value {
    let all: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
    let output = explain(&all, Path::new(ROOT), input);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
    let document = serde_json::from_slice(&output.stdout).unwrap();
    conforms(&document);
    document
}

/// Explains a trace from standard input on a device of so many MiB.
fn trace(rows: &Rows, mib: u64, more: &[&str]) -> Value {
    let capacity = format!("{mib}MiB");
    let arguments: Vec<&str> = ["-", "--capacity", &capacity].iter().chain(more).copied().collect();
    json_of(&arguments, &rows.text)
}

/// A CSV trace; sizes are MiB.
#[derive(Default)]
struct Rows {
    text: String,
    next: u64,
}

impl Rows {
    fn bytes(&mut self, bytes: u64, stream: u32, tag: &str) -> u64 {
        self.next += 1;
        let tag = if tag.is_empty() { String::new() } else { format!(",{tag}") };
        writeln!(self.text, "a,{},{bytes},{stream}{tag}", self.next).unwrap();
        self.next
    }

    fn alloc(&mut self, mib: u64, tag: &str) -> u64 {
        self.bytes(mib * MIB, 0, tag)
    }

    fn free(&mut self, id: u64) {
        writeln!(self.text, "f,{id}").unwrap();
    }

    /// Allocated and freed at once.
    fn once(&mut self, mib: u64) {
        let id = self.alloc(mib, "");
        self.free(id);
    }

    fn mark(&mut self, text: &str) {
        writeln!(self.text, "m,{text}").unwrap();
    }
}

fn fix<'a>(document: &'a Value, settings: &str) -> &'a Value {
    let fixes = document["fixes"].as_array().unwrap();
    fixes.iter().find(|fix| fix["settings"] == settings).unwrap_or_else(|| panic!("{settings}"))
}

fn completing(document: &Value) -> Vec<&str> {
    let fixes = document["fixes"].as_array().unwrap().iter();
    fixes
        .filter(|fix| fix["completes"] == true)
        .map(|fix| fix["settings"].as_str().unwrap())
        .collect()
}

fn evidence(document: &Value, key: &str) -> u64 {
    document["evidence"][key].as_u64().unwrap_or_else(|| panic!("{key}: {document}"))
}

fn k01() -> Rows {
    let mut rows = Rows::default();
    rows.once(11104);
    for _ in 0..30 {
        rows.alloc(16, "kept");
    }
    rows.alloc(11104, "again");
    rows
}

#[test]
fn k01_thirty_blocks_pin_a_segment() {
    let document = trace(&k01(), 16384, &[]);
    assert_eq!(document["class"], "fragmentation");
    assert_eq!(evidence(&document, "allocated_bytes"), 480 * MIB);
    assert_eq!(evidence(&document, "reserved_bytes"), 11104 * MIB);
    assert_eq!(evidence(&document, "driver_free_bytes"), 5280 * MIB);
    assert_eq!(evidence(&document, "largest_free_bytes"), 10624 * MIB);
    let pins = &document["pinning"][0];
    assert_eq!((&pins["owner"], &pins["blocks"]), (&"kept".into(), &30.into()));
    assert_eq!(pins["bytes"], 480 * MIB);
    assert_eq!((&pins["youngest_events"], &pins["oldest_events"]), (&2.into(), &31.into()));
    assert_eq!(document["pinning_place"]["exact"], true);
    for (settings, reserved) in
        [("max_split_size_mb:20", 11584), ("expandable_segments:True", 11600), ("blockyard", 11584)]
    {
        let fix = fix(&document, settings);
        assert_eq!(fix["completes"], true, "{settings}");
        assert_eq!(fix["peak_reserved_bytes"], reserved * MIB, "{settings}");
    }
    assert_eq!(fix(&document, "roundup_power2_divisions:8")["completes"], false);
}

#[test]
fn k03_a_quantised_load_strands_a_remainder_a_layer() {
    let mut rows = Rows::default();
    for _ in 0..36 {
        rows.once(530);
        rows.alloc(270, "weight");
    }
    let document = trace(&rows, 18432, &[]);
    assert_eq!(document["class"], "fragmentation");
    assert_eq!(evidence(&document, "releasable_bytes"), 0);
    assert_eq!(evidence(&document, "largest_free_bytes"), 260 * MIB);
    assert_eq!(document["pinning"][0]["owner"], "weight");
    for (settings, reserved) in [
        ("max_split_size_mb:20", 10250),
        ("expandable_segments:True", 9980),
        ("roundup_power2_divisions:8", 10944),
        ("blockyard", 9980),
    ] {
        let fix = fix(&document, settings);
        assert_eq!(fix["completes"], true, "{settings}");
        assert_eq!(fix["peak_reserved_bytes"], reserved * MIB, "{settings}");
    }
}

#[test]
fn k05_enough_in_two_places_is_no_leak_and_no_want_of_capacity() {
    let mut rows = Rows::default();
    rows.once(8796);
    rows.alloc(64, "kept");
    rows.alloc(10148, "large");
    let document = trace(&rows, 18000, &[]);
    assert_eq!(document["class"], "fragmentation");
    assert_eq!(evidence(&document, "driver_free_bytes"), 9204 * MIB);
    assert_eq!(evidence(&document, "cached_free_bytes"), 8732 * MIB);
    assert_eq!(document["pinning"][0]["bytes"], 64 * MIB);
    let verdict = document["verdict"].as_str().unwrap();
    assert!(verdict.contains("8.53 GiB") && verdict.contains("8.99 GiB"), "{verdict}");
    assert_eq!(fix(&document, "max_split_size_mb:1024")["peak_reserved_bytes"], 10212 * MIB);
    assert_eq!(fix(&document, "expandable_segments:True")["peak_reserved_bytes"], 10220 * MIB);
}

#[test]
fn k07_a_split_limit_with_expandable_segments_ends_cleanly() {
    let mut rows = Rows::default();
    rows.once(550);
    for _ in 0..40 {
        rows.alloc(110, "held");
    }
    let policy = "pytorch:max_split_size_mb:500,expandable_segments:True";
    let document = trace(&rows, 4096, &["--policy", policy]);
    assert_eq!(document["class"], "capacity");
    assert!(document["warnings"].to_string().contains("max_split_size_mb"), "{document}");
    let settings: Vec<&str> = completing(&document);
    assert_eq!(settings, [""; 0]);
    assert!(document["conclusion"].as_str().unwrap().starts_with("no setting helps: 4.30 GiB"));
}

#[test]
fn k09_what_stays_after_a_phase_is_told_apart() {
    const MB: u64 = 1_000_000;
    let mut rows = Rows::default();
    rows.bytes(500 * MB, 0, "weights");
    let buffer = rows.bytes(4700 * MB, 0, "");
    rows.free(buffer);
    rows.mark("refit 1");
    let quantised = rows.bytes(8400 * MB, 0, "quantised");
    let scratch = rows.bytes(12400 * MB, 0, "");
    rows.free(scratch);
    rows.mark("refit 2");
    rows.free(quantised);
    rows.bytes(100 * MB, 0, "scales");
    rows.text.push_str("e\n");
    let scratch = rows.bytes(10300 * MB, 0, "");
    rows.free(scratch);
    rows.mark("refit 3");
    let document = json_of(&["-"], &rows.text);
    let said = document["warnings"].to_string();
    for part in [
        "8.29 GiB allocated, 24.22 GiB reserved: more is live",
        "reserved: as much is live; the rest is cache that could go back",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn k10_memory_cached_for_other_streams() {
    let mut rows = Rows::default();
    for stream in 0..8 {
        let id = rows.bytes(1024 * MIB, stream, "");
        rows.free(id);
        rows.bytes(2 * MIB, stream, "kept");
    }
    rows.alloc(4096, "wide");
    let document = trace(&rows, 10240, &[]);
    assert_eq!(document["class"], "other-stream");
    assert_eq!(evidence(&document, "cached_free_bytes"), 8176 * MIB);
    assert_eq!(evidence(&document, "largest_free_bytes"), 1022 * MIB);
    assert_eq!(document["pinning_place"]["kind"], "returned");
    let segments = document["pinning_place"]["segments"].as_array().unwrap().len();
    assert_eq!(
        (segments, &document["pinning"][0]["blocks"]),
        (2, &2.into()),
        "4096 - 2048 need two"
    );
    assert_eq!(document["pinning"][0]["bytes"], 4 * MIB);
}

/// Two streams in turn, on a device that holds the memory of one.
fn k20() -> Rows {
    let mut rows = Rows::default();
    for step in 0..20 {
        rows.mark(&format!("step {step}"));
        for (stream, mib) in [(0, 70), (1, 60)] {
            let id = rows.bytes(mib * MIB, stream, "");
            rows.free(id);
        }
    }
    rows
}

#[test]
fn k20_a_run_that_survives_by_flushing_thrashes() {
    let document = trace(&k20(), 80, &[]);
    assert_eq!(document["class"], "thrash");
    assert_eq!(evidence(&document, "steps"), 20);
    assert!(evidence(&document, "cache_flushes") >= 20, "{document}");
    let calls = evidence(&document, "device_allocs") + evidence(&document, "device_frees");
    assert!(calls > 40, "{document}");
    let better = fix(&document, "blockyard");
    assert!(better["cache_flushes"].as_u64().unwrap() < evidence(&document, "cache_flushes"));
    assert_eq!(trace(&k20(), 800, &[])["class"], "not-exhausted");
}

#[test]
fn k30_a_workspace_of_a_library_is_no_leak() {
    let mut rows = Rows::default();
    rows.bytes(8_519_680, 0, "cublasCreate handle");
    let batch = rows.alloc(100, "batch");
    rows.free(batch);
    let document = json_of(&["-"], &rows.text);
    assert_eq!(document["class"], "library-workspace");
    assert!(document["verdict"].as_str().unwrap().contains("8.12 MiB"));
    rows.alloc(50, "forgotten");
    let document = json_of(&["-"], &rows.text);
    assert_eq!(document["class"], "not-exhausted", "not all of it is a workspace");
    assert!(document["warnings"].to_string().contains("workspace"));
}

#[test]
fn memory_that_grows_at_every_step_is_a_leak() {
    let mut rows = Rows::default();
    rows.alloc(100, "weights");
    for step in 0..12 {
        let batch = rows.alloc(30, "");
        rows.alloc(12, "history");
        rows.free(batch);
        rows.mark(&format!("step {step}"));
    }
    let document = json_of(&["-"], &rows.text);
    assert_eq!(document["class"], "leak");
    let short = trace(&rows, 230, &[]);
    assert_eq!(short["class"], "leak", "{short}");
    assert_eq!(short["findings"][1]["class"], "capacity");
    assert_eq!(short["owners"][0]["owner"], "weights");
}

#[test]
fn k36_the_other_size_class_has_it() {
    let mut rows = Rows::default();
    rows.once(98);
    rows.alloc(2, "kept");
    for _ in 0..3 {
        rows.alloc(1, "small");
    }
    let document = trace(&rows, 100, &[]);
    assert_eq!(document["class"], "other-pool");
    assert_eq!(evidence(&document, "largest_free_anywhere_bytes"), 96 * MIB);
    assert!(completing(&document).contains(&"blockyard"), "{document}");
}

#[test]
fn k40_whole_pages_where_the_bytes_would_fit() {
    let mut rows = Rows::default();
    rows.alloc(90, "all");
    let document = trace(&rows, 90, &["--policy", "pytorch-expandable"]);
    assert_eq!(document["class"], "granularity");
    assert_eq!(evidence(&document, "page_bytes"), 20 * MIB);
    assert_eq!(fix(&document, "expandable_segments:False")["completes"], true);
    assert_eq!(fix(&document, "blockyard")["completes"], true);
}

#[test]
fn no_setting_is_offered_that_is_active_already() {
    for policy in ["pytorch:expandable_segments:True", "pytorch:max_split_size_mb:20", "blockyard"]
    {
        let document = trace(&k01(), 11000, &["--policy", policy]);
        let active = policy.split_once(':').map_or(policy, |(_, settings)| settings);
        for fix in document["fixes"].as_array().unwrap() {
            assert_ne!(fix["settings"], active, "{policy}");
        }
    }
}

#[test]
fn a_limit_is_lifted() {
    let mut rows = Rows::default();
    rows.alloc(6000, "a");
    rows.alloc(4000, "b");
    let policy = "pytorch:per_process_memory_fraction:0.5";
    let document = trace(&rows, 16384, &["--policy", policy]);
    assert_eq!(document["class"], "limit");
    assert_eq!(fix(&document, "per_process_memory_fraction:1.0")["completes"], true);
}

#[test]
fn the_example_names_fragmentation_pins_and_settings_that_complete() {
    let document = json_of(&["examples/gpt2_varlen_9g_oom.pickle"], "");
    assert_eq!(document["class"], "fragmentation");
    assert_eq!(document["driver"], "recorded");
    assert_eq!(document["requests_after"], 0, "it ends at the failure");
    let settings = completing(&document);
    for expected in ["expandable_segments:True", "max_split_size_mb:128"] {
        assert!(settings.contains(&expected), "{settings:?}");
    }
    assert!(document["pinning"][0]["owner"].as_str().unwrap().contains("train_snap.py"));
}

/// The same device and the same settings: the recording's own failure, found on the model as well.
#[test]
fn every_snapshot_with_a_failure_fails_on_the_model_too() {
    for (name, class) in [
        ("gpt2_varlen_9g_oom", "fragmentation"),
        ("gpt2_12g_oom", "capacity"),
        ("resnet50_8g_oom_protocol2", "fragmentation"),
        ("resnet50_varsize_6g_oom", "fragmentation"),
    ] {
        let path = format!("tests/data/snapshots/{name}.pickle.zst");
        let document = json_of(&[&path], "");
        assert_eq!(document["class"], class, "{name}");
        assert_ne!(document["fixes"].as_array().unwrap().len(), 0, "{name}");
    }
}

#[test]
fn what_is_no_recording_and_no_message_is_bad_input() {
    let output = explain(&["-"], Path::new(ROOT), "hello\nworld\n");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("line 1") && said.contains("out-of-memory message"), "{said}");
    let two = ["-", "--policy", "pytorch", "--policy", "blockyard"];
    assert_eq!(explain(&two, Path::new(ROOT), "a,1,2,0\n").status.code(), Some(2));
    assert_eq!(explain(&["no-such-file"], Path::new(ROOT), "").status.code(), Some(2));
}

fn golden(name: &str, arguments: &[&str], input: &str) {
    let output = explain(arguments, Path::new(ROOT), input);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "nothing but the page in a pipe");
    let text = String::from_utf8(output.stdout).unwrap();
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "tests/golden", &format!("explain-{name}.txt")]
            .iter()
            .collect();
    if std::env::var_os("BLOCKYARD_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "{} differs; BLOCKYARD_BLESS=1 writes it anew", path.display());
    assert!(text.lines().all(|line| line.chars().count() <= 120), "a line is too long:\n{text}");
}

#[test]
fn pages_to_the_letter() {
    golden("snapshot", &["examples/gpt2_varlen_9g_oom.pickle"], "");
    golden("capacity", &["tests/data/snapshots/gpt2_12g_oom.pickle.zst"], "");
    golden("trace", &["-", "--capacity", "16GiB"], &k01().text);
    golden("thrash", &["-", "--capacity", "80MiB"], &k20().text);
    let messages: Value =
        serde_json::from_str(include_str!("../../tests/data/messages/accepted.json")).unwrap();
    for id in ["M01", "M04", "M12", "M16", "M22"] {
        let message = messages.as_array().unwrap().iter().find(|case| case["id"] == id).unwrap();
        golden(&format!("message-{id}"), &["-"], message["text"].as_str().unwrap());
    }
}

/// The document has the keys of `docs/explain.schema.json` and no others, and a class of its list.
fn conforms(document: &Value) {
    let schema: Value =
        serde_json::from_str(include_str!("../../docs/explain.schema.json")).unwrap();
    check(document, &schema, &schema, "document");
}

/// The part of JSON Schema that the file uses: type, enum, required, properties, items, `$ref`.
fn check(value: &Value, schema: &Value, root: &Value, place: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return check(value, &root["$defs"][name], root, place);
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().map(|kind| kind.as_str().unwrap()).collect(),
        _ => Vec::new(),
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    assert!(kinds.is_empty() || kinds.contains(&kind), "{place}: {value} is no {kinds:?}");
    if let Some(allowed) = schema["enum"].as_array() {
        assert!(allowed.contains(value), "{place}: {value}");
    }
    for key in schema["required"].as_array().into_iter().flatten().filter(|_| value.is_object()) {
        assert!(value.get(key.as_str().unwrap()).is_some(), "{place}: no {key}");
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        match schema["properties"].get(key) {
            Some(schema) => check(value, schema, root, &format!("{place}.{key}")),
            None => match schema.get("additionalProperties") {
                Some(Value::Object(_)) => {
                    check(value, &schema["additionalProperties"], root, &format!("{place}.{key}"));
                }
                _ => panic!("{place}: {key} is not in the schema"),
            },
        }
    }
    for (index, value) in value.as_array().into_iter().flatten().enumerate() {
        check(value, &schema["items"], root, &format!("{place}[{index}]"));
    }
}

/// Blocks of 11 MiB in segments of 12: what clients asked for would fit.
fn of_eleven(blocks: usize) -> Rows {
    let mut rows = Rows::default();
    for _ in 0..blocks {
        rows.alloc(11, "t");
    }
    rows
}

#[test]
fn what_rounding_adds_is_not_live() {
    for (blocks, mib) in [(5, 55), (50, 552), (50, 549)] {
        let document = trace(&of_eleven(blocks), mib, &[]);
        assert_eq!(document["class"], "granularity", "{mib}: {document}");
        let verdict = document["verdict"].as_str().unwrap();
        assert!(!verdict.contains("however"), "{verdict}");
        assert_eq!(evidence(&document, "short_bytes"), 0);
        assert_eq!(evidence(&document, "live_bytes") % (11 * MIB), 0);
    }
    let document = trace(&of_eleven(50), 549, &[]);
    let conclusion = document["conclusion"].as_str().unwrap();
    assert!(conclusion.ends_with("1.00 MiB short"), "{conclusion}");
    let document = trace(&of_eleven(5), 54, &[]);
    assert_eq!(document["class"], "capacity");
    assert_eq!(evidence(&document, "short_bytes"), MIB);
}

/// Requests between 1 and 10 MiB take a large segment each time one is full.
#[test]
fn a_smaller_large_segment_is_tried() {
    let mut rows = Rows::default();
    for _ in 0..3 {
        rows.alloc(8, "t");
    }
    let document = trace(&rows, 37, &[]);
    assert_eq!(document["class"], "granularity");
    assert_eq!(fix(&document, "large_segment_size_mb:11")["completes"], true);
    assert_eq!(fix(&document, "large_segment_size_mb:64")["completes"], false);
}

#[test]
fn text_in_utf16_and_a_page_of_its_own_are_read() {
    let text = "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already \
                allocated; 10.00 MiB free; 7.10 GiB reserved in total by PyTorch)";
    let folder = tempfile::tempdir().unwrap();
    let wide = folder.path().join("wide.txt");
    let units = std::iter::once(0xfeff).chain(text.encode_utf16());
    std::fs::write(&wide, units.flat_map(u16::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    let wide = json_of(&[&wide.to_string_lossy()], "");
    let plain = json_of(&["-"], text);
    assert_eq!((&wide["class"], &wide["verdict"]), (&plain["class"], &plain["verdict"]));
    for input in [text, &k01().text] {
        let arguments = if input == text { vec!["-"] } else { vec!["-", "--capacity", "16384MiB"] };
        let page = explain(&arguments, Path::new(ROOT), input).stdout;
        let again = json_of(&["-"], &String::from_utf8(page).unwrap());
        let first = json_of(&arguments, input);
        assert_eq!((&again["class"], &again["verdict"]), (&first["class"], &first["verdict"]));
        assert_eq!(again["format"], "explain-page");
    }
}

#[test]
fn libraries_and_onnx_runtime_are_recognised() {
    for (text, format, class) in [
        ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "library-message", "unknown"),
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            "library-message",
            "unknown",
        ),
        (
            "bfc_arena.cc:376 void* onnxruntime::BFCArena::AllocateRawInternal(size_t) Failed to allocate memory \
             for requested buffer of size 8589934592",
            "onnxruntime-message",
            "unknown",
        ),
        (
            "onnxruntime::BFCArena::Extend Available memory of 1048576 is smaller than requested bytes of 8388608",
            "onnxruntime-message",
            "limit",
        ),
    ] {
        let document = json_of(&["-"], text);
        assert_eq!((&document["format"], &document["class"]), (&format.into(), &class.into()));
        assert!(document["verdict"].as_str().unwrap() != "nothing is certain here", "{text}");
    }
}
