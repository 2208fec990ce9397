//! Convert: a recording in another format.

use std::io::Write;
use std::path::Path;

use blockyard::trace::{Recording, file};

use super::pictures::Subject;
use super::{
    busiest, create, looks_as_recorded, policies, print, print_json, read, show_notices, snapshot,
    warn,
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
    match target {
        Target::Trace => {
            file::write(path, &recording).map_err(|error| Fail::BadInput(error.to_string()))?;
        }
        Target::Csv => {
            let trace = busiest(&arguments.from, &recording, arguments.engine.device)?;
            compressed(path, |mut out| write::csv::write(&recording, trace, &mut out))?;
        }
        Target::Planner => {
            let trace = busiest(&arguments.from, &recording, arguments.engine.device)?;
            compressed(path, |mut out| write::planner::write(trace, &mut out))?;
        }
        Target::PytorchJson | Target::PytorchPickle => state(arguments, &recording, target)?,
    }
    if arguments.common.json {
        return print_json(&serde_json::json!({
            "file": arguments.from.display().to_string(),
            "output": path.display().to_string(),
            "format": recording.format,
            "events": recording.event_count(),
        }));
    }
    print(format!("written to {}\n", path.display()).as_bytes())
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
fn state(arguments: &Convert, recording: &Recording, target: Target) -> Result<(), Fail> {
    let trace = busiest(&arguments.from, recording, arguments.engine.device)?;
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
            snapshot::snapshot(&subject, &outcome, tape)?
        }
        Err(error) => return Err(Fail::BadInput(format!("{}: {error}", arguments.from.display()))),
    };
    compressed(&arguments.to_file, |mut out| match target {
        Target::PytorchPickle => write::pickle::write(&made, &mut out),
        _ => made.to_json(out),
    })
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
