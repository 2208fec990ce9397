//! Intervals: disjoint stretches of addresses, each with a value; equal neighbours are one stretch.
//!
//! Asked by the simulator's memory (which pages are mapped) and its judge (whose a stretch is).
//! Never knows what the values mean.

use std::collections::BTreeMap;

/// Half-open stretches `start..end`, by start.
#[derive(Clone, Debug)]
pub(super) struct Intervals<V> {
    map: BTreeMap<u64, (u64, V)>,
}

impl<V: Copy + PartialEq> Intervals<V> {
    /// No stretch.
    pub(super) const fn new() -> Self {
        Self { map: BTreeMap::new() }
    }

    /// Whether there is no stretch.
    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The stretches that share an address with `start..end`, whole, by address.
    pub(super) fn overlapping(
        &self,
        start: u64,
        end: u64,
    ) -> impl Iterator<Item = (u64, u64, V)> + '_ {
        let before = self.map.range(..=start).next_back().filter(|(_, (to, _))| *to > start);
        let first = before.map_or(start, |(&from, _)| from);
        self.map.range(first..end.max(first)).map(|(&from, &(to, value))| (from, to, value))
    }

    /// Whether any address of `start..end` has a value.
    pub(super) fn touches(&self, start: u64, end: u64) -> bool {
        self.overlapping(start, end).next().is_some()
    }

    /// Whether every address of `start..end` has a value.
    pub(super) fn covers(&self, start: u64, end: u64) -> bool {
        let mut reached = start;
        for (from, to, _) in self.overlapping(start, end) {
            if from > reached {
                return false;
            }
            reached = to;
        }
        reached >= end
    }

    /// Takes the value from every address of `start..end`.
    pub(super) fn clear(&mut self, start: u64, end: u64) {
        let cut: Vec<_> = self.overlapping(start, end).collect();
        for (from, to, value) in cut {
            self.map.remove(&from);
            if from < start {
                self.map.insert(from, (start, value));
            }
            if to > end {
                self.map.insert(end, (to, value));
            }
        }
    }

    /// Gives every address of `start..end` this value.
    pub(super) fn set(&mut self, start: u64, end: u64, value: V) {
        if start >= end {
            return;
        }
        self.clear(start, end);
        let before = self.map.range(..start).next_back().map(|(&from, &(to, old))| (from, to, old));
        let from = match before {
            Some((from, to, old)) if to == start && old == value => from,
            _ => start,
        };
        let to = match self.map.get(&end) {
            Some(&(to, old)) if old == value => {
                self.map.remove(&end);
                to
            }
            _ => end,
        };
        self.map.insert(from, (to, value));
    }
}

#[cfg(test)]
mod tests {
    use super::Intervals;
    use crate::device::random::Random;

    #[test]
    fn agrees_with_an_array() {
        let mut random = Random::new(1);
        let (mut intervals, mut array) = (Intervals::new(), [None; 64]);
        for _ in 0..5_000 {
            let start = random.below(64);
            let end = start + random.below(65 - start);
            if random.chance(500_000) {
                let value = random.below(3);
                intervals.set(start, end, value);
                array[start as usize..end as usize].fill(Some(value));
            } else {
                intervals.clear(start, end);
                array[start as usize..end as usize].fill(None);
            }
            for (index, &value) in array.iter().enumerate() {
                let at = index as u64;
                let found = intervals.overlapping(at, at + 1).next().map(|(_, _, value)| value);
                assert_eq!(found, value);
            }
            let (from, to) = (random.below(32), 32 + random.below(32));
            let slice = &array[from as usize..to as usize];
            assert_eq!(intervals.covers(from, to), slice.iter().all(Option::is_some));
            assert_eq!(intervals.touches(from, to), slice.iter().any(Option::is_some));
        }
    }

    #[test]
    fn equal_neighbours_are_one_stretch() {
        let mut intervals = Intervals::new();
        intervals.set(0, 4, 'a');
        intervals.set(8, 12, 'a');
        intervals.set(4, 8, 'a');
        assert_eq!(intervals.overlapping(5, 6).collect::<Vec<_>>(), [(0, 12, 'a')]);
        intervals.clear(0, 12);
        assert!(intervals.is_empty());
    }
}
