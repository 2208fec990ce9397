//! Residue: what stays after a phase, from pairs of allocated and reserved bytes at its end.
//!
//! The first pair is the baseline. Asked by `explain` for the markers of a recording. Without the
//! releasable bytes it cannot tell a cache from fragmentation, and says so.

use crate::diagnosis::explain::scene::Mark;
use crate::vocab::Human;

/// What a pair means beside the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residue {
    /// The first pair, or one like it.
    Baseline,
    /// More is live than at the baseline, and the cache grew as well or not.
    Live,
    /// As much is live; the cache grew and could go back to the driver.
    Cache,
    /// As much is live; the cache grew and live blocks pin it.
    Fragmentation,
    /// As much is live; the cache grew, and whether it could go back is not known.
    CacheOrFragmentation,
}

/// Shares of the baseline that count as "as much", in percent.
const ALIKE_LIVE: u64 = 150;
const ALIKE_RESERVED: u64 = 125;

/// What the pair of `allocated` and `reserved` bytes means beside `baseline`; `releasable` of the
/// cache, if known.
#[must_use]
pub fn residue(
    baseline: (u64, u64),
    allocated: u64,
    reserved: u64,
    releasable: Option<u64>,
) -> Residue {
    let beyond = |now: u64, then: u64, percent: u64| {
        u128::from(now) * 100 > u128::from(then) * u128::from(percent)
    };
    if beyond(allocated, baseline.0, ALIKE_LIVE) {
        return Residue::Live;
    }
    if !beyond(reserved, baseline.1, ALIKE_RESERVED) {
        return Residue::Baseline;
    }
    let cached = reserved.saturating_sub(allocated);
    match releasable {
        None => Residue::CacheOrFragmentation,
        Some(releasable) if releasable >= cached / 2 => Residue::Cache,
        Some(_) => Residue::Fragmentation,
    }
}

/// Each mark behind the first that left more than the baseline, with a sentence.
pub(crate) fn judge(marks: &[Mark]) -> Vec<(&Mark, String)> {
    let Some((first, rest)) = marks.split_first() else { return Vec::new() };
    let baseline = (first.allocated, first.reserved);
    if baseline.1 == 0 {
        return Vec::new();
    }
    let said = rest.iter().filter_map(|mark| {
        let what = match residue(baseline, mark.allocated, mark.reserved, Some(mark.releasable)) {
            Residue::Baseline => return None,
            Residue::Live => {
                "more is live than at the first marker (a leak, or state that came later)"
            }
            Residue::Cache => "as much is live; the rest is cache that could go back",
            Residue::Fragmentation => "as much is live; the rest is pinned by live blocks",
            Residue::CacheOrFragmentation => "as much is live; the rest is cache or fragmentation",
        };
        let figures =
            format!("{} allocated, {} reserved", Human(mark.allocated), Human(mark.reserved));
        Some((mark, format!("{figures}: {what}")))
    });
    said.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K09: after a refit, in GB.
    #[test]
    fn a_baseline_a_leak_and_a_cache() {
        let gb = |value: f64| (value * 1e9) as u64;
        let baseline = (gb(0.5), gb(5.2));
        assert_eq!(residue(baseline, gb(0.5), gb(5.2), None), Residue::Baseline);
        assert_eq!(residue(baseline, gb(8.9), gb(26.0), None), Residue::Live);
        let third = |releasable| residue(baseline, gb(0.6), gb(15.5), releasable);
        assert_eq!(third(None), Residue::CacheOrFragmentation);
        assert_eq!(third(Some(gb(14.0))), Residue::Cache);
        assert_eq!(third(Some(gb(0.2))), Residue::Fragmentation);
    }
}
