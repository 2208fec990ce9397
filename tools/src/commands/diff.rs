//! Diff: two recordings, two moments of one, or its steps: whose memory grew.

use std::path::Path;

use blockyard::diagnosis::growth::steps::Ask;
use blockyard::diagnosis::growth::{self, leaks::Leaks};
use blockyard::diagnosis::growth::{Comparison, Row, compare};
use blockyard::diagnosis::owners::{By, census, peak};
use blockyard::trace::{DeviceTrace, Kind, Recording};
use blockyard::vocab::Human;
use serde_json::{Value, json};

use super::diff_text::{figures, rows, signed, verdict};
use super::{busiest, leaks, named, print, print_json, read, replay_json, show_notices};
use crate::cli::{Diff, Owner};
use crate::fail::Fail;
use crate::moment::{When, entries_to_marker};
use crate::table::count;

/// A moment of a recording.
struct Side<'a> {
    file: &'a Path,
    recording: &'a Recording,
    trace: &'a DeviceTrace,
    when: String,
    entries: usize,
}

pub(super) fn run(arguments: &Diff) -> Result<(), Fail> {
    let first = open(arguments, &arguments.before)?;
    let second = arguments.after.as_deref().map(|file| open(arguments, file)).transpose()?;
    let trace = busiest(&arguments.before, &first, arguments.device)?;
    let before = (arguments.before.as_path(), &first, trace);
    let (a, b, steps) = match (&arguments.after, &second) {
        (Some(file), Some(second)) => {
            let after = (file.as_path(), second, busiest(file, second, arguments.device)?);
            let (a, b) = files(arguments, before, after)?;
            (a, b, None)
        }
        _ if arguments.at.is_none() && arguments.to.is_none() => across_steps(arguments, before)?,
        _ => {
            let (at, to) = moments(arguments)?;
            let (a, b) = (side(before, &at)?, side(before, &to)?);
            in_order(&a, &b)?;
            (a, b, None)
        }
    };
    let of = |side: &Side<'_>| census(side.recording, side.trace, side.entries, by(arguments.by));
    let found = compare(&of(&a), &of(&b));
    if arguments.common.json {
        print_json(&document(arguments, &a, &b, &found, steps.as_ref()))?;
    } else {
        print(page(arguments, &a, &b, &found, steps.as_ref()).as_bytes())?;
    }
    match arguments.fail_on_growth {
        Some(most) if found.growth() > i128::from(most) => Err(Fail::Check(format!(
            "live bytes grew by {} ({} bytes), more than {} were allowed",
            signed(found.growth()),
            found.growth(),
            Human(most)
        ))),
        _ => Ok(()),
    }
}

fn open(arguments: &Diff, file: &Path) -> Result<Recording, Fail> {
    let recording = read(file)?;
    show_notices(&arguments.common, file, &recording);
    Ok(recording)
}

/// What the command line calls an owner.
pub(super) const fn by(owner: Owner) -> By {
    match owner {
        Owner::Tag => By::Tag,
        Owner::Stack => By::Stack,
        Owner::Size => By::Size,
    }
}

type Subject<'a> = (&'a Path, &'a Recording, &'a DeviceTrace);

fn files<'a>(
    arguments: &Diff,
    before: Subject<'a>,
    after: Subject<'a>,
) -> Result<(Side<'a>, Side<'a>), Fail> {
    let snapshots = !before.2.segments.is_empty() && !after.2.segments.is_empty();
    let usual = if snapshots { When::End } else { When::Peak };
    let at = arguments.at.as_ref().unwrap_or(&usual);
    let to = arguments.to.as_ref().unwrap_or(at);
    Ok((side(before, at)?, side(after, to)?))
}

fn moments(arguments: &Diff) -> Result<(When, When), Fail> {
    match (&arguments.at, &arguments.to) {
        (Some(at), to) => Ok((at.clone(), to.clone().unwrap_or(When::End))),
        (None, _) => Err(Fail::BadInput(
            "--to alone: --at says the earlier moment (such as --at 0)".to_string(),
        )),
    }
}

fn in_order(a: &Side<'_>, b: &Side<'_>) -> Result<(), Fail> {
    if a.entries <= b.entries {
        return Ok(());
    }
    Err(Fail::BadInput(format!(
        "{}: the moment {} is later than the moment {}, expected the earlier moment first",
        named(a.file),
        a.when,
        b.when
    )))
}

/// From the first boundary to the last, with what lies between.
fn across_steps<'a>(
    arguments: &Diff,
    before: Subject<'a>,
) -> Result<(Side<'a>, Side<'a>, Option<Leaks>), Fail> {
    let (file, recording, trace) = before;
    let found = growth::leaks::leaks(recording, trace, &Ask::Anything, by(arguments.by))
        .map_err(|error| Fail::BadInput(format!("{}: {error}", named(file))))?;
    let bounds = &found.steps.bounds;
    if bounds.len() < 2 {
        return Err(Fail::BadInput(format!(
            "{}: no steps in it (no markers, and its requests do not repeat), expected a second file, or two \
             moments with --at and --to",
            named(file)
        )));
    }
    // What the first step creates is no growth across steps.
    let first = usize::from(bounds.len() > 2);
    let at = |number: usize| Side {
        file,
        recording,
        trace,
        when: format!("at step boundary {number}"),
        entries: bounds[number],
    };
    let (a, b) = (at(first), at(bounds.len() - 1));
    Ok((a, b, Some(found)))
}

fn side<'a>((file, recording, trace): Subject<'a>, when: &When) -> Result<Side<'a>, Fail> {
    let nothing = |what: String| Fail::BadInput(format!("{}: {what}", named(file)));
    let events = trace.events.iter().filter(|event| event.kind.counts()).count();
    let entries = match when {
        When::End => trace.events.len(),
        When::Peak => peak(trace),
        When::Oom => {
            let oom = trace.events.iter().position(|event| event.kind == Kind::Oom);
            oom.ok_or_else(|| {
                nothing(
                    "no out-of-memory is recorded, expected one (`replay` finds those of a policy)"
                        .into(),
                )
            })?
        }
        When::Event(event) if *event as usize >= events => {
            return Err(nothing(format!("no event {event}, expected less than {events}")));
        }
        When::Event(event) => crate::moment::entries_through(trace, *event),
        When::Marker(text) => entries_to_marker(recording, trace, text).ok_or_else(|| {
            nothing(format!(
                "no marker begins with {text:?} ({} markers in it)",
                recording.markers.len()
            ))
        })?,
    };
    Ok(Side { file, recording, trace, when: when.to_string(), entries })
}

impl Side<'_> {
    /// The last event before the moment.
    fn event(&self) -> Option<usize> {
        let entries = &self.trace.events[..self.entries];
        entries.iter().filter(|event| event.kind.counts()).count().checked_sub(1)
    }

    fn words(&self) -> String {
        let event = match self.event() {
            Some(event) => format!(", event {}", count(event as u64)),
            None => String::new(),
        };
        format!("{} {}{event}", named(self.file), self.when)
    }
}

fn page(
    arguments: &Diff,
    a: &Side<'_>,
    b: &Side<'_>,
    found: &Comparison,
    steps: Option<&Leaks>,
) -> String {
    let mut text = format!(
        "before  {:>11}  {}\nafter   {:>11}  {}\ngrowth  {:>11}  live bytes of the client\n\n",
        Human(found.before.bytes).to_string(),
        a.words(),
        Human(found.after.bytes).to_string(),
        b.words(),
        signed(found.growth()),
    );
    if let Some(steps) = steps {
        text += &format!("{}\n{}\n", verdict(steps), figures(steps));
    }
    text + &rows(&found.rows, found.unchanged, arguments.top)
}

fn document(
    arguments: &Diff,
    a: &Side<'_>,
    b: &Side<'_>,
    found: &Comparison,
    steps: Option<&Leaks>,
) -> Value {
    let side = |side: &Side<'_>, held: blockyard::diagnosis::owners::Held| {
        json!({
            "file": named(side.file),
            "format": side.recording.format,
            "device": side.trace.device,
            "at": side.when,
            "event": side.event(),
            "live_bytes": held.bytes,
            "blocks": held.blocks,
            "notices": replay_json::notices(side.recording),
        })
    };
    let row = |row: &Row| {
        json!({
            "owner": row.owner,
            "change_bytes": whole(row.change()),
            "before_bytes": row.before.bytes,
            "after_bytes": row.after.bytes,
            "before_blocks": row.before.blocks,
            "after_blocks": row.after.blocks,
            "state": row.word(),
        })
    };
    json!({
        "before": side(a, found.before),
        "after": side(b, found.after),
        "by": match arguments.by { Owner::Tag => "tag", Owner::Stack => "stack", Owner::Size => "size" },
        "growth_bytes": whole(found.growth()),
        "allowed_growth_bytes": arguments.fail_on_growth,
        "rows": found.rows.iter().map(row).collect::<Vec<_>>(),
        "unchanged_owners": found.unchanged,
        "steps": steps.map(leaks::document),
    })
}

/// A change as JSON's integer.
fn whole(bytes: i128) -> i64 {
    i64::try_from(bytes).unwrap_or(if bytes < 0 { i64::MIN } else { i64::MAX })
}
