//! Explain's JSON: names that others rely on; `docs/explain.schema.json` states them. Sizes are bytes.

use blockyard::diagnosis::explain::owners::Owner;
use blockyard::diagnosis::message::Reading;
use blockyard::diagnosis::pinning::Place;
use blockyard::diagnosis::proof::{Allocator, Proof};
use blockyard::diagnosis::verdict::Judgement;
use serde_json::{Map, Value, json};

use super::explain::Explained;

pub(super) fn pasted(name: &str, reading: &Reading) -> Value {
    let mut document = judged(name, reading.dialect.name(), &reading.judgement);
    document.insert("message".into(), json!(reading.quote));
    document.insert("messages".into(), json!(reading.messages));
    document.insert("pinning".into(), json!([]));
    document.insert("fixes".into(), json!([]));
    Value::Object(document)
}

pub(super) fn recorded(explained: &Explained<'_>) -> Value {
    let explanation = &explained.explanation;
    let subject = &explained.subject;
    let recording = subject.recording;
    let mut document = judged(explained.name, &recording.format, &explanation.judgement);
    let failure = explanation.scene.failure.as_ref();
    let more = json!({
        "notices": super::replay_json::notices(recording),
        "device": subject.trace.device,
        "policy": explained.effective.policy.name,
        "driver": if subject.is_recorded() { "recorded" } else { "simulated" },
        "capacity_bytes": subject.capacity(),
        "event": failure.map(|failure| failure.event),
        "line": failure.map(|failure| failure.line).filter(|&line| line > 0),
        "id": explanation.scene.failed_id,
        "events": recording.event_count(),
        "requests_after": explanation.requests_after,
        "pinning": explanation.pinned_by.iter().map(owner).collect::<Vec<_>>(),
        "pinning_place": explanation.pinning.as_ref().map(|pinning| json!({
            "kind": match pinning.place { Place::Run { .. } => "run", Place::Returned { .. } => "returned" },
            "segments": match &pinning.place {
                Place::Run { segment, .. } => vec![*segment],
                Place::Returned { bases, .. } => bases.clone(),
            },
            "bytes": match pinning.place { Place::Run { bytes, .. } | Place::Returned { bytes, .. } => bytes },
            "live_bytes": pinning.bytes(),
            "blocks": pinning.pins.len(),
            "exact": pinning.exact,
        })),
        "owners": explanation.owners.iter().take(20).map(owner).collect::<Vec<_>>(),
        "fixes": explained.proofs.iter().map(|proof| fix(explained, proof)).collect::<Vec<_>>(),
        "conclusion": (!explained.conclusion.is_empty()).then_some(&explained.conclusion),
        "report": failure.map(|failure| failure.report.to_string()),
    });
    if let Value::Object(more) = more {
        document.extend(more);
    }
    Value::Object(document)
}

fn judged(name: &str, format: &str, judgement: &Judgement) -> Map<String, Value> {
    let findings = judgement.findings.iter().map(|finding| {
        json!({ "class": finding.class.name(), "bytes": finding.bytes, "sentence": finding.sentence })
    });
    let evidence: Map<String, Value> =
        judgement.evidence.iter().map(|f| (f.key.to_string(), json!(f.value))).collect();
    let document = json!({
        "file": name,
        "format": format,
        "class": judgement.class().name(),
        "verdict": judgement.verdict(),
        "findings": findings.collect::<Vec<_>>(),
        "evidence": evidence,
        "advice": judgement.advice,
        "warnings": judgement.warnings,
    });
    match document {
        Value::Object(document) => document,
        _ => Map::new(),
    }
}

fn owner(owner: &Owner) -> Value {
    json!({
        "owner": owner.name,
        "bytes": owner.bytes,
        "blocks": owner.blocks,
        "oldest_events": owner.oldest,
        "youngest_events": owner.youngest,
        "library_workspace": owner.is_workspace,
    })
}

fn fix(explained: &Explained<'_>, proof: &Proof) -> Value {
    let there = explained.explanation.failed_at();
    let before = explained.effort_before;
    let outcome = proof.outcome.as_ref().ok();
    let extra = outcome.map(|outcome| outcome.effort_there.calls() as i64 - before.calls() as i64);
    json!({
        "settings": proof.candidate.settings,
        "text": proof.candidate.text,
        "allocator": match proof.candidate.allocator {
            Allocator::Same => "same",
            Allocator::Blockyard => "blockyard",
        },
        "completes": proof.completes(),
        "serves_the_request": there.map(|event| proof.serves(event)),
        "fails_at_event": outcome.and_then(|outcome| outcome.failed_at),
        "peak_reserved_bytes": outcome.map(|outcome| outcome.peak_reserved),
        "device_allocs": outcome.map(|outcome| outcome.effort.device_allocs),
        "device_frees": outcome.map(|outcome| outcome.effort.device_frees),
        "cache_flushes": outcome.map(|outcome| outcome.effort.flushes),
        "extra_driver_calls": extra,
        "needs_bytes": proof.needs_bytes,
        "error": proof.outcome.as_ref().err().map(ToString::to_string),
    })
}
