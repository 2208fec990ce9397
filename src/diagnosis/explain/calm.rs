//! Calm: what to say of a recording in which no request fails: thrash, growth, workspaces, or nothing.
//!
//! Asked by `explain`. Steps are the recording's markers where it has them, else the rises and falls
//! of its live bytes; which of the two is said.

use crate::diagnosis::explain::scene::{Mark, Subject};
use crate::diagnosis::explain::{Explanation, quiet};
use crate::diagnosis::verdict::residue;
use crate::diagnosis::verdict::{Class, Figure, Finding, Judgement};
use crate::trace::{DeviceTrace, Event, Kind, NO_ALLOCATION, Recording};
use crate::vocab::Human;

/// Flushes of the whole cache in one step from which a run is said to thrash.
const FLUSHES_A_STEP: f64 = 1.0;
/// Step ends that must rise without a break before growth is called a leak.
const RISES: usize = 4;
/// Markers with a residue that are listed each; of more only the last is.
const RESIDUES: usize = 3;
/// Growth below this is no finding.
const GROWTH_SAID: u64 = 1 << 20;

/// The steps of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// How many, at least 1.
    pub count: u32,
    /// By markers; else by the curve of live bytes.
    pub marked: bool,
}

pub(crate) fn judge(subject: &Subject<'_>, explanation: &Explanation) -> Judgement {
    let scene = &explanation.scene;
    let steps = steps(subject.recording, subject.trace);
    let mut judgement = verdict(subject, explanation, steps);
    let by = if steps.marked { "by the markers" } else { "by the rises and falls of live bytes" };
    let note = if steps.marked { "steps, by the markers" } else { "steps, by rises of live bytes" };
    judgement.evidence.extend([
        Figure::maybe("device_bytes", subject.capacity(), "all of its memory"),
        Figure::of("peak_reserved_bytes", scene.peak_reserved, "the most that was reserved"),
        Figure::of("peak_allocated_bytes", scene.peak_allocated, "the most that was handed out"),
        Figure::of(
            "live_peak_bytes",
            explanation.live_peak,
            "client sizes; no allocator needs less",
        ),
        Figure::of("cache_flushes", scene.effort.flushes, "times the whole cache was given back"),
        Figure::of(
            "device_allocs",
            scene.effort.device_allocs,
            "driver calls that obtained memory",
        ),
        Figure::of("device_frees", scene.effort.device_frees, "driver calls that returned memory"),
        Figure::of("steps", steps.count.into(), note),
    ]);
    if judgement.class() == Class::Thrash {
        judgement.warn(format!("steps are counted {by}: {}", steps.count));
    }
    let main = main_phase(subject.recording, subject.trace);
    let of_main: Vec<Mark> =
        scene.marks.iter().filter(|mark| Some(phase(&mark.name)) == main).cloned().collect();
    let said = residue::judge(&of_main);
    let skipped = if said.len() > RESIDUES { said.len() - 1 } else { 0 };
    for (mark, said) in said.into_iter().skip(skipped) {
        judgement.warn(format!("at {:?}: {said}", mark.name));
    }
    judgement
}

fn verdict(subject: &Subject<'_>, explanation: &Explanation, steps: Steps) -> Judgement {
    let scene = &explanation.scene;
    let flushes = scene.effort.flushes;
    let rate = flushes as f64 / f64::from(steps.count);
    if flushes > 1 && rate >= FLUSHES_A_STEP {
        let sentence = format!(
            "no request fails, but the whole cache is given back {flushes} times in {} steps ({rate:.1} a step): \
             {} driver calls",
            steps.count,
            scene.effort.calls()
        );
        return quiet(Class::Thrash, scene.peak_reserved, sentence);
    }
    if let Some(growth) = growth(subject, None) {
        return Judgement { findings: vec![growth], ..Judgement::default() };
    }
    let owners = &explanation.owners;
    let left: u64 = owners.iter().map(|owner| owner.bytes).sum();
    if !owners.is_empty() && owners.iter().all(|owner| owner.is_workspace) {
        let sentence = format!(
            "the {} that are left live at the end are the workspace of a library (a BLAS handle), not a leak",
            Human(left)
        );
        return quiet(Class::LibraryWorkspace, left, sentence);
    }
    let of = match subject.capacity() {
        Some(capacity) => format!("on a device of {}", Human(capacity)),
        None if subject.is_recorded() => "in the recording".to_string(),
        None => "on a device without end (--capacity gives it one)".to_string(),
    };
    let sentence =
        format!("no request fails {of}: at most {} are reserved", Human(scene.peak_reserved));
    let mut judgement = quiet(Class::NotExhausted, 0, sentence);
    if let Some(workspace) = owners.iter().find(|owner| owner.is_workspace) {
        judgement.warn(format!(
            "{} of {} are the workspace of a library, not a leak",
            Human(workspace.bytes),
            workspace.name
        ));
    }
    judgement
}

/// The steps of a recording: the markers of its main phase, else how often live bytes fall low and
/// rise high again.
#[must_use]
pub fn steps(recording: &Recording, trace: &DeviceTrace) -> Steps {
    let phase = main_phase(recording, trace);
    let markers = phase_markers(recording, trace, phase).count();
    if markers > 1 {
        return Steps { count: u32::try_from(markers).unwrap_or(u32::MAX), marked: true };
    }
    let peak = walk(trace, |_, _| {});
    let (mut count, mut low) = (0, true);
    walk(trace, |_, live| {
        if low && live >= peak / 4 * 3 {
            count += 1;
            low = false;
        } else if !low && live <= peak / 2 {
            low = true;
        }
    });
    Steps { count: count.max(1), marked: false }
}

/// A marker's text without its number: `step 12` is of phase `step`.
#[must_use]
pub fn phase(text: &str) -> &str {
    text.trim_end_matches(|c: char| c.is_ascii_digit() || c == ' ' || c == ':' || c == '#')
}

/// The phase that steps are counted by: `step` where there is one, else the one named most often.
fn main_phase<'a>(recording: &'a Recording, trace: &DeviceTrace) -> Option<&'a str> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for event in trace.events.iter().filter(|event| event.kind == Kind::Marker) {
        let Some(text) = recording.markers.get(event.stack.0 as usize) else { continue };
        let phase = phase(text);
        match counts.iter_mut().find(|(name, _)| *name == phase) {
            Some((_, count)) => *count += 1,
            None => counts.push((phase, 1)),
        }
    }
    let step = counts.iter().find(|(name, count)| *count > 1 && name.eq_ignore_ascii_case("step"));
    step.or_else(|| counts.iter().rev().max_by_key(|(_, count)| *count)).map(|(name, _)| *name)
}

/// Entries that are markers of this phase.
fn phase_markers<'a>(
    recording: &'a Recording,
    trace: &'a DeviceTrace,
    of: Option<&'a str>,
) -> impl Iterator<Item = usize> + 'a {
    let is_of = move |event: &Event| {
        let text = recording.markers.get(event.stack.0 as usize);
        event.kind == Kind::Marker && text.is_some_and(|text| Some(phase(text)) == of)
    };
    trace.events.iter().enumerate().filter(move |(_, event)| is_of(event)).map(|(index, _)| index)
}

/// Walks along the live bytes of the recording itself; gives the peak.
fn walk(trace: &DeviceTrace, mut see: impl FnMut(usize, u64)) -> u64 {
    let mut sizes = vec![0u64; trace.allocations as usize];
    let (mut live, mut peak) = (0u64, 0u64);
    for (index, event) in trace.events.iter().enumerate() {
        match event.kind {
            Kind::Alloc => {
                sizes[event.allocation as usize] = event.bytes;
                live = live.saturating_add(event.bytes);
            }
            Kind::Free | Kind::FreeRequested if event.allocation != NO_ALLOCATION => {
                let size = core::mem::take(&mut sizes[event.allocation as usize]);
                live = live.saturating_sub(size);
            }
            _ => {}
        }
        peak = peak.max(live);
        see(index, live);
    }
    peak
}

/// Live bytes that rise from marker to marker without a break, after the first two steps (in which
/// optimizer states appear). `until`: only events before this one.
#[must_use]
pub fn growth(subject: &Subject<'_>, until: Option<u32>) -> Option<Finding> {
    let (recording, trace) = (subject.recording, subject.trace);
    let mut places = phase_markers(recording, trace, main_phase(recording, trace)).peekable();
    let mut ends = Vec::new();
    let mut event = 0;
    walk(trace, |index, live| {
        if places.next_if_eq(&index).is_some() && until.is_none_or(|until| event <= until) {
            ends.push(live);
        }
        event += u32::from(trace.events[index].kind.counts());
    });
    let settled = ends.get(2..)?;
    let steps: Vec<u64> =
        settled.windows(2).map(|pair| pair[1].checked_sub(pair[0])).collect::<Option<_>>()?;
    let (least, most) = (*steps.iter().min()?, *steps.iter().max()?);
    let total = settled.last()? - settled.first()?;
    if steps.len() < RISES || least == 0 || most > least.saturating_mul(4) || total < GROWTH_SAID {
        return None;
    }
    let sentence = format!(
        "live memory grows at every one of {} markers, by {} to {} each, {} in all: a leak, or a cache \
         without end",
        steps.len(),
        Human(least),
        Human(most),
        Human(total)
    );
    Some(Finding::new(Class::Leak, total, sentence))
}
