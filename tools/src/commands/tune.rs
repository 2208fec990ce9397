//! Tune: the settings that serve one or more recordings best.

use std::path::PathBuf;

use blockyard::diagnosis::capacity::Fineness;
use blockyard::diagnosis::search::knobs::Family;
use blockyard::diagnosis::search::rows::{Choice, Job, Plan};
use blockyard::diagnosis::search::tune::{Advice, Objective, Search, Tuned};
use blockyard::diagnosis::search::{Crew, Subject};
use blockyard::trace::{DeviceTrace, Kind, Recording};

use super::tune_args::{For, Goal, Tune};
use super::tune_crew::Threads;
use super::tune_state::{self, State};
use super::{
    devices, files, named, policy, print, print_json, read, show_notices, tune_json, tune_text,
};
use crate::fail::Fail;
use crate::session;

/// What was searched, and what came of it.
pub(super) struct Outcome<'a> {
    pub arguments: &'a Tune,
    pub files: Vec<PathBuf>,
    pub jobs: Vec<Job<'a>>,
    /// By job: the file's number and the device.
    pub places: Vec<(usize, u32)>,
    pub search: Search,
    pub tuned: Tuned,
}

pub(super) fn run(arguments: &Tune) -> Result<(), Fail> {
    let files = files(&arguments.files)?;
    let crew = Threads::new("reading", arguments.common.quiet);
    let recordings = crew.each(files.len(), &|index| read(&files[index]));
    let recordings = recordings.into_iter().collect::<Result<Vec<Recording>, Fail>>()?;
    for (file, recording) in files.iter().zip(&recordings) {
        show_notices(&arguments.common, file, recording);
    }
    let (jobs, places) = jobs(arguments, &files, &recordings)?;
    let search = search(arguments, &jobs);
    let base = base(arguments, &recordings, &places)?;
    let state = match &arguments.resume {
        Some(path) => State::open(path, &key(&search, &base, &jobs))?,
        None => State::none(),
    };
    let tuned = blockyard::diagnosis::search::tune::tune(&search, &jobs, base, &state, &crew)
        .map_err(|error| Fail::BadInput(error.to_string()))?;
    drop(crew);
    let outcome = Outcome { arguments, files, jobs, places, search, tuned };
    if arguments.common.json {
        print_json(&tune_json::document(&outcome))?;
    } else {
        print(tune_text::page(&outcome).as_bytes())?;
    }
    match outcome.tuned.verdict {
        Advice::Change | Advice::NoChange => Ok(()),
        Advice::Impossible(_) | Advice::NothingCompletes => Err(Fail::OutOfMemory),
    }
}

/// What makes two searches the same.
fn key(search: &Search, base: &Choice, jobs: &[Job<'_>]) -> String {
    format!("{:x} {search:?} {}", tune_state::digest(jobs), base.spec)
}

type Places = Vec<(usize, u32)>;

/// One job for each device of each recording that has a history.
fn jobs<'a>(
    arguments: &Tune,
    files: &[PathBuf],
    recordings: &'a [Recording],
) -> Result<(Vec<Job<'a>>, Places), Fail> {
    let mut jobs = Vec::new();
    let mut places = Vec::new();
    for (index, (file, recording)) in files.iter().zip(recordings).enumerate() {
        let mut traces = devices(file, recording, arguments.device)?;
        traces.retain(|trace| !trace.events.is_empty());
        if traces.is_empty() {
            return Err(Fail::BadInput(format!(
                "{}: no history in it, only the final state; expected a recording with events",
                named(file)
            )));
        }
        for trace in traces {
            let (capacity, _) = session::capacity(trace, arguments.capacity);
            let steps = arguments.steps.or_else(|| steps(recording, trace));
            jobs.push(Job { subject: Subject::new(recording, trace), capacity, steps });
            places.push((index, trace.device));
        }
    }
    Ok((jobs, places))
}

/// Markers that begin with `step`, if there are any.
fn steps(recording: &Recording, trace: &DeviceTrace) -> Option<u64> {
    let markers = trace.events.iter().filter(|event| event.kind == Kind::Marker);
    let texts = markers.filter_map(|event| recording.markers.get(event.stack.0 as usize));
    let count = texts
        .filter(|text| text.get(..4).is_some_and(|head| head.eq_ignore_ascii_case("step")))
        .count() as u64;
    (count > 0).then_some(count)
}

fn search(arguments: &Tune, jobs: &[Job<'_>]) -> Search {
    let known = jobs.iter().any(|job| job.capacity.is_some()) && !arguments.min_capacity;
    let objective = match arguments.objective {
        Some(Goal::MinCapacity) => Objective::MinCapacity,
        Some(Goal::Reserved) => Objective::Reserved,
        Some(Goal::DriverCalls) => Objective::DriverCalls,
        Some(Goal::Fit) => Objective::Fit,
        None if known => Objective::Fit,
        None => Objective::MinCapacity,
    };
    let min_capacity = arguments.min_capacity || objective == Objective::MinCapacity;
    Search {
        family: match arguments.family {
            For::Pytorch => Family::PyTorch,
            For::Blockyard => Family::Blockyard,
        },
        objective,
        plan: Plan { min_capacity, fineness: Fineness::default() },
        tries: usize::try_from(arguments.tries).unwrap_or(usize::MAX),
        worth: arguments.worth,
    }
}

/// The settings in use.
fn base(arguments: &Tune, recordings: &[Recording], places: &Places) -> Result<Choice, Fail> {
    let named = match arguments.family {
        For::Pytorch => "pytorch",
        For::Blockyard => "blockyard",
    };
    let spec = arguments.policy.clone().unwrap_or_else(|| named.to_string());
    let of = |&(file, _): &(usize, u32)| {
        policy(&spec, recordings[file].settings.as_deref()).map(|effective| effective.policy)
    };
    let policies = places.iter().map(of).collect::<Result<Vec<_>, Fail>>()?;
    Ok(Choice { spec, knobs: None, policies })
}
