//! Ranges: sets of addresses as disjoint ranges, and ranges with something known about them.
//!
//! Asked by the checks of consistency and of stream-safety.

use std::collections::BTreeMap;

/// A set of addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    by_start: BTreeMap<u64, u64>,
    bytes: u128,
}

impl Ranges {
    /// All its bytes.
    pub fn bytes(&self) -> u128 {
        self.bytes
    }

    /// Adds a range; says whether part of it was there already. O(log n) and what it swallows.
    pub fn add(&mut self, start: u64, end: u64) -> bool {
        if end <= start {
            return false;
        }
        let (mut low, mut high, mut overlap) = (start, end, false);
        while let Some((&from, &to)) = self.by_start.range(..=high).next_back() {
            if to < low {
                break;
            }
            overlap |= from < end && to > start;
            self.by_start.remove(&from);
            self.bytes -= u128::from(to - from);
            (low, high) = (low.min(from), high.max(to));
        }
        self.by_start.insert(low, high);
        self.bytes += u128::from(high - low);
        overlap
    }

    /// Takes a range out; says whether all of it was there.
    pub fn remove(&mut self, start: u64, end: u64) -> bool {
        let mut removed = 0u128;
        while let Some((&from, &to)) = self.by_start.range(..end).next_back() {
            if to <= start {
                break;
            }
            self.by_start.remove(&from);
            removed += u128::from(to.min(end) - from.max(start));
            if from < start {
                self.by_start.insert(from, start);
            }
            if to > end {
                self.by_start.insert(end, to);
            }
        }
        self.bytes -= removed;
        removed == u128::from(end.saturating_sub(start))
    }

    /// Whether all of a range is there.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        self.by_start.range(..=start).next_back().is_some_and(|(_, &to)| end <= to)
    }
}

/// Disjoint ranges with something known about each.
#[derive(Clone, Debug)]
pub(crate) struct Known<T> {
    by_start: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { by_start: BTreeMap::new() }
    }
}

impl<T: Copy> Known<T> {
    /// The lowest range that shares an address with `start..end`.
    pub fn hit(&self, start: u64, end: u64) -> Option<(u64, T)> {
        let below = self.by_start.range(..=start).next_back().filter(|(_, (to, _))| *to > start);
        let within = || self.by_start.range(start..end).next();
        below.or_else(within).map(|(&from, &(_, known))| (from, known))
    }

    /// Puts a range down over whatever was there.
    pub fn put(&mut self, start: u64, end: u64, known: T) {
        self.cut(start, end, |_| {});
        if end > start {
            self.by_start.insert(start, (end, known));
        }
    }

    /// Forgets a range and shows what was known under it; what sticks out stays.
    pub fn cut(&mut self, start: u64, end: u64, mut show: impl FnMut(T)) {
        while let Some((&from, &(to, known))) = self.by_start.range(..end).next_back() {
            if to <= start || end <= start {
                break;
            }
            self.by_start.remove(&from);
            show(known);
            if from < start {
                self.by_start.insert(from, (start, known));
            }
            if to > end {
                self.by_start.insert(end, (to, known));
            }
        }
    }

    /// Forgets the range that starts here.
    pub fn take(&mut self, start: u64) -> Option<T> {
        self.by_start.remove(&start).map(|(_, known)| known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_agree_with_a_bitmap() {
        let (mut ranges, mut bits) = (Ranges::default(), [false; 64]);
        let mut state = 7u64;
        for _ in 0..4000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let (a, b) = ((state >> 33) % 60, 1 + (state >> 50) % 4);
            let part = &mut bits[a as usize..(a + b) as usize];
            if state >> 63 == 0 {
                assert_eq!(ranges.add(a, a + b), part.contains(&true));
                part.fill(true);
            } else {
                assert_eq!(ranges.covers(a, a + b), part.iter().all(|&bit| bit));
                assert_eq!(ranges.remove(a, a + b), part.iter().all(|&bit| bit));
                part.fill(false);
            }
            assert_eq!(ranges.bytes(), bits.iter().filter(|&&bit| bit).count() as u128);
        }
    }

    #[test]
    fn what_is_known_is_cut_where_something_new_lies() {
        let mut known = Known::default();
        known.put(0, 10, 'a');
        known.put(4, 6, 'b');
        let at = |known: &Known<char>, place| known.hit(place, place + 1).map(|hit| hit.1);
        assert_eq!(
            [3, 4, 6, 10].map(|place| at(&known, place)),
            [Some('a'), Some('b'), Some('a'), None]
        );
        let mut seen = Vec::new();
        known.cut(5, 8, |what| seen.push(what));
        seen.sort_unstable();
        assert_eq!(seen, ['a', 'b']);
        assert_eq!(at(&known, 9), Some('a'));
        assert_eq!(known.hit(5, 20), Some((8, 'a')));
        assert_eq!(known.take(8), Some('a'));
    }
}
