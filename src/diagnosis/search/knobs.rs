//! Knobs: settings as points of a search: which there are, which lie near a point, and which are the same.

use crate::policy::settings::{SettingsError, policy_from};
use crate::policy::{Policy, grow, size};
use crate::trace::{DeviceTrace, Kind};
use crate::vocab::MIB;

/// Whose settings are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `PYTORCH_CUDA_ALLOC_CONF`.
    PyTorch,
    /// This project's presets and keys.
    Blockyard,
}

/// One point. What is `None`, 0 or false stays as the preset has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Knobs {
    /// The preset.
    pub preset: &'static str,
    /// `expandable_segments`.
    pub expandable: bool,
    /// `max_split_size_mb`.
    pub limit: Option<u64>,
    /// `max_non_split_rounding_mb`.
    pub slack: Option<u64>,
    /// `roundup_power2_divisions`.
    pub divisions: u32,
    /// `large_segment_size_mb`.
    pub segment: Option<u64>,
    /// `garbage_collection_threshold`, in percent, with a fraction of 0.99.
    pub collect: Option<u32>,
    /// `large_page_mb`, for this project's page-mapped preset.
    pub page: Option<u64>,
}

impl Knobs {
    /// The preset alone.
    #[must_use]
    pub const fn of(preset: &'static str) -> Self {
        Self {
            preset,
            expandable: false,
            limit: None,
            slack: None,
            divisions: 0,
            segment: None,
            collect: None,
            page: None,
        }
    }

    /// The settings text; empty for the preset alone.
    #[must_use]
    pub fn text(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        let mut say = |key: &str, value: Option<String>| {
            parts.extend(value.map(|value| format!("{key}:{value}")));
        };
        say("expandable_segments", self.expandable.then(|| "True".into()));
        say("large_segment_size_mb", self.segment.map(|mib| mib.to_string()));
        say("max_split_size_mb", self.limit.map(|mib| mib.to_string()));
        say("max_non_split_rounding_mb", self.slack.map(|mib| mib.to_string()));
        let divisions = self.divisions.to_string();
        say("roundup_power2_divisions", (self.divisions > 0).then_some(divisions));
        say("large_page_mb", self.page.map(|mib| mib.to_string()));
        if let Some(percent) = self.collect {
            say("garbage_collection_threshold", Some(format!("0.{percent:02}")));
            say("per_process_memory_fraction", Some("0.99".into()));
        }
        parts.join(",")
    }

    /// As `--policy` takes it.
    #[must_use]
    pub fn spec(&self) -> String {
        let text = self.text();
        if text.is_empty() && !self.preset.starts_with("pytorch") {
            return self.preset.to_string();
        }
        format!("{}:{text}", self.preset)
    }

    /// How many settings it takes.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.expandable as usize
            + self.limit.is_some() as usize
            + self.slack.is_some() as usize
            + (self.divisions > 0) as usize
            + self.segment.is_some() as usize
            + 2 * self.collect.is_some() as usize
            + self.page.is_some() as usize
    }

    /// The policy.
    ///
    /// # Errors
    /// Settings that cannot be.
    pub fn policy(&self) -> Result<Policy, SettingsError> {
        policy_from(&self.spec(), None).map(|effective| effective.policy)
    }

    /// Both at once, where that makes sense: `other` wins where both say something.
    #[must_use]
    pub fn with(self, other: Self) -> Option<Self> {
        let both = Self {
            preset: if other.preset == "blockyard-native" { other.preset } else { self.preset },
            expandable: self.expandable || other.expandable,
            limit: other.limit.or(self.limit),
            slack: other.slack.or(self.slack),
            divisions: if other.divisions > 0 { other.divisions } else { self.divisions },
            segment: other.segment.or(self.segment),
            collect: other.collect.or(self.collect),
            page: other.page.or(self.page),
        };
        both.is_sensible().then_some(both)
    }

    /// A split limit does harm on pages and cannot be below the large segment; age counts for whole segments only.
    fn is_sensible(&self) -> bool {
        let pages = self.expandable || self.preset == "blockyard";
        let segment = self.segment.unwrap_or(LEAST_LIMIT);
        let limited = self.limit.is_none_or(|limit| limit >= segment);
        let whole = self.limit.is_none() && self.collect.is_none();
        limited && (!pages || whole) && (pages || self.page.is_none())
    }

    /// Which settings it touches.
    #[must_use]
    pub fn axes(&self) -> [bool; 7] {
        [
            self.expandable,
            self.limit.is_some(),
            self.slack.is_some(),
            self.divisions > 0,
            self.segment.is_some(),
            self.collect.is_some(),
            self.page.is_some(),
        ]
    }
}

const LEAST_LIMIT: u64 = 20;

/// What a trace asks for, as far as the search wants to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Every size once, in order.
    pub sizes: Vec<u64>,
    /// The largest segment that was there before.
    pub segment: u64,
}

impl Demand {
    /// What this trace asks for. O(n log n).
    #[must_use]
    pub fn of(trace: &DeviceTrace) -> Self {
        let asks =
            trace.events.iter().filter(|event| matches!(event.kind, Kind::Alloc | Kind::Oom));
        let mut sizes: Vec<u64> = asks.map(|event| event.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let segment = trace.segments.iter().map(|segment| segment.bytes).max().unwrap_or(0);
        Self { sizes, segment }
    }

    /// Two policies with the same signature give the same replay of this trace.
    #[must_use]
    pub fn signature(&self, policy: &Policy) -> String {
        let mut plain = policy.clone();
        plain.name.clear();
        plain.divisions = Default::default();
        let most = |bytes: u64| bytes.min(size::IMPOSSIBLE - 1);
        let rounded = self.sizes.iter().map(|&bytes| size::round(policy, most(bytes)));
        let (mut digest, mut segment) = (0xcbf2_9ce4_8422_2325u64, self.segment);
        for bytes in rounded {
            digest = (digest ^ bytes).wrapping_mul(0x0000_0100_0000_01b3);
            segment = segment.max(grow::segment_bytes(policy, bytes));
        }
        if !policy.page_mapped() && policy.max_split > segment {
            plain.max_split = u64::MAX;
        }
        if plain.max_split == u64::MAX {
            plain.max_non_split_rounding = 0;
        }
        if !policy.collects() {
            plain.collect_threshold = 0.0;
        }
        format!("{plain:?} {digest:x}")
    }

    /// Split limits between groups of large sizes, in MiB: where the step from one size to the next is widest.
    fn limits(&self) -> Vec<u64> {
        let large: Vec<u64> =
            self.sizes.iter().copied().filter(|&bytes| bytes >= LEAST_LIMIT * MIB).collect();
        let mut steps: Vec<(u64, u64)> = large
            .windows(2)
            .map(|pair| (pair[1] * 100 / pair[0], pair[0].div_ceil(MIB) + 1))
            .filter(|&(ratio, _)| ratio > 110)
            .collect();
        steps.sort_unstable_by_key(|&(ratio, limit)| (u64::MAX - ratio, limit));
        steps.truncate(4);
        steps.into_iter().map(|(_, limit)| limit).collect()
    }
}

/// The single settings with which the search begins, the preset alone first.
#[must_use]
pub fn singles(family: Family, demands: &[Demand], limited: bool) -> Vec<Knobs> {
    let mut all = Vec::new();
    match family {
        Family::PyTorch => {
            let base = Knobs::of("pytorch");
            all.push(base);
            all.push(Knobs { expandable: true, ..base });
            all.extend(limits(demands).map(|limit| Knobs { limit: Some(limit), ..base }));
            whole(base, limited, &mut all);
            let pages = [12, 32].map(|mib| Knobs { expandable: true, segment: Some(mib), ..base });
            all.extend(pages);
        }
        Family::Blockyard => {
            let (paged, native) = (Knobs::of("blockyard"), Knobs::of("blockyard-native"));
            all.extend([paged, native]);
            all.extend([4, 20, 64].map(|mib| Knobs { page: Some(mib), ..paged }));
            all.extend([4, 8, 16].map(|divisions| Knobs { divisions, ..paged }));
            all.extend(limits(demands).map(|limit| Knobs { limit: Some(limit), ..native }));
            whole(native, limited, &mut all);
        }
    }
    all
}

/// Single settings of whole segments, split limits excepted.
fn whole(base: Knobs, limited: bool, all: &mut Vec<Knobs>) {
    all.extend([2, 4, 8, 16, 32].map(|divisions| Knobs { divisions, ..base }));
    all.extend([32, 64, 128].map(|mib| Knobs { segment: Some(mib), ..base }));
    if limited {
        all.extend([60, 80, 90].map(|percent| Knobs { collect: Some(percent), ..base }));
    }
}

fn limits(demands: &[Demand]) -> impl Iterator<Item = u64> {
    let mut limits = vec![20, 32, 64, 128, 256, 512, 1024, 2048];
    limits.extend(demands.iter().flat_map(Demand::limits));
    limits.sort_unstable();
    limits.dedup();
    limits.into_iter()
}

/// Points near this one, between it and those that were tried.
#[must_use]
pub fn near(best: Knobs, tried: &[Knobs]) -> Vec<Knobs> {
    let mut all = Vec::new();
    if let Some(limit) = best.limit {
        let mut known: Vec<u64> = tried.iter().filter_map(|knobs| knobs.limit).collect();
        known.sort_unstable();
        let below = known.iter().rev().find(|&&other| other < limit);
        let above = known.iter().find(|&&other| other > limit);
        for other in [below, above].into_iter().flatten() {
            let middle = ((*other as f64 * limit as f64).sqrt().round() as u64).max(LEAST_LIMIT);
            all.push(Knobs { limit: Some(middle), ..best });
        }
        let slack = [64, 256, 1024].map(|mib| Knobs { slack: Some(mib), ..best });
        all.extend(slack.into_iter().filter(|_| best.slack.is_none()));
    }
    if best.divisions > 0 {
        let halved = Knobs { divisions: best.divisions / 2, ..best };
        let doubled = Knobs { divisions: best.divisions * 2, ..best };
        all.extend([halved, doubled].into_iter().filter(|knobs| knobs.divisions > 1));
    }
    if let Some(segment) = best.segment {
        all.extend(
            [segment * 3 / 4, segment * 3 / 2].map(|mib| Knobs { segment: Some(mib), ..best }),
        );
    }
    if let Some(percent) = best.collect {
        all.extend(
            [percent - 5, percent + 5].map(|percent| Knobs { collect: Some(percent), ..best }),
        );
    }
    all.retain(|knobs| knobs.is_sensible() && !tried.contains(knobs));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_single_setting_is_one() {
        for family in [Family::PyTorch, Family::Blockyard] {
            let all = singles(family, &[Demand::default()], true);
            assert!(all.len() > 20, "{}", all.len());
            for knobs in all {
                let policy = knobs.policy().unwrap_or_else(|error| panic!("{knobs:?}: {error}"));
                assert_eq!(policy.name, knobs.spec());
            }
        }
    }

    #[test]
    fn what_makes_no_difference_to_a_trace_is_the_same() {
        let demand = Demand { sizes: vec![100, 3 * MIB, 64 * MIB], segment: 0 };
        let base = Knobs::of("pytorch");
        let of = |knobs: Knobs| demand.signature(&knobs.policy().unwrap());
        assert_eq!(of(base), of(Knobs { limit: Some(128), ..base }), "no segment is that large");
        assert_ne!(of(base), of(Knobs { limit: Some(64), ..base }));
        assert_eq!(of(base), of(Knobs { divisions: 4, ..base }), "no size is rounded otherwise");
        assert_ne!(of(base), of(Knobs { expandable: true, ..base }));
    }

    #[test]
    fn harmful_pairs_are_not_made() {
        let base = Knobs::of("pytorch");
        let pages = Knobs { expandable: true, ..base };
        assert_eq!(pages.with(Knobs { limit: Some(64), ..base }), None);
        let wide = Knobs { segment: Some(64), ..base };
        assert_eq!(wide.with(Knobs { limit: Some(32), ..base }), None, "below the large segment");
        assert!(wide.with(Knobs { divisions: 8, ..base }).is_some());
    }

    #[test]
    fn near_a_limit_lie_the_middles() {
        let base = Knobs::of("pytorch");
        let of = |limit| Knobs { limit: Some(limit), ..base };
        let limits: Vec<_> = near(of(128), &[of(32), of(64), of(128), of(512)])
            .iter()
            .filter(|knobs| knobs.slack.is_none())
            .filter_map(|knobs| knobs.limit)
            .collect();
        assert_eq!(limits, [91, 256]);
    }
}
