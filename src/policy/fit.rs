//! Fit: whether a free block may serve a request, and whether its tail is split off.
//!
//! **T1** `accepts(b, n)` implies `b >= n`. **T2** a split leaves nothing or at least one unit.
//! Sources: PyTorch's oversize rules in `get_free_block`, and `should_split`.

use super::Policy;
use crate::vocab::{Class, UNIT};

/// Whether a free block of `block` bytes may serve a request of `size` bytes. O(1).
#[inline]
#[must_use]
pub const fn accepts(policy: &Policy, block: u64, size: u64) -> bool {
    if block < size {
        return false;
    }
    if size < policy.max_split {
        block < policy.max_split
    } else {
        block - size < policy.max_non_split_rounding
    }
}

/// Whether the tail of a block of `block` bytes is split off when it serves `size` bytes. O(1).
#[inline]
#[must_use]
pub const fn splits(policy: &Policy, class: Class, block: u64, size: u64) -> bool {
    let remaining = block - size;
    if matches!(class, Class::Small) || policy.page_mapped() {
        remaining >= UNIT
    } else {
        size < policy.max_split && remaining > policy.large_remainder
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{policy::presets, vocab::MIB};

    #[test]
    fn oversize_blocks_serve_only_requests_of_their_kind() {
        let mut policy = presets::pytorch();
        policy.max_split = 200 * MIB;
        assert!(!accepts(&policy, 300 * MIB, 100 * MIB), "an oversize block for a normal request");
        assert!(accepts(&policy, 206 * MIB, 200 * MIB));
        assert!(accepts(&policy, 220 * MIB - UNIT, 200 * MIB));
        assert!(!accepts(&policy, 220 * MIB, 200 * MIB), "20 MiB too large is too large");
        assert!(!accepts(&policy, 64, 65));
    }

    #[test]
    fn large_blocks_split_only_above_the_remainder() {
        let policy = presets::pytorch();
        assert!(!splits(&policy, Class::Large, 3 * MIB, 2 * MIB), "a remainder of 1 MiB stays");
        assert!(splits(&policy, Class::Large, 3 * MIB + UNIT, 2 * MIB));
        assert!(splits(&policy, Class::Small, 1024, 512));
        assert!(!splits(&policy, Class::Small, 512, 512));
    }
}
