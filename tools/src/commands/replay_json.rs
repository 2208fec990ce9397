//! Replay's JSON: names that others rely on. Sizes are bytes.

use super::named;
use std::path::PathBuf;

use blockyard::lab::{Exact, Failure};
use blockyard::ledger::Metric;
use blockyard::policy::Effective;
use blockyard::trace::Recording;
use blockyard::vocab::{Report, RungOutcome};
use serde_json::{Value, json};

use super::replay::Replayed;
use crate::session::Outcome;

/// One document: of the file, or of `files`.
pub(super) fn document(done: &[Replayed], errors: &[(PathBuf, String)], single: bool) -> Value {
    match done {
        [replayed] if single => file(replayed),
        _ => {
            let failed =
                errors.iter().map(|(path, error)| json!({ "file": named(path), "error": error }));
            json!({ "files": done.iter().map(file).chain(failed).collect::<Vec<_>>() })
        }
    }
}

fn file(replayed: &Replayed) -> Value {
    let recording = &replayed.recording;
    json!({
        "file": named(&replayed.file),
        "format": recording.format,
        "events": recording.event_count(),
        "notices": notices(recording),
        "results": replayed.outcomes.iter().map(result).collect::<Vec<_>>(),
    })
}

/// What the reader had to leave out or assume.
pub(super) fn notices(recording: &Recording) -> Value {
    recording
        .notices
        .iter()
        .map(|notice| json!({ "code": notice.code, "text": notice.text }))
        .collect()
}

fn result(outcome: &Outcome) -> Value {
    let stats = &outcome.stats;
    let counters = stats.counters();
    json!({
        "policy": outcome.effective.policy.name,
        "effective_settings": settings(&outcome.effective),
        "device": outcome.device,
        "driver": if outcome.recorded { "recorded" } else { "simulated" },
        "capacity_bytes": outcome.capacity,
        "allocs": outcome.allocs,
        "frees": outcome.frees,
        "peak_live_bytes": outcome.peak_live,
        "peak_requested_bytes": stats.peak(Metric::RequestedBytes),
        "peak_allocated_bytes": stats.peak(Metric::AllocatedBytes),
        "peak_active_bytes": stats.peak(Metric::ActiveBytes),
        "peak_reserved_bytes": stats.peak(Metric::ReservedBytes),
        "final_allocated_bytes": stats.allocated_bytes(),
        "final_reserved_bytes": stats.reserved_bytes(),
        "segments_allocated": stats.allocated(Metric::Segment),
        "segments_freed": stats.freed(Metric::Segment),
        "device_allocs": counters.device_alloc,
        "device_frees": counters.device_free,
        "pages_mapped": counters.pages_mapped,
        "pages_unmapped": counters.pages_unmapped,
        "device_nanos": outcome.device_nanos,
        "retries": counters.alloc_retries,
        "ooms": outcome.ooms,
        "out_of_memory": outcome.failure.as_ref().map(|first| failure(first, outcome.failed_id)),
        "exact": outcome.exact.as_ref().map(exact),
        "nanos_per_event": (outcome.nanos_per_event * 10.0).round() / 10.0,
        "events_replayed": outcome.events,
        "peak_event": outcome.peak_event,
        "notes": outcome.notes,
    })
}

/// Settings in force by name; those asked for also with what was asked and the source.
pub(super) fn settings(effective: &Effective) -> Value {
    let entries = effective.entries.iter().map(|entry| {
        let value = json!({
            "effective": entry.effective,
            "requested": entry.requested,
            "source": entry.source.to_string(),
        });
        (entry.key.to_string(), value)
    });
    Value::Object(entries.collect())
}

fn failure(failure: &Failure, id: Option<u64>) -> Value {
    let report = &failure.report;
    json!({
        "event": failure.event,
        "line": (failure.line > 0).then_some(failure.line),
        "id": id,
        "requested_bytes": report.requested_bytes,
        "rounded_bytes": report.rounded_bytes,
        "verdict": report.verdict.name(),
        "sentence": report.sentence(),
        "report": report_value(report),
    })
}

fn report_value(report: &Report) -> Value {
    json!({
        "requested_bytes": report.requested_bytes,
        "rounded_bytes": report.rounded_bytes,
        "driver_bytes": report.driver_bytes,
        "stream": report.stream.0,
        "pool": report.pool.0,
        "class": report.class.name(),
        "device_bytes": report.device_bytes,
        "limit_bytes": report.limit_bytes,
        "room_bytes": report.room_bytes(),
        "reserved_bytes": report.reserved_bytes,
        "allocated_bytes": report.allocated_bytes,
        "live_bytes": report.live_bytes,
        "awaiting_free_bytes": report.awaiting_free_bytes,
        "releasable_bytes": report.releasable_bytes,
        "pinned_free_bytes": report.pinned_free_bytes,
        "own_free_bytes": report.own_free_bytes,
        "other_stream_free_bytes": report.other_stream_free_bytes,
        "other_class_free_bytes": report.other_class_free_bytes,
        "other_pool_free_bytes": report.other_pool_free_bytes,
        "largest_free_bytes": report.largest_free_bytes,
        "largest_free_anywhere_bytes": report.largest_free_anywhere_bytes,
        "page_bytes": report.page_bytes,
        "rungs": report.rungs.iter().map(|(rung, outcome)| json!({
            "rung": rung.name(),
            "outcome": outcome.to_string(),
            "bytes": outcome_bytes(*outcome),
        })).collect::<Vec<_>>(),
        "text": report.to_string(),
    })
}

const fn outcome_bytes(outcome: RungOutcome) -> u64 {
    match outcome {
        RungOutcome::OverLimit(bytes)
        | RungOutcome::Released(bytes)
        | RungOutcome::Completed(bytes) => bytes,
        RungOutcome::Nothing | RungOutcome::Refused(_) | RungOutcome::Closed => 0,
    }
}

fn exact(exact: &Exact) -> Value {
    json!({
        "checked": exact.checked,
        "matched": exact.matched,
        "allocs": exact.allocs,
        "first_mismatch": exact.first_mismatch.as_ref().map(|mismatch| json!({
            "event": mismatch.event,
            "expected": mismatch.expected,
            "got": mismatch.got,
        })),
    })
}
