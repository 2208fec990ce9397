//! Snapshot: a moment of a replay, with its history, in the shape that PyTorch's viewer opens.

use std::path::Path;

use blockyard::trace::snapshot::{Builder, Names, Setting, Snapshot};
use blockyard::trace::{DeviceTrace, Event, Kind, NO_ALLOCATION, StackId};
use blockyard::vocab::Ticket;

use super::create;
use super::pictures::{Subject, stacks_of};
use crate::fail::{Fail, cannot_write};
use crate::formats::write::pickle;
use crate::moment::When;
use crate::session::{self, Options, Outcome};
use crate::watchers::Tape;

/// Replays up to a moment and writes what is there: `.pickle` or `.pkl`, else JSON.
pub(super) fn write(subject: &Subject<'_>, when: &When, path: &Path) -> Result<(), Fail> {
    let (outcome, tape) = record(subject, when)?;
    put(&snapshot(subject, &outcome, tape)?, path)
}

/// Replays up to a moment and keeps the history.
pub(super) fn record(subject: &Subject<'_>, when: &When) -> Result<(Outcome, Tape), Fail> {
    let stop = match when {
        When::Peak => {
            let options = Options { stop: None, ..subject.options.clone() };
            let whole = session::replay(
                subject.recording,
                subject.trace,
                subject.effective.clone(),
                &options,
                (),
            )?;
            When::Event(whole.0.peak_event)
        }
        other => other.clone(),
    };
    let options = Options { stop: Some(stop), ..subject.options.clone() };
    session::replay(
        subject.recording,
        subject.trace,
        subject.effective.clone(),
        &options,
        Tape::default(),
    )
}

/// The snapshot of a recorded replay.
pub(super) fn snapshot(
    subject: &Subject<'_>,
    outcome: &Outcome,
    tape: Tape,
) -> Result<Snapshot, Fail> {
    let names = Names::of(subject.recording);
    let policy = &outcome.effective.policy;
    let at = outcome.events.checked_sub(1).map(u64::from);
    let mut builder = Builder::new(names).origin(Some(&policy.name), at);
    let text = match policy.name.split_once(':') {
        Some((_, text)) => text.to_string(),
        None => subject.recording.settings.clone().unwrap_or_default(),
    };
    builder.setting("PYTORCH_CUDA_ALLOC_CONF", Setting::Text(text));
    builder
        .setting("max_split_size", Setting::Integer(i64::try_from(policy.max_split).unwrap_or(-1)));
    builder.setting("garbage_collection_threshold", Setting::Float(policy.collect_threshold));
    builder.setting("expandable_segments", Setting::Flag(policy.page_mapped()));
    let stacks = stacks_of(subject.trace);
    let stack_of = |ticket: Ticket| stacks.get(ticket.0 as usize).copied().unwrap_or(StackId(0));
    builder.view(subject.trace.device, &outcome.view, stack_of);
    let history = named(tape.events, subject.trace);
    builder
        .history(subject.trace.device, &history)
        .map_err(|error| Fail::BadInput(error.to_string()))?;
    Ok(builder.finish())
}

/// The entries with the stream, pool, size and stack of the request that each belongs to.
pub(super) fn named(mut events: Vec<Event>, trace: &DeviceTrace) -> Vec<Event> {
    let mut requests: Vec<Option<&Event>> = vec![None; trace.allocations as usize];
    for event in trace.events.iter().filter(|event| event.kind == Kind::Alloc) {
        if event.allocation != NO_ALLOCATION {
            requests[event.allocation as usize] = Some(event);
        }
    }
    for event in &mut events {
        if let Some(Some(request)) = requests.get(event.allocation as usize) {
            event.stream = request.stream;
            event.pool = request.pool;
            event.bytes = request.bytes;
            event.stack = request.stack;
            event.time_us = request.time_us;
        }
    }
    events
}

/// Writes a snapshot in the format that the suffix names.
pub(super) fn put(snapshot: &Snapshot, path: &Path) -> Result<(), Fail> {
    let mut out = create(path)?;
    let suffix = path.extension().and_then(|suffix| suffix.to_str());
    let written = match suffix {
        Some("pickle" | "pkl") => pickle::write(snapshot, &mut out),
        Some("json") => snapshot.to_json(&mut out),
        _ => {
            return Err(Fail::BadInput(format!(
                "{}: the suffix must be .json or .pickle for a snapshot",
                path.display()
            )));
        }
    };
    written.map_err(|error| cannot_write(path, error))
}
