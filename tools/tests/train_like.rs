//! Train-like: the example's trace, replayed to the address and drawn.
#![allow(clippy::unwrap_used)]

#[path = "../../examples/train_like.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod example;

use std::process::{Command, Output};

use serde_json::Value;

fn blockyard(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_blockyard")).args(arguments).output().unwrap()
}

#[test]
fn the_examples_trace_replays_and_renders() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.trace.zst").to_string_lossy().into_owned();
    example::run(&path, 6).unwrap();
    let exact = blockyard(&["replay", &path, "--policy", "blockyard", "--expect-exact"]);
    assert!(exact.status.success(), "{}", String::from_utf8_lossy(&exact.stdout));
    let output = blockyard(&["replay", &path, "--policy", "pytorch,blockyard", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = document["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    for result in results {
        assert!(result["allocs"].as_u64().unwrap() > 300 && result["ooms"] == 0, "{result}");
    }
    for view in ["map", "timeline", "address-time"] {
        let picture = folder.path().join(format!("{view}.svg")).to_string_lossy().into_owned();
        let drawn = blockyard(&["render", &path, "--view", view, "-o", &picture]);
        assert!(drawn.status.success(), "{}", String::from_utf8_lossy(&drawn.stderr));
        let text = std::fs::read_to_string(&picture).unwrap();
        assert!(text.contains("<svg") && text.len() > 5000, "{view}: {} bytes", text.len());
    }
    let map = std::fs::read_to_string(folder.path().join("map.svg")).unwrap();
    assert!(map.contains("weights") || map.contains("optimizer"), "tags stand on the map");
}
