//! Grow: how much is asked of the driver for a request that the cache cannot serve.
//!
//! **G1** a segment is at least the request and a multiple of the granule.
//! Source: PyTorch's `get_allocation_size`; address ranges are 9/8 of the device.

use super::{Backing, Policy};
use crate::vocab::Class;

/// The segment for a rounded request, in bytes. O(1).
#[must_use]
pub const fn segment_bytes(policy: &Policy, rounded: u64) -> u64 {
    if rounded <= policy.small_limit {
        policy.small_segment
    } else if rounded < policy.large_direct {
        policy.large_segment
    } else {
        rounded.next_multiple_of(policy.segment_granule)
    }
}

/// The page size of one side of a pool, in bytes, if segments are page-mapped.
#[must_use]
pub const fn page_bytes(policy: &Policy, class: Class) -> Option<u64> {
    match (policy.backing, class) {
        (Backing::Segments, _) => None,
        (Backing::Pages { small, .. }, Class::Small) => Some(small),
        (Backing::Pages { large, .. }, Class::Large) => Some(large),
    }
}

/// The address range to reserve for page-mapped memory on a device of `total` bytes: 9/8 of it, in
/// whole pages, and never less than the request.
#[must_use]
pub const fn range_bytes(total: u64, page: u64, rounded: u64) -> u64 {
    let wanted = total / 8 * 9;
    let bytes = if wanted > rounded { wanted } else { rounded };
    bytes.next_multiple_of(page)
}

/// The address range to ask for where the whole one was refused: room for two such requests, and
/// for some pages.
#[must_use]
pub const fn frugal_range_bytes(page: u64, rounded: u64) -> u64 {
    let (some, two) = (FRUGAL_PAGES * page, rounded.saturating_mul(2));
    let bytes = if two > some { two } else { some };
    bytes.next_multiple_of(page)
}

/// Pages in the shortest frugal range.
const FRUGAL_PAGES: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{policy::presets, vocab::MIB};

    #[test]
    fn g1_segments_hold_their_request() {
        let policy = presets::pytorch();
        for (rounded, segment) in [
            (512, 2 * MIB),
            (MIB, 2 * MIB),
            (MIB + 512, 20 * MIB),
            (10 * MIB - 512, 20 * MIB),
            (10 * MIB, 10 * MIB),
            (10 * MIB + 512, 12 * MIB),
        ] {
            assert_eq!(segment_bytes(&policy, rounded), segment);
        }
    }
}
