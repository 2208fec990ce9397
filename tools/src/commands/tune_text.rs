//! Tune's page for people: what to do first, then the rows that it rests on.

use std::fmt::Write;

use blockyard::diagnosis::search::rows::Row;
use blockyard::vocab::Human;

use super::tune::Outcome;
use super::tune_words as words;
use crate::table::{count, lines};

pub(super) fn page(outcome: &Outcome<'_>) -> String {
    let mut text = words::sentence(outcome) + "\n";
    if let Some(paste) = words::paste(outcome) {
        let _ = writeln!(text, "\n    {paste}\n");
    }
    for (_, sentence) in words::advice(outcome) {
        let _ = writeln!(text, "note: {sentence}");
    }
    let _ = writeln!(text, "\n{}", lines(&table(outcome)).join("\n"));
    let _ = writeln!(text, "{}", legend(outcome));
    text
}

/// The rows that nothing beats, the one in use and the one to take; or all.
fn table(outcome: &Outcome<'_>) -> Vec<Vec<String>> {
    let heads =
        ["", "smallest device", "peak reserved", "driver calls", "a step", "flushes", "settings"];
    let tuned = &outcome.tuned;
    let mut rows = vec![heads.map(String::from).to_vec()];
    for (index, row) in tuned.rows.iter().enumerate() {
        let on_front = tuned.front.contains(&index);
        let recommended = words::recommended(outcome).is_some_and(|best| best.spec == row.spec);
        if outcome.arguments.all || on_front || recommended || index == 0 {
            let mark = match (recommended, index, on_front) {
                (true, ..) => "->",
                (_, 0, _) => "in use",
                (_, _, true) => "*",
                _ => "",
            };
            rows.push(cells(mark, row));
        }
    }
    if let Some(row) = &tuned.one_stream {
        rows.push(cells("", row));
    }
    rows
}

fn cells(mark: &str, row: &Row) -> Vec<String> {
    let capacity = match (row.min_capacity, row.at_least) {
        (Some(bytes), _) => Human(bytes).to_string(),
        (None, Some(bytes)) => format!(">= {}", Human(bytes)),
        _ => "-".into(),
    };
    let mut cells = vec![mark.to_string(), capacity];
    if row.completes {
        cells.push(Human(row.peak_reserved).to_string());
        cells.push(count(row.calls()));
        cells.push(row.calls_per_step.map_or("-".into(), |rate| format!("{rate:.1}")));
        cells.push(count(row.retries));
    } else {
        let why = if row.given_up { "beaten" } else { "fails" };
        cells.extend([why, "-", "-", "-"].map(String::from));
    }
    cells.push(row.spec.clone());
    cells
}

fn legend(outcome: &Outcome<'_>) -> String {
    let tuned = &outcome.tuned;
    let capacities: Vec<u64> = outcome.jobs.iter().filter_map(|job| job.capacity).collect();
    let device = match (capacities.iter().min(), capacities.iter().max()) {
        (Some(least), Some(most)) if least == most => format!("a device of {}", Human(*least)),
        (Some(least), Some(most)) => format!("devices of {} to {}", Human(*least), Human(*most)),
        _ => "an unlimited device".to_string(),
    };
    let worst = if outcome.jobs.len() > 1 {
        format!("; of {} traces the worst counts", outcome.jobs.len())
    } else {
        String::new()
    };
    format!(
        "{} settings replayed on {device} ({} more make no difference here){worst}.\n\
         *: nothing that was tried is better in smallest device, peak reserved and driver calls together.",
        tuned.rows.len(),
        tuned.duplicates.len(),
    )
}
