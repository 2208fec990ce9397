//! Proof: settings that are not active yet, and what a replay of the whole recording under each came to.
//!
//! Owns which settings are worth a try for which failure, how they are spelled, and which are shown
//! first. Asked by `explain` and the tools, which replay several at once. Nothing is said to help that
//! was not replayed to the end.

use crate::diagnosis::explain::scene::{Effort, Outcome, Progress, Subject, attempt};
use crate::lab::ReplayError;
use crate::policy::settings::{Key, Source, apply, parse_own};
use crate::policy::{Effective, Policy, presets};
use crate::vocab::MIB;

/// Whose setting it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocator {
    /// Of the allocator that ran: another setting.
    Same,
    /// This crate's, in its place.
    Blockyard,
}

/// A setting to be tried.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What is new, as typed.
    pub settings: String,
    /// The whole text: what is in force already, and what is new.
    pub text: String,
    /// Settings of one kind; the best of a kind is shown.
    pub family: &'static str,
    /// Whose setting.
    pub allocator: Allocator,
    /// What it means.
    pub policy: Policy,
}

/// A candidate, replayed.
#[derive(Clone, Debug)]
pub struct Proof {
    /// What was tried.
    pub candidate: Candidate,
    /// What became of it; an error where it could not be replayed.
    pub outcome: Result<Outcome, ReplayError>,
    /// The most it reserves on a device without end, if it was asked: a device of that size would do.
    pub needs_bytes: Option<u64>,
}

impl Proof {
    /// The recording was replayed to its end with no failure.
    #[must_use]
    pub fn completes(&self) -> bool {
        matches!(self.outcome, Ok(Outcome { failed_at: None, .. }))
    }

    /// It completes, and with fewer flushes than `flushes`, if that is what is wrong.
    #[must_use]
    pub fn helps(&self, flushes: Option<u64>) -> bool {
        self.completes() && flushes.is_none_or(|flushes| self.effort().flushes < flushes)
    }

    /// The request that failed was served; later ones may have failed.
    #[must_use]
    pub fn serves(&self, event: u32) -> bool {
        self.outcome.as_ref().is_ok_and(|outcome| outcome.failed_at.is_none_or(|at| at > event))
    }

    /// Driver calls and flushes to the end.
    #[must_use]
    pub fn effort(&self) -> Effort {
        self.outcome.as_ref().map_or_else(|_| Effort::default(), |outcome| outcome.effort)
    }
}

/// Split limits, in MiB.
const SPLITS: [u64; 8] = [2048, 1024, 512, 256, 128, 64, 32, 20];

/// Smaller large segments, in MiB: 11 is the least there can be.
const LESS: [u64; 3] = [16, 12, 11];

/// Settings worth a try: none that is in force, none that cannot matter. `largest` is the largest
/// segment at the failure.
#[must_use]
pub fn candidates(effective: &Effective, capacity: Option<u64>, largest: u64) -> Vec<Candidate> {
    let now = &effective.policy;
    let mut list = Vec::new();
    let mut add = |family: &'static str, settings: &str| {
        list.extend(candidate(effective, family, settings));
    };
    if now.page_mapped() {
        add("expandable_segments", "expandable_segments:False");
    } else {
        add("expandable_segments", "expandable_segments:True");
    }
    if !now.page_mapped() {
        for split in SPLITS.into_iter().filter(|&split| {
            split * MIB < largest
                && split * MIB != now.max_split
                && split * MIB >= now.large_segment
        }) {
            add("max_split_size_mb", &format!("max_split_size_mb:{split}"));
        }
    }
    for steps in [8, 4] {
        if now.divisions.iter().any(|&entry| entry != steps) {
            add("roundup_power2_divisions", &format!("roundup_power2_divisions:{steps}"));
        }
    }
    if now.limit(capacity).is_some() {
        for share in ["0.6", "0.8"] {
            let settings = format!("garbage_collection_threshold:{share}");
            add("garbage_collection_threshold", &settings);
        }
        add("per_process_memory_fraction", "per_process_memory_fraction:1.0");
    }
    for less in LESS.into_iter().filter(|&less| less * MIB < now.large_segment) {
        add("large_segment_size_mb", &format!("large_segment_size_mb:{less}"));
    }
    if now.large_segment < 64 * MIB && !now.page_mapped() {
        add("large_segment_size_mb", "large_segment_size_mb:64");
    }
    list.extend(ours(now));
    list
}

/// This setting laid over what is in force; nothing if it cannot be, or changes nothing.
fn candidate(effective: &Effective, family: &'static str, settings: &str) -> Option<Candidate> {
    let mut base = effective.policy.clone();
    let mut dropped: Vec<&str> = vec![family];
    // Page-mapped segments and a split limit do each other harm.
    if settings == "expandable_segments:True" && base.max_split != u64::MAX {
        base.max_split = u64::MAX;
        dropped.push(Key::MaxSplitSizeMb.name());
        dropped.push(Key::MaxNonSplitRoundingMb.name());
    }
    let said = parse_own(settings).ok()?;
    let mut policy = apply(base, &said, Source::Text).ok()?.policy;
    let kept = effective.entries.iter().filter(|entry| !dropped.contains(&entry.key));
    let kept =
        kept.filter_map(|entry| Some(format!("{}:{}", entry.key, entry.requested.as_ref()?)));
    let text = kept.chain([settings.to_string()]).collect::<Vec<_>>().join(",");
    policy.name = effective.policy.name.clone();
    if policy == effective.policy {
        return None;
    }
    let preset = effective.policy.name.split(':').next().unwrap_or("pytorch");
    policy.name = format!("{preset}:{text}");
    Some(Candidate {
        settings: settings.to_string(),
        text,
        family,
        allocator: Allocator::Same,
        policy,
    })
}

/// This crate's presets, as other allocators.
fn ours(now: &Policy) -> Vec<Candidate> {
    let presets = [presets::blockyard(), presets::blockyard_native()];
    let others = presets.into_iter().filter(|preset| {
        let mut same = preset.clone();
        same.name.clone_from(&now.name);
        same != *now
    });
    others
        .map(|mut policy| {
            // A limit is the user's, not the allocator's.
            policy.memory_fraction = now.memory_fraction;
            Candidate {
                settings: policy.name.clone(),
                text: policy.name.clone(),
                family: "allocator",
                allocator: Allocator::Blockyard,
                policy,
            }
        })
        .collect()
}

/// Replays one candidate. `there` is the event that failed.
pub fn prove(
    subject: &Subject<'_>,
    candidate: Candidate,
    there: u32,
    progress: Progress<'_>,
) -> Proof {
    let outcome = attempt(subject, &candidate.policy, subject.capacity(), there, progress);
    Proof { candidate, outcome, needs_bytes: None }
}

/// Replays the settings in force on the device model: what does not fail there proves nothing.
///
/// # Errors
/// Where the recording cannot be replayed.
pub fn base(
    subject: &Subject<'_>,
    there: u32,
    progress: Progress<'_>,
) -> Result<Outcome, ReplayError> {
    attempt(subject, subject.policy, subject.capacity(), there, progress)
}

/// How large a device this candidate would need: a replay without end. Kept if it can be replayed.
pub fn measure(subject: &Subject<'_>, proof: &mut Proof, progress: Progress<'_>) {
    let outcome = attempt(subject, &proof.candidate.policy, None, u32::MAX, progress);
    let complete = outcome.ok().filter(|outcome| outcome.failed_at.is_none());
    proof.needs_bytes = complete.map(|outcome| outcome.peak_reserved);
}

/// Whether a need is worth measuring: page-mapped memory needs the least.
#[must_use]
pub fn is_frugal(candidate: &Candidate) -> bool {
    candidate.policy.page_mapped()
}

/// Those that complete first; settings before another allocator; then by driver calls and bytes.
pub fn rank(proofs: &mut [Proof]) {
    proofs.sort_by_key(|proof| {
        let reserved = proof.outcome.as_ref().map_or(u64::MAX, |outcome| outcome.peak_reserved);
        let effort = proof.effort();
        (
            !proof.completes(),
            proof.candidate.allocator == Allocator::Blockyard,
            effort.flushes.min(1),
            effort.calls(),
            reserved,
        )
    });
}

/// The best of each family, in their order, of those that complete; with `flushes`, of those that give
/// the cache back less often than that.
#[must_use]
pub fn best(proofs: &[Proof], flushes: Option<u64>) -> Vec<&Proof> {
    let mut best: Vec<&Proof> = Vec::new();
    for proof in proofs.iter().filter(|proof| proof.helps(flushes)) {
        let family = proof.candidate.family;
        if !best.iter().any(|other| other.candidate.family == family) {
            best.push(proof);
        }
    }
    best
}
