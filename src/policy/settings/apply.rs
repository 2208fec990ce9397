//! Apply: what was said, laid over a policy, to what is meant.
//!
//! Order of work: the large segment first, because other settings follow it and are judged by it;
//! then all others; then the whole policy is validated; then entries and warnings are written.

use alloc::format;

use super::{
    Concern, Effective, Key, Said, Setting, SettingsError, Source, Value, Warning, advice, show,
    validate,
};
use crate::{
    policy::{Backing, Ladder, LimitCheck, Policy},
    vocab::{MIB, Order},
};

/// `said` laid over `base`. Settings that were not said stay as they are in `base`.
///
/// # Errors
/// The setting whose value does not agree with the others.
pub fn apply(base: Policy, said: &Said, source: Source) -> Result<Effective, SettingsError> {
    layer(Effective::of(base), said, &source)
}

/// `said` laid over what is in force, by PyTorch's rule for a second text at run time: the split
/// limit, the rounding divisions and the collection threshold go back to their defaults unless said
/// again; all others stay.
///
/// # Errors
/// As [`apply`].
pub fn reapply(
    in_force: &Effective,
    said: &Said,
    source: Source,
) -> Result<Effective, SettingsError> {
    let mut next = in_force.clone();
    let plain = crate::policy::presets::pytorch();
    next.policy.max_split = plain.max_split;
    next.policy.divisions = plain.divisions;
    next.policy.collect_threshold = plain.collect_threshold;
    for key in [Key::MaxSplitSizeMb, Key::RoundupPower2Divisions, Key::GarbageCollectionThreshold] {
        let entry = &mut next.entries[key as usize];
        let before = entry.requested.take();
        entry.source = Source::Preset;
        if let (Some(before), None) = (before, said.get(key)) {
            let text = format!("was {before}; a new text that does not say it resets it");
            next.warnings.push(Warning { key: key.name().into(), concern: Concern::Reset, text });
        }
    }
    layer(next, said, &source)
}

fn layer(
    mut effective: Effective,
    said: &Said,
    source: &Source,
) -> Result<Effective, SettingsError> {
    let mut policy = effective.policy.clone();
    for key in FIRST {
        if let Some(setting) = said.get(key) {
            set(&mut policy, setting);
        }
    }
    for setting in said.settings().iter().filter(|setting| !FIRST.contains(&setting.key)) {
        set(&mut policy, setting);
    }
    agree(&policy, said)?;
    validate(&policy).map_err(|error| placed(error, said))?;

    write_entries(&mut effective, said, source);
    for entry_key in Key::ALL {
        effective.entries[entry_key as usize].effective = show::effective(&policy, entry_key);
    }
    effective.policy = policy;
    effective.warnings.retain(|old| !matches!(old.concern, Concern::NoEffect | Concern::Harmful));
    effective.warnings.extend_from_slice(said.warnings());
    let advice = advice::warnings(&effective);
    effective.warnings.extend(advice);
    Ok(effective)
}

/// Settings that others follow or build on, in the order in which they are set.
const FIRST: [Key; 2] = [Key::LargeSegmentSizeMb, Key::ExpandableSegments];

/// One setting into the policy. A value of another kind cannot occur: the kind is the key's.
fn set(policy: &mut Policy, setting: &Setting) {
    match (setting.key, &setting.value) {
        (Key::LargeSegmentSizeMb, &Value::Bytes(bytes)) => set_large_segment(policy, bytes),
        (Key::ExpandableSegments, &Value::Flag(on)) => set_expandable(policy, on),
        (Key::MaxSplitSizeMb, &Value::Bytes(bytes)) => policy.max_split = bytes,
        (Key::MaxNonSplitRoundingMb, &Value::Bytes(bytes)) => policy.max_non_split_rounding = bytes,
        (Key::RoundupPower2Divisions, &Value::Divisions(table)) => policy.divisions = table,
        (Key::GarbageCollectionThreshold, &Value::Share(share)) => policy.collect_threshold = share,
        (Key::PerProcessMemoryFraction, &Value::Share(share)) => policy.memory_fraction = share,
        (Key::SmallLimit, &Value::Bytes(bytes)) => policy.small_limit = bytes,
        (Key::SmallSegmentMb, &Value::Bytes(bytes)) => policy.small_segment = bytes,
        (Key::LargeDirectMb, &Value::Bytes(bytes)) => policy.large_direct = bytes,
        (Key::SegmentGranuleMb, &Value::Bytes(bytes)) => policy.segment_granule = bytes,
        (Key::LargeRemainder, &Value::Bytes(bytes)) => policy.large_remainder = bytes,
        (Key::SmallPageMb, &Value::Bytes(bytes)) => {
            if let Backing::Pages { small, .. } = &mut policy.backing {
                *small = bytes;
            }
        }
        (Key::LargePageMb, &Value::Bytes(bytes)) => {
            if let Backing::Pages { large, .. } = &mut policy.backing {
                *large = bytes;
            }
        }
        (Key::TieOrder, &Value::Word(word)) => {
            let address = word == "address";
            policy.order = if address { Order::Address } else { Order::SegmentThenAddress };
        }
        (Key::LimitCheck, &Value::Word(word)) => {
            let exact = word == "exact";
            policy.limit_check = if exact { LimitCheck::Exact } else { LimitCheck::Segment };
        }
        (Key::Ladder, &Value::Word(word)) => {
            policy.ladder = if word == "pytorch" { Ladder::PYTORCH } else { Ladder::BLOCKYARD };
        }
        (Key::PreferUngrowable, &Value::Flag(on)) => policy.prefer_ungrowable = on,
        (Key::OneDivisionCounts, &Value::Flag(on)) => policy.one_division_counts = on,
        (Key::EvictPrivate, &Value::Flag(on)) => policy.evict_private = on,
        (Key::Borrow, &Value::Flag(on)) => policy.borrow = on,
        _ => debug_assert!(
            matches!(setting.key.family(), super::keys::Family::Inert(_)),
            "{} has a value of another kind",
            setting.key.name()
        ),
    }
}

/// PyTorch's rule: the excess that is allowed and the page of expandable segments follow the large
/// segment. A page size that was chosen apart from it stays.
fn set_large_segment(policy: &mut Policy, bytes: u64) {
    if let Backing::Pages { large, .. } = &mut policy.backing
        && *large == policy.large_segment
    {
        *large = bytes;
    }
    policy.large_segment = bytes;
    policy.max_non_split_rounding = bytes;
}

const fn set_expandable(policy: &mut Policy, on: bool) {
    match (on, policy.page_mapped()) {
        (true, false) => {
            policy.backing = Backing::Pages { small: 2 * MIB, large: policy.large_segment };
        }
        (false, true) => policy.backing = Backing::Segments,
        _ => {}
    }
}

/// PyTorch's rule: neither the split limit nor the allowed excess is below the large segment.
fn agree(policy: &Policy, said: &Said) -> Result<(), SettingsError> {
    let least = policy.large_segment;
    for (key, bytes) in [
        (Key::MaxSplitSizeMb, policy.max_split),
        (Key::MaxNonSplitRoundingMb, policy.max_non_split_rounding),
    ] {
        let judged = said.get(key).or_else(|| said.get(Key::LargeSegmentSizeMb));
        if judged.is_some() && bytes < least {
            let error = SettingsError::expected(&format!(
                "at least {}, the large_segment_size_mb in force",
                least / MIB
            ));
            let error =
                if said.get(key).is_some() { error } else { error.value(&show::bytes(bytes)) };
            return Err(placed(error.of(key), said));
        }
    }
    Ok(())
}

/// The error with the value and the place of its setting, if it was said.
fn placed(error: SettingsError, said: &Said) -> SettingsError {
    let key = error.key.as_deref().and_then(Key::named);
    let Some(setting) = key.and_then(|key| said.get(key)) else {
        return error;
    };
    let mut error = error;
    error.value = Some(setting.text.clone());
    match setting.place {
        Some(place) => error.at(place),
        None => error,
    }
}

/// Requests and sources. What follows a setting that was said loses an older request.
fn write_entries(effective: &mut Effective, said: &Said, source: &Source) {
    let page_mapped = effective.policy.page_mapped();
    let turned = |setting: &Setting| setting.value != Value::Flag(page_mapped);
    let large = said.get(Key::LargeSegmentSizeMb).is_some();
    let pages_turned = said.get(Key::ExpandableSegments).is_some_and(turned);
    let page_follows_large = matches!(
        effective.policy.backing,
        Backing::Pages { large, .. } if large == effective.policy.large_segment
    );
    for (follower, leader, follows) in [
        (Key::MaxNonSplitRoundingMb, Key::LargeSegmentSizeMb, large),
        (Key::LargePageMb, Key::LargeSegmentSizeMb, large && page_follows_large),
        (Key::SmallPageMb, Key::ExpandableSegments, pages_turned),
        (Key::LargePageMb, Key::ExpandableSegments, pages_turned),
    ] {
        if follows {
            let entry = &mut effective.entries[follower as usize];
            entry.requested = None;
            entry.source = Source::Follows(leader.name());
        }
    }
    for setting in said.settings() {
        let entry = &mut effective.entries[setting.key as usize];
        entry.requested = Some(setting.text.clone());
        entry.source = source.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{parse, parse_own};
    use super::*;
    use crate::policy::presets;
    use alloc::string::{String, ToString};

    fn over(base: Policy, text: &str) -> Effective {
        apply(base, &parse_own(text).unwrap(), Source::Text).unwrap()
    }

    fn error(base: Policy, text: &str) -> String {
        apply(base, &parse_own(text).unwrap(), Source::Text).unwrap_err().to_string()
    }

    #[test]
    fn nothing_said_changes_nothing() {
        for name in presets::NAMES {
            let preset = presets::named(name).unwrap();
            let effective = over(preset.clone(), "");
            assert_eq!(effective.policy, preset);
            assert_eq!(effective.warnings, []);
            assert!(effective.entries.iter().all(|entry| entry.source == Source::Preset));
        }
    }

    #[test]
    fn expandable_segments_is_the_preset() {
        let mut policy = over(presets::pytorch(), "expandable_segments:True").policy;
        policy.name = "pytorch-expandable".into();
        assert_eq!(policy, presets::pytorch_expandable());
        let mut policy = over(presets::pytorch_expandable(), "expandable_segments:False").policy;
        policy.name = "pytorch".into();
        assert_eq!(policy, presets::pytorch());
        let ours = over(presets::blockyard(), "expandable_segments:True").policy;
        assert_eq!(ours, presets::blockyard(), "already page-mapped: its pages stay");
    }

    #[test]
    fn the_large_segment_comes_first_wherever_it_stands() {
        for text in [
            "expandable_segments:True,max_non_split_rounding_mb:64,large_segment_size_mb:40",
            "large_segment_size_mb:40,max_non_split_rounding_mb:64,expandable_segments:True",
        ] {
            let policy = over(presets::pytorch(), text).policy;
            assert_eq!(policy.large_segment, 40 * MIB);
            assert_eq!(policy.max_non_split_rounding, 64 * MIB);
            assert_eq!(policy.backing, Backing::Pages { small: 2 * MIB, large: 40 * MIB });
        }
        let follows =
            over(presets::pytorch_expandable(), "large_segment_size_mb:40,max_split_size_mb:64");
        assert_eq!(follows.policy.backing, Backing::Pages { small: 2 * MIB, large: 40 * MIB });
        assert_eq!(follows.policy.max_non_split_rounding, 40 * MIB);
        let entry = follows.entry(Key::MaxNonSplitRoundingMb);
        assert_eq!(entry.source, Source::Follows("large_segment_size_mb"));
        assert_eq!((entry.requested.as_deref(), entry.effective.as_str()), (None, "40 MiB"));
        let ours = over(presets::blockyard(), "large_segment_size_mb:40").policy;
        assert_eq!(ours.backing, presets::blockyard().backing, "ours do not follow");
    }

    #[test]
    fn the_split_limit_is_at_least_the_large_segment() {
        assert_eq!(over(presets::pytorch(), "max_split_size_mb:20").policy.max_split, 20 * MIB);
        assert_eq!(
            error(presets::pytorch(), "max_split_size_mb:19"),
            "max_split_size_mb \"19\" at byte 18: expected at least 20, the \
             large_segment_size_mb in force"
        );
        assert_eq!(
            error(presets::pytorch(), "max_split_size_mb:32,large_segment_size_mb:40"),
            "max_split_size_mb \"32\" at byte 18: expected at least 40, the \
             large_segment_size_mb in force"
        );
        let low = "max_split_size_mb:12,large_segment_size_mb:12";
        assert_eq!(over(presets::pytorch(), low).policy.max_split, 12 * MIB);
        assert!(
            error(presets::pytorch(), "max_non_split_rounding_mb:19")
                .contains("expected at least 20")
        );
    }

    #[test]
    fn every_setting_of_ours_reaches_its_field() {
        let text = "small_limit:2MiB,small_segment_mb:4,large_direct_mb:12,segment_granule_mb:4,\
                    large_remainder:512KiB,tie_order:address,prefer_ungrowable:False,\
                    one_division_counts:True,limit_check:exact,ladder:blockyard,evict_private:True,\
                    borrow:True,\
                    expandable_segments:True,small_page_mb:4,large_page_mb:8";
        let policy = over(presets::pytorch(), text).policy;
        let wanted = Policy {
            small_limit: 2 * MIB,
            small_segment: 4 * MIB,
            large_direct: 12 * MIB,
            segment_granule: 4 * MIB,
            large_remainder: MIB / 2,
            order: Order::Address,
            prefer_ungrowable: false,
            one_division_counts: true,
            limit_check: LimitCheck::Exact,
            ladder: Ladder::BLOCKYARD,
            evict_private: true,
            borrow: true,
            backing: Backing::Pages { small: 4 * MIB, large: 8 * MIB },
            ..presets::pytorch()
        };
        assert_eq!(policy, wanted);
        let back = "tie_order:segment,limit_check:segment,ladder:pytorch,evict_private:False,\
                    borrow:False,\
                    prefer_ungrowable:True,one_division_counts:False,expandable_segments:False,\
                    small_limit:1MiB,small_segment_mb:2,large_direct_mb:10,segment_granule_mb:2,\
                    large_remainder:1MiB";
        assert_eq!(over(policy, back).policy, presets::pytorch());
    }

    #[test]
    fn a_policy_that_does_not_hold_together_is_refused_at_its_setting() {
        assert_eq!(
            error(presets::pytorch(), "tie_order:address,small_limit:3MiB"),
            "small_limit \"3MiB\" at byte 30: expected at most small_segment_mb (2 MiB)"
        );
    }

    #[test]
    fn a_second_text_resets_three_settings_and_keeps_the_others() {
        let first = "max_split_size_mb:200,roundup_power2_divisions:4,expandable_segments:False,\
                     garbage_collection_threshold:0.5,per_process_memory_fraction:0.5,\
                     max_non_split_rounding_mb:64";
        let first = over(presets::pytorch(), first);
        let said = parse("roundup_power2_divisions:8").unwrap();
        let next = reapply(&first, &said, Source::Api).unwrap();
        assert_eq!(next.policy.max_split, u64::MAX);
        assert_eq!(next.policy.divisions, [8; 16]);
        assert_eq!(next.policy.collect_threshold, 0.0);
        assert_eq!(next.policy.memory_fraction, 0.5, "sticky");
        assert_eq!(next.policy.max_non_split_rounding, 64 * MIB, "sticky");
        assert_eq!(next.entry(Key::PerProcessMemoryFraction).source, Source::Text);
        assert_eq!(next.entry(Key::RoundupPower2Divisions).source, Source::Api);
        assert_eq!(next.entry(Key::MaxSplitSizeMb).source, Source::Preset);
        let reset: alloc::vec::Vec<_> = next
            .warnings
            .iter()
            .filter(|warning| warning.concern == Concern::Reset)
            .map(|warning| warning.key.as_str())
            .collect();
        assert_eq!(reset, ["max_split_size_mb", "garbage_collection_threshold"]);
    }
}
