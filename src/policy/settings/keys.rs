//! Keys: the name, kind of value and family of every setting.
//!
//! The one place that knows which settings exist. PyTorch's keys come first, in the order of its
//! documents, then ours for fields of a policy that PyTorch has no key for.

use alloc::string::String;
use core::fmt::Write as _;

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Key {
    /// `backend`: which of PyTorch's allocators.
    Backend,
    /// `max_split_size_mb`: blocks from this size on are not split.
    MaxSplitSizeMb,
    /// `max_non_split_rounding_mb`: how much too large such a block may be.
    MaxNonSplitRoundingMb,
    /// `large_segment_size_mb`: the segment of middling requests.
    LargeSegmentSizeMb,
    /// `roundup_power2_divisions`: rounding steps between powers of two.
    RoundupPower2Divisions,
    /// `garbage_collection_threshold`: idle segments are released above it.
    GarbageCollectionThreshold,
    /// `expandable_segments`: page-mapped segments.
    ExpandableSegments,
    /// `expandable_segments_reserve`: address space of a range.
    ExpandableSegmentsReserve,
    /// `expandable_segments_reserve_by_class`: the same by class.
    ExpandableSegmentsReserveByClass,
    /// `release_lock_on_cudamalloc`: no lock during driver calls.
    ReleaseLockOnCudamalloc,
    /// `per_process_memory_fraction`: share of the device that may be reserved.
    PerProcessMemoryFraction,
    /// `throw_on_cudamalloc_oom`: fail at the limit without a retry.
    ThrowOnCudamallocOom,
    /// `graph_capture_record_stream_reuse`: reuse across streams in a capture.
    GraphCaptureRecordStreamReuse,
    /// `pinned_use_cuda_host_register`: how host memory is pinned.
    PinnedUseCudaHostRegister,
    /// `pinned_num_register_threads`: threads that touch pinned pages.
    PinnedNumRegisterThreads,
    /// `pinned_use_background_threads`: events of pinned memory in the background.
    PinnedUseBackgroundThreads,
    /// `pinned_reserve_segment_size_mb`: one pinned slab up front.
    PinnedReserveSegmentSizeMb,
    /// `pinned_max_round_threshold_mb`: no rounding of pinned blocks above it.
    PinnedMaxRoundThresholdMb,
    /// `pinned_max_cached_size_mb`: pinned blocks above it are not kept.
    PinnedMaxCachedSizeMb,
    /// `pinned_free_catch_all`: failures of pinned frees are swallowed.
    PinnedFreeCatchAll,
    /// `Policy::small_limit`.
    SmallLimit,
    /// `Policy::small_segment`.
    SmallSegmentMb,
    /// `Policy::large_direct`.
    LargeDirectMb,
    /// `Policy::segment_granule`.
    SegmentGranuleMb,
    /// `Policy::large_remainder`.
    LargeRemainder,
    /// The small side's page of `Policy::backing`.
    SmallPageMb,
    /// The large side's page of `Policy::backing`.
    LargePageMb,
    /// `Policy::order`.
    TieOrder,
    /// `Policy::prefer_ungrowable`.
    PreferUngrowable,
    /// `Policy::one_division_counts`.
    OneDivisionCounts,
    /// `Policy::limit_check`.
    LimitCheck,
    /// `Policy::ladder`.
    Ladder,
    /// `Policy::evict_private`.
    EvictPrivate,
    /// `Policy::borrow`.
    Borrow,
}

/// What kind of value a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `True` or `False`.
    Flag,
    /// Whole MiB, at least this many.
    Mib(u64),
    /// Bytes: a whole number, or one with KiB, MiB or GiB.
    Size,
    /// A share; whether 0 and 1 themselves are allowed.
    Share { ends: bool },
    /// Rounding steps between powers of two.
    Divisions,
    /// A power of two from 1 to 128.
    Threads,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A word that is kept as it is.
    Free,
    /// A list that is kept as it is.
    FreeList,
}

/// Who knows a setting, and whether this engine acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// PyTorch's, and a field of the policy.
    PyTorch,
    /// PyTorch's, and without a part in this engine; why.
    Inert(&'static str),
    /// Ours: for settings files and the presets of this project.
    Own,
}

const PINNED: &str = "pinned host memory is not part of this policy";

impl Key {
    /// Every setting, in the order of the table.
    pub const ALL: [Self; 34] = [
        Self::Backend,
        Self::MaxSplitSizeMb,
        Self::MaxNonSplitRoundingMb,
        Self::LargeSegmentSizeMb,
        Self::RoundupPower2Divisions,
        Self::GarbageCollectionThreshold,
        Self::ExpandableSegments,
        Self::ExpandableSegmentsReserve,
        Self::ExpandableSegmentsReserveByClass,
        Self::ReleaseLockOnCudamalloc,
        Self::PerProcessMemoryFraction,
        Self::ThrowOnCudamallocOom,
        Self::GraphCaptureRecordStreamReuse,
        Self::PinnedUseCudaHostRegister,
        Self::PinnedNumRegisterThreads,
        Self::PinnedUseBackgroundThreads,
        Self::PinnedReserveSegmentSizeMb,
        Self::PinnedMaxRoundThresholdMb,
        Self::PinnedMaxCachedSizeMb,
        Self::PinnedFreeCatchAll,
        Self::SmallLimit,
        Self::SmallSegmentMb,
        Self::LargeDirectMb,
        Self::SegmentGranuleMb,
        Self::LargeRemainder,
        Self::SmallPageMb,
        Self::LargePageMb,
        Self::TieOrder,
        Self::PreferUngrowable,
        Self::OneDivisionCounts,
        Self::LimitCheck,
        Self::Ladder,
        Self::EvictPrivate,
        Self::Borrow,
    ];

    /// The setting's name in texts, files and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// The setting of that name or alias.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "release_lock_on_hipmalloc" => Some(Self::ReleaseLockOnCudamalloc),
            "pinned_use_hip_host_register" => Some(Self::PinnedUseCudaHostRegister),
            _ => Self::ALL.into_iter().find(|key| key.name() == name),
        }
    }

    /// Whether PyTorch knows the setting.
    #[must_use]
    pub fn is_pytorch(self) -> bool {
        !matches!(self.family(), Family::Own)
    }

    pub(super) const fn kind(self) -> Kind {
        self.row().1
    }

    pub(super) const fn family(self) -> Family {
        self.row().2
    }

    const fn row(self) -> (&'static str, Kind, Family) {
        use Family::{Inert, Own, PyTorch};
        use Kind::{Divisions, Flag, Free, FreeList, Mib, Share, Size, Threads, Word};
        match self {
            Self::Backend => (
                "backend",
                Word(&["native", "cudaMallocAsync"]),
                Inert("every policy here is a native one"),
            ),
            Self::MaxSplitSizeMb => ("max_split_size_mb", Mib(1), PyTorch),
            Self::MaxNonSplitRoundingMb => ("max_non_split_rounding_mb", Mib(1), PyTorch),
            Self::LargeSegmentSizeMb => ("large_segment_size_mb", Mib(11), PyTorch),
            Self::RoundupPower2Divisions => ("roundup_power2_divisions", Divisions, PyTorch),
            Self::GarbageCollectionThreshold => {
                ("garbage_collection_threshold", Share { ends: false }, PyTorch)
            }
            Self::ExpandableSegments => ("expandable_segments", Flag, PyTorch),
            Self::ExpandableSegmentsReserve => (
                "expandable_segments_reserve",
                Free,
                Inert("address ranges are always 9/8 of the device"),
            ),
            Self::ExpandableSegmentsReserveByClass => (
                "expandable_segments_reserve_by_class",
                FreeList,
                Inert("address ranges are always 9/8 of the device"),
            ),
            Self::ReleaseLockOnCudamalloc => (
                "release_lock_on_cudamalloc",
                Flag,
                Inert("the lock is never held during a driver call"),
            ),
            Self::PerProcessMemoryFraction => {
                ("per_process_memory_fraction", Share { ends: true }, PyTorch)
            }
            Self::ThrowOnCudamallocOom => (
                "throw_on_cudamalloc_oom",
                Flag,
                Inert("every rung is tried before out-of-memory is said"),
            ),
            Self::GraphCaptureRecordStreamReuse => (
                "graph_capture_record_stream_reuse",
                Flag,
                Inert("frees of other streams always wait for the end of a capture"),
            ),
            Self::PinnedUseCudaHostRegister => {
                ("pinned_use_cuda_host_register", Flag, Inert(PINNED))
            }
            Self::PinnedNumRegisterThreads => {
                ("pinned_num_register_threads", Threads, Inert(PINNED))
            }
            Self::PinnedUseBackgroundThreads => {
                ("pinned_use_background_threads", Flag, Inert(PINNED))
            }
            Self::PinnedReserveSegmentSizeMb => {
                ("pinned_reserve_segment_size_mb", Mib(1), Inert(PINNED))
            }
            Self::PinnedMaxRoundThresholdMb => {
                ("pinned_max_round_threshold_mb", Mib(0), Inert(PINNED))
            }
            Self::PinnedMaxCachedSizeMb => ("pinned_max_cached_size_mb", Mib(0), Inert(PINNED)),
            Self::PinnedFreeCatchAll => ("pinned_free_catch_all", Flag, Inert(PINNED)),
            Self::SmallLimit => ("small_limit", Size, Own),
            Self::SmallSegmentMb => ("small_segment_mb", Mib(1), Own),
            Self::LargeDirectMb => ("large_direct_mb", Mib(1), Own),
            Self::SegmentGranuleMb => ("segment_granule_mb", Mib(1), Own),
            Self::LargeRemainder => ("large_remainder", Size, Own),
            Self::SmallPageMb => ("small_page_mb", Mib(1), Own),
            Self::LargePageMb => ("large_page_mb", Mib(1), Own),
            Self::TieOrder => ("tie_order", Word(&["segment", "address"]), Own),
            Self::PreferUngrowable => ("prefer_ungrowable", Flag, Own),
            Self::OneDivisionCounts => ("one_division_counts", Flag, Own),
            Self::LimitCheck => ("limit_check", Word(&["segment", "exact"]), Own),
            Self::Ladder => ("ladder", Word(&["pytorch", "blockyard"]), Own),
            Self::EvictPrivate => ("evict_private", Flag, Own),
            Self::Borrow => ("borrow", Flag, Own),
        }
    }
}

impl Kind {
    /// What a value of this kind looks like, for error messages.
    pub(super) fn expected(self) -> String {
        match self {
            Self::Flag => "exactly True or False".into(),
            Self::Mib(0) => "a whole number of MiB".into(),
            Self::Mib(least) => alloc::format!("a whole number of MiB, at least {least}"),
            Self::Size => "bytes as a whole number, or one with KiB, MiB or GiB".into(),
            Self::Share { ends: false } => "a number above 0 and below 1".into(),
            Self::Share { ends: true } => "a number from 0 to 1".into(),
            Self::Divisions => "0, a power of two, or a list such as [256:1,512:2,>:8]".into(),
            Self::Threads => "a power of two from 1 to 128".into(),
            Self::Word(words) => one_of(words),
            Self::Free => "a fraction or a size such as 40G".into(),
            Self::FreeList => "a list such as [name:value,name:value]".into(),
        }
    }
}

/// `a`, `b` or `c`.
pub(super) fn one_of(words: &[&str]) -> String {
    let mut text = String::new();
    for (index, word) in words.iter().enumerate() {
        let join = match index {
            0 => "",
            _ if index + 1 == words.len() => " or ",
            _ => ", ",
        };
        let _ = write!(text, "{join}{word}");
    }
    text
}

/// The candidate that was probably meant: one that differs by a few letters, else one of which
/// `given` is a part or which is a part of it.
pub(super) fn nearest(
    given: &str,
    candidates: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    const LONGEST: usize = 64;
    if given.is_empty() || given.len() > LONGEST {
        return None;
    }
    let plain = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    let given = plain(given);
    let ranked = candidates.filter_map(|candidate| {
        let name = plain(candidate);
        let edits = edits(&given, &name);
        let shorter = name.len().min(given.len());
        let part = shorter >= 5 && (name.contains(&given) || given.contains(&name));
        let rank = if edits <= shorter / 4 { 0 } else { 1 };
        (rank == 0 || part).then_some((rank, edits, candidate))
    });
    ranked.min().map(|(_, _, candidate)| candidate)
}

/// How many letters must be put in, taken out or changed to turn one into the other. O(product of
/// lengths).
fn edits(from: &str, to: &str) -> usize {
    let mut row: alloc::vec::Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.bytes().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_in_order_and_names_are_unique() {
        for (index, key) in Key::ALL.into_iter().enumerate() {
            assert_eq!(key as usize, index, "{}", key.name());
            assert_eq!(Key::named(key.name()), Some(key));
        }
    }

    #[test]
    fn near_misses_name_the_key_that_was_meant() {
        let names = || Key::ALL.into_iter().map(Key::name);
        for (given, meant) in [
            ("max_split", Some("max_split_size_mb")),
            ("max_split_size", Some("max_split_size_mb")),
            ("max-split-size-mb", Some("max_split_size_mb")),
            ("expandable_segment", Some("expandable_segments")),
            ("Expandable_Segments", Some("expandable_segments")),
            ("garbage_collection_treshold", Some("garbage_collection_threshold")),
            ("expandable_segments_page_size", Some("expandable_segments")),
            ("zzz", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, names()), meant, "{given}");
        }
    }
}
