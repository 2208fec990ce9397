//! Estimate: the binary's figures by hand, beside a recorded run, and how it fails.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/gpt2_varlen_9g_oom.pickle");
const SCHEMA: &str = include_str!("../../docs/estimate.schema.json");

fn blockyard(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_blockyard")).args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = blockyard(arguments);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&output.stderr))
    })
}

fn page(arguments: &[&str]) -> String {
    let output = blockyard(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(arguments: &[&str], words: &str) {
    let output = blockyard(arguments);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains(words), "{words:?} is missing in {text}");
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}

#[test]
fn mixed_precision_adam_takes_sixteen_bytes_a_parameter() {
    let said = ["estimate", "--params", "7e9", "--dtype", "bf16", "--master-weights", "--json"];
    let document = json(&said);
    assert_eq!(document["static_bytes"], 112_000_000_000_u64);
    let rows = document["rows"].as_array().unwrap();
    let parts: Vec<_> = rows.iter().map(|row| (&row["part"], &row["bytes"])).collect();
    assert_eq!(
        format!("{parts:?}"),
        format!(
            "{:?}",
            [
                (&Value::from("parameters"), &Value::from(14_000_000_000_u64)),
                (&Value::from("gradients"), &Value::from(14_000_000_000_u64)),
                (&Value::from("master weights"), &Value::from(28_000_000_000_u64)),
                (&Value::from("optimizer states"), &Value::from(56_000_000_000_u64)),
            ]
        )
    );
    assert_eq!(rows[0]["rounded_bytes"], Value::Null, "the tensors are not known");
    assert_eq!((&document["trace"], &document["fits"]), (&Value::Null, &Value::Null));
}

const TOML: &str = r#"
optimizer = "momentum"
dtype = "f16"
gradient_dtype = "f32"

[[parameters]]
name = "embedding"
shape = [1000, 64]
trainable = false

[[parameters]]
name = "layers"
shape = [64, 64]
dtype = "torch.float32"
count = 10

[[activations]]
shape = [8, 64]
count = 20
"#;

#[test]
fn a_file_is_counted_tensor_by_tensor_and_flags_go_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let toml = write(folder.path(), "model.toml", TOML);
    let document = json(&["estimate", &toml, "--json"]);
    let bytes = |document: &Value| -> Vec<u64> {
        document["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["bytes"].as_u64().unwrap())
            .collect()
    };
    // 64,000 x 2 and 10 x 4096 x 4; gradients and one state of the latter; 20 x 512 x 2.
    assert_eq!(bytes(&document), [128_000 + 163_840, 163_840, 163_840, 20_480]);
    assert_eq!(document["rows"][3]["basis"], "guess");
    assert_eq!(document["peak_bytes"], 291_840 + 2 * 163_840 + 20_480);
    let text = r#"{"parameters": [{"shape": [1000, 64], "dtype": "f16", "trainable": false},
        {"shape": [64, 64], "dtype": "f32", "count": 10}], "activations": [{"shape": [8, 64], "dtype": "f16",
        "count": 20}], "optimizer": "momentum", "gradient_dtype": "f32"}"#;
    let same = write(folder.path(), "model.json", text);
    assert_eq!(json(&["estimate", &same, "--json"])["rows"], document["rows"]);
    let sgd = json(&["estimate", &toml, "--optimizer", "sgd", "--json"]);
    assert_eq!(bytes(&sgd), [291_840, 163_840, 20_480]);
    let none = json(&["estimate", &toml, "--optimizer", "none", "--json"]);
    assert_eq!(bytes(&none), [291_840, 20_480]);
}

#[test]
fn the_page_says_what_is_a_guess_and_what_is_not_counted() {
    let page = page(&[
        "estimate",
        "--params",
        "1e6",
        "--activation",
        "bf16:8x2048x4096*32",
        "--capacity",
        "4GiB",
    ]);
    for part in [
        "parameters            1,000,000      4,000,000",
        "4,294,967,296",
        "GUESS",
        "Not counted, so the truth is higher:",
        "does NOT fit into 4.00 GiB",
    ] {
        assert!(page.contains(part), "{part:?} is missing in\n{page}");
    }
}

#[test]
fn a_recording_stands_beside_the_estimate() {
    let said = ["estimate", "--params", "124M", "--trace", EXAMPLE, "--json"];
    let document = json(&said);
    let trace = &document["trace"];
    let replay = json(&["replay", EXAMPLE, "--json"]);
    let result = &replay["results"][0];
    assert_eq!(trace["peak_live_bytes"], result["peak_live_bytes"]);
    assert_eq!(trace["peak_reserved_bytes"], result["peak_reserved_bytes"]);
    let (live, estimate) =
        (trace["peak_live_bytes"].as_i64().unwrap(), document["peak_bytes"].as_i64().unwrap());
    assert_eq!(trace["live_minus_estimate_bytes"], live - estimate);
    assert!(page(&said[..5]).contains("the recording's live peak is"));
}

/// The schema in the docs names what is printed, no less and no more.
#[test]
fn the_schema_names_every_key() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let document = json(&["estimate", "--params", "1e6", "--trace", EXAMPLE, "--json"]);
    let keys = |value: &Value| -> Vec<String> {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&schema["properties"]), keys(&document));
    assert_eq!(keys(&schema["$defs"]["row"]["properties"]), keys(&document["rows"][0]));
    assert_eq!(keys(&schema["$defs"]["trace"]["properties"]), keys(&document["trace"]));
}

#[test]
fn what_is_wrong_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name, text| write(folder.path(), name, text);
    refused(&["estimate"], "expected --params NUMBER or a model file");
    refused(&["estimate", "--params", "many"], "expected 7e9, 7B or 124M");
    refused(&["estimate", "--params", "1e6", "--dtype", "bf17"], "is no type, expected one of");
    refused(
        &["estimate", "--params", "1e6", "--activation", "8x4"],
        "is not like bf16:8x2048x4096",
    );
    refused(&["estimate", &file("a.json", "{\"parameter\": []}")], "unknown field `parameter`");
    refused(&["estimate", &file("b.toml", "optimizer = \"lion\"")], "unknown variant `lion`");
    let large = "{\"parameters\": [{\"name\": \"w\", \"shape\": [9999999999, 9999999999]}]}";
    refused(&["estimate", &file("c.json", large)], "larger than any memory");
    refused(&["estimate", EXAMPLE], "recordings are given by --trace");
    refused(&["estimate", "gone.json"], "cannot be read");
}
