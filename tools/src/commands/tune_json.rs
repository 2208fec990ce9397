//! Tune's JSON: names that others rely on. Sizes are bytes.

use super::named;
use blockyard::diagnosis::search::knobs::Family;
use blockyard::diagnosis::search::rows::Row;
use serde_json::{Value, json};

use super::tune::Outcome;
use super::tune_words as words;

pub(super) fn document(outcome: &Outcome<'_>) -> Value {
    let tuned = &outcome.tuned;
    json!({
        "files": outcome.files.iter().map(|file| named(file)).collect::<Vec<_>>(),
        "traces": traces(outcome),
        "for": match outcome.search.family {
            Family::PyTorch => "pytorch",
            Family::Blockyard => "blockyard",
        },
        "objective": outcome.search.objective.name(),
        "worth_percent": outcome.search.worth,
        "verdict": words::verdict(outcome),
        "sentence": words::sentence(outcome),
        "paste": words::paste(outcome),
        "recommended": words::recommended(outcome).map(|row| self::row(outcome, row)),
        "in_use": tuned.rows.first().map(|row| self::row(outcome, row)),
        "front": tuned.front.iter().map(|&index| tuned.rows[index].spec.clone()).collect::<Vec<_>>(),
        "rows": tuned.rows.iter().map(|row| self::row(outcome, row)).collect::<Vec<_>>(),
        "duplicates": tuned.duplicates.iter().map(|(policy, same)| {
            json!({ "policy": policy, "same_as": same })
        }).collect::<Vec<_>>(),
        "one_stream": tuned.one_stream.as_ref().map(|row| self::row(outcome, row)),
        "advice": words::advice(outcome).into_iter().map(|(code, text)| {
            json!({ "code": code, "text": text })
        }).collect::<Vec<_>>(),
    })
}

fn traces(outcome: &Outcome<'_>) -> Value {
    let jobs = outcome.jobs.iter().zip(&outcome.places);
    let traces = jobs.map(|(job, &(file, device))| {
        json!({
            "file": named(&outcome.files[file]),
            "device": device,
            "capacity_bytes": job.capacity,
            "peak_live_bytes": job.subject.live_peak,
            "steps": job.steps,
        })
    });
    traces.collect()
}

fn row(outcome: &Outcome<'_>, row: &Row) -> Value {
    json!({
        "policy": row.spec,
        "settings": row.knobs.map(|knobs| knobs.text()),
        "completes": (!row.given_up).then_some(row.completes),
        "given_up": row.given_up,
        "min_capacity_bytes": row.min_capacity,
        "min_capacity_at_least_bytes": row.at_least,
        "peak_reserved_bytes": row.peak_reserved,
        "device_allocs": row.device_allocs,
        "device_frees": row.device_frees,
        "driver_calls_per_step": row.calls_per_step,
        "retries": row.retries,
        "retries_per_step": row.retries_per_step,
        "thrashes": row.thrashes(),
        "failed": row.failed.map(|(job, event)| json!({
            "file": named(&outcome.files[outcome.places[job].0]),
            "device": outcome.places[job].1,
            "event": event,
        })),
        "pools": row.pools.iter().map(|(pool, bytes)| json!({
            "pool": pool,
            "peak_reserved_bytes": bytes,
            "worse": row.worse_pools.contains(pool),
        })).collect::<Vec<_>>(),
    })
}
