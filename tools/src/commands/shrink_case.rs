//! Case: a shrunk trace as a test that others can keep.

use std::io::Write;
use std::path::Path;

use blockyard::diagnosis::shrink::Keep;
use blockyard::trace::file;
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

/// Writes the test.
pub(super) fn write(path: &Path, outcome: &Outcome<'_>) -> Result<(), Fail> {
    let text = if suffix(path) == "rs" {
        rust(outcome)?
    } else {
        let suffix = if is_plain(&outcome.small) { "csv" } else { "jsonl" };
        let trace = path.with_extension(suffix);
        put(&trace, &rows(outcome)?)?;
        expected(&trace, outcome)?
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
    let assertion = match outcome.arguments.keep {
        Keep::OutOfMemory => {
            let verdict = outcome.shrunk.seen.verdict.map_or("", |verdict| verdict.name());
            format!(
                "    let (_, failure) = player.failures();\n    let failure = failure.expect(\"no request \
                 fails any more\");\n    assert_eq!(failure.report.verdict.name(), \"{verdict}\");\n"
            )
        }
        Keep::ReservedAbove(most) => format!(
            "    let reserved = player.stats().peak(blockyard::ledger::Metric::ReservedBytes);\n    \
             assert!(reserved > {most}, \"only {{reserved}} bytes are reserved now\");\n"
        ),
    };
    let capacity = outcome.capacity.map_or("None".into(), |bytes| format!("Some({bytes})"));
    let settings = outcome.small.settings.as_ref();
    Ok(format!(
        "//! Shrunk: {sentence}.\n#![allow(missing_docs, clippy::unwrap_used)]\n\nuse blockyard::lab::{{Player, \
         Setup}};\nuse blockyard::policy::settings::policy_from;\n\nconst TRACE: &str = \
         r#\"{rows}\"#;\n\n#[test]\nfn it_still_fails() {{\n    let \
         recording = blockyard_tools::formats::read_bytes(\"trace\", TRACE.as_bytes()).unwrap();\n    let \
         policy = policy_from({policy:?}, {settings}).unwrap().policy;\n    let setup = Setup::simulated(policy, \
         {capacity});\n    let mut player = Player::new(&recording, &recording.devices[0], setup, \
         ()).unwrap();\n    while player.run(usize::MAX).unwrap() {{}}\n{assertion}}}\n",
        sentence = sentence(outcome),
        rows = rows(outcome)?,
        policy = outcome.effective.policy.name,
        settings = settings.map_or("None".to_string(), |text| format!("Some({text:?})")),
    ))
}

/// The trace as text lines where those say everything, else as JSON lines.
fn rows(outcome: &Outcome<'_>) -> Result<String, Fail> {
    if is_plain(&outcome.small) {
        return lines(outcome);
    }
    let mut text = Vec::new();
    file::write_to(&mut text, &outcome.small).map_err(|error| Fail::Internal(error.to_string()))?;
    String::from_utf8(text).map_err(|error| Fail::Internal(error.to_string()))
}
