//! Render: a chart of a recording.

use super::comparisons;
use super::pictures::{self, Subject};
use super::{
    busiest, check_picture, looks_as_recorded, named, policies, print_json, read, say_which,
    show_notices, written,
};
use crate::cli::{Render, View};
use crate::fail::Fail;
use crate::session::Options;

pub(super) fn run(arguments: &Render) -> Result<(), Fail> {
    check_picture(&arguments.output)?;
    let recording = read(&arguments.file)?;
    show_notices(&arguments.common, &arguments.file, &recording);
    let trace = busiest(&arguments.file, &recording, arguments.engine.device)?;
    if trace.events.is_empty() && !matches!(arguments.view, View::Map | View::Histogram) {
        return Err(Fail::BadInput(format!(
            "{}: no history in it, only the final state; expected --view map or histogram",
            named(&arguments.file)
        )));
    }
    say_which(&arguments.common, &recording, trace, &arguments.engine);
    let policies = policies(&arguments.engine, &recording)?;
    let (effective, others) = match &policies[..] {
        [] => return Err(Fail::Internal("no policy".to_string())),
        [_, _, ..] if arguments.view != View::Compare => {
            return Err(Fail::BadInput(
                "this view takes one --policy, not several; see --view compare".to_string(),
            ));
        }
        [first, others @ ..] => (first, others),
    };
    let options = Options {
        capacity: arguments.engine.capacity,
        recorded: trace.events.is_empty() || looks_as_recorded(&arguments.engine, trace),
        continue_on_oom: false,
        curve: false,
        stop: None,
        quiet: arguments.common.quiet,
    };
    let subject = Subject {
        file: &arguments.file,
        recording: &recording,
        trace,
        effective,
        options: &options,
    };
    if arguments.view == View::Compare {
        let subjects: Vec<Subject<'_>> = [effective]
            .into_iter()
            .chain(others)
            .map(|effective| Subject { effective, ..subject })
            .collect();
        pictures::write(&comparisons::compare(&subjects)?, &arguments.output)?;
    } else {
        pictures::draw(&subject, arguments.view, arguments.at.as_ref(), &arguments.output)?;
    }
    if arguments.common.json {
        return print_json(&serde_json::json!({
            "file": named(&arguments.file),
            "output": arguments.output.display().to_string(),
            "device": trace.device,
            "policy": effective.policy.name,
            "driver": if options.recorded { "recorded" } else { "simulated" },
        }));
    }
    written(&arguments.output)
}
