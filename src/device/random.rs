//! Random: a small deterministic generator (SplitMix64), so that a seed is the whole of a fault
//! plan.
//!
//! Asked by the simulator's refusals, its hostile addresses and the laws. Never knows a clock or
//! the system's entropy: the same seed gives the same numbers on every machine.

/// A stream of numbers that its seed determines.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if `end` is 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        ((self.next() as u128 * end as u128) >> 64) as u64
    }

    /// True in `parts` of a million draws.
    pub const fn chance(&mut self, parts: u32) -> bool {
        self.below(1_000_000) < parts as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_seed_is_the_whole_stream() {
        let mut random = Random::new(0);
        // The published first outputs of SplitMix64 for seed 0.
        assert_eq!(random.next(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn below_and_chance_keep_their_bounds() {
        let mut random = Random::new(7);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert_eq!(random.below(0), 0);
        assert!((0..1000).all(|_| random.chance(1_000_000) && !random.chance(0)));
        let hits = (0..10_000).filter(|_| random.chance(250_000)).count();
        assert!((2_200..2_800).contains(&hits), "{hits}");
    }
}
