//! Diff, leaks, doctor and check as a stranger uses them: pages, JSON against its schema, exit codes.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

#[path = "diagnosis/check.rs"]
mod check;
#[path = "diagnosis/diff.rs"]
mod diff;
#[path = "diagnosis/doctor.rs"]
mod doctor;
#[path = "diagnosis/leaks.rs"]
mod leaks;
#[path = "diagnosis/schema.rs"]
mod schema;

const EXAMPLE: &str = "../examples/gpt2_varlen_9g_oom.pickle";

/// Runs the binary in a folder.
fn blockyard(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_blockyard"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("PYTORCH_CUDA_ALLOC_CONF")
        .env_remove("PYTORCH_HIP_ALLOC_CONF")
        .env_remove("PYTORCH_ALLOC_CONF")
        .env_remove("BLOCKYARD_CONF")
        .output()
        .unwrap()
}

fn page(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Where this crate is: its relative paths hold there.
fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The page must be as the golden file says; `BLESS=1` writes it.
fn golden(name: &str, page: &str) {
    let path = here().join("tests/diagnosis").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(page, expected, "{name} differs; run with BLESS=1 and look at the difference");
}

/// The document of a command, checked against its schema.
fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output = blockyard(folder, &[arguments, &["--json"]].concat());
    let document = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", errors(&output)));
    schema::holds(arguments[0], &document);
    document
}
