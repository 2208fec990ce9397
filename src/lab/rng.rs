//! Rng: random numbers from a seed, the same on every machine and in every release.
//!
//! Owns one 64-bit state (SplitMix64, by Steele, Lea and Flood). Asked by tests and worlds. Never
//! knows the time: who wants another run gives another seed.

/// A source of random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The source that this seed names. Every seed is good, 0 too.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Any 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 when `end` is 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        ((self.bits() as u128 * end as u128) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        let span = high.saturating_sub(low);
        if span == u64::MAX { self.bits() } else { low + self.below(span + 1) }
    }

    /// True `of` times in `all`.
    pub const fn chance(&mut self, of: u64, all: u64) -> bool {
        self.below(all) < of
    }

    /// A number from 1 to `high` whose magnitude, not its value, is evenly spread.
    pub fn magnitude(&mut self, high: u64) -> u64 {
        let high = high.max(1);
        let top = self.below(u64::from(high.ilog2()) + 1);
        let low = 1u64 << top;
        self.between(low, high.min(low + (low - 1)))
    }

    /// One of `items`; `None` when there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u64) as usize)
    }

    /// An index drawn in proportion to its weight; `None` when all weights are 0.
    pub fn weighted(&mut self, weights: &[u32]) -> Option<usize> {
        let mut left = self.below(weights.iter().map(|&weight| u64::from(weight)).sum());
        weights.iter().position(|&weight| {
            let here = left < u64::from(weight);
            left = left.saturating_sub(u64::from(weight));
            here
        })
    }

    /// A source of its own, for a part that must not depend on how much the others draw.
    #[must_use]
    pub const fn fork(&mut self) -> Self {
        Self::new(self.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference output of SplitMix64 for seed 1234567.
    #[test]
    fn a_seed_names_one_sequence_forever() {
        let mut rng = Rng::new(1_234_567);
        let drawn = [rng.bits(), rng.bits(), rng.bits()];
        assert_eq!(
            drawn,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn ranges_are_kept_and_filled() {
        let mut rng = Rng::new(0);
        let mut seen = [0u32; 8];
        for _ in 0..8000 {
            seen[rng.below(8) as usize] += 1;
            assert!((3..=5).contains(&rng.between(3, 5)));
            assert!((1..=1000).contains(&rng.magnitude(1000)));
        }
        assert!(seen.iter().all(|&count| count > 800), "{seen:?}");
        assert_eq!((rng.below(0), rng.below(1), rng.between(9, 9)), (0, 0, 9));
    }

    #[test]
    fn weights_decide_how_often() {
        let mut rng = Rng::new(5);
        let mut seen = [0u32; 4];
        for _ in 0..6000 {
            seen[rng.weighted(&[1, 0, 2, 3]).expect("some weigh")] += 1;
        }
        assert_eq!(seen[1], 0);
        assert!(seen[0] < seen[2] && seen[2] < seen[3], "{seen:?}");
        assert_eq!(rng.weighted(&[0, 0]), None);
        assert_eq!(rng.pick::<u8>(&[]), None);
    }

    #[test]
    fn a_fork_goes_its_own_way() {
        let mut rng = Rng::new(5);
        let mut fork = rng.fork();
        assert_ne!(fork.bits(), rng.bits());
    }
}
