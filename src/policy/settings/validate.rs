//! Validate: whether a policy's numbers hold together.
//!
//! Whatever passes here can be run: sizes stay far from overflow (G1, Z1), segments hold what they
//! are asked for, and pages are pages that a driver can map.

use alloc::format;

use super::{Key, SettingsError, show};
use crate::{
    policy::{Backing, Policy, size::IMPOSSIBLE},
    vocab::{MIB, UNIT},
};

/// Whether the policy can be run.
///
/// # Errors
/// The first setting that does not fit the others, by name.
pub fn validate(policy: &Policy) -> Result<(), SettingsError> {
    for (key, bytes) in [
        (Key::SmallLimit, policy.small_limit),
        (Key::SmallSegmentMb, policy.small_segment),
        (Key::LargeSegmentSizeMb, policy.large_segment),
        (Key::LargeDirectMb, policy.large_direct),
        (Key::SegmentGranuleMb, policy.segment_granule),
    ] {
        let sound = bytes > 0 && bytes.is_multiple_of(UNIT) && bytes < IMPOSSIBLE;
        ensure(sound, key, || format!("a multiple of {UNIT} bytes above 0 and below 1 EiB"))?;
    }
    let remainder = policy.large_remainder;
    let sound = remainder.is_multiple_of(UNIT) && remainder < IMPOSSIBLE;
    ensure(sound, Key::LargeRemainder, || format!("a multiple of {UNIT} bytes below 1 EiB"))?;
    let split = policy.max_split;
    ensure(
        split == u64::MAX || (split > 0 && split.is_multiple_of(UNIT)),
        Key::MaxSplitSizeMb,
        || format!("a multiple of {UNIT} bytes above 0"),
    )?;
    ensure(policy.max_non_split_rounding > 0, Key::MaxNonSplitRoundingMb, || "more than 0".into())?;
    orders(policy)?;
    pages(policy)?;
    shares(policy)?;
    let steps = policy.divisions.iter().all(|&steps| steps == 0 || steps.is_power_of_two());
    ensure(steps, Key::RoundupPower2Divisions, || "0 or powers of two".into())
}

/// G1: segments hold every request that is sent to them.
fn orders(policy: &Policy) -> Result<(), SettingsError> {
    ensure(policy.small_limit <= policy.small_segment, Key::SmallLimit, || {
        format!("at most small_segment_mb ({})", show::bytes(policy.small_segment))
    })?;
    ensure(policy.large_direct <= policy.large_segment, Key::LargeDirectMb, || {
        format!("at most large_segment_size_mb ({})", show::bytes(policy.large_segment))
    })
}

/// A page is a multiple of 2 MiB, or (for tests and other devices) a power of two of at least one
/// unit.
fn pages(policy: &Policy) -> Result<(), SettingsError> {
    let Backing::Pages { small, large } = policy.backing else {
        return Ok(());
    };
    for (key, page) in [(Key::SmallPageMb, small), (Key::LargePageMb, large)] {
        let sound = (UNIT..IMPOSSIBLE).contains(&page)
            && (page.is_multiple_of(2 * MIB) || page.is_power_of_two());
        ensure(sound, key, || format!("a multiple of 2 MiB, is {}", show::bytes(page)))?;
    }
    Ok(())
}

fn shares(policy: &Policy) -> Result<(), SettingsError> {
    let threshold = policy.collect_threshold;
    ensure((0.0..1.0).contains(&threshold), Key::GarbageCollectionThreshold, || {
        "0 (off) or a number below 1".into()
    })?;
    let fraction = policy.memory_fraction;
    ensure((0.0..=1.0).contains(&fraction), Key::PerProcessMemoryFraction, || {
        "a number from 0 to 1".into()
    })
}

fn ensure(
    holds: bool,
    key: Key,
    expected: impl FnOnce() -> alloc::string::String,
) -> Result<(), SettingsError> {
    if holds { Ok(()) } else { Err(SettingsError::expected(&expected()).of(key)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::presets;

    #[test]
    fn every_preset_and_the_tiny_policy_hold() {
        for name in presets::NAMES {
            validate(&presets::named(name).unwrap()).unwrap();
        }
        validate(&Policy::tiny()).unwrap();
    }

    #[test]
    fn each_rule_names_its_setting() {
        type Spoil = fn(&mut Policy);
        let spoil: [(Key, Spoil); 17] = [
            (Key::SmallLimit, |p| p.small_limit = 0),
            (Key::SmallLimit, |p| p.small_limit = 700),
            (Key::SmallLimit, |p| p.small_limit = 4 * MIB),
            (Key::SmallSegmentMb, |p| p.small_segment = 1 << 60),
            (Key::LargeSegmentSizeMb, |p| p.large_segment = 513),
            (Key::LargeDirectMb, |p| p.large_direct = 40 * MIB),
            (Key::SegmentGranuleMb, |p| p.segment_granule = 0),
            (Key::SegmentGranuleMb, |p| p.segment_granule = 1000),
            (Key::LargeRemainder, |p| p.large_remainder = 1),
            (Key::MaxSplitSizeMb, |p| p.max_split = 0),
            (Key::MaxNonSplitRoundingMb, |p| p.max_non_split_rounding = 0),
            (Key::SmallPageMb, |p| p.backing = Backing::Pages { small: 0, large: MIB }),
            (Key::LargePageMb, |p| p.backing = Backing::Pages { small: UNIT, large: 21 * MIB }),
            (Key::GarbageCollectionThreshold, |p| p.collect_threshold = f64::NAN),
            (Key::GarbageCollectionThreshold, |p| p.collect_threshold = 1.0),
            (Key::PerProcessMemoryFraction, |p| p.memory_fraction = -0.1),
            (Key::RoundupPower2Divisions, |p| p.divisions[3] = 3),
        ];
        for (key, spoil) in spoil {
            let mut policy = presets::pytorch();
            spoil(&mut policy);
            assert_eq!(validate(&policy).unwrap_err().key.as_deref(), Some(key.name()));
        }
    }
}
