//! Advice: which requests do nothing, and which do harm.
//!
//! Only what somebody asked for is judged; a preset needs no warning about itself.

use alloc::{format, string::String, vec::Vec};

use super::{Concern, Effective, Key, Warning, keys::Family, show};
use crate::policy::Policy;

/// What can be said without knowing the device.
pub(super) fn warnings(effective: &Effective) -> Vec<Warning> {
    let requested = Key::ALL.into_iter().zip(&effective.entries);
    requested
        .filter_map(|(key, entry)| {
            let (concern, text) = remark(&effective.policy, key, entry.requested.as_deref()?)?;
            Some(Warning { key: key.name().into(), concern, text })
        })
        .collect()
}

fn remark(policy: &Policy, key: Key, requested: &str) -> Option<(Concern, String)> {
    if key == Key::MaxSplitSizeMb && policy.page_mapped() {
        return Some((Concern::Harmful, SPLIT_LIMIT_WITH_PAGES.into()));
    }
    if key == Key::PerProcessMemoryFraction && policy.memory_fraction == 0.0 {
        return Some((Concern::Harmful, "harmful: a fraction of 0 refuses every request".into()));
    }
    let why = match key.family() {
        Family::Inert(_) if key == Key::Backend => backend(requested)?,
        Family::Inert(why) => why,
        _ => no_effect(policy, key)?,
    };
    Some((Concern::NoEffect, format!("has no effect: {why}")))
}

/// Source: the survivor cycle (91 + 45.5 + 2 MiB kept, 100 rounds) on PyTorch 2.15.
const SPLIT_LIMIT_WITH_PAGES: &str = "harmful with expandable segments: mapped ranges at or above \
     the limit no longer serve smaller requests, so new pages are mapped instead (one cycle that \
     reserves 340 MiB without a limit reserved 13860 MiB with 128); use one of the two";

fn backend(requested: &str) -> Option<&'static str> {
    (requested != "native").then_some(
        "the native allocator is in force here; under cudaMallocAsync PyTorch's native \
         settings do nothing",
    )
}

/// Why a setting that is a field of the policy changes nothing in this policy.
fn no_effect(policy: &Policy, key: Key) -> Option<&'static str> {
    let unlimited = policy.memory_fraction >= 1.0;
    let ones = policy.divisions.contains(&1);
    match key {
        Key::GarbageCollectionThreshold if unlimited => {
            Some("it needs per_process_memory_fraction below 1")
        }
        Key::GarbageCollectionThreshold if policy.page_mapped() => {
            Some("only whole segments are released by age, never the pages of expandable ones")
        }
        Key::RoundupPower2Divisions if ones && !policy.one_division_counts => {
            if policy.divisions.iter().all(|&steps| steps <= 1) {
                Some("1 is ignored and does not mean the next power of two")
            } else {
                Some("where it says 1, because 1 is ignored; other sizes are rounded as asked")
            }
        }
        Key::MaxNonSplitRoundingMb if policy.max_split == u64::MAX => {
            Some("it needs max_split_size_mb")
        }
        Key::SmallPageMb | Key::LargePageMb | Key::PreferUngrowable if !policy.page_mapped() => {
            Some("it needs expandable_segments:True")
        }
        Key::OneDivisionCounts if !ones => Some("no size has one division"),
        Key::LimitCheck if unlimited => Some("it needs per_process_memory_fraction below 1"),
        _ => None,
    }
}

impl Effective {
    /// The same settings on a device of `total` bytes (`None`: unknown): limits become numbers, and
    /// what has no effect there is said.
    #[must_use]
    pub fn for_device(mut self, total: Option<u64>) -> Self {
        let fraction = self.policy.memory_fraction;
        match (self.policy.limit(total), total) {
            (Some(limit), _) => {
                let text = format!("{fraction} ({limit} bytes)");
                self.entries[Key::PerProcessMemoryFraction as usize].effective = text;
            }
            (None, None) if fraction < 1.0 => {
                self.without_effect(Key::PerProcessMemoryFraction, UNKNOWN_CAPACITY);
                self.entries[Key::PerProcessMemoryFraction as usize].effective = "no limit".into();
                self.entries[Key::GarbageCollectionThreshold as usize].effective = "off".into();
                if self.policy.collect_threshold > 0.0 {
                    self.without_effect(Key::GarbageCollectionThreshold, UNKNOWN_CAPACITY);
                }
            }
            _ => {}
        }
        let split = self.policy.max_split;
        if let Some(total) = total
            && split != u64::MAX
            && split > total
        {
            let why = format!("the device has {}", show::bytes(total));
            self.without_effect(Key::MaxSplitSizeMb, &why);
        }
        self
    }

    fn without_effect(&mut self, key: Key, why: &str) {
        let known = |old: &Warning| old.concern == Concern::NoEffect && old.key == key.name();
        if !self.warnings.iter().any(known) {
            let text = format!("has no effect: {why}");
            self.warnings.push(Warning {
                key: key.name().into(),
                concern: Concern::NoEffect,
                text,
            });
        }
    }
}

const UNKNOWN_CAPACITY: &str = "the device's capacity is not known, so there is no limit";

#[cfg(test)]
mod tests {
    use super::super::{Source, apply, parse_own};
    use super::*;
    use crate::{policy::presets, vocab::MIB};
    use alloc::vec;

    fn over(base: Policy, text: &str) -> Effective {
        apply(base, &parse_own(text).unwrap(), Source::Text).unwrap()
    }

    fn concerns(effective: &Effective) -> Vec<(&str, Concern)> {
        effective.warnings.iter().map(|w| (w.key.as_str(), w.concern)).collect()
    }

    #[test]
    fn k19_a_threshold_without_a_limit_has_no_effect() {
        let text = "garbage_collection_threshold:0.6";
        let effective = over(presets::pytorch(), text);
        assert_eq!(concerns(&effective), [("garbage_collection_threshold", Concern::NoEffect)]);
        let both = "garbage_collection_threshold:0.6,per_process_memory_fraction:0.7";
        let effective = over(presets::pytorch(), both);
        assert_eq!(effective.warnings, []);
        let known = effective.clone().for_device(Some(1000));
        assert_eq!(known.warnings, []);
        let fraction = &known.entry(Key::PerProcessMemoryFraction).effective;
        assert_eq!(fraction, "0.7 (700 bytes)");
        let unknown = effective.for_device(None).for_device(None);
        assert_eq!(
            concerns(&unknown),
            [
                ("per_process_memory_fraction", Concern::NoEffect),
                ("garbage_collection_threshold", Concern::NoEffect),
            ],
            "said once"
        );
        assert_eq!(unknown.entry(Key::GarbageCollectionThreshold).effective, "off");
        assert_eq!(unknown.entry(Key::PerProcessMemoryFraction).effective, "no limit");
        let pages = over(presets::pytorch_expandable(), both);
        assert_eq!(concerns(&pages), [("garbage_collection_threshold", Concern::NoEffect)]);
    }

    #[test]
    fn k19_one_division_is_ignored_by_pytorch_and_counts_for_us() {
        let text = "roundup_power2_divisions:1";
        let wanted = vec![("roundup_power2_divisions", Concern::NoEffect)];
        assert_eq!(concerns(&over(presets::pytorch(), text)), wanted);
        assert_eq!(over(presets::blockyard(), text).warnings, []);
        let mixed = "roundup_power2_divisions:[64:1,>:8]";
        assert_eq!(concerns(&over(presets::pytorch(), mixed)), wanted);
        for quiet in ["roundup_power2_divisions:0", "roundup_power2_divisions:[64:0,>:8]"] {
            assert_eq!(over(presets::pytorch(), quiet).warnings, []);
        }
    }

    #[test]
    fn k07_a_split_limit_with_expandable_segments_is_harmful() {
        let text = "expandable_segments:True,max_split_size_mb:128";
        let effective = over(presets::pytorch(), text);
        assert_eq!(concerns(&effective), [("max_split_size_mb", Concern::Harmful)]);
        assert!(effective.warnings[0].text.contains("13860 MiB"));
        assert_eq!(over(presets::pytorch(), "max_split_size_mb:128").warnings, []);
    }

    #[test]
    fn each_setting_without_effect_is_named() {
        for (text, key) in [
            ("max_non_split_rounding_mb:64", "max_non_split_rounding_mb"),
            ("backend:cudaMallocAsync", "backend"),
            ("expandable_segments_reserve:40G", "expandable_segments_reserve"),
            ("expandable_segments_reserve_by_class:[a:1]", "expandable_segments_reserve_by_class"),
            ("release_lock_on_hipmalloc:True", "release_lock_on_cudamalloc"),
            ("throw_on_cudamalloc_oom:True", "throw_on_cudamalloc_oom"),
            ("graph_capture_record_stream_reuse:True", "graph_capture_record_stream_reuse"),
            ("pinned_use_hip_host_register:True", "pinned_use_cuda_host_register"),
            ("pinned_num_register_threads:8", "pinned_num_register_threads"),
            ("pinned_use_background_threads:True", "pinned_use_background_threads"),
            ("pinned_reserve_segment_size_mb:1", "pinned_reserve_segment_size_mb"),
            ("pinned_max_round_threshold_mb:1", "pinned_max_round_threshold_mb"),
            ("pinned_max_cached_size_mb:1", "pinned_max_cached_size_mb"),
            ("pinned_free_catch_all:True", "pinned_free_catch_all"),
            ("small_page_mb:4", "small_page_mb"),
            ("large_page_mb:4", "large_page_mb"),
            ("prefer_ungrowable:False", "prefer_ungrowable"),
            ("one_division_counts:True", "one_division_counts"),
            ("limit_check:exact", "limit_check"),
        ] {
            let effective = over(presets::pytorch(), text);
            assert_eq!(concerns(&effective), [(key, Concern::NoEffect)], "{text}");
            let mut policy = effective.policy;
            if key != "prefer_ungrowable" && key != "one_division_counts" {
                policy.limit_check = presets::pytorch().limit_check;
                policy.max_non_split_rounding = presets::pytorch().max_non_split_rounding;
                assert_eq!(policy, presets::pytorch(), "{text}");
            }
        }
        assert_eq!(over(presets::pytorch(), "backend:native").warnings, []);
        let zero = over(presets::pytorch(), "per_process_memory_fraction:0");
        assert_eq!(concerns(&zero), [("per_process_memory_fraction", Concern::Harmful)]);
        let wide = over(presets::pytorch(), "max_split_size_mb:200").for_device(Some(100 * MIB));
        assert_eq!(concerns(&wide), [("max_split_size_mb", Concern::NoEffect)]);
    }
}
