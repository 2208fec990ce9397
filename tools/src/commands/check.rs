//! Check: whether a recording can have happened, and whether memory was reused too early.

use blockyard::diagnosis::consistency::{self, Finding, Severity, Site};
use blockyard::diagnosis::safety::{self, Evidence};
use blockyard::trace::{DeviceTrace, Kind, Recording};
use serde_json::{Value, json};

use super::{devices, named, print, print_json, read, replay_json};
use crate::cli::Check;
use crate::fail::Fail;
use crate::table::count;

/// What was found on one device.
struct Checked<'a> {
    trace: &'a DeviceTrace,
    events: usize,
    /// Requests that were served; numbers alone may be of blocks that never came.
    allocations: usize,
    evidence: Evidence,
    consistency: Vec<Finding>,
    safety: Vec<Finding>,
}

impl Checked<'_> {
    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.consistency.iter().chain(&self.safety)
    }
}

pub(super) fn run(arguments: &Check) -> Result<(), Fail> {
    let recording = read(&arguments.file)?;
    let traces = devices(&arguments.file, &recording, arguments.device)?;
    let checked: Vec<Checked<'_>> =
        traces.into_iter().map(|trace| check(&recording, trace, arguments.capacity)).collect();
    let of = |severity| {
        let found = checked.iter().flat_map(Checked::findings);
        found.filter(|finding| finding.severity == severity).count()
    };
    let (errors, warnings) = (of(Severity::Error), of(Severity::Warning));
    let failed = errors > 0 || (arguments.strict && warnings > 0);
    if arguments.common.json {
        print_json(&document(arguments, &recording, &checked, errors, warnings))?;
    } else {
        print(page(arguments, &recording, &checked).as_bytes())?;
    }
    if failed {
        let file = named(&arguments.file);
        return Err(Fail::Check(format!("{file}: {}", tally(errors, warnings))));
    }
    Ok(())
}

fn check<'a>(
    recording: &'a Recording,
    trace: &'a DeviceTrace,
    capacity: Option<u64>,
) -> Checked<'a> {
    Checked {
        trace,
        events: trace.events.iter().filter(|event| event.kind.counts()).count(),
        allocations: trace.events.iter().filter(|event| event.kind == Kind::Alloc).count(),
        evidence: Evidence::of(trace),
        consistency: consistency::check(recording, trace, capacity),
        safety: safety::check(recording, trace),
    }
}

fn tally(errors: usize, warnings: usize) -> String {
    let some = |number: usize, what: &str| match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    };
    match (errors, warnings) {
        (0, 0) => "clean".to_string(),
        (errors, 0) => some(errors, "error"),
        (0, warnings) => some(warnings, "warning"),
        (errors, warnings) => format!("{}, {}", some(errors, "error"), some(warnings, "warning")),
    }
}

fn verdict(findings: &[Finding]) -> String {
    let of = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    tally(of(Severity::Error), of(Severity::Warning))
}

fn page(arguments: &Check, recording: &Recording, checked: &[Checked<'_>]) -> String {
    let mut text = format!("{}: {}\n", named(&arguments.file), recording.format);
    for one in checked {
        let device = match checked.len() {
            1 => String::new(),
            _ => format!("device {}, ", one.trace.device),
        };
        text += &format!(
            "{device}{} events, {} allocations\n\nconsistency    {}\nstream-safety  {} ({})\n",
            count(one.events as u64),
            count(one.allocations as u64),
            verdict(&one.consistency),
            match (one.evidence.addresses || one.evidence.uses, &one.safety[..]) {
                (false, []) => "not judged".to_string(),
                _ => verdict(&one.safety),
            },
            one.evidence.words(),
        );
        for finding in one.findings() {
            text += &said(finding);
        }
    }
    text
}

fn said(finding: &Finding) -> String {
    let place = match finding.event {
        Some(event) => format!(", first at event {}", count(u64::from(event))),
        None => String::new(),
    };
    let times = match finding.count {
        1 => String::new(),
        times => format!(", {} times", count(times)),
    };
    let lead = match (finding.severity, finding.event) {
        (Severity::Error, Some(event)) if finding.code != "reuse-race" => {
            format!("trace inconsistent, first at event {event}: ")
        }
        _ => String::new(),
    };
    let safety = ["use-after-free", "use-of-unknown", "released-early"].contains(&finding.code);
    let lead = if safety { String::new() } else { lead };
    let mut text = format!(
        "\n{}  {}{place}{times}\n  {lead}{}\n",
        finding.severity.word(),
        finding.code,
        finding.text
    );
    for site in &finding.sites {
        text += &format!("    {:<10}  {}\n", site.what, place_of(site));
    }
    text
}

fn place_of(site: &Site) -> String {
    let Some(event) = site.event else { return site.owner.clone() };
    let line = if site.line > 0 { format!(" (line {})", site.line) } else { String::new() };
    format!("event {event}{line}  {}", site.owner).trim_end().to_string()
}

fn document(
    arguments: &Check,
    recording: &Recording,
    checked: &[Checked<'_>],
    errors: usize,
    warnings: usize,
) -> Value {
    let devices = checked.iter().map(|one| {
        let clean = |found: &[Finding]| found.iter().all(|f| f.severity != Severity::Error);
        json!({
            "device": one.trace.device,
            "events": one.events,
            "allocations": one.allocations,
            "consistent": clean(&one.consistency),
            "safe": clean(&one.safety),
            "evidence": {
                "addresses": one.evidence.addresses,
                "completions": one.evidence.completions,
                "uses": one.evidence.uses,
                "streams": one.evidence.streams,
                "text": one.evidence.words(),
            },
            "findings": one.consistency.iter().map(|found| finding("consistency", found))
                .chain(one.safety.iter().map(|found| finding("stream-safety", found)))
                .collect::<Vec<_>>(),
        })
    });
    json!({
        "file": named(&arguments.file),
        "format": recording.format,
        "errors": errors,
        "warnings": warnings,
        "devices": devices.collect::<Vec<_>>(),
        "notices": replay_json::notices(recording),
    })
}

fn finding(area: &str, finding: &Finding) -> Value {
    let sites = finding.sites.iter().map(|site| {
        json!({
            "what": site.what,
            "event": site.event,
            "line": (site.line > 0).then_some(site.line),
            "owner": site.owner,
        })
    });
    json!({
        "area": area,
        "code": finding.code,
        "severity": finding.severity.word(),
        "text": finding.text,
        "count": finding.count,
        "event": finding.event,
        "sites": sites.collect::<Vec<_>>(),
    })
}
