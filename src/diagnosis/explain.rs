//! Explain: a recording that ends in a failed request, to the cause and the blocks in the way.
//!
//! Asked by the tools. Replays to the failure once; what would have served the request is for
//! `proof`. Never claims what was not replayed.

pub mod calm;
pub mod owners;
pub mod scene;

use std::collections::HashMap;

use crate::diagnosis::explain::owners::{Owner, Registry};
use crate::diagnosis::explain::scene::{Progress, Scene, Subject, observe};
use crate::diagnosis::pinning::{Pinning, smallest};
use crate::diagnosis::proof::{Proof, is_frugal};
use crate::diagnosis::verdict::report;
use crate::diagnosis::verdict::{Class, Figure, Finding, Judgement};
use crate::lab::{ReplayError, demand_peak};
use crate::trace::Kind;
use crate::vocab::{BlockState, Human};

/// Everything that one replay tells about a failure.
#[derive(Debug)]
pub struct Explanation {
    /// The causes and the figures.
    pub judgement: Judgement,
    /// The failure, or the end.
    pub scene: Scene,
    /// The blocks in the way.
    pub pinning: Option<Pinning>,
    /// Whose they are, the largest first.
    pub pinned_by: Vec<Owner>,
    /// Whose the live memory is, the largest first.
    pub owners: Vec<Owner>,
    /// Requests behind the failing one: what a proof covers beyond it.
    pub requests_after: u32,
    /// The largest segment that stood there.
    pub largest_segment: u64,
    /// The largest sum of live client sizes in the whole recording.
    pub live_peak: u64,
}

impl Explanation {
    /// The event that failed.
    #[must_use]
    pub fn failed_at(&self) -> Option<u32> {
        self.scene.failure.as_ref().map(|failure| failure.event)
    }

    /// Where thrash is what is wrong: the flushes that a setting must stay below.
    #[must_use]
    pub fn flushes_to_beat(&self) -> Option<u64> {
        (self.judgement.class() == Class::Thrash).then_some(self.scene.effort.flushes)
    }

    /// Whether settings are worth a try: a request failed, or the cache is thrown away.
    #[must_use]
    pub fn wants_proofs(&self, subject: &Subject<'_>) -> bool {
        let class = self.judgement.class();
        (class == Class::Thrash && subject.capacity().is_some())
            || (self.scene.failure.is_some() && class != Class::ImpossibleSize)
    }
}

/// Replays to the failure and judges it; a recording in which nothing fails is judged by its end.
///
/// # Errors
/// Where the recording cannot be replayed.
pub fn explain(subject: &Subject<'_>, progress: Progress<'_>) -> Result<Explanation, ReplayError> {
    let scene = observe(subject, progress)?;
    let registry = Registry::new(subject, &scene);
    let live = scene.view.segments.iter().flat_map(|segment| &segment.blocks);
    let live = live.filter(|block| block.state == BlockState::Allocated);
    let owners = registry.group(live.map(|block| (block.ticket, block.bytes, block.requested)));
    let requests_after = requests_after(subject, scene.events);
    let largest = scene.view.segments.iter().map(|segment| segment.bytes).max().unwrap_or(0);
    let mut explanation = Explanation {
        judgement: Judgement::default(),
        pinning: None,
        pinned_by: Vec::new(),
        owners,
        requests_after,
        largest_segment: largest.max(scene.peak_reserved.min(1 << 41)),
        live_peak: demand_peak(subject.trace, &scene.warm),
        scene,
    };
    if explanation.scene.failure.is_some() {
        failed(subject, &mut explanation, &registry);
    } else {
        explanation.judgement = calm::judge(subject, &explanation);
    }
    Ok(explanation)
}

fn requests_after(subject: &Subject<'_>, done: u32) -> u32 {
    let (mut event, mut after) = (0, 0);
    for entry in &subject.trace.events {
        after += u32::from(event >= done && matches!(entry.kind, Kind::Alloc | Kind::Oom));
        event += u32::from(entry.kind.counts());
    }
    after
}

fn failed(subject: &Subject<'_>, explanation: &mut Explanation, registry: &Registry<'_>) {
    let Some(failure) = &explanation.scene.failure else { return };
    let report = &failure.report;
    explanation.judgement = report::judge(report);
    let class = explanation.judgement.class();
    // What rounding adds to live blocks no block stands in the way of.
    let unsplit = class == Class::Granularity && report.room_bytes() < Some(report.rounded_bytes);
    if !unsplit && !matches!(class, Class::Capacity | Class::ImpossibleSize) {
        let (view, giving) = (&explanation.scene.view, &explanation.scene.giving);
        explanation.pinning = smallest(view, report, subject.policy, |p| giving.contains(&p))
            .filter(|pinning| !pinning.pins.is_empty());
    }
    if let Some(pinning) = &explanation.pinning {
        let sizes = requested_sizes(&explanation.scene);
        explanation.pinned_by = registry.group(pinning.pins.iter().map(|pin| {
            let requested = sizes.get(&pin.ticket.0).copied().unwrap_or(pin.bytes);
            (pin.ticket, pin.bytes, requested)
        }));
    }
    let judgement = &mut explanation.judgement;
    if let Some(growth) = calm::growth(subject, Some(failure.event)) {
        judgement.findings.push(growth);
        let first = judgement.findings.remove(0);
        if first.class == Class::Capacity {
            judgement.findings.push(first);
            judgement.rank();
        } else {
            judgement.findings.insert(0, first);
        }
    }
    let effort = explanation.scene.effort;
    judgement.evidence.push(Figure::of(
        "cache_flushes",
        effort.flushes,
        "whole caches given back until then",
    ));
    judgement.evidence.push(Figure::of("driver_calls", effort.calls(), "until then"));
    warn_of_the_recording(subject, explanation);
}

fn requested_sizes(scene: &Scene) -> HashMap<u64, u64> {
    let blocks = scene.view.segments.iter().flat_map(|segment| &segment.blocks);
    blocks.map(|block| (block.ticket.0, block.requested)).collect()
}

fn warn_of_the_recording(subject: &Subject<'_>, explanation: &mut Explanation) {
    let failures = subject.trace.events.iter().filter(|event| event.kind == Kind::Oom).count();
    let recorded = subject.is_recorded();
    let judgement = &mut explanation.judgement;
    if recorded && failures > 1 {
        judgement.warn(format!("{failures} requests failed in the recording; this is the first"));
    }
    if recorded {
        judgement.warn(
            "the device's size is what was reserved and free at the failure: memory of others is not seen here",
        );
    }
    let warm = &explanation.scene.warm;
    if !warm.segments.is_empty() {
        judgement.warn(
            "the recording began mid-run: the state before it was rebuilt from its end, and the age of blocks from \
             before is not known",
        );
    }
    if warm.homeless > 0 {
        judgement.warn(format!("{} blocks from before lie in no known segment", warm.homeless));
    }
}

/// A setting that was seen to serve the recording refutes that nothing could: the verdict gives way.
pub fn reconcile(explanation: &mut Explanation, proofs: &[Proof]) {
    let Some(proof) = proofs.iter().find(|proof| proof.completes()) else { return };
    let judgement = &mut explanation.judgement;
    if judgement.class() != Class::Capacity {
        return;
    }
    let Some(first) = judgement.findings.first_mut() else { return };
    first.class = Class::Fragmentation;
    first.sentence = format!(
        "what is live and the request would fit on the device: with {} they did",
        proof.candidate.settings
    );
}

/// What the proofs came to, in words; the findings stay as they are.
#[must_use]
pub fn conclusion(subject: &Subject<'_>, explanation: &Explanation, proofs: &[Proof]) -> String {
    let flushes = explanation.flushes_to_beat();
    if proofs.iter().any(|proof| proof.helps(flushes)) {
        return String::new();
    }
    if flushes.is_some() {
        return "no setting that was tried gives the cache back less often".to_string();
    }
    let capacity = subject.capacity().unwrap_or(u64::MAX);
    let at_failure = explanation.scene.failure.as_ref().map_or(0, |failure| {
        let report = &failure.report;
        report.live_bytes.saturating_add(report.requested_bytes)
    });
    let peak = explanation.live_peak.max(at_failure);
    if peak > capacity {
        return format!(
            "no setting helps: {} are live at the peak on a device of {}, {} short",
            Human(peak),
            Human(capacity),
            Human(peak - capacity)
        );
    }
    let need = proofs.iter().filter(|proof| is_frugal(&proof.candidate));
    let need = need.filter_map(|proof| Some((proof.needs_bytes?, &proof.candidate.settings))).min();
    match need {
        Some((need, settings)) if need > capacity => format!(
            "no setting that was tried helps: with {settings} a device of {} would do, {} more than there is",
            Human(need),
            Human(need - capacity)
        ),
        _ => "no setting that was tried serves the recording to its end".to_string(),
    }
}

/// A finding that stands for nothing that failed.
pub(super) fn quiet(class: Class, bytes: u64, sentence: impl Into<String>) -> Judgement {
    Judgement { findings: vec![Finding::new(class, bytes, sentence)], ..Judgement::default() }
}
