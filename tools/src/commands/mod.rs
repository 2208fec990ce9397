//! Commands: one file a subcommand. Each chooses what is read, replayed and shown.

mod check;
mod comparisons;
mod conformance;
mod convert;
mod diff;
mod diff_text;
mod doctor;
mod doctor_cuda;
mod doctor_facts;
mod estimate;
mod explain;
mod explain_json;
mod explain_text;
mod leaks;
mod min_capacity;
pub(crate) mod min_capacity_args;
mod outputs;
mod pictures;
mod render;
mod replay;
mod replay_json;
mod replay_text;
mod settings;
mod shrink;
pub(crate) mod shrink_args;
mod shrink_case;
mod snapshot;
mod summary;
mod tune;
pub(crate) mod tune_args;
mod tune_crew;
mod tune_json;
mod tune_state;
mod tune_text;
mod tune_words;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use blockyard::policy::{Effective, settings as policy_settings};
use blockyard::trace::{DeviceTrace, Kind, Recording};
use clap::CommandFactory;

use crate::cli::{Cli, Command, Common, DriverName, Engine};
use crate::fail::{Fail, cannot_write};
use crate::formats;

/// Carries out what was typed.
///
/// # Errors
/// How it ended, where not well.
pub fn run(cli: Cli) -> Result<(), Fail> {
    outputs::check(&cli.command)?;
    match cli.command {
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Summary(arguments) => summary::run(&arguments),
        Command::Render(arguments) => render::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Estimate(arguments) => estimate::run(&arguments),
        Command::Settings(arguments) => settings::run(&arguments),
        Command::MinCapacity(arguments) => min_capacity::run(&arguments),
        Command::Shrink(arguments) => shrink::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Leaks(arguments) => leaks::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Completions(arguments) => {
            let mut text = Vec::new();
            clap_complete::generate(arguments.shell, &mut Cli::command(), "blockyard", &mut text);
            print(&text)
        }
        Command::Man => {
            let mut text = Vec::new();
            manual(&mut text).map_err(|error| Fail::Internal(error.to_string()))?;
            print(&text)
        }
    }
}

/// The manual: the page of the binary, then one of each command.
fn manual(out: &mut Vec<u8>) -> io::Result<()> {
    let mut command = Cli::command();
    command.build();
    clap_mangen::Man::new(command.clone()).render(out)?;
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        clap_mangen::Man::new(sub.clone()).render(out)?;
    }
    Ok(())
}

/// Prints to standard output; a reader who has gone away is not an error.
fn print(text: &[u8]) -> Result<(), Fail> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Fail::BadInput(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints one JSON document.
fn print_json(document: &serde_json::Value) -> Result<(), Fail> {
    let mut text = serde_json::to_string_pretty(document)
        .map_err(|error| Fail::Internal(error.to_string()))?;
    text.push('\n');
    print(text.as_bytes())
}

/// Warns on standard error.
fn warn(common: &Common, text: &str) {
    if !common.quiet {
        crate::fail::say(format_args!("blockyard: note: {text}"));
    }
}

/// The files that the arguments name: a directory stands for its files, by name.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Fail> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let unreadable = |error| Fail::BadInput(format!("{}: {error}", path.display()));
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?.path();
            let hidden =
                entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if entry.is_file() && !hidden {
                inside.push(entry);
            }
        }
        if inside.is_empty() {
            return Err(Fail::BadInput(format!(
                "{}: no files in it, expected recordings",
                path.display()
            )));
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

/// What the user calls this path in a message: standard input has a name of its own.
fn named(path: &Path) -> String {
    formats::name_of(path)
}

/// Reads a recording.
fn read(path: &Path) -> Result<Recording, Fail> {
    Ok(formats::read(path)?)
}

/// The policies that the arguments name; if none, that of the recording.
fn policies(engine: &Engine, recording: &Recording) -> Result<Vec<Effective>, Fail> {
    let mut specs: Vec<String> = Vec::new();
    for argument in &engine.policies {
        if argument.contains(':') || Path::new(argument).is_file() {
            specs.push(argument.clone());
        } else {
            specs.extend(argument.split(',').map(str::to_string));
        }
    }
    if specs.is_empty() {
        specs.push(recorded_policy(recording).to_string());
    }
    specs.iter().map(|spec| policy(spec, recording.settings.as_deref())).collect()
}

/// The policy that a recording of ours was made under, where it is one that can be named; else `pytorch`, which
/// takes the settings that the recording carries.
fn recorded_policy(recording: &Recording) -> &str {
    let detail = recording.settings_detail.iter();
    let mut named = detail.filter(|(name, _)| name == "blockyard_policy").map(|(_, policy)| policy);
    let known = |spec: &&String| policy_settings::policy_from(spec, None).is_ok();
    named.find(known).map_or("pytorch", String::as_str)
}

/// The policy of one specification: a preset, a preset with settings, or a settings file.
fn policy(spec: &str, recorded: Option<&str>) -> Result<Effective, Fail> {
    let suffix = Path::new(spec).extension().and_then(|suffix| suffix.to_str());
    if !matches!(suffix, Some("toml" | "json")) {
        return Ok(policy_settings::policy_from(spec, recorded)?);
    }
    let text = std::fs::read_to_string(spec).map_err(|error| {
        Fail::BadInput(format!("{spec}: cannot be read: {error}; expected a settings file"))
    })?;
    let mut effective = policy_settings::from_file_text(spec, &text)?;
    effective.policy.name = spec.to_string();
    Ok(effective)
}

/// The devices to look at.
fn devices<'a>(
    file: &Path,
    recording: &'a Recording,
    wanted: Option<u32>,
) -> Result<Vec<&'a DeviceTrace>, Fail> {
    let all: Vec<&DeviceTrace> = recording.devices.iter().collect();
    let Some(wanted) = wanted else { return Ok(all) };
    let chosen: Vec<&DeviceTrace> =
        all.iter().copied().filter(|trace| trace.device == wanted).collect();
    if chosen.is_empty() {
        let known: Vec<String> = all.iter().map(|trace| trace.device.to_string()).collect();
        return Err(Fail::BadInput(format!(
            "{}: there is no device {wanted}, expected {}",
            named(file),
            known.join(" or ")
        )));
    }
    Ok(chosen)
}

/// The device with the most events.
fn busiest<'a>(
    file: &Path,
    recording: &'a Recording,
    wanted: Option<u32>,
) -> Result<&'a DeviceTrace, Fail> {
    devices(file, recording, wanted)?
        .into_iter()
        .max_by_key(|trace| (trace.events.len(), trace.segments.len()))
        .ok_or_else(|| Fail::BadInput(format!("{}: no device in it", named(file))))
}

/// Whether the recording tells what its driver did.
fn has_driver(trace: &DeviceTrace) -> bool {
    trace.events.iter().any(|event| event.address != 0 && event.kind == Kind::Alloc)
}

/// Whether the recording answers driver calls, for commands that look at a recording as it was.
fn looks_as_recorded(engine: &Engine, trace: &DeviceTrace) -> bool {
    match engine.driver {
        Some(driver) => driver == DriverName::Recorded,
        None => engine.policies.is_empty() && engine.capacity.is_none() && has_driver(trace),
    }
}

/// Says what the reader had to leave out or assume.
fn show_notices(common: &Common, file: &Path, recording: &Recording) {
    for notice in &recording.notices {
        warn(common, &format!("{}: {}: {}", named(file), notice.code, notice.text));
    }
}

/// Creates a file that a user named; `-` is standard output.
fn create(path: &Path) -> Result<Box<dyn Write>, Fail> {
    if path == Path::new("-") {
        return Ok(Box::new(io::BufWriter::new(io::stdout())));
    }
    let file = std::fs::File::create(path).map_err(|error| cannot_write(path, error))?;
    Ok(Box::new(io::BufWriter::new(file)))
}

/// Says where something was written, unless that was standard output.
fn written(path: &Path) -> Result<(), Fail> {
    if path == Path::new("-") {
        return Ok(());
    }
    print(format!("written to {}\n", path.display()).as_bytes())
}

/// Refuses a picture's name before the replay, not after it.
fn check_picture(path: &Path) -> Result<(), Fail> {
    let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or("");
    if matches!(suffix.to_ascii_lowercase().as_str(), "svg" | "png") {
        return Ok(());
    }
    Err(Fail::BadInput(format!("{}: the suffix must be .svg or .png", path.display())))
}

/// Says which device is shown where there are others.
fn say_which(common: &Common, recording: &Recording, trace: &DeviceTrace, engine: &Engine) {
    if recording.devices.len() > 1 && engine.device.is_none() {
        warn(
            common,
            &format!(
                "this is device {} of {}; --device chooses another",
                trace.device,
                recording.devices.len()
            ),
        );
    }
}
