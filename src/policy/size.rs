//! Size: how many bytes a request really gets, and on which side of the pool.
//!
//! **Z1** `round(n) >= n`, idempotent, monotone. **Z2** the class is monotone in the size.
//! Sources: PyTorch's `round_size` and `get_pool`, restated in `docs/invariants.md`.

use super::Policy;
use crate::vocab::{Class, MIB, UNIT};

/// Entries of the divisions table: one for each power of two from 1 MiB to 32 GiB.
pub const DIVISION_ENTRIES: usize = 16;

/// Requests from this size on cannot be meant: 1 EiB.
pub const IMPOSSIBLE: u64 = 1 << 60;

/// Which entry of the divisions table rules `bytes`.
#[must_use]
pub const fn division_index(bytes: u64) -> usize {
    if bytes < 2 * MIB {
        return 0;
    }
    let index = (bytes.ilog2() - MIB.ilog2()) as usize;
    if index < DIVISION_ENTRIES { index } else { DIVISION_ENTRIES - 1 }
}

/// The block size for a request of `bytes`, in bytes. O(1). Callers keep `bytes` below [`IMPOSSIBLE`].
#[inline]
#[must_use]
pub fn round(policy: &Policy, bytes: u64) -> u64 {
    if bytes <= UNIT {
        return UNIT;
    }
    let divisions = u64::from(policy.divisions[division_index(bytes)]);
    let counts = divisions > 1 || (divisions == 1 && policy.one_division_counts);
    if counts && bytes > UNIT * divisions {
        return round_to_division(bytes, divisions);
    }
    bytes.next_multiple_of(UNIT)
}

/// The next of `divisions` equal steps between the power of two below `bytes` and the one above.
fn round_to_division(bytes: u64, divisions: u64) -> u64 {
    if bytes.is_power_of_two() {
        return bytes;
    }
    let floor = 1u64 << bytes.ilog2();
    let step = floor >> divisions.ilog2();
    if step == 0 { floor << 1 } else { bytes.next_multiple_of(step) }
}

/// The largest rounded size of at most `bytes`; 0 where there is none. O(1).
#[must_use]
pub fn floor(policy: &Policy, bytes: u64) -> u64 {
    let whole = bytes.min(IMPOSSIBLE - 1) / UNIT * UNIT;
    if whole == 0 || round(policy, whole) == whole {
        return whole;
    }
    let divisions = u64::from(policy.divisions[division_index(whole)]);
    let power = 1u64 << whole.ilog2();
    let step = power >> divisions.ilog2();
    whole.checked_div(step).map_or(power, |steps| steps * step)
}

/// The side of the pool for a rounded size. O(1).
#[inline]
#[must_use]
pub const fn class(policy: &Policy, rounded: u64) -> Class {
    if rounded <= policy.small_limit { Class::Small } else { Class::Large }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::presets;

    fn with_divisions(divisions: u32) -> Policy {
        let mut policy = presets::pytorch();
        policy.divisions = [divisions; DIVISION_ENTRIES];
        policy
    }

    #[test]
    fn requests_round_up_to_512_bytes() {
        let policy = presets::pytorch();
        for (bytes, rounded) in
            [(1, 512), (512, 512), (513, 1024), (1000, 1024), (1 << 20, 1 << 20)]
        {
            assert_eq!(round(&policy, bytes), rounded);
        }
    }

    #[test]
    fn k19_divisions_round_as_pytorch_does() {
        const KIB: u64 = 1024;
        for divisions in [4, 8] {
            let policy = with_divisions(divisions);
            assert_eq!(round(&policy, 1200 * KIB), 1280 * KIB);
            for kib in [1001, 1021, 1023] {
                assert_eq!(round(&policy, kib * KIB), 1024 * KIB);
            }
        }
        for (divisions, mib) in [(1, 514), (2, 768), (4, 640), (8, 576)] {
            assert_eq!(
                round(&with_divisions(divisions), 514 * MIB),
                mib * MIB,
                "{divisions} divisions"
            );
        }
        assert_eq!(
            round(&with_divisions(4), 1200),
            1536,
            "below 512 x divisions: the next 512-multiple"
        );
        let mut ours = with_divisions(1);
        ours.one_division_counts = true;
        assert_eq!(round(&ours, 514 * MIB), 1024 * MIB);
    }

    /// Z1 and Z2 over a grid around every step.
    #[test]
    fn z1_rounding_is_idempotent_and_monotone() {
        for divisions in [0, 1, 2, 4, 8, 16] {
            let policy = with_divisions(divisions);
            let mut last = (0, 0, Class::Small);
            let mut sizes: alloc::vec::Vec<u64> = (0..46)
                .flat_map(|shift| {
                    [-513i64, -512, -1, 0, 1, 511, 512, 513].map(|d| (1i64 << shift) + d)
                })
                .filter(|&n| n > 0)
                .map(|n| n as u64)
                .collect();
            sizes.sort_unstable();
            for bytes in sizes {
                let rounded = round(&policy, bytes);
                assert!(rounded >= bytes && rounded.is_multiple_of(UNIT));
                assert_eq!(round(&policy, rounded), rounded, "{bytes} with {divisions}");
                assert!(rounded >= last.1, "{bytes} rounds below {}", last.0);
                let below = floor(&policy, bytes);
                assert!(below <= bytes && (below == 0 || round(&policy, below) == below));
                assert!(rounded == below || round(&policy, below + 1) == rounded, "{bytes}");
                let class = class(&policy, rounded);
                assert!(class >= last.2);
                last = (bytes, rounded, class);
            }
        }
    }
}
