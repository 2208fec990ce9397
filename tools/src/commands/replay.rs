//! Replay: recordings through the engine under one or more policies.

use std::path::{Path, PathBuf};

use blockyard::trace::{DeviceTrace, Recording};
use rayon::prelude::*;

use super::{
    check_picture, comparisons, devices, files, has_driver, named, pictures, policies, print,
    print_json, read, replay_json, replay_text, show_notices, snapshot,
};
use crate::cli::{DriverName, Replay};
use crate::fail::Fail;
use crate::session::{self, Options, Outcome};

/// One file, replayed.
pub(super) struct Replayed {
    pub file: PathBuf,
    pub recording: Recording,
    pub outcomes: Vec<Outcome>,
    /// For recordings with addresses, whether the engine reproduces them: by device.
    pub reproduced: Vec<Outcome>,
}

pub(super) fn run(arguments: &Replay) -> Result<(), Fail> {
    if let Some(picture) = &arguments.render {
        check_picture(picture)?;
    }
    let files = files(&arguments.files)?;
    let single = files.len() == 1 && !arguments.files.iter().any(|path| path.is_dir());
    if !single && (arguments.render.is_some() || arguments.snapshot.is_some()) {
        return Err(Fail::BadInput(
            "--render and --snapshot take one recording, not several; name one file".to_string(),
        ));
    }
    let replayed: Vec<Result<Replayed, Fail>> =
        files.par_iter().map(|file| one(arguments, file, !single)).collect();
    let mut done = Vec::new();
    let mut first_error = None;
    let mut errors = Vec::new();
    for (file, result) in files.iter().zip(replayed) {
        match result {
            Ok(replayed) => done.push(replayed),
            Err(fail) if single => return Err(fail),
            Err(fail) => {
                crate::fail::say(format_args!("blockyard: {fail}"));
                errors.push((file.clone(), fail.to_string()));
                first_error.get_or_insert(fail);
            }
        }
    }
    for replayed in &done {
        show_notices(&arguments.common, &replayed.file, &replayed.recording);
    }
    if arguments.common.json {
        print_json(&replay_json::document(&done, &errors, single))?;
    } else {
        for replayed in &done {
            print(replay_text::page(replayed).as_bytes())?;
        }
    }
    if let [replayed] = &done[..] {
        extras(arguments, replayed)?;
    }
    match first_error {
        Some(Fail::BadInput(_)) => {
            Err(Fail::BadInput("some recordings could not be replayed".into()))
        }
        Some(fail) => Err(fail),
        None => verdict(arguments, &done),
    }
}

/// The exit code: a failed check counts before an out-of-memory.
fn verdict(arguments: &Replay, done: &[Replayed]) -> Result<(), Fail> {
    let outcomes = || done.iter().flat_map(|replayed| &replayed.outcomes);
    if arguments.expect_exact {
        let inexact =
            outcomes().filter(|o| !o.exact.as_ref().is_some_and(|exact| exact.holds())).count();
        if inexact > 0 {
            return Err(Fail::Check(format!(
                "{inexact} of {} replays are not exact",
                outcomes().count()
            )));
        }
        return Ok(());
    }
    let failed = outcomes().any(|outcome| !outcome.recorded && outcome.ooms > 0);
    if failed { Err(Fail::OutOfMemory) } else { Ok(()) }
}

fn one(arguments: &Replay, file: &Path, quiet: bool) -> Result<Replayed, Fail> {
    let recording = read(file)?;
    let traces = devices(file, &recording, arguments.engine.device)?;
    if traces.iter().all(|trace| trace.events.is_empty()) {
        return Err(Fail::BadInput(format!(
            "{}: no history in it, only the final state; expected a recording with events \
             (see summary and render for a state)",
            named(file)
        )));
    }
    let options = options(arguments, quiet);
    let effective = policies(&arguments.engine, &recording)?;
    let mut outcomes = Vec::new();
    for policy in &effective {
        for trace in traces.iter().filter(|trace| !trace.events.is_empty()) {
            if options.recorded && !has_driver(trace) {
                return Err(Fail::BadInput(format!(
                    "{}: no addresses in it; expected a recording with driver calls for the recorded driver",
                    named(file)
                )));
            }
            outcomes.push(session::replay(&recording, trace, policy.clone(), &options, ())?.0);
        }
    }
    let reproduced = if arguments.common.json || options.recorded {
        Vec::new()
    } else {
        reproduce(arguments, &recording, &traces)?
    };
    Ok(Replayed { file: file.to_path_buf(), recording, outcomes, reproduced })
}

/// Whether the engine reproduces the recording, for people; asked for in JSON by `--expect-exact`.
fn reproduce(
    arguments: &Replay,
    recording: &Recording,
    traces: &[&DeviceTrace],
) -> Result<Vec<Outcome>, Fail> {
    let options = Options { recorded: true, ..options(arguments, true) };
    let mut outcomes = Vec::new();
    for trace in traces.iter().filter(|trace| has_driver(trace)) {
        let Ok(policy) =
            super::policy(super::recorded_policy(recording), recording.settings.as_deref())
        else {
            continue;
        };
        outcomes.push(session::replay(recording, trace, policy, &options, ())?.0);
    }
    Ok(outcomes)
}

pub(super) fn options(arguments: &Replay, quiet: bool) -> Options {
    let recorded = arguments.expect_exact || arguments.engine.driver == Some(DriverName::Recorded);
    Options {
        capacity: arguments.engine.capacity,
        recorded,
        continue_on_oom: arguments.continue_on_oom,
        curve: false,
        stop: None,
        quiet: quiet || arguments.common.quiet,
    }
}

/// The picture and the snapshot that were asked for, of the first policy on the first device.
fn extras(arguments: &Replay, replayed: &Replayed) -> Result<(), Fail> {
    let Some(first) = replayed.outcomes.first() else { return Ok(()) };
    let recording = &replayed.recording;
    let Some(trace) = recording.devices.iter().find(|trace| trace.device == first.device) else {
        return Ok(());
    };
    let options = options(arguments, arguments.common.quiet);
    let subject = pictures::Subject {
        file: &replayed.file,
        recording,
        trace,
        effective: &first.effective,
        options: &options,
    };
    let mut written = Vec::new();
    if let Some(path) = &arguments.render {
        if arguments.view == crate::cli::View::Compare {
            let on_device = replayed.outcomes.iter().filter(|o| o.device == first.device);
            let subjects: Vec<pictures::Subject<'_>> = on_device
                .map(|outcome| pictures::Subject { effective: &outcome.effective, ..subject })
                .collect();
            pictures::write(&comparisons::compare(&subjects)?, path)?;
        } else {
            pictures::draw(&subject, arguments.view, None, path)?;
        }
        written.push((arguments.view_name(), path));
    }
    if let (Some(when), Some(path)) = (&arguments.snapshot, &arguments.output) {
        snapshot::write(&subject, when, path)?;
        written.push(("snapshot", path));
    }
    if !arguments.common.json {
        for (what, path) in written {
            print(format!("{what} written to {}\n", path.display()).as_bytes())?;
        }
    }
    Ok(())
}

impl Replay {
    const fn view_name(&self) -> &'static str {
        match self.view {
            crate::cli::View::Map => "memory map",
            crate::cli::View::Timeline => "timeline",
            crate::cli::View::AddressTime => "address-time chart",
            crate::cli::View::Histogram => "histogram",
            crate::cli::View::Fragmentation => "fragmentation chart",
            crate::cli::View::Compare => "comparison",
            crate::cli::View::Fleet => "fleet chart",
        }
    }
}
