//! Explain: from a recording or a pasted message to the cause, the blocks in the way and proved settings.

use std::path::Path;

use blockyard::diagnosis::explain::scene::{Effort, Subject};
use blockyard::diagnosis::explain::{self, Explanation};
use blockyard::diagnosis::message::{self, Reading};
use blockyard::diagnosis::proof::{self, Proof};
use blockyard::lab::ReplayError;
use blockyard::policy::Effective;
use blockyard::trace::{DeviceTrace, Recording};
use rayon::prelude::*;

use super::{
    devices, explain_json, explain_text, policies, print, print_json, say_which, show_notices,
};
use crate::cli::{DriverName, Explain};
use crate::fail::Fail;
use crate::{formats, progress};

/// A recording, explained.
pub(super) struct Explained<'a> {
    pub name: &'a str,
    pub subject: Subject<'a>,
    pub effective: &'a Effective,
    pub explanation: Explanation,
    /// Driver calls until the failure under the settings in force, on the device model if it fails there.
    pub effort_before: Effort,
    /// Ranked; empty if none was asked for or nothing failed.
    pub proofs: Vec<Proof>,
    /// The same settings do not fail on the device model: proofs would say nothing.
    pub served_by_model: bool,
    /// What the proofs came to where none completes.
    pub conclusion: String,
}

impl Explained<'_> {
    /// The policy in force is PyTorch's: settings can be pasted.
    pub(super) fn is_pytorch(&self) -> bool {
        self.effective.policy.name.starts_with("pytorch")
    }
}

pub(super) fn run(arguments: &Explain) -> Result<(), Fail> {
    let (name, bytes) = formats::load(&arguments.file)?;
    let recording = match formats::read_bytes(&name, &bytes) {
        Ok(recording) => recording,
        Err(error) => {
            let text = String::from_utf8_lossy(&bytes);
            let Some(reading) = message::explain(&text) else {
                return Err(Fail::BadInput(format!(
                    "{error}, or a text with an out-of-memory message in it"
                )));
            };
            return pasted(arguments, &name, &reading);
        }
    };
    drop(bytes);
    show_notices(&arguments.common, &arguments.file, &recording);
    let effective = policies(&arguments.engine, &recording)?;
    let [effective] = &effective[..] else {
        return Err(Fail::BadInput("explain takes one policy; it tries others by itself".into()));
    };
    let trace = failing_device(&arguments.file, &recording, arguments)?;
    say_which(&arguments.common, &recording, trace, &arguments.engine);
    if trace.events.is_empty() {
        return Err(Fail::BadInput(format!(
            "{name}: no history in it, only the final state; expected a recording with events (see summary and \
             render for a state)"
        )));
    }
    let explained = recorded(arguments, &name, &recording, trace, effective)?;
    if arguments.common.json {
        print_json(&explain_json::recorded(&explained))
    } else {
        print(explain_text::recorded(&explained).as_bytes())
    }
}

fn pasted(arguments: &Explain, name: &str, reading: &Reading) -> Result<(), Fail> {
    if arguments.common.json {
        print_json(&explain_json::pasted(name, reading))
    } else {
        print(explain_text::pasted(name, reading).as_bytes())
    }
}

/// The device that was asked for; else the first on which a request failed, else the busiest.
fn failing_device<'a>(
    file: &Path,
    recording: &'a Recording,
    arguments: &Explain,
) -> Result<&'a DeviceTrace, Fail> {
    let all = devices(file, recording, arguments.engine.device)?;
    let fails = |trace: &&&DeviceTrace| {
        trace.events.iter().any(|event| event.kind == blockyard::trace::Kind::Oom)
    };
    match all.iter().find(fails) {
        Some(trace) => Ok(trace),
        None => super::busiest(file, recording, arguments.engine.device),
    }
}

fn recorded<'a>(
    arguments: &Explain,
    name: &'a str,
    recording: &'a Recording,
    trace: &'a DeviceTrace,
    effective: &'a Effective,
) -> Result<Explained<'a>, Fail> {
    let engine = &arguments.engine;
    let chosen = !engine.policies.is_empty() || engine.capacity.is_some();
    let simulated = match engine.driver {
        Some(driver) => driver == DriverName::Simulated,
        None => chosen,
    };
    let policy = &effective.policy;
    let subject = Subject { recording, trace, policy, capacity: engine.capacity, simulated };
    let entries = trace.events.len() as u64;
    let bar = progress::bar(entries, "replay to the failure", arguments.common.quiet);
    let explanation = explain::explain(&subject, &|done| bar.inc(done));
    bar.finish_and_clear();
    let broken = |error: ReplayError| Fail::BadInput(format!("{name}: {error}"));
    let explanation = explanation.map_err(broken)?;
    let mut explanation = explanation;
    for warning in &effective.clone().for_device(subject.capacity()).warnings {
        explanation.judgement.warn(format!("{}: {}", warning.key, warning.text));
    }
    let effort_before = explanation.scene.effort;
    let mut explained = Explained {
        name,
        effort_before,
        subject,
        effective,
        explanation,
        proofs: Vec::new(),
        served_by_model: false,
        conclusion: String::new(),
    };
    if !arguments.no_fixes && explained.explanation.wants_proofs(&explained.subject) {
        prove(&mut explained, arguments.common.quiet);
    }
    Ok(explained)
}

/// Replays every candidate, several at once.
fn prove(explained: &mut Explained<'_>, quiet: bool) {
    let subject = &explained.subject;
    let explanation = &explained.explanation;
    let there = explanation.failed_at().unwrap_or(u32::MAX);
    let largest = explanation.largest_segment;
    let candidates = proof::candidates(explained.effective, subject.capacity(), largest);
    let replays = candidates.len() as u64 + 1;
    let bar = progress::bar(replays * subject.trace.events.len() as u64, "prove settings", quiet);
    let advance = |done: u64| bar.inc(done);
    let (base, mut proofs) = rayon::join(
        || proof::base(subject, there, &advance),
        || -> Vec<Proof> {
            let each = candidates.into_par_iter();
            each.map(|candidate| proof::prove(subject, candidate, there, &advance)).collect()
        },
    );
    let failed = explanation.scene.failure.is_some();
    explained.served_by_model = failed && base.as_ref().is_ok_and(|base| base.failed_at.is_none());
    if let Ok(base) = base {
        explained.effort_before = if failed { base.effort_there } else { base.effort };
    }
    if !proofs.iter().any(Proof::completes) {
        bar.set_message("measure the need");
        let frugal: Vec<&mut Proof> =
            proofs.iter_mut().filter(|proof| proof::is_frugal(&proof.candidate)).collect();
        frugal.into_par_iter().for_each(|proof| proof::measure(subject, proof, &advance));
    }
    bar.finish_and_clear();
    proof::rank(&mut proofs);
    if explained.served_by_model {
        explained.explanation.judgement.warn(
            "the device model serves the recording under the same settings, so no setting can be proved on it",
        );
        proofs.clear();
    } else {
        explained.conclusion = explain::conclusion(subject, explanation, &proofs);
    }
    explain::reconcile(&mut explained.explanation, &proofs);
    explained.proofs = proofs;
}
