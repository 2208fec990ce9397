//! Doctor: it never fails, and names what is wrong.

use std::process::Command;

use super::{code, errors, here, json, page};

fn doctor(variables: &[(&str, &str)], arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
    command.arg("doctor").args(arguments);
    for name in ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "BLOCKYARD_CONF"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn every_fact_is_a_value_or_unknown_with_a_reason() {
    let document = json(here(), &["doctor"]);
    let facts = document["facts"].as_array().unwrap();
    for fact in facts {
        assert!(fact["value"].is_string() != fact["unknown"].is_string(), "{fact}");
    }
    for name in
        ["kernel", "memory limit (cgroup)", "WDDM", "MIG", "page granularity", "CPUs usable"]
    {
        assert!(facts.iter().any(|fact| fact["name"] == name), "{name}");
    }
}

#[test]
fn settings_say_where_they_came_from() {
    let output = doctor(&[("PYTORCH_ALLOC_CONF", "max_split_size_mb:128")], &[]);
    assert_eq!((code(&output), errors(&output).as_str()), (0, ""));
    let page = page(&output);
    assert!(page.contains("settings from PYTORCH_ALLOC_CONF"), "{page}");
    assert!(page.contains("max_split_size_mb  128 MiB (asked: 128)"), "{page}");
}

#[test]
fn an_unknown_key_is_named_and_is_no_failure() {
    for name in ["PYTORCH_CUDA_ALLOC_CONF", "BLOCKYARD_CONF"] {
        let output = doctor(&[(name, "max_splt_size_mb:128")], &[]);
        assert_eq!(code(&output), 0);
        assert!(page(&output).contains("problem: "), "{}", page(&output));
        assert!(page(&output).contains("max_splt_size_mb"), "{}", page(&output));
    }
    let output = doctor(&[], &["--settings", "none.toml"]);
    assert_eq!(code(&output), 0);
    assert!(page(&output).contains("none.toml: cannot be read"), "{}", page(&output));
}
