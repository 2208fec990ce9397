//! Conformance: the report of the checks that an allocator was put through.

use serde_json::{Value, json};

use super::{print, print_json};
use crate::cli::Conformance;
use crate::conformance::{self, Outcome, Refused, Report, Result as Checked};
use crate::fail::Fail;
use crate::table;

pub(super) fn run(arguments: &Conformance) -> Result<(), Fail> {
    let plan = arguments.plan();
    if let Some(log) = &arguments.child {
        let name = arguments.only.first().map_or("load", String::as_str);
        let check = conformance::check(name).ok_or_else(|| Fail::Internal(name.to_owned()))?;
        return conformance::child(plan, check, log).map_err(|e| Fail::Internal(e.to_string()));
    }
    let program = std::env::current_exe().map_err(|error| Fail::Internal(error.to_string()))?;
    let report = conformance::run(&plan, &program, |_| {});
    let report = report.map_err(|Refused(why)| Fail::BadInput(why))?;
    if arguments.common.json {
        print_json(&document(arguments, &report))?;
    } else {
        print(page(arguments, &report).as_bytes())?;
    }
    match report.count(Outcome::Failed) {
        0 => Ok(()),
        failed => Err(Fail::Check(format!("{}: {}", subject(arguments), tally(failed)))),
    }
}

fn subject(arguments: &Conformance) -> String {
    arguments.library.display().to_string()
}

fn tally(failed: usize) -> String {
    match failed {
        1 => "1 check failed".to_owned(),
        failed => format!("{failed} checks failed"),
    }
}

fn page(arguments: &Conformance, report: &Report) -> String {
    let functions = [Some(&arguments.alloc), Some(&arguments.free), arguments.reset.as_ref()];
    let functions: Vec<&str> = functions.into_iter().flatten().map(String::as_str).collect();
    let mut text = format!("{}: {}\n", subject(arguments), functions.join(", "));
    text += &format!(
        "device {}, {} threads, alignment {}, seed {}\n\n",
        arguments.device.name(),
        arguments.threads,
        arguments.alignment,
        arguments.seed,
    );
    for line in table::lines(&report.results.iter().flat_map(rows).collect::<Vec<_>>()) {
        text += &line;
        text.push('\n');
    }
    let of = |outcome| report.count(outcome);
    text + &format!(
        "\n{} passed, {} failed, {} skipped\n",
        of(Outcome::Passed),
        of(Outcome::Failed),
        of(Outcome::Skipped)
    )
}

/// The check with its first remark, and a row for each further one.
fn rows(checked: &Checked) -> Vec<Vec<String>> {
    let finding = |finding: &conformance::Finding| {
        let times = match finding.count {
            1 => String::new(),
            count => format!(" ({} times)", table::count(count)),
        };
        format!("{}: {}{times}", finding.kind, finding.text)
    };
    let mut remarks: Vec<String> = checked.findings.iter().map(finding).collect();
    remarks.extend(checked.notes.iter().cloned());
    if remarks.is_empty() {
        remarks.push(checked.rule.to_owned());
    }
    let mut rows = Vec::new();
    for (place, remark) in remarks.into_iter().enumerate() {
        let head = [checked.name, checked.outcome.word()];
        let head = head.map(|cell| if place == 0 { cell.to_owned() } else { String::new() });
        rows.push(head.into_iter().chain([remark]).collect());
    }
    rows
}

fn document(arguments: &Conformance, report: &Report) -> Value {
    let results: Vec<Value> = report.results.iter().map(result).collect();
    json!({
        "library": subject(arguments),
        "alloc": arguments.alloc,
        "free": arguments.free,
        "reset": arguments.reset,
        "device": arguments.device.name(),
        "threads": arguments.threads,
        "alignment": arguments.alignment,
        "seed": arguments.seed,
        "passed": report.count(Outcome::Passed),
        "failed": report.count(Outcome::Failed),
        "skipped": report.count(Outcome::Skipped),
        "checks": results,
    })
}

fn result(checked: &Checked) -> Value {
    json!({
        "name": checked.name,
        "rule": checked.rule,
        "outcome": checked.outcome.word(),
        "findings": checked.findings,
        "notes": checked.notes,
        "seconds": checked.seconds,
    })
}
