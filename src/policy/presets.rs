//! Presets: named policies.

use super::{Backing, LARGE_SEGMENT, Ladder, LimitCheck, Policy, size::DIVISION_ENTRIES};
use crate::vocab::{MIB, Order, UNIT};

/// PyTorch's rules with its default settings (2.15's tie rule).
#[must_use]
pub fn pytorch() -> Policy {
    Policy {
        name: "pytorch".into(),
        divisions: [0; DIVISION_ENTRIES],
        one_division_counts: false,
        small_limit: MIB,
        small_segment: 2 * MIB,
        large_segment: LARGE_SEGMENT,
        large_direct: 10 * MIB,
        segment_granule: 2 * MIB,
        max_split: u64::MAX,
        max_non_split_rounding: LARGE_SEGMENT,
        large_remainder: MIB,
        backing: Backing::Segments,
        order: Order::SegmentThenAddress,
        prefer_ungrowable: true,
        collect_threshold: 0.0,
        memory_fraction: 1.0,
        limit_check: LimitCheck::Segment,
        ladder: Ladder::PYTORCH,
        evict_private: false,
        borrow: false,
        refuse_impossible: false,
    }
}

/// PyTorch's rules with `expandable_segments:True`.
#[must_use]
pub fn pytorch_expandable() -> Policy {
    Policy {
        name: "pytorch-expandable".into(),
        backing: Backing::Pages { small: 2 * MIB, large: LARGE_SEGMENT },
        ..pytorch()
    }
}

/// Ours: page-mapped segments of 2 MiB pages, and the known defects mended. Pending frees that were
/// waited for are searched again; private pools release and retry; memory that the driver does not
/// have is borrowed from other streams behind their fences; a small request takes large memory
/// rather than fail; a request larger than the device fails without emptying the cache; one
/// division means the next power of two; the limit counts what is really taken.
#[must_use]
pub fn blockyard() -> Policy {
    Policy {
        name: "blockyard".into(),
        backing: Backing::Pages { small: 2 * MIB, large: 2 * MIB },
        ..blockyard_native()
    }
}

/// Ours for devices without virtual memory: whole segments.
#[must_use]
pub fn blockyard_native() -> Policy {
    Policy {
        name: "blockyard-native".into(),
        one_division_counts: true,
        limit_check: LimitCheck::Exact,
        ladder: Ladder::BLOCKYARD,
        evict_private: true,
        borrow: true,
        refuse_impossible: true,
        ..pytorch()
    }
}

/// For page-locked host memory, whose blocks are large, few, and dear to make: a request above 1 MiB
/// gets a segment of its own, in whole granules, and what is free serves only requests less than a
/// granule smaller. So no block wastes a granule, no large one is lost to a small request, and
/// sizes that are a little different share blocks. Small requests share segments. Nothing is
/// borrowed: the host, which writes such memory, cannot be ordered behind a stream.
#[must_use]
pub fn pinned() -> Policy {
    Policy {
        name: "pinned".into(),
        large_direct: MIB + UNIT,
        large_segment: 2 * MIB,
        max_split: 2 * MIB + UNIT,
        max_non_split_rounding: 2 * MIB,
        borrow: false,
        ..blockyard_native()
    }
}

/// The preset of that name, if there is one.
#[must_use]
pub fn named(name: &str) -> Option<Policy> {
    match name {
        "pytorch" => Some(pytorch()),
        "pytorch-expandable" => Some(pytorch_expandable()),
        "blockyard" => Some(blockyard()),
        "blockyard-native" => Some(blockyard_native()),
        "pinned" => Some(pinned()),
        _ => None,
    }
}

/// Every preset's name.
pub const NAMES: [&str; 5] =
    ["pytorch", "pytorch-expandable", "blockyard", "blockyard-native", "pinned"];
