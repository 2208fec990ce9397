//! Convert: a recording in another format.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use blockyard::lab::warm;
use blockyard::policy::presets;
use blockyard::trace::{DeviceTrace, Event, Kind, NO_ALLOCATION, Recording, file};

use super::pictures::Subject;
use super::{
    busiest, create, looks_as_recorded, named, policies, print_json, read, say_which, show_notices,
    snapshot, warn, written,
};
use crate::cli::{Convert, Target};
use crate::fail::{Fail, cannot_write};
use crate::formats::write::{self, WriteError};
use crate::moment::When;
use crate::session::Options;

pub(super) fn run(arguments: &Convert) -> Result<(), Fail> {
    let recording = read(&arguments.from)?;
    show_notices(&arguments.common, &arguments.from, &recording);
    let target = target(arguments)?;
    let path = &arguments.to_file;
    let mut failed = false;
    match target {
        Target::Trace => compressed(path, |mut out| file::write_to(&mut out, &recording))?,
        Target::Csv | Target::Planner => requests(arguments, &recording, target)?,
        Target::PytorchJson | Target::PytorchPickle => {
            failed = state(arguments, &recording, target)?;
        }
    }
    if arguments.common.json {
        return print_json(&serde_json::json!({
            "file": named(&arguments.from),
            "output": path.display().to_string(),
            "format": recording.format,
            "events": recording.event_count(),
        }));
    }
    written(path)?;
    // The replay that gave the addresses stopped there: what was written is the state at its failure.
    if failed { Err(Fail::OutOfMemory) } else { Ok(()) }
}

/// One device's requests as text: those from before a recording that began mid-run come first.
fn requests(arguments: &Convert, recording: &Recording, target: Target) -> Result<(), Fail> {
    let trace = busiest(&arguments.from, recording, arguments.engine.device)?;
    say_which(&arguments.common, recording, trace, &arguments.engine);
    if trace.events.is_empty() {
        return Err(Fail::BadInput(format!(
            "{}: no history in it, only the final state; expected a recording with events",
            named(&arguments.from)
        )));
    }
    let trace = &with_past(recording, trace);
    let past = trace.allocations as usize - busiest_allocations(recording, trace.device);
    if past > 0 {
        let text = format!("{past} blocks from before the recording are allocated first");
        warn(&arguments.common, &text);
    }
    compressed(&arguments.to_file, |mut out| match target {
        Target::Csv => write::csv::write(recording, trace, &mut out),
        _ => write::planner::write(trace, &mut out),
    })
}

fn busiest_allocations(recording: &Recording, device: u32) -> usize {
    let trace = recording.devices.iter().find(|trace| trace.device == device);
    trace.map_or(0, |trace| trace.allocations as usize)
}

/// The trace with the blocks that were live before it as its first allocations.
fn with_past(recording: &Recording, trace: &DeviceTrace) -> DeviceTrace {
    let warm = warm::before(recording, trace, &presets::pytorch());
    let mut all = DeviceTrace { events: Vec::new(), ids: Vec::new(), ..trace.clone() };
    let mut before = HashMap::new();
    for segment in &warm.segments {
        for block in &segment.live {
            before.insert(block.address, all.allocations);
            all.events.push(Event {
                address: block.address,
                bytes: block.requested,
                allocation: all.allocations,
                stream: segment.stream,
                pool: segment.pool,
                ..Event::new(Kind::Alloc)
            });
            all.allocations += 1;
        }
    }
    all.events.extend(trace.events.iter().map(|event| {
        let stranger = event.allocation == NO_ALLOCATION;
        let known = before.get(&event.address).filter(|_| stranger && is_free(event.kind));
        known.map_or(*event, |&allocation| Event { allocation, ..*event })
    }));
    all
}

const fn is_free(kind: Kind) -> bool {
    matches!(kind, Kind::Free | Kind::FreeRequested | Kind::FreeCompleted)
}

/// What is to be written: as said, else as the suffix says.
fn target(arguments: &Convert) -> Result<Target, Fail> {
    if let Some(target) = arguments.to {
        return Ok(target);
    }
    let name = arguments.to_file.to_string_lossy().to_ascii_lowercase();
    let name = name.trim_end_matches(".zst").trim_end_matches(".gz");
    let suffixes = [
        (".jsonl", Target::Trace),
        (".trace", Target::Trace),
        (".json", Target::PytorchJson),
        (".pickle", Target::PytorchPickle),
        (".pkl", Target::PytorchPickle),
        (".csv", Target::Csv),
    ];
    let found = suffixes.iter().find(|(suffix, _)| name.ends_with(suffix));
    found.map(|&(_, target)| target).ok_or_else(|| {
        Fail::BadInput(format!(
            "{}: the suffix names no format, expected .jsonl, .json, .pickle or .csv, or --to",
            arguments.to_file.display()
        ))
    })
}

/// A snapshot: the recording's own where it has addresses, else what a replay makes of it.
fn state(arguments: &Convert, recording: &Recording, target: Target) -> Result<bool, Fail> {
    let trace = busiest(&arguments.from, recording, arguments.engine.device)?;
    let mut failed = false;
    let as_recorded = arguments.engine.policies.is_empty() && arguments.engine.capacity.is_none();
    let made = match write::recording_to_snapshot(recording) {
        Ok(made) if as_recorded => made,
        Ok(_) | Err(WriteError::NoAddress { .. }) => {
            let policies = policies(&arguments.engine, recording)?;
            let [effective] = &policies[..] else {
                return Err(Fail::BadInput("convert takes one --policy, not several".to_string()));
            };
            warn(
                &arguments.common,
                &format!("addresses come from a replay under policy {}", effective.policy.name),
            );
            let options = Options {
                capacity: arguments.engine.capacity,
                recorded: looks_as_recorded(&arguments.engine, trace),
                continue_on_oom: false,
                curve: false,
                stop: None,
                quiet: arguments.common.quiet,
            };
            let subject =
                Subject { file: &arguments.from, recording, trace, effective, options: &options };
            let (outcome, tape) = snapshot::record(&subject, &When::End)?;
            failed = !options.recorded && outcome.failure.is_some();
            if let Some(failure) = outcome.failure.as_ref().filter(|_| failed) {
                let text = format!(
                    "the replay ran out of memory at event {}; what follows is left out",
                    failure.event
                );
                warn(&arguments.common, &text);
            }
            snapshot::snapshot(&subject, &outcome, tape)?
        }
        Err(error) => return Err(Fail::BadInput(format!("{}: {error}", named(&arguments.from)))),
    };
    compressed(&arguments.to_file, |mut out| match target {
        Target::PytorchPickle => write::pickle::write(&made, &mut out),
        _ => made.to_json(out),
    })?;
    Ok(failed)
}

/// Writes through the compression that the suffix names.
fn compressed(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), Fail> {
    let mut out = create(path)?;
    let written = match path.extension().and_then(|suffix| suffix.to_str()) {
        Some("zst") => zstd::Encoder::new(&mut out, 3).and_then(|mut encoder| {
            write(&mut encoder)?;
            encoder.finish().map(|_| ())
        }),
        Some("gz") => {
            let mut encoder =
                flate2::write::GzEncoder::new(&mut out, flate2::Compression::default());
            write(&mut encoder).and_then(|()| encoder.finish().map(|_| ()))
        }
        _ => write(&mut out),
    };
    written.and_then(|()| out.flush()).map_err(|error| cannot_write(path, error))
}
