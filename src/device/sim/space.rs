//! Address space: which addresses are taken, and where the next stretch goes (invariant **D1**).
//!
//! Asked by the simulator's memory. Never knows capacity, pages or whose a stretch is.
//!
//! ```text
//!   base                                                             base + bytes
//!   | taken | free | taken      | free                                          |
//!             ^ the lowest that fits, whatever larger ones there are above
//! ```
//!
//! Free stretches stand in one map by address and in one set for each size class (a power of two of
//! granules). Every stretch of a higher class than the request fits, so only the request's own
//! class is walked.

use std::collections::{BTreeMap, BTreeSet};

use super::Placement;
use crate::device::random::Random;

/// The classes of a 64-bit count of granules.
const CLASSES: usize = 64;

/// The free stretches of one address space; sizes and addresses are multiples of the granule.
#[derive(Clone, Debug)]
pub(super) struct Space {
    granule: u64,
    free: BTreeMap<u64, u64>,
    by_class: Vec<BTreeSet<u64>>,
    hostile: Option<Random>,
    /// Hostile placement only: base handed out -> the whole stretch taken for it.
    padded: BTreeMap<u64, (u64, u64)>,
}

impl Space {
    /// `bytes` from `base`, all free.
    pub(super) fn new(base: u64, bytes: u64, granule: u64, placement: Placement) -> Self {
        let hostile = match placement {
            Placement::Lowest => None,
            Placement::Hostile { seed } => Some(Random::new(seed)),
        };
        let mut space = Self {
            granule,
            free: BTreeMap::new(),
            by_class: vec![BTreeSet::new(); CLASSES],
            hostile,
            padded: BTreeMap::new(),
        };
        let start = base.next_multiple_of(granule);
        let end = (base + bytes) / granule * granule;
        if start < end {
            space.insert(start, end - start);
        }
        space
    }

    /// Takes `bytes` and says where; `None`: no stretch is long enough.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        if self.hostile.is_some() { self.take_hostile(bytes) } else { self.take_lowest(bytes) }
    }

    /// Gives back what [`Space::take`] returned at `base` for the same `bytes`.
    pub(super) fn give(&mut self, base: u64, bytes: u64) {
        let (start, bytes) = self.padded.remove(&base).unwrap_or((base, bytes));
        let (mut from, mut to) = (start, start + bytes);
        if let Some((&before, &size)) = self.free.range(..from).next_back()
            && before + size == from
        {
            self.remove(before, size);
            from = before;
        }
        if let Some(&size) = self.free.get(&to) {
            self.remove(to, size);
            to += size;
        }
        self.insert(from, to - from);
    }

    fn take_lowest(&mut self, bytes: u64) -> Option<u64> {
        let (start, size) = self.lowest_fit(bytes)?;
        self.remove(start, size);
        if size > bytes {
            self.insert(start + bytes, size - bytes);
        }
        Some(start)
    }

    /// From the top or the bottom by a coin, with gaps of one to four granules on both sides.
    fn take_hostile(&mut self, bytes: u64) -> Option<u64> {
        let granule = self.granule;
        let random = self.hostile.as_mut()?;
        let (high, low_gap, high_gap) = (
            random.chance(700_000),
            (1 + random.below(4)) * granule,
            (1 + random.below(4)) * granule,
        );
        let whole = bytes.checked_add(low_gap + high_gap)?;
        let start = if high {
            let (&from, &size) = self.free.iter().rev().find(|(_, size)| **size >= whole)?;
            self.remove(from, size);
            if size > whole {
                self.insert(from, size - whole);
            }
            from + size - whole
        } else {
            self.take_lowest(whole)?
        };
        self.padded.insert(start + low_gap, (start, whole));
        Some(start + low_gap)
    }

    fn lowest_fit(&self, bytes: u64) -> Option<(u64, u64)> {
        let own = self.class(bytes);
        let larger = self.by_class[own + 1..].iter().filter_map(BTreeSet::first).min().copied();
        let limit = larger.unwrap_or(u64::MAX);
        let walk = self.by_class[own].range(..limit);
        let equal = walk.copied().find(|start| self.free[start] >= bytes);
        let start = equal.or(larger)?;
        Some((start, self.free[&start]))
    }

    fn class(&self, bytes: u64) -> usize {
        (bytes / self.granule).max(1).ilog2() as usize
    }

    fn insert(&mut self, start: u64, bytes: u64) {
        let class = self.class(bytes);
        self.free.insert(start, bytes);
        self.by_class[class].insert(start);
    }

    fn remove(&mut self, start: u64, bytes: u64) {
        let class = self.class(bytes);
        self.free.remove(&start);
        self.by_class[class].remove(&start);
    }
}

#[cfg(test)]
mod tests {
    use super::{Placement, Space};
    use crate::device::random::Random;

    const G: u64 = 2 << 20;

    /// The same by looking at every granule.
    fn naive(taken: &[bool], granules: usize) -> Option<usize> {
        (0..taken.len().checked_sub(granules)? + 1)
            .find(|&start| !taken[start..start + granules].iter().any(|&t| t))
    }

    #[test]
    fn takes_the_lowest_that_fits() {
        let mut random = Random::new(3);
        let mut space = Space::new(G, 200 * G, G, Placement::Lowest);
        let (mut taken, mut live) = (vec![false; 200], Vec::new());
        for _ in 0..20_000 {
            if random.chance(550_000) {
                let granules = 1 + random.below(12) as usize;
                let got = space.take(granules as u64 * G);
                let expected = naive(&taken, granules);
                assert_eq!(got, expected.map(|start| G + start as u64 * G));
                if let Some(start) = expected {
                    taken[start..start + granules].fill(true);
                    live.push((start, granules));
                }
            } else if !live.is_empty() {
                let (start, granules) = live.swap_remove(random.below(live.len() as u64) as usize);
                taken[start..start + granules].fill(false);
                space.give(G + start as u64 * G, granules as u64 * G);
            }
        }
    }

    #[test]
    fn all_that_was_given_back_is_one_stretch_again() {
        for placement in [Placement::Lowest, Placement::Hostile { seed: 5 }] {
            let mut space = Space::new(0, 1000 * G, G, placement);
            let bases: Vec<_> = (1..20).filter_map(|n| Some((space.take(n * G)?, n * G))).collect();
            assert_eq!(bases.len(), 19);
            bases.iter().rev().for_each(|&(base, bytes)| space.give(base, bytes));
            assert_eq!(space.free.iter().collect::<Vec<_>>(), [(&0, &(1000 * G))]);
            assert!(space.padded.is_empty());
        }
    }

    #[test]
    fn hostile_addresses_never_touch_and_reach_the_top() {
        let top = 1 << 47;
        let mut space = Space::new(top - 4000 * G, 4000 * G, G, Placement::Hostile { seed: 1 });
        let mut bases: Vec<_> = (0..100).filter_map(|_| space.take(3 * G)).collect();
        assert_eq!(bases.len(), 100);
        bases.sort_unstable();
        assert!(bases.windows(2).all(|pair| pair[1] - pair[0] > 3 * G));
        assert!(bases[99] + 8 * G >= top, "{:#x}", bases[99]);
    }

    #[test]
    fn an_unaligned_space_keeps_its_whole_granules() {
        let mut space = Space::new(G / 2, 2 * G, G, Placement::Lowest);
        assert_eq!(space.take(G), Some(G));
        assert_eq!(space.take(G), None);
    }

    #[test]
    fn tens_of_thousands_of_holes_stay_fast() {
        // 40,000 holes of one granule; requests of two must not walk over them.
        let mut space = Space::new(0, 1 << 44, G, Placement::Lowest);
        let bases: Vec<_> = (0..80_000).filter_map(|_| space.take(G)).collect();
        bases.iter().step_by(2).for_each(|&base| space.give(base, G));
        let started = std::time::Instant::now();
        for n in 0..40_000 {
            assert_eq!(space.take(2 * G), Some((80_000 + 2 * n) * G));
        }
        assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    }
}
