//! Replay's page for people: what was read, whether the engine reproduces it, a line for each policy, and the
//! report of the first failure.

use super::named;
use std::fmt::Write;

use blockyard::ledger::Metric;
use blockyard::vocab::Human;

use super::replay::Replayed;
use crate::session::{Outcome, capacity_words};
use crate::table::{count, lines};

pub(super) fn page(replayed: &Replayed) -> String {
    let mut page = String::new();
    let recording = &replayed.recording;
    let events = count(recording.event_count() as u64);
    let devices = match recording.devices.len() {
        1 => String::new(),
        several => format!(", {several} devices"),
    };
    let _ =
        writeln!(page, "{}: {}, {events} events{devices}", named(&replayed.file), recording.format);
    match recording.settings.as_deref() {
        Some("") => page.push_str("  recorded with  default settings\n"),
        Some(settings) => {
            let _ = writeln!(page, "  recorded with  {settings}");
        }
        None => {}
    }
    for outcome in replayed.reproduced.iter().chain(&replayed.outcomes) {
        exactness(&mut page, outcome, recording.devices.len() > 1);
    }
    let several = recording.devices.len() > 1;
    let mut shown = Vec::new();
    for outcome in &replayed.outcomes {
        if shown.contains(&outcome.device) {
            continue;
        }
        shown.push(outcome.device);
        let device = device_words(outcome, several);
        if !outcome.recorded {
            let _ = writeln!(page, "  capacity       {device}{}", capacity_words(outcome));
        }
        let _ = writeln!(
            page,
            "  live peak      {device}{} (client sizes; no allocator needs less)",
            Human(outcome.peak_live)
        );
    }
    page.push('\n');
    for line in lines(&rows(&replayed.outcomes)) {
        let _ = writeln!(page, "{line}");
    }
    notes(&mut page, &replayed.outcomes);
    for device in shown {
        let of_device = replayed.outcomes.iter().filter(|outcome| outcome.device == device);
        let mut failed = of_device.filter_map(|o| o.failure.as_ref().map(|failure| (o, failure)));
        let Some((failed, failure)) = failed.next() else { continue };
        let line =
            if failure.line > 0 { format!(", line {}", failure.line) } else { String::new() };
        let _ = writeln!(
            page,
            "\n{}Under {} at event {}{line}:\n{}",
            device_words(failed, several),
            failed.effective.policy.name,
            count(u64::from(failure.event)),
            failure.report
        );
    }
    page
}

fn device_words(outcome: &Outcome, several: bool) -> String {
    if several { format!("device {}: ", outcome.device) } else { String::new() }
}

fn exactness(page: &mut String, outcome: &Outcome, several: bool) {
    let Some(exact) = &outcome.exact else { return };
    let device = if several { format!("device {}: ", outcome.device) } else { String::new() };
    let verdict = if exact.holds() {
        format!(
            "yes: all {} allocations land at their recorded addresses; releases and reserved bytes agree",
            count(exact.allocs)
        )
    } else {
        let first = exact.first_mismatch.as_ref().map_or_else(String::new, |first| {
            format!(
                "; first at event {}: expected {}, got {}",
                first.event, first.expected, first.got
            )
        });
        format!("no: {} of {} allocations match{first}", count(exact.matched), count(exact.allocs))
    };
    let _ = writeln!(page, "  reproduced     {device}{verdict}");
}

fn rows(outcomes: &[Outcome]) -> Vec<Vec<String>> {
    let several = outcomes.iter().any(|outcome| outcome.device != outcomes[0].device);
    let mut header = vec!["policy".to_string()];
    if several {
        header.push("device".to_string());
    }
    let columns =
        ["peak allocated", "peak reserved", "driver calls", "driver time", "retries", "result"];
    header.extend(columns.map(str::to_string));
    let mut rows = vec![header];
    for outcome in outcomes {
        let stats = &outcome.stats;
        let counters = stats.counters();
        let mut row = vec![outcome.effective.policy.name.clone()];
        if several {
            row.push(outcome.device.to_string());
        }
        row.push(Human(stats.peak(Metric::AllocatedBytes)).to_string());
        row.push(Human(stats.peak(Metric::ReservedBytes)).to_string());
        row.push(count(counters.device_alloc + counters.device_free));
        row.push(if outcome.recorded { "-".to_string() } else { duration(outcome.device_nanos) });
        row.push(count(counters.alloc_retries));
        row.push(match (outcome.ooms, &outcome.failure) {
            (0, _) | (_, None) => "completed".to_string(),
            (1, Some(failure)) => {
                format!("out of memory at event {}", count(u64::from(failure.event)))
            }
            (ooms, Some(failure)) => {
                format!(
                    "{} failures, first at event {}",
                    count(ooms),
                    count(u64::from(failure.event))
                )
            }
        });
        rows.push(row);
    }
    rows
}

fn duration(nanos: u64) -> String {
    match nanos {
        0..1_000_000 => format!("{:.1} us", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        _ => format!("{:.2} s", nanos as f64 / 1e9),
    }
}

fn notes(page: &mut String, outcomes: &[Outcome]) {
    let mut said: Vec<&String> = Vec::new();
    for note in outcomes.iter().flat_map(|outcome| &outcome.notes) {
        if !said.contains(&note) {
            let _ = writeln!(page, "note: {note}");
            said.push(note);
        }
    }
}
