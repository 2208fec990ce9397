//! Min-capacity: the smallest device on which a recording completes, for each policy.

use std::sync::atomic::{AtomicUsize, Ordering};

use blockyard::diagnosis::capacity::{self, Fineness};
use blockyard::diagnosis::search::{Crew, Subject};
use blockyard::lab::ReplayError;
use blockyard::policy::Effective;
use blockyard::trace::{DeviceTrace, Recording};
use blockyard::vocab::Human;
use serde_json::{Value, json};

use super::min_capacity_args::MinCapacity;
use super::tune_crew::Threads;
use super::{devices, named, policies, print, print_json, read, replay_json, show_notices};
use crate::cli::Engine;
use crate::fail::Fail;
use crate::table::{count, lines};

/// One policy on one device.
struct Found {
    policy: String,
    device: u32,
    live_peak: u64,
    found: Option<capacity::MinCapacity>,
}

pub(super) fn run(arguments: &MinCapacity) -> Result<(), Fail> {
    if arguments.step == 0 {
        return Err(Fail::BadInput("--step 0: expected a size above 0, such as 2MiB".into()));
    }
    let recording = read(&arguments.file)?;
    show_notices(&arguments.common, &arguments.file, &recording);
    let traces = with_history(arguments, &recording)?;
    let engine = Engine {
        policies: arguments.policies.clone(),
        capacity: None,
        device: arguments.device,
        driver: None,
    };
    let found = search(arguments, &recording, &traces, &policies(&engine, &recording)?)?;
    if arguments.common.json {
        return print_json(&document(arguments, &recording, &found));
    }
    print(page(&found).as_bytes())
}

/// The devices that have a history.
fn with_history<'a>(
    arguments: &MinCapacity,
    recording: &'a Recording,
) -> Result<Vec<&'a DeviceTrace>, Fail> {
    let mut traces = devices(&arguments.file, recording, arguments.device)?;
    traces.retain(|trace| !trace.events.is_empty());
    if traces.is_empty() {
        return Err(Fail::BadInput(format!(
            "{}: no history in it, only the final state; expected a recording with events",
            named(&arguments.file)
        )));
    }
    Ok(traces)
}

fn search(
    arguments: &MinCapacity,
    recording: &Recording,
    traces: &[&DeviceTrace],
    policies: &[Effective],
) -> Result<Vec<Found>, Fail> {
    let subjects: Vec<Subject<'_>> =
        traces.iter().map(|trace| Subject::new(recording, trace)).collect();
    let pairs: Vec<(&Effective, &Subject<'_>)> = policies
        .iter()
        .flat_map(|policy| subjects.iter().map(move |subject| (policy, subject)))
        .collect();
    let fineness = Fineness { step: arguments.step, ..Fineness::default() };
    let crew = Threads::new("bisecting capacities", arguments.common.quiet);
    let done = AtomicUsize::new(0);
    let results = crew.each(pairs.len(), &|index| {
        let (effective, subject) = pairs[index];
        let found = capacity::min_capacity(subject, &effective.policy, fineness);
        crew.progress(done.fetch_add(1, Ordering::Relaxed) + 1, pairs.len(), "bisecting");
        found
    });
    let name = |(effective, subject): &(&Effective, &Subject<'_>), found| Found {
        policy: effective.policy.name.clone(),
        device: subject.trace.device,
        live_peak: subject.live_peak,
        found,
    };
    let broken = |error: ReplayError| Fail::BadInput(error.to_string());
    pairs.iter().zip(results).map(|(pair, found)| Ok(name(pair, found.map_err(broken)?))).collect()
}

fn document(arguments: &MinCapacity, recording: &Recording, found: &[Found]) -> Value {
    json!({
        "file": named(&arguments.file),
        "format": recording.format,
        "events": recording.event_count(),
        "notices": replay_json::notices(recording),
        "step_bytes": arguments.step,
        "results": found.iter().map(result).collect::<Vec<_>>(),
    })
}

fn result(found: &Found) -> Value {
    let best = found.found.as_ref();
    let measured = best.map(|best| &best.measured);
    json!({
        "policy": found.policy,
        "device": found.device,
        "min_capacity_bytes": best.map(|best| best.bytes),
        "fails_at_bytes": best.map(|best| best.fails_at).filter(|&bytes| bytes > 0),
        "peak_live_bytes": found.live_peak,
        "peak_requested_bytes": measured.map(|measured| measured.peak_requested),
        "peak_reserved_bytes": measured.map(|measured| measured.peak_reserved),
        "device_allocs": measured.map(|measured| measured.device_allocs),
        "device_frees": measured.map(|measured| measured.device_frees),
        "retries": measured.map(|measured| measured.retries),
        "replays": best.map(|best| best.replays),
    })
}

fn page(found: &[Found]) -> String {
    let heads = ["policy", "min capacity", "above live peak", "driver calls", "retries", "device"];
    let mut rows = vec![heads.map(String::from).to_vec()];
    rows.extend(found.iter().map(|found| {
        let (policy, device) = (found.policy.clone(), found.device.to_string());
        let Some(best) = &found.found else {
            return vec![policy, "none found".into(), "-".into(), "-".into(), "-".into(), device];
        };
        vec![
            policy,
            Human(best.bytes).to_string(),
            Human(best.bytes.saturating_sub(found.live_peak)).to_string(),
            count(best.measured.calls()),
            count(best.measured.retries),
            device,
        ]
    }));
    let mut text = lines(&rows).join("\n");
    text.push('\n');
    if found.iter().any(|found| found.found.is_some()) {
        let said =
            "Each that is named completed; one 0.1 % (or one step) smaller was seen to fail.\n";
        text.push_str(said);
    }
    if let Some(none) = found.iter().find(|found| found.found.is_none()) {
        text.push_str(&match none.live_peak {
            u64::MAX => {
                "None found: what is live at the peak does not fit in 64 bits.\n".to_string()
            }
            peak => format!(
                "None found: no capacity that was tried completed; {} are live at the peak.\n",
                Human(peak)
            ),
        });
    }
    text
}
