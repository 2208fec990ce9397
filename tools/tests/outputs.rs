//! Outputs that would write over an input or over each other, under any name, are refused unwritten.
#![allow(clippy::unwrap_used)]

mod tune_common;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tune_common::{code, folder, stderr, stdout};

const FAILS: &str = "a,0,6291456,0\nf,0\na,1,4194304,0\na,2,18874368,0\n";

fn blockyard(here: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
    command.current_dir(here).args(arguments).output().unwrap()
}

fn refused(here: &Path, arguments: &[&str]) {
    let output = blockyard(here, arguments);
    let error = stderr(&output);
    assert_eq!(code(&output), 2, "{arguments:?}: {error}");
    assert!(error.contains("nothing was written"), "{arguments:?}: {error}");
    assert_eq!(stdout(&output), "", "{arguments:?}");
    assert_eq!(std::fs::read_to_string(here.join("run.csv")).unwrap(), FAILS, "{arguments:?}");
}

#[test]
fn an_output_that_is_the_input_is_refused_in_every_command() {
    let folder = folder();
    let here = folder.path();
    std::fs::write(here.join("run.csv"), FAILS).unwrap();
    std::fs::copy(here.join("run.csv"), here.join("run.svg")).unwrap();
    let shrink = ["shrink", "run.csv", "--capacity", "20MiB"];
    for more in [
        &["-o", "run.csv"][..],
        &["-o", "./run.csv"],
        &["-o", "small.csv", "--csv", "run.csv"],
        &["-o", "small.csv", "--test-case", "run.json"],
    ] {
        refused(here, &[&shrink[..], more].concat());
        assert!(!here.join("small.csv").exists(), "{more:?}");
    }
    refused(here, &["convert", "run.csv", "run.csv", "--to", "trace"]);
    refused(here, &["render", "run.svg", "-o", "run.svg"]);
    refused(here, &["replay", "run.svg", "--render", "run.svg"]);
    refused(here, &["replay", "run.csv", "--snapshot", "end", "-o", "run.csv"]);
    refused(here, &["replay", ".", "--render", "run.svg"]);
    refused(here, &["tune", "run.csv", "--resume", "run.csv"]);
    std::fs::write(here.join("own.toml"), "").unwrap();
    refused(here, &["convert", "run.csv", "own.toml", "--to", "csv", "--policy", "own.toml"]);
}

#[test]
fn two_outputs_in_one_file_are_refused() {
    let folder = folder();
    let here = folder.path();
    std::fs::write(here.join("run.csv"), FAILS).unwrap();
    let shrink = ["shrink", "run.csv", "--capacity", "20MiB"];
    for more in [
        &["-o", "small.csv", "--csv", "./small.csv"][..],
        &["-o", "small.csv", "--test-case", "small.json"],
        &["-o", "-", "--csv", "-"],
    ] {
        refused(here, &[&shrink[..], more].concat());
        assert!(!here.join("small.csv").exists(), "{more:?}");
    }
    refused(here, &["replay", "run.csv", "--render", "a.svg", "--snapshot", "end", "-o", "a.svg"]);
}

#[cfg(unix)]
#[test]
fn links_are_the_files_they_lead_to() {
    use std::os::unix::fs::symlink;
    let folder = folder();
    let here = folder.path();
    std::fs::write(here.join("run.csv"), FAILS).unwrap();
    std::fs::hard_link(here.join("run.csv"), here.join("hard.csv")).unwrap();
    symlink("run.csv", here.join("soft.csv")).unwrap();
    symlink("new.csv", here.join("ahead.csv")).unwrap();
    for name in ["hard.csv", "soft.csv"] {
        refused(here, &["convert", "run.csv", name]);
        refused(here, &["convert", name, "run.csv"]);
    }
    let two = ["-o", "new.csv", "--csv", "ahead.csv"];
    refused(here, &[&["shrink", "run.csv", "--capacity", "20MiB"][..], &two].concat());
}

#[test]
fn streams_and_other_files_are_written_and_listed() {
    let folder = folder();
    let here = folder.path();
    std::fs::write(here.join("run.csv"), FAILS).unwrap();
    let shrink = ["shrink", "run.csv", "--capacity", "20MiB"];
    let more = ["-q", "-o", "small.csv", "--test-case", "case.json"];
    let output = blockyard(here, &[&shrink[..], &more].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    for name in ["small.csv", "case.json", "case.csv"] {
        assert!(stdout(&output).contains(&format!("written to {name}\n")), "{}", stdout(&output));
        assert!(here.join(name).exists(), "{name}");
    }
    let output = blockyard(here, &["convert", "run.csv", "-", "--to", "csv"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

#[test]
fn standard_input_has_one_name_everywhere() {
    for command in ["replay", "summary", "min-capacity", "leaks", "check", "explain", "tune"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_blockyard"))
            .args([command, "-", "--json", "-q"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(FAILS.as_bytes()).unwrap();
        let document = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        assert!(document.contains("\"stdin\""), "{command}: {document}");
    }
}
