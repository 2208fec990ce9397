//! Words: what a search came to, in sentences that text and JSON share.

use blockyard::diagnosis::search::knobs::Family;
use blockyard::diagnosis::search::rows::Row;
use blockyard::diagnosis::search::tune::{Advice, Objective};
use blockyard::vocab::Human;

use super::tune::Outcome;
use crate::table::count;

/// What to do, in one word for programs.
pub(super) const fn verdict(outcome: &Outcome<'_>) -> &'static str {
    match outcome.tuned.verdict {
        Advice::Change => "change",
        Advice::NoChange => "no-change",
        Advice::Impossible(_) => "impossible",
        Advice::NothingCompletes => "nothing-completes",
    }
}

/// The row to take, where that is what to do.
pub(super) fn recommended<'a>(outcome: &'a Outcome<'_>) -> Option<&'a Row> {
    let best = outcome.tuned.best.filter(|_| outcome.tuned.verdict == Advice::Change)?;
    outcome.tuned.rows.get(best)
}

/// What to paste.
pub(super) fn paste(outcome: &Outcome<'_>) -> Option<String> {
    let knobs = recommended(outcome)?.knobs?;
    Some(match outcome.search.family {
        Family::PyTorch => format!("PYTORCH_CUDA_ALLOC_CONF={}", knobs.text()),
        Family::Blockyard => knobs.spec(),
    })
}

/// What to do, in a sentence.
pub(super) fn sentence(outcome: &Outcome<'_>) -> String {
    let Some(base) = outcome.tuned.rows.first() else { return String::new() };
    let best = outcome.tuned.best.and_then(|best| outcome.tuned.rows.get(best));
    match (outcome.tuned.verdict, best) {
        (Advice::Impossible(short), _) => format!(
            "no setting helps: at the peak {} ({short} bytes) more are live than the device has",
            Human(short)
        ),
        (Advice::Change, Some(best)) if !base.completes => format!(
            "{} completes where {} fails: peak reserved {}, {} driver calls, {} cache flushes",
            best.spec,
            base.spec,
            Human(best.peak_reserved),
            count(best.calls()),
            count(best.retries)
        ),
        (Advice::Change, Some(best)) => {
            format!("{} instead of {}: {}", best.spec, base.spec, gain(outcome, base, best))
        }
        (Advice::NoChange, Some(best)) if best.spec == base.spec => {
            format!(
                "no change worth it: nothing that was tried beats {} by more than 2 %",
                base.spec
            )
        }
        (Advice::NoChange, Some(best)) => format!(
            "no change worth it: {} would bring {}; {} % is asked (--worth)",
            best.spec,
            gain(outcome, base, best),
            outcome.search.worth
        ),
        _ => format!(
            "nothing that was tried completes on this device, though what is live at the peak ({}) would fit",
            Human(outcome.jobs.iter().map(|job| job.subject.live_peak).max().unwrap_or(0))
        ),
    }
}

/// What going from one row to another wins, and what it costs in driver calls.
fn gain(outcome: &Outcome<'_>, base: &Row, best: &Row) -> String {
    let (what, before, after) = match outcome.search.objective {
        Objective::MinCapacity => ("smallest device", base.min_capacity, best.min_capacity),
        Objective::Reserved => {
            ("peak reserved", Some(base.peak_reserved), Some(best.peak_reserved))
        }
        Objective::Fit | Objective::DriverCalls => {
            let flushes =
                format!("{} cache flushes instead of {}", count(best.retries), count(base.retries));
            return format!("{flushes}, {}", calls(base, best));
        }
    };
    let (Some(before), Some(after)) = (before, after) else { return calls(base, best) };
    let percent = before.saturating_sub(after) as f64 * 100.0 / before.max(1) as f64;
    format!(
        "{what} {} instead of {} (-{percent:.1} %), {}",
        Human(after),
        Human(before),
        calls(base, best)
    )
}

fn calls(base: &Row, best: &Row) -> String {
    let step =
        |row: &Row| row.calls_per_step.map_or(String::new(), |rate| format!(" ({rate:.1} a step)"));
    format!(
        "{}{} driver calls instead of {}{}",
        count(best.calls()),
        step(best),
        count(base.calls()),
        step(base)
    )
}

/// What else there is to know: a word for programs, a sentence for people.
pub(super) fn advice(outcome: &Outcome<'_>) -> Vec<(&'static str, String)> {
    let mut advice = Vec::new();
    let tuned = &outcome.tuned;
    let Some(base) = tuned.rows.first() else { return advice };
    if let Some(text) = reuse_streams(outcome, base) {
        advice.push(("reuse-streams", text));
    }
    if base.thrashes() {
        let rate =
            base.retries_per_step.map_or(String::new(), |rate| format!(", {rate:.1} a step"));
        advice.push((
            "thrash",
            format!(
                "{} flushes its cache {} times{rate}: the run completes, but it spends its time in the driver",
                base.spec,
                count(base.retries)
            ),
        ));
    }
    if let Some(best) = recommended(outcome)
        && best.calls() > base.calls()
    {
        advice.push(("driver-calls", format!("the price: {}", calls(base, best))));
    }
    if let Some(row) = tuned.passed_over.and_then(|index| tuned.rows.get(index)) {
        let pools: Vec<String> = row
            .worse_pools
            .iter()
            .map(|pool| {
                let of = |row: &Row| Human(row.pools.get(pool).copied().unwrap_or(0));
                format!("pool {pool} from {} to {}", of(base), of(row))
            })
            .collect();
        advice.push((
            "pool-worse",
            format!(
                "{} does better in all, but not in every pool ({}): it is not recommended for the whole program",
                row.spec,
                pools.join(", ")
            ),
        ));
    }
    advice
}

/// Cached memory of streams that are not used again: no setting gives it to another stream.
fn reuse_streams(outcome: &Outcome<'_>, base: &Row) -> Option<String> {
    let tuned = &outcome.tuned;
    let one = tuned.one_stream.as_ref().filter(|one| one.completes)?;
    let best = tuned.best.and_then(|best| tuned.rows.get(best));
    let least = best.map_or(u64::MAX, |best| best.peak_reserved).min(if base.completes {
        base.peak_reserved
    } else {
        u64::MAX
    });
    let wins = least == u64::MAX || one.peak_reserved <= least / 100 * (100 - outcome.search.worth);
    let calmer = best.is_some_and(|best| best.thrashes() && !one.thrashes());
    (wins || calmer).then(|| {
        let flushes = |row: &Row| format!("{} cache flushes", count(row.retries));
        let reserves = |row: &Row| format!("{} reserved", Human(row.peak_reserved));
        let figure: &dyn Fn(&Row) -> String = if wins { &reserves } else { &flushes };
        let now = if base.completes {
            format!("instead of {}", figure(base))
        } else {
            format!("where {} fails", base.spec)
        };
        format!(
            "reuse streams: on one stream the same requests come to {} {now}; what is cached for another stream \
             no setting gives back before the memory runs out",
            figure(one)
        )
    })
}
