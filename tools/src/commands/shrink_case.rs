//! Case: a shrunk trace as a test that others can keep.

use std::io::Write;
use std::path::{Path, PathBuf};

use blockyard::diagnosis::shrink::Keep;
use blockyard::trace::{Recording, file};
use serde_json::json;

use super::create;
use super::shrink::{Outcome, is_plain, lines, sentence};
use crate::fail::{Fail, cannot_write};

/// Refuses a name that says no kind of test before the work, not after it.
pub(super) fn check(path: &Path) -> Result<(), Fail> {
    if matches!(suffix(path), "rs" | "json") {
        return Ok(());
    }
    Err(Fail::BadInput(format!(
        "{}: the suffix names no kind of test, expected .rs or .json",
        path.display()
    )))
}

fn suffix(path: &Path) -> &str {
    path.extension().and_then(|suffix| suffix.to_str()).unwrap_or("")
}

/// Files that may be written beside a test of this name.
pub(super) fn beside(path: &Path) -> Vec<PathBuf> {
    match suffix(path) {
        "json" => vec![path.with_extension("csv"), path.with_extension("jsonl")],
        _ => Vec::new(),
    }
}

/// The trace that is written beside a test of this name, if one is.
pub(super) fn trace_beside(path: &Path, small: &Recording) -> Option<PathBuf> {
    let suffix_of_trace = if is_plain(small) { "csv" } else { "jsonl" };
    (suffix(path) == "json").then(|| path.with_extension(suffix_of_trace))
}

/// Writes the test.
pub(super) fn write(path: &Path, outcome: &Outcome<'_>) -> Result<(), Fail> {
    let text = match trace_beside(path, &outcome.small) {
        None => rust(outcome)?,
        Some(trace) => {
            put(&trace, &rows(outcome)?)?;
            expected(&trace, outcome)?
        }
    };
    put(path, &text)
}

fn put(path: &Path, text: &str) -> Result<(), Fail> {
    let mut out = create(path)?;
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| cannot_write(path, error))
}

/// What a replay of the trace beside it must come to.
fn expected(trace: &Path, outcome: &Outcome<'_>) -> Result<String, Fail> {
    let failure = outcome.shrunk.seen.failure.as_ref();
    let document = json!({
        "trace": trace.file_name().map(|name| name.to_string_lossy()),
        "policy": outcome.effective.policy.name,
        "capacity_bytes": outcome.capacity,
        "expected": {
            "out_of_memory": failure.map(|failure| json!({
                "event": failure.event,
                "requested_bytes": failure.report.requested_bytes,
                "verdict": failure.report.verdict.name(),
                "allocated_bytes": failure.report.allocated_bytes,
                "reserved_bytes": failure.report.reserved_bytes,
            })),
            "peak_reserved_bytes": outcome.shrunk.seen.peak_reserved,
        },
    });
    let text = serde_json::to_string_pretty(&document);
    text.map(|text| text + "\n").map_err(|error| Fail::Internal(error.to_string()))
}

/// A test file for `tests/` of a crate that depends on `blockyard` and `blockyard-tools`.
fn rust(outcome: &Outcome<'_>) -> Result<String, Fail> {
    let claim = match (outcome.arguments.keep, outcome.shrunk.seen.verdict) {
        (Keep::OutOfMemory, Some(verdict)) => format!("verdict == Some({:?})", verdict.name()),
        (Keep::OutOfMemory, None) => "verdict.is_some()".to_string(),
        (Keep::ReservedAbove(most), _) => format!("reserved > {most}"),
    };
    let settings = outcome.small.settings.as_ref();
    let settings = settings.map_or("None".to_string(), |text| format!("Some({text:?})"));
    let capacity = outcome.capacity.map_or("None".to_string(), |bytes| format!("Some({bytes})"));
    let policy = format!("{:?}", outcome.effective.policy.name);
    Ok(TEMPLATE
        .replace("@SENTENCE@", &sentence(outcome))
        .replace("@POLICY@", &policy)
        .replace("@SETTINGS@", &settings)
        .replace("@CAPACITY@", &capacity)
        .replace("@CLAIM@", &claim)
        .replace("@TRACE@", &rows(outcome)?))
}

const TEMPLATE: &str = include_str!("shrink_case.txt");

/// The trace as text lines where those say everything, else as JSON lines.
fn rows(outcome: &Outcome<'_>) -> Result<String, Fail> {
    if is_plain(&outcome.small) {
        return lines(outcome);
    }
    let mut text = Vec::new();
    file::write_to(&mut text, &outcome.small).map_err(|error| Fail::Internal(error.to_string()))?;
    String::from_utf8(text).map_err(|error| Fail::Internal(error.to_string()))
}
