//! Shrink: the smallest trace with the same failure, and a test case made of it.

use std::io::Write;
use std::path::{Path, PathBuf};

use blockyard::diagnosis::shrink::script::Script;
use blockyard::diagnosis::shrink::{self, Judge, Keep, Passes, Seen, Shrunk};
use blockyard::policy::Effective;
use blockyard::trace::{Recording, file};
use blockyard::vocab::{Human, PoolId};
use serde_json::json;

use super::shrink_args::Shrink;
use super::tune_crew::Threads;
use super::{
    busiest, create, named, policy, print, print_json, read, show_notices, shrink_case, warn,
};
use crate::fail::{Fail, cannot_write};
use crate::formats::write::csv;
use crate::session;
use crate::table::count;

/// What was shrunk, and what became of it.
pub(super) struct Outcome<'a> {
    pub arguments: &'a Shrink,
    pub effective: Effective,
    pub capacity: Option<u64>,
    pub first: Seen,
    pub shrunk: Shrunk,
    pub small: Recording,
}

pub(super) fn run(arguments: &Shrink) -> Result<(), Fail> {
    check(arguments)?;
    let recording = read(&arguments.file)?;
    show_notices(&arguments.common, &arguments.file, &recording);
    let outcome = shrink(arguments, &recording)?;
    write_all(&outcome)?;
    if !is_plain(&outcome.small) {
        let text = "text lines have no private pools and no rule of older PyTorch releases, so the failure may not \
                    show in them; JSON lines (-o OUT.jsonl) say both";
        warn(&arguments.common, text);
    }
    if arguments.common.json {
        return print_json(&document(&outcome));
    }
    if arguments.output == Path::new("-") {
        warn(&arguments.common, &page(&outcome));
        return Ok(());
    }
    print(page(&outcome).as_bytes())
}

/// Refuses names before the work, not after it.
fn check(arguments: &Shrink) -> Result<(), Fail> {
    let output = &arguments.output;
    if arguments.common.json && output == Path::new("-") {
        return Err(Fail::BadInput("-o - and --json both want standard output".into()));
    }
    let suffix = output.extension().and_then(|suffix| suffix.to_str());
    if let Some(suffix @ ("zst" | "gz" | "pickle" | "json")) = suffix {
        return Err(Fail::BadInput(format!(
            "{}: a small trace is not written as .{suffix}, expected .csv or .jsonl (convert writes others)",
            output.display()
        )));
    }
    arguments.test_case.as_deref().map_or(Ok(()), shrink_case::check)
}

fn shrink<'a>(arguments: &'a Shrink, recording: &Recording) -> Result<Outcome<'a>, Fail> {
    let trace = busiest(&arguments.file, recording, arguments.device)?;
    let named = named(&arguments.file);
    if trace.events.is_empty() {
        return Err(Fail::BadInput(format!(
            "{named}: no history in it, only the final state; expected a recording with events"
        )));
    }
    let (capacity, _) = session::capacity(trace, arguments.capacity);
    if capacity.is_none() && arguments.keep == Keep::OutOfMemory {
        return Err(Fail::BadInput(format!(
            "{named}: no out-of-memory in it that would tell the device's memory; expected --capacity SIZE"
        )));
    }
    let effective = policy(&arguments.policy, recording.settings.as_deref())?;
    let script = Script::of(recording, trace);
    let judged = Judge::of(recording, &script, effective.policy.clone(), capacity, arguments.keep)
        .map_err(|error| Fail::BadInput(format!("{named}: {error}")))?;
    let Some((judge, first)) = judged else {
        return Err(Fail::BadInput(format!("{named}: {}", does_not(arguments, capacity))));
    };
    let crew = Threads::new("shrinking", arguments.common.quiet);
    let passes = Passes { merge: !arguments.no_merge };
    let shrunk = shrink::shrink(&judge, &script, passes, &crew)
        .ok_or_else(|| Fail::Internal("the trace failed once and then not again".into()))?;
    drop(crew);
    let small = shrunk.script.to_recording(recording, arguments.anonymise);
    Ok(Outcome { arguments, effective, capacity, first, shrunk, small })
}

/// That there is nothing to shrink.
fn does_not(arguments: &Shrink, capacity: Option<u64>) -> String {
    let policy = &arguments.policy;
    match (arguments.keep, capacity) {
        (Keep::ReservedAbove(most), _) => format!(
            "never more than {} are reserved under policy {policy}, so there is nothing to keep",
            Human(most)
        ),
        (Keep::OutOfMemory, Some(capacity)) => format!(
            "no request fails under policy {policy} on a device of {} ({capacity} bytes), so there is nothing to \
             keep; expected a smaller --capacity, another --policy, or --keep 'reserved>SIZE'",
            Human(capacity)
        ),
        (Keep::OutOfMemory, None) => "no request fails".to_string(),
    }
}

fn write_all(outcome: &Outcome<'_>) -> Result<(), Fail> {
    let Outcome { arguments, small, .. } = outcome;
    let path = &arguments.output;
    let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or("");
    if suffix == "csv" {
        write_csv(path, outcome)?;
    } else {
        let mut out = create(path)?;
        let written = file::write_to(&mut out, small).and_then(|()| out.flush());
        written.map_err(|error| cannot_write(path, error))?;
    }
    if let Some(path) = &arguments.csv {
        write_csv(path, outcome)?;
    }
    if let Some(path) = &arguments.test_case {
        shrink_case::write(path, outcome)?;
    }
    Ok(())
}

/// Whether text lines say everything that the failure needs.
pub(super) fn is_plain(small: &Recording) -> bool {
    let mut events = small.devices.iter().flat_map(|trace| &trace.events);
    small.has_pool_ids && events.all(|event| event.pool == PoolId::DEFAULT)
}

/// The trace as text lines, after comments that say how it fails.
fn write_csv(path: &Path, outcome: &Outcome<'_>) -> Result<(), Fail> {
    let mut out = create(path)?;
    let written = out.write_all(lines(outcome)?.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| cannot_write(path, error))
}

/// As [`write_csv`], in memory.
pub(super) fn lines(outcome: &Outcome<'_>) -> Result<String, Fail> {
    let mut text = Vec::new();
    let Some(trace) = outcome.small.devices.first() else { return Ok(String::new()) };
    csv::write(&outcome.small, trace, &mut text)
        .map_err(|error| Fail::Internal(error.to_string()))?;
    let text = String::from_utf8(text).map_err(|error| Fail::Internal(error.to_string()))?;
    Ok(format!("# {}\n{text}", sentence(outcome)))
}

/// How the small trace fails.
pub(super) fn sentence(outcome: &Outcome<'_>) -> String {
    let policy = &outcome.effective.policy.name;
    let device = outcome.capacity.map_or("an unlimited device".to_string(), |capacity| {
        format!("a device of {capacity} bytes")
    });
    match outcome.shrunk.seen.verdict {
        Some(verdict) => {
            format!("policy {policy} on {device}: the last request fails: {}", verdict.name())
        }
        None => format!(
            "policy {policy} on {device}: {} bytes are reserved at the end",
            outcome.shrunk.seen.peak_reserved
        ),
    }
}

fn document(outcome: &Outcome<'_>) -> serde_json::Value {
    let Outcome { arguments, shrunk, first, .. } = outcome;
    let report = shrunk.seen.failure.as_ref().map(|failure| &failure.report);
    json!({
        "file": named(&arguments.file),
        "output": arguments.output.display().to_string(),
        "csv": arguments.csv.as_ref().map(|path| path.display().to_string()),
        "test_case": arguments.test_case.as_ref().map(|path| path.display().to_string()),
        "written": written(outcome).iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        "policy": outcome.effective.policy.name,
        "capacity_bytes": outcome.capacity,
        "keep": match arguments.keep {
            Keep::OutOfMemory => "oom".to_string(),
            Keep::ReservedAbove(most) => format!("reserved>{most}"),
        },
        "verdict": shrunk.seen.verdict.map(|verdict| verdict.name()),
        "events_before": shrunk.steps_before,
        "failed_at_event": first.steps - 1,
        "events_deleted_only": shrunk.steps_deleted,
        "events": shrunk.script.ops.len(),
        "allocs": shrink::blocks(&shrunk.script),
        "replays": shrunk.replays,
        "peak_live_bytes": shrunk.script.live_peak(),
        "peak_reserved_bytes": shrunk.seen.peak_reserved,
        "requested_bytes": report.map(|report| report.requested_bytes),
        "sentence": report.map(|report| report.sentence()),
    })
}

/// Every file that is written.
fn written(outcome: &Outcome<'_>) -> Vec<PathBuf> {
    let arguments = outcome.arguments;
    let mut written = vec![arguments.output.clone()];
    written.extend(arguments.csv.clone());
    if let Some(case) = &arguments.test_case {
        written.push(case.clone());
        written.extend(shrink_case::trace_beside(case, &outcome.small));
    }
    written
}

fn page(outcome: &Outcome<'_>) -> String {
    let Outcome { arguments, shrunk, .. } = outcome;
    let number = |steps: usize| count(steps as u64);
    let mut text = format!(
        "{} events -> {} (whole allocations taken away)",
        number(shrunk.steps_before),
        number(shrunk.steps_deleted)
    );
    if !arguments.no_merge {
        text += &format!(" -> {} (merged and resized)", number(shrunk.script.ops.len()));
    }
    text += &format!(
        "\n{}\n{} replays; every step was replayed and failed the same way\n",
        sentence(outcome),
        count(shrunk.replays)
    );
    if let Some(failure) = &shrunk.seen.failure {
        text += &format!("cause: {}\n", failure.report.sentence());
    }
    for path in written(outcome).iter().filter(|path| *path != Path::new("-")) {
        text += &format!("written to {}\n", path.display());
    }
    text
}
