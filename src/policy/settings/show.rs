//! Show: values and the table of what is in force, as text.

use alloc::{
    format,
    string::{String, ToString},
};
use core::fmt;

use super::{Effective, Key, Source, Warning, divisions, error::Clipped};
use crate::{
    policy::{Backing, Ladder, LimitCheck, Policy},
    vocab::{GIB, KIB, MIB, Order},
};

/// A size in the largest unit that divides it.
pub(super) fn bytes(bytes: u64) -> String {
    let units = [(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}

/// What is in force for a setting.
pub(super) fn effective(policy: &Policy, key: Key) -> String {
    match key {
        Key::Backend => "native".into(),
        Key::MaxSplitSizeMb if policy.max_split == u64::MAX => "unlimited".into(),
        Key::MaxSplitSizeMb => bytes(policy.max_split),
        Key::MaxNonSplitRoundingMb if policy.max_split == u64::MAX => "unused".into(),
        Key::MaxNonSplitRoundingMb => bytes(policy.max_non_split_rounding),
        Key::LargeSegmentSizeMb => bytes(policy.large_segment),
        Key::RoundupPower2Divisions => steps(policy),
        Key::GarbageCollectionThreshold if !policy.collects() || policy.page_mapped() => {
            "off".into()
        }
        Key::GarbageCollectionThreshold => policy.collect_threshold.to_string(),
        Key::ExpandableSegments => flag(policy.page_mapped()),
        Key::PerProcessMemoryFraction => policy.memory_fraction.to_string(),
        Key::SmallLimit => bytes(policy.small_limit),
        Key::SmallSegmentMb => bytes(policy.small_segment),
        Key::LargeDirectMb => bytes(policy.large_direct),
        Key::SegmentGranuleMb => bytes(policy.segment_granule),
        Key::LargeRemainder => bytes(policy.large_remainder),
        Key::SmallPageMb | Key::LargePageMb => match policy.backing {
            Backing::Segments => "unused".into(),
            Backing::Pages { small, .. } if key == Key::SmallPageMb => bytes(small),
            Backing::Pages { large, .. } => bytes(large),
        },
        Key::TieOrder => match policy.order {
            Order::SegmentThenAddress => "segment".into(),
            Order::Address => "address".into(),
        },
        Key::PreferUngrowable => flag(policy.prefer_ungrowable),
        Key::OneDivisionCounts => flag(policy.one_division_counts),
        Key::LimitCheck => match policy.limit_check {
            LimitCheck::Segment => "segment".into(),
            LimitCheck::Exact => "exact".into(),
        },
        Key::Ladder if policy.ladder == Ladder::PYTORCH => "pytorch".into(),
        Key::Ladder if policy.ladder == Ladder::BLOCKYARD => "blockyard".into(),
        Key::Ladder => "custom".into(),
        Key::EvictPrivate => flag(policy.evict_private),
        Key::Borrow => flag(policy.borrow),
        Key::ExpandableSegmentsReserve | Key::ExpandableSegmentsReserveByClass => "9/8".into(),
        _ => "not modelled".into(),
    }
}

/// The divisions that count.
fn steps(policy: &Policy) -> String {
    let counts = |steps| steps > 1 || policy.one_division_counts;
    let table = policy.divisions.map(|steps| if counts(steps) { steps } else { 0 });
    if table.iter().all(|&steps| steps == 0) { "off".into() } else { divisions::to_text(&table) }
}

fn flag(on: bool) -> String {
    if on { "True".into() } else { "False".into() }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preset => f.write_str("preset"),
            Self::Text => f.write_str("text"),
            Self::Recording => f.write_str("recording"),
            Self::Environment(name) => f.write_str(name),
            Self::File(name) => write!(f, "{}", Clipped(name)),
            Self::Api => f.write_str("API"),
            Self::Follows(key) => write!(f, "follows {key}"),
        }
    }
}

/// `key: text`.
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", Clipped(&self.key), self.text)
    }
}

/// The table: one row a setting, columns aligned, no warnings.
impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["setting", "effective", "requested", "source"].map(String::from);
        let rows = self.entries.iter().map(|entry| {
            let requested = entry.requested.as_deref().map_or_else(|| "-".into(), clip);
            [entry.key.into(), entry.effective.clone(), requested, entry.source.to_string()]
        });
        let rows: alloc::vec::Vec<[String; 4]> = core::iter::once(head).chain(rows).collect();
        let width = |column: usize| {
            rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
        };
        let widths = [width(0), width(1), width(2)];
        for [setting, effective, requested, source] in &rows {
            writeln!(
                f,
                "{setting:a$}  {effective:b$}  {requested:c$}  {source}",
                a = widths[0],
                b = widths[1],
                c = widths[2]
            )?;
        }
        Ok(())
    }
}

fn clip(text: &str) -> String {
    Clipped(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::presets;

    #[test]
    fn sizes_print_in_the_largest_unit_that_divides_them() {
        for (size, text) in [
            (0, "0 bytes"),
            (700, "700 bytes"),
            (1536, "1536 bytes"),
            (KIB, "1 KiB"),
            (20 * MIB, "20 MiB"),
            (1025 * MIB, "1025 MiB"),
            (4 * GIB, "4 GiB"),
        ] {
            assert_eq!(bytes(size), text);
        }
    }

    #[test]
    fn what_has_no_effect_is_not_shown_as_effective() {
        let mut policy = presets::pytorch();
        policy.divisions = [1; 16];
        assert_eq!(effective(&policy, Key::RoundupPower2Divisions), "off");
        policy.divisions[15] = 8;
        assert_eq!(effective(&policy, Key::RoundupPower2Divisions), "[16384:0,>:8]");
        policy.one_division_counts = true;
        assert_eq!(effective(&policy, Key::RoundupPower2Divisions), "[16384:1,>:8]");
        (policy.collect_threshold, policy.memory_fraction) = (0.5, 0.5);
        assert_eq!(effective(&policy, Key::GarbageCollectionThreshold), "0.5");
        policy.backing = presets::pytorch_expandable().backing;
        assert_eq!(effective(&policy, Key::GarbageCollectionThreshold), "off");
        assert_eq!(effective(&policy, Key::MaxNonSplitRoundingMb), "unused");
    }
}
