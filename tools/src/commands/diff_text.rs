//! Diff, the words: signed sizes, clipped owners, series and steps as people read them.

use blockyard::diagnosis::growth::Row;
use blockyard::diagnosis::growth::leaks::{Class, Leaks, Verdict, WORKSPACE_NAME};
use blockyard::diagnosis::growth::steps::How;
use blockyard::vocab::Human;

use crate::table::{count, lines};

/// `+3.00 MiB`, `-1.50 KiB`, `0 B`.
pub(super) fn signed(bytes: i128) -> String {
    let size = Human(u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX));
    match bytes {
        0 => "0 B".to_string(),
        1.. => format!("+{size}"),
        _ => format!("-{size}"),
    }
}

/// An owner on one line.
pub(super) fn clipped(owner: &str) -> String {
    const MOST: usize = 72;
    let owner = owner.strip_suffix(WORKSPACE_NAME).unwrap_or(owner).trim_end();
    let line: String = owner.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() <= MOST {
        return line;
    }
    let head: String = line.chars().take(MOST - 3).collect();
    format!("{head}...")
}

/// Rows of a comparison, and how many are left out.
pub(super) fn rows(rows: &[Row], unchanged: usize, top: usize) -> String {
    if rows.is_empty() {
        return format!("no owner differs ({} hold the same)\n", count(unchanged as u64));
    }
    let head = ["change", "before", "after", "blocks", "", "owner"].map(String::from).to_vec();
    let row = |row: &Row| {
        vec![
            signed(row.change()),
            Human(row.before.bytes).to_string(),
            Human(row.after.bytes).to_string(),
            format!("{} > {}", row.before.blocks, row.after.blocks),
            row.word().to_string(),
            clipped(&row.owner),
        ]
    };
    let mut table = vec![head];
    table.extend(rows.iter().take(top).map(row));
    let mut text = lines(&table).join("\n") + "\n";
    let rest = rows.get(top..).unwrap_or_default();
    if !rest.is_empty() {
        let sum: i128 = rest.iter().map(Row::change).sum();
        text += &format!("{}: {} together\n", owners(rest.len(), "more "), signed(sum));
    }
    if unchanged > 0 {
        let verb = if unchanged == 1 { "holds" } else { "hold" };
        text += &format!("{} {verb} the same\n", owners(unchanged, ""));
    }
    text
}

/// `1 more owner`, `12 owners`.
pub(super) fn owners(number: usize, more: &str) -> String {
    let noun = if number == 1 { "owner" } else { "owners" };
    format!("{} {more}{noun}", count(number as u64))
}

/// How the steps were found, in words.
pub(super) fn how(leaks: &Leaks) -> String {
    let bounds = count(leaks.steps.bounds.len() as u64);
    match &leaks.steps.how {
        How::Markers(text) => format!("{bounds} boundaries, at markers \"{text}...\""),
        How::Every(number) => format!("{bounds} boundaries, every {} events", count((*number).into())),
        How::Period { requests, agreement, what } => format!(
            "{bounds} boundaries, inferred (no markers): the {what} of the requests repeat every {} requests, \
             {:.0} % agree",
            count(*requests as u64),
            agreement * 100.0
        ),
        How::Layers { requests } => format!(
            "none found: no markers; the requests repeat every {}, but keep what they allocate, as layers of one \
             step do; --marker or --every says where the steps are",
            count(*requests as u64)
        ),
        How::Unknown => {
            "none found: no markers, and the requests do not repeat; --marker or --every says where they are"
                .to_string()
        }
    }
}

/// The verdict in one sentence.
pub(super) fn verdict(leaks: &Leaks) -> String {
    let slope = signed(leaks.trend.slope as i128);
    let steps = leaks.live.len().saturating_sub(1);
    match leaks.verdict {
        Verdict::Leak if leaks.trend.pattern.grows() => {
            let what = match leaks.trend.pattern.word() {
                "constant-increment" => "by a constant increment",
                _ => "unevenly",
            };
            let whose = culprit(leaks).map_or(String::new(), |whose| format!("; most by {whose}"));
            format!(
                "leak: live bytes grow {what}, {slope} a step over {} steps (confidence {:.2}){whose}",
                count(steps as u64),
                leaks.trend.confidence
            )
        }
        Verdict::Leak => {
            let whose = culprit(leaks).unwrap_or_default();
            format!("leak of one owner, hidden in the total: {whose}")
        }
        Verdict::NewSizeGrowth => "new-size growth, not a leak: live bytes do not grow, reserved memory does as \
                                   new sizes keep coming"
            .to_string(),
        Verdict::CacheGrowth => {
            "cache growth, not a leak: live bytes do not grow, reserved memory does with no new sizes \
             (fragmentation)"
                .to_string()
        }
        Verdict::Sawtooth => "no leak: live bytes go up and come back (sawtooth)".to_string(),
        Verdict::NoLeak => match leaks.trend.pattern.word() {
            "first-steps" | "settled" => "no leak: live bytes changed in the first steps and not since",
            "flat" => "no leak: live bytes are the same at every boundary",
            "shrinking" => "no leak: live bytes fall",
            _ => "no leak: no growth to be sure of",
        }
        .to_string(),
        Verdict::Unknown => {
            "cannot tell: a verdict needs at least three step boundaries".to_string()
        }
    }
}

/// The owner that surely grows the most, and by how much.
fn culprit(leaks: &Leaks) -> Option<String> {
    let worst = leaks.survivors.iter().find(|survivor| survivor.class == Class::Leak)?;
    Some(format!("{}: {} a step", clipped(&worst.owner), signed(worst.trend.slope as i128)))
}

/// A series; of a long one its beginning and its end.
pub(super) fn series(values: &[String]) -> String {
    match values.len() {
        0..=8 => values.join(", "),
        length => {
            let (head, tail) = (values[..3].join(", "), values[length - 4..].join(", "));
            format!("{head}, ... {} more ..., {tail}", length - 7)
        }
    }
}

/// Live bytes, increments and reserved bytes at the boundaries.
pub(super) fn figures(leaks: &Leaks) -> String {
    let human = |values: &[u64]| values.iter().map(|&v| Human(v).to_string()).collect::<Vec<_>>();
    let mut text = format!("steps     {}\n", how(leaks));
    if leaks.live.is_empty() {
        return text;
    }
    text += &format!("live      {}\n", series(&human(&leaks.live)));
    let increments: Vec<String> = leaks.increments().into_iter().map(signed).collect();
    if !increments.is_empty() {
        let grows = leaks.verdict == Verdict::Leak && leaks.trend.pattern.grows();
        let what = if grows { "residual grows " } else { "" };
        text += &format!("change    {what}{} per cycle\n", series(&increments));
    }
    if !leaks.reserved.is_empty() {
        let whence = match leaks.reserved_recorded {
            true => "as recorded",
            false => "replayed under pytorch, no limit",
        };
        text += &format!("reserved  {} ({whence})\n", series(&human(&leaks.reserved)));
    }
    let fresh: u64 = leaks.new_sizes.iter().skip(1).sum();
    text += &format!("new sizes after the first step: {}\n", count(fresh));
    text
}
