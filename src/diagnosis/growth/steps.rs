//! Steps: where a program's steps begin in a recording: at markers, every so many events, or as the order of its
//! requests repeats.
//!
//! Asked by the leak diagnosis. Says how it found them, and gives none rather than a guess.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use crate::diagnosis::owners::Living;
use crate::trace::{DeviceTrace, Kind, Recording};

/// What the person said about steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Nothing: markers if they help, else the period.
    Anything,
    /// At each marker that begins so.
    Marker(String),
    /// Every so many events.
    Every(u32),
}

/// How the steps were found.
#[derive(Clone, Debug, PartialEq)]
pub enum How {
    /// At markers that begin with this text.
    Markers(String),
    /// Every so many events.
    Every(u32),
    /// The order of requests repeats: after this many requests, in this share of all places.
    Period {
        /// Requests a step.
        requests: usize,
        /// The share of requests that recur one period later.
        agreement: f64,
        /// What recurs: `sizes` (and places), or only `places` in the program.
        what: &'static str,
    },
    /// The requests repeat, but each time round keeps much of what it allocates, or gives it back: layers of a
    /// step, not steps.
    Layers {
        /// Requests each time round.
        requests: usize,
    },
    /// Not at all.
    Unknown,
}

/// Boundaries of steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// How they were found.
    pub how: How,
    /// How many entries lie before each boundary, rising.
    pub bounds: Vec<usize>,
}

/// No more boundaries than this are looked at; with more, every n-th.
pub const MOST: usize = 2048;

/// The boundaries of steps. O(entries).
#[must_use]
pub fn steps(recording: &Recording, trace: &DeviceTrace, ask: &Ask) -> Steps {
    let found = match ask {
        Ask::Marker(text) => at_markers(recording, trace, text),
        Ask::Every(count) => every(trace, (*count).max(1)),
        Ask::Anything => match common_marker(recording, trace) {
            Some(text) => at_markers(recording, trace, &text),
            None => periodic(trace),
        },
    };
    let apart = found.bounds.len().div_ceil(MOST).max(1);
    Steps { bounds: found.bounds.into_iter().step_by(apart).collect(), how: found.how }
}

fn marker<'a>(recording: &'a Recording, event: &crate::trace::Event) -> Option<&'a str> {
    let is_marker = event.kind == Kind::Marker;
    is_marker.then(|| recording.markers.get(event.stack.0 as usize).map(String::as_str)).flatten()
}

/// Also at a marker `end` behind the last step, and at the end of the recording if `text` marks the ends of steps.
fn at_markers(recording: &Recording, trace: &DeviceTrace, text: &str) -> Steps {
    let mut bounds: Vec<usize> = Vec::new();
    for (index, event) in trace.events.iter().enumerate() {
        let Some(said) = marker(recording, event) else { continue };
        if said.starts_with(text) || (said == "end" && !bounds.is_empty()) {
            bounds.push(index);
        }
    }
    Steps { how: How::Markers(text.to_string()), bounds }
}

/// The beginning that the most telling markers share: `step`, else the first text before a number that three
/// markers share.
fn common_marker(recording: &Recording, trace: &DeviceTrace) -> Option<String> {
    let mut counts: HashMap<String, (usize, usize)> = HashMap::new();
    for (index, event) in trace.events.iter().enumerate() {
        let Some(said) = marker(recording, event) else { continue };
        let stem = said.split(|c: char| c.is_ascii_digit()).next().unwrap_or(said);
        let entry = counts.entry(stem.to_string()).or_insert((0, index));
        entry.0 += 1;
    }
    let stepping = |stem: &str| {
        let stem = stem.to_ascii_lowercase();
        ["step", "iter", "profilerstep", "epoch", "round", "cycle", "batch"]
            .iter()
            .position(|word| stem.trim_start_matches(['#', ' ']).starts_with(word))
    };
    let several = counts.into_iter().filter(|(stem, (count, _))| *count >= 2 && !stem.is_empty());
    several
        .filter(|(stem, (count, _))| stepping(stem).is_some() || *count >= 3)
        .min_by_key(|(stem, (_, first))| (stepping(stem).unwrap_or(usize::MAX), *first))
        .map(|(stem, _)| stem)
}

fn every(trace: &DeviceTrace, count: u32) -> Steps {
    let mut bounds = vec![0];
    let mut seen = 0u64;
    for (index, event) in trace.events.iter().enumerate() {
        if event.kind.counts() {
            seen += 1;
            if seen.is_multiple_of(u64::from(count)) {
                bounds.push(index + 1);
            }
        }
    }
    Steps { how: How::Every(count), bounds }
}

/// Requests that a period is looked for in.
const WINDOW: usize = 400_000;
/// Requests in a row that are recognised when they come again.
const GRAM: usize = 6;
/// Periods that are tried.
const CANDIDATES: usize = 48;
/// The share of requests that must recur.
const ENOUGH: f64 = 0.9;

fn periodic(trace: &DeviceTrace) -> Steps {
    let allocs: Vec<usize> =
        (0..trace.events.len()).filter(|&index| trace.events[index].kind == Kind::Alloc).collect();
    let seen = &allocs[..allocs.len().min(WINDOW)];
    let with_sizes = |index: &usize| {
        let event = &trace.events[*index];
        (event.bytes, event.stack.0)
    };
    let places = |index: &usize| (0, trace.events[*index].stack.0);
    let known: HashSet<u32> = seen.iter().map(|&index| trace.events[index].stack.0).collect();
    let full: Vec<(u64, u32)> = seen.iter().map(with_sizes).collect();
    let mut ways = vec![("sizes", full)];
    if known.len() > 8 {
        ways.push(("places", seen.iter().map(places).collect()));
    }
    let kept = kept_by_request(trace, &allocs);
    let mut layers = None;
    for (what, keys) in ways {
        let key = |request: usize| match what {
            "sizes" => with_sizes(&allocs[request]),
            _ => places(&allocs[request]),
        };
        for (requests, agreement) in periods(&keys) {
            let starts = troughs(&kept, requests, key);
            if comes_back(&kept, &starts) {
                let bounds = starts.into_iter().map(|request| allocs[request]).collect();
                return Steps { how: How::Period { requests, agreement, what }, bounds };
            }
            layers = layers.or(Some(requests));
        }
    }
    let how = layers.map_or(How::Unknown, |requests| How::Layers { requests });
    Steps { how, bounds: Vec::new() }
}

/// Before each request: how many bytes live, and how many were allocated so far.
fn kept_by_request(trace: &DeviceTrace, allocs: &[usize]) -> Vec<(i128, i128)> {
    let mut living = Living::before(trace);
    let (mut kept, mut allocated, mut next) = (Vec::with_capacity(allocs.len()), 0i128, 0);
    for (index, event) in trace.events.iter().enumerate() {
        if allocs.get(next) == Some(&index) {
            kept.push((i128::from(living.bytes()), allocated));
            allocated += i128::from(event.bytes);
            next += 1;
        }
        living.step(event);
    }
    kept
}

/// Whether a time round ends about where it began, in the middle of all: a step gives back what it took.
fn comes_back(kept: &[(i128, i128)], starts: &[usize]) -> bool {
    const SHARE: f64 = 0.2;
    let rounds = starts.windows(2).map(|pair| (kept[pair[0]], kept[pair[1]]));
    let mut shares: Vec<f64> = rounds
        .map(|(a, b)| (b.0 - a.0).unsigned_abs() as f64 / ((b.1 - a.1) as f64).max(1.0))
        .collect();
    shares.sort_by(f64::total_cmp);
    shares.get(shares.len() / 2).is_some_and(|&middle| middle <= SHARE)
}

/// Periods after which nine requests of ten recur, over the later two thirds: the shortest of the best first.
fn periods(keys: &[(u64, u32)]) -> Vec<(usize, f64)> {
    if keys.len() < 12 {
        return Vec::new();
    }
    let mut votes: HashMap<usize, u32> = HashMap::new();
    let mut last: HashMap<u64, usize> = HashMap::new();
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let gram = GRAM.min(keys.len() / 4).max(1);
    for (place, window) in keys.windows(gram).enumerate() {
        if let Some(before) = last.insert(hasher.hash_one(window), place) {
            *votes.entry(place - before).or_default() += 1;
        }
    }
    // A gram of a repeated layer recurs within the step; only its last one in a step tells the step's length.
    let mut candidates: Vec<(usize, u32)> =
        votes.into_iter().filter(|&(period, _)| period >= 2 && period * 3 <= keys.len()).collect();
    candidates.sort_by_key(|&(period, votes)| std::cmp::Reverse((votes, period)));
    let mut tried: Vec<usize> = candidates.iter().take(CANDIDATES).map(|&(p, _)| p).collect();
    candidates.sort_by_key(|&(period, votes)| {
        std::cmp::Reverse((u64::from(votes).saturating_mul(period as u64), period))
    });
    tried.extend(candidates.iter().take(CANDIDATES).map(|&(p, _)| p));
    tried.sort_unstable();
    tried.dedup();
    let scored = tried.into_iter().map(|period| (period, agreement(keys, period)));
    let scored: Vec<(usize, f64)> = scored.filter(|&(_, share)| share >= ENOUGH).collect();
    let best = scored.iter().map(|&(_, share)| share).fold(0.0, f64::max);
    let (mut good, mut others): (Vec<_>, Vec<_>) =
        scored.into_iter().partition(|&(_, share)| share >= best - 0.02);
    good.append(&mut others);
    good
}

fn agreement(keys: &[(u64, u32)], period: usize) -> f64 {
    let start = (keys.len() / 3).min(keys.len() - period);
    let pairs = keys[start..].iter().zip(&keys[start + period..]);
    let (mut same, mut all) = (0usize, 0usize);
    for (a, b) in pairs {
        same += usize::from(a == b);
        all += 1;
    }
    same as f64 / all.max(1) as f64
}

/// The places where a step begins. In the last whole period it is where the least bytes live, between two steps;
/// a period before and after each, the lowest nearby where the same is requested, for steps differ a little.
fn troughs(kept: &[(i128, i128)], period: usize, key: impl Fn(usize) -> (u64, u32)) -> Vec<usize> {
    let Some(start) = kept.len().checked_sub(2 * period) else { return Vec::new() };
    let Some(anchor) = (start..start + period).min_by_key(|&place| (kept[place].0, place)) else {
        return Vec::new();
    };
    let reach = period / 8;
    let near = |place: usize| {
        let nearby = place.saturating_sub(reach)..(place + reach + 1).min(kept.len());
        let alike = nearby.filter(|&other| key(other) == key(anchor));
        alike.min_by_key(|&other| (kept[other].0, other.abs_diff(place))).unwrap_or(place)
    };
    let mut found = vec![anchor];
    let mut at = anchor;
    while at >= period {
        at = near(at - period);
        found.push(at);
    }
    found.reverse();
    at = anchor;
    while at + period < kept.len() {
        at = near(at + period);
        found.push(at);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Event;

    /// Steps of four layers of three sizes, an odd head, and a block that is kept.
    fn looped(steps: u32) -> DeviceTrace {
        let mut trace = DeviceTrace::default();
        let alloc = |trace: &mut DeviceTrace, bytes| {
            let allocation = trace.allocations;
            trace.allocations += 1;
            trace.events.push(Event { bytes, allocation, ..Event::new(Kind::Alloc) });
            allocation
        };
        for _ in 0..steps {
            let mut held = vec![alloc(&mut trace, 7777)];
            for _ in 0..4 {
                held.extend([100, 200, 300].map(|bytes| alloc(&mut trace, bytes)));
            }
            for allocation in held {
                trace.events.push(Event { allocation, ..Event::new(Kind::Free) });
            }
        }
        trace
    }

    #[test]
    fn a_loop_is_found_by_the_order_of_its_sizes() {
        let trace = looped(12);
        let found = steps(&Recording::default(), &trace, &Ask::Anything);
        assert!(matches!(found.how, How::Period { requests: 13, .. }), "{:?}", found.how);
        assert_eq!(found.bounds, (0..12).map(|step| step * 26).collect::<Vec<_>>());
    }

    #[test]
    fn no_period_is_claimed_where_there_is_none() {
        let mut trace = looped(20);
        let mut state = 1u64;
        for event in &mut trace.events {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            event.bytes = state >> 40;
        }
        assert_eq!(steps(&Recording::default(), &trace, &Ask::Anything).how, How::Unknown);
    }

    #[test]
    fn layers_that_keep_their_activations_are_no_steps() {
        let mut trace = looped(20);
        trace.events.retain(|event| event.kind == Kind::Alloc || event.allocation % 13 > 6);
        let found = steps(&Recording::default(), &trace, &Ask::Anything);
        assert_eq!(found.how, How::Layers { requests: 13 });
        assert!(found.bounds.is_empty());
    }

    #[test]
    fn markers_that_count_win() {
        let mut recording = Recording::default();
        let mut trace = DeviceTrace::default();
        for text in ["init", "step 0", "forward", "forward", "forward", "step 1", "end"] {
            let stack = crate::trace::StackId(recording.markers.len() as u32);
            recording.markers.push(text.into());
            trace.events.push(Event { stack, ..Event::new(Kind::Marker) });
        }
        let found = steps(&recording, &trace, &Ask::Anything);
        assert_eq!(found, Steps { how: How::Markers("step ".into()), bounds: vec![1, 5, 6] });
        let every = steps(&recording, &looped(1), &Ask::Every(13)).bounds;
        assert_eq!(every, [0, 13, 26]);
    }
}
