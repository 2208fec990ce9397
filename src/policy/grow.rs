//! Grow: how much is asked of the driver for a request that the cache cannot serve.
//!
//! **G1** a segment is at least the request and a multiple of the granule.
//! Source: PyTorch's `get_allocation_size`; address ranges are 9/8 of the device.

use super::{Backing, Policy, size};
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

/// The smallest segment for a rounded request, in bytes. O(1).
#[must_use]
pub const fn least_segment_bytes(policy: &Policy, rounded: u64) -> u64 {
    rounded.next_multiple_of(policy.segment_granule)
}

/// As [`largest_within`], of the sizes whose smallest segment has at most `room` bytes. O(1).
#[must_use]
pub fn largest_least_within(policy: &Policy, over: u64, most: u64, room: u64) -> Option<u64> {
    let whole = room / policy.segment_granule * policy.segment_granule;
    let size = size::floor(policy, most.min(whole));
    (size > over).then_some(size)
}

/// The largest rounded size above `over` and at most `most` whose segment has at most `room` bytes,
/// if any. O(1).
#[must_use]
pub fn largest_within(policy: &Policy, over: u64, most: u64, room: u64) -> Option<u64> {
    let own = (
        policy.large_direct.saturating_sub(1),
        room / policy.segment_granule * policy.segment_granule,
    );
    let of = |segment: u64, most: u64| if segment <= room { most } else { 0 };
    let middling = of(policy.large_segment, policy.large_direct.saturating_sub(1));
    let small = of(policy.small_segment, policy.small_limit);
    let steps =
        [(own.0.max(policy.small_limit), own.1), (policy.small_limit, middling), (0, small)];
    steps.into_iter().find_map(|(above, upto)| {
        let size = size::floor(policy, most.min(upto));
        (size > over.max(above)).then_some(size)
    })
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
