//! Bins: the free blocks of one side of one pool on one stream, in a total order (**F2**).
//!
//! The order is (size, tie, slot). A bitmap says which size classes hold anything; a class is a sorted list
//! kept in chunks, so that no operation ever moves more than 64 keys.
//!
//! ```text
//!  units (of 512 B)   1 2 3 ... 255 | 256 258 260 ... 510 | 512 516 ...      128 classes an octave
//!  bitmap             1 0 1 ...  0  |  0   1   0  ...     |
//!                     |   \
//!                 near: [k9 .. k3 k1]  far: [[k.. k..] [..]]     descending: the smallest is the last
//! ```
//! Each word of the bitmap keeps the bins of its classes, up to the highest that ever held a block: a list costs what
//! it has held, not what the sizes reach to.
//!
//! **F1** a block is in its bin exactly while it is free. Search, insertion and removal are O(log n) with the
//! number of blocks in one class, and O(1) while that is at most 64.

use alloc::vec::Vec;

use crate::vocab::UNIT;

/// Classes an octave, as a power of two.
const STEP_BITS: u32 = 7;
/// Keys in a chunk at the most.
const CHUNK: usize = 64;
/// Words of the bitmap: enough for every size below 2^32 units.
const WORDS: usize = 52;

/// The largest block the bins can hold, in bytes: 2 TiB less one unit.
pub const MAX_BLOCK: u64 = crate::vocab::LARGEST_SEGMENT;

/// A free block in the order of its bin: size in units, tie, slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(u128);

impl Key {
    /// The key of a free block of `bytes` (at most [`MAX_BLOCK`]) in this slot.
    #[inline]
    #[must_use]
    pub const fn new(bytes: u64, tie: u64, slot: u32) -> Self {
        Self(((bytes / UNIT) as u128) << 96 | (tie as u128) << 32 | slot as u128)
    }

    /// The block's size in bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.units() as u64 * UNIT
    }

    /// The block's slot.
    #[inline]
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.0 as u32
    }

    const fn units(self) -> u32 {
        (self.0 >> 96) as u32
    }
}

/// Which class holds blocks of this many units. Monotone.
#[inline]
const fn class_of(units: u32) -> usize {
    if units < 1 << (STEP_BITS + 1) {
        return units as usize;
    }
    let shift = units.ilog2() - STEP_BITS;
    ((shift << STEP_BITS) + (units >> shift)) as usize
}

/// One class: `near` holds the smallest keys, `far` the rest in chunks; everything descends.
#[derive(Clone, Debug, Default)]
struct Bin {
    near: Vec<Key>,
    far: Vec<Vec<Key>>,
}

/// The smallest block of a class, and where it stands. Good until the bins change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Smallest {
    /// The block.
    pub key: Key,
    word: usize,
    place: usize,
}

/// 64 classes: which hold anything, and their bins, up to the highest that ever did.
#[derive(Clone, Debug)]
struct Word {
    bits: u64,
    bins: Vec<Bin>,
}

impl Word {
    const EMPTY: Self = Self { bits: 0, bins: Vec::new() };

    #[cold]
    fn open(&mut self, place: usize, key: Key) {
        self.bins.resize(place + 1, Bin::default());
        self.bins[place].insert(key);
    }

    /// The class has nothing near any more: whether no class has.
    #[inline]
    fn close(&mut self, place: usize) -> bool {
        let bin = &mut self.bins[place];
        match bin.far.pop() {
            Some(chunk) => bin.near = chunk,
            None => self.bits &= !(1 << place),
        }
        self.bits == 0
    }
}

/// The free blocks of one list.
#[derive(Clone, Debug)]
pub struct Bins {
    words: [Word; WORDS],
    /// Which words are not 0.
    summary: u64,
    len: usize,
}

impl Default for Bins {
    fn default() -> Self {
        Self { words: [Word::EMPTY; WORDS], summary: 0, len: 0 }
    }
}

impl Bins {
    /// Blocks held.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Classes that have a bin: they are made when first needed and stay.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.words.iter().map(|word| word.bins.len()).sum()
    }

    /// Whether no block is held.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bin of a class, if it ever held a block.
    #[inline(always)]
    fn bin(&self, class: usize) -> Option<&Bin> {
        self.words[class / 64].bins.get(class % 64)
    }

    /// The first block in the order that has at least `bytes`.
    #[must_use]
    pub fn find(&self, bytes: u64) -> Option<Key> {
        if let Some(found) = self.smallest(bytes) {
            return Some(found.key);
        }
        if bytes > MAX_BLOCK {
            return None;
        }
        let units = bytes.div_ceil(UNIT) as u32;
        self.at_or_after(Key(u128::from(units) << 96))
    }

    /// The next block in the order.
    #[must_use]
    pub fn after(&self, key: Key) -> Option<Key> {
        self.at_or_after(Key(key.0 + 1))
    }

    /// The first key that is not below `bound`.
    fn at_or_after(&self, bound: Key) -> Option<Key> {
        let class = class_of(bound.units());
        if let Some(bin) = self.bin(class)
            && let Some(&smallest) = bin.near.last()
        {
            if smallest >= bound {
                return Some(smallest);
            }
            if let Some(key) = bin.at_or_after(bound) {
                return Some(key);
            }
        }
        let (word, place) = self.next_class(class + 1)?;
        self.words[word].bins[place].near.last().copied()
    }

    /// The first class from `class` on that holds anything: its word, and its place there.
    #[inline]
    fn next_class(&self, class: usize) -> Option<(usize, usize)> {
        let word = class / 64;
        let rest = self.words.get(word)?.bits & (u64::MAX << (class % 64));
        if rest != 0 {
            return Some((word, rest.trailing_zeros() as usize));
        }
        let later = self.summary & (u64::MAX << word << 1);
        if later == 0 {
            return None;
        }
        let word = later.trailing_zeros() as usize;
        Some((word, self.words[word].bits.trailing_zeros() as usize))
    }

    /// Puts a free block in. The key must not be held already.
    #[inline(always)]
    pub fn insert(&mut self, key: Key) {
        let class = class_of(key.units());
        let word = &mut self.words[class / 64];
        match word.bins.get_mut(class % 64) {
            Some(bin) => bin.insert(key),
            None => word.open(class % 64, key),
        }
        word.bits |= 1 << (class % 64);
        self.summary |= 1 << (class / 64);
        self.len += 1;
    }

    /// The first block in the order that has at least `bytes`, if it is the smallest of its class: nearly every
    /// search ends so. `None` means only that this one did not.
    #[inline(always)]
    #[must_use]
    pub fn smallest(&self, bytes: u64) -> Option<Smallest> {
        if bytes > MAX_BLOCK {
            return None;
        }
        let units = bytes.div_ceil(UNIT) as u32;
        let (word, place) = self.next_class(class_of(units))?;
        let key = *self.words[word].bins[place].near.last()?;
        // Only a block of the request's own class can be too small.
        (key.units() >= units).then_some(Smallest { key, word, place })
    }

    /// Takes out what [`Bins::smallest`] found.
    #[inline(always)]
    pub fn take(&mut self, found: Smallest) {
        let word = &mut self.words[found.word];
        let near = &mut word.bins[found.place].near;
        let taken = near.pop();
        debug_assert!(taken == Some(found.key), "F1");
        self.len -= 1;
        if near.is_empty() && word.close(found.place) {
            self.summary &= !(1 << found.word);
        }
    }

    /// Whether no block comes after this one.
    #[must_use]
    pub fn is_last(&self, key: Key) -> bool {
        let Some(word) = self.summary.checked_ilog2() else { return true };
        let word = &self.words[word as usize];
        let bin = &word.bins[word.bits.ilog2() as usize];
        bin.far.first().unwrap_or(&bin.near).first() <= Some(&key)
    }

    /// Takes a block out. Returns whether it was held.
    #[inline(always)]
    pub fn remove(&mut self, key: Key) -> bool {
        let class = class_of(key.units());
        let word = &mut self.words[class / 64];
        let Some(bin) = word.bins.get_mut(class % 64) else { return false };
        if bin.near.last() == Some(&key) {
            bin.near.pop();
        } else if !bin.remove_inside(key) {
            return false;
        }
        self.len -= 1;
        if bin.near.is_empty() && word.close(class % 64) {
            self.summary &= !(1 << (class / 64));
        }
        true
    }

    /// All blocks in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Key> {
        let bins = self.words.iter().flat_map(|word| &word.bins);
        bins.flat_map(|bin| {
            bin.near
                .iter()
                .rev()
                .chain(bin.far.iter().rev().flat_map(|chunk| chunk.iter().rev()))
                .copied()
        })
    }
}

/// The place of the first key below `bound` in a descending list: as many keys are at or above it.
#[inline]
fn at_or_above(list: &[Key], bound: Key) -> usize {
    list.partition_point(|&key| key >= bound)
}

impl Bin {
    fn at_or_after(&self, bound: Key) -> Option<Key> {
        let place = at_or_above(&self.near, bound);
        if place > 0 {
            return Some(self.near[place - 1]);
        }
        let chunk = &self.far[self.chunk_for(bound)?];
        let place = at_or_above(chunk, bound);
        (place > 0).then(|| chunk[place - 1])
    }

    /// The last chunk (the one of the smallest keys) whose largest key is at or above `bound`.
    fn chunk_for(&self, bound: Key) -> Option<usize> {
        let chunks = self.far.partition_point(|chunk| chunk[0] >= bound);
        chunks.checked_sub(1)
    }

    #[inline]
    fn insert(&mut self, key: Key) {
        match self.near.last() {
            Some(&smallest) if key > smallest => self.insert_inside(key),
            _ => {
                self.near.push(key);
                if self.near.len() > CHUNK {
                    self.split_near();
                }
            }
        }
    }

    #[inline(never)]
    fn insert_inside(&mut self, key: Key) {
        if !self.far.is_empty() && key > self.near[0] {
            return self.insert_far(key);
        }
        let place = at_or_above(&self.near, key);
        self.near.insert(place, key);
        if self.near.len() > CHUNK {
            self.split_near();
        }
    }

    #[cold]
    fn split_near(&mut self) {
        let smaller = self.near.split_off(CHUNK / 2);
        self.far.push(core::mem::replace(&mut self.near, smaller));
    }

    fn insert_far(&mut self, key: Key) {
        let index = self.chunk_for(key).unwrap_or(0);
        let chunk = &mut self.far[index];
        let place = at_or_above(chunk, key);
        chunk.insert(place, key);
        if chunk.len() > CHUNK {
            let smaller = chunk.split_off(CHUNK / 2);
            self.far.insert(index + 1, smaller);
        }
    }

    #[inline(never)]
    fn remove_inside(&mut self, key: Key) -> bool {
        let place = at_or_above(&self.near, key);
        if place > 0 && self.near[place - 1] == key {
            self.near.remove(place - 1);
            return true;
        }
        self.remove_far(key)
    }

    fn remove_far(&mut self, key: Key) -> bool {
        let Some(index) = self.chunk_for(key) else { return false };
        let chunk = &mut self.far[index];
        let place = at_or_above(chunk, key);
        if place == 0 || chunk[place - 1] != key {
            return false;
        }
        chunk.remove(place - 1);
        if chunk.is_empty() {
            self.far.remove(index);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn classes_are_monotone_and_fit_the_bitmap() {
        let mut last = 0;
        for shift in 0..32 {
            for offset in [0u32, 1, 2, 31, 32, 33] {
                let units = (1u32 << shift).saturating_add(offset);
                if units < last {
                    continue;
                }
                assert!(class_of(units) >= class_of(last), "{units}");
                last = units;
            }
        }
        assert!(class_of(u32::MAX) < WORDS * 64);
    }

    /// F2: against a BTreeSet, with few sizes (long classes) and many.
    #[test]
    fn f2_search_order_is_that_of_a_sorted_set() {
        for spread in [3u64, 200, 1 << 20] {
            let (mut bins, mut set) = (Bins::default(), BTreeSet::new());
            let mut taken = 0;
            let mut seed = 0x9e37_79b9_7f4a_7c15u64 ^ spread;
            let mut next = move || {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed
            };
            for round in 0..20_000u32 {
                let key = Key::new((1 + next() % spread) * UNIT, next() % 50, next() as u32 % 64);
                if set.contains(&key) || (next() % 3 == 0 && !set.is_empty()) {
                    let gone = *set.range(key..).next().or(set.first()).unwrap();
                    assert!(set.remove(&gone) && bins.remove(gone));
                    assert!(!bins.remove(gone), "gone is gone");
                } else {
                    set.insert(key);
                    bins.insert(key);
                }
                let bytes = (1 + next() % spread) * UNIT;
                let expected = set.range(Key::new(bytes, 0, 0)..).next().copied();
                assert_eq!(bins.find(bytes), expected, "round {round}");
                let found = bins.smallest(bytes);
                assert!(found.is_none() || found.map(|found| found.key) == expected);
                if let Some(found) = found
                    && next() % 4 == 0
                {
                    bins.take(found);
                    assert!(!bins.remove(found.key), "what was taken is gone");
                    set.remove(&found.key);
                    taken += 1;
                    continue;
                }
                if let Some(key) = expected {
                    let after = set.range(key..).nth(1).copied();
                    assert_eq!(bins.after(key), after);
                    assert_eq!(bins.is_last(key), after.is_none());
                }
                assert_eq!(bins.len(), set.len());
            }
            assert!(taken > 100, "nearly every search ends at the smallest of a class");
            assert!(bins.iter().eq(set.iter().copied()));
            assert!(bins.iter().rev().eq(set.iter().rev().copied()));
        }
    }

    /// A list costs what it has held, not what the sizes reach to.
    #[test]
    fn a_block_makes_the_bins_of_its_word_and_no_others() {
        let mut bins = Bins::default();
        assert_eq!(bins.classes(), 0);
        for (bytes, classes) in [
            (MAX_BLOCK, 64),
            (MAX_BLOCK - UNIT, 64),
            (UNIT, 64 + 2),
            (15 * UNIT, 64 + 16),
            (64 * UNIT, 64 + 16 + 1),
        ] {
            bins.insert(Key::new(bytes, 0, 0));
            assert_eq!(bins.classes(), classes, "{bytes}");
        }
        assert!(bins.iter().is_sorted() && bins.iter().count() == 5);
    }

    /// Every class at once, and out again.
    #[test]
    fn every_class_has_a_bin() {
        let mut bins = Bins::default();
        let wide = (7..32).rev().flat_map(|log| (128..256).map(move |step| step << (log - 7)));
        let keys = wide.chain(1..128).map(|units: u64| Key::new(units * UNIT, 0, 0));
        let keys: Vec<Key> = keys.collect();
        keys.iter().for_each(|&key| bins.insert(key));
        assert_eq!((bins.len(), bins.classes()), (127 + 25 * 128, WORDS * 64));
        assert!(bins.iter().is_sorted() && bins.iter().count() == keys.len());
        assert!(keys.iter().all(|&key| bins.remove(key)));
        assert_eq!((bins.find(UNIT), bins.summary), (None, 0));
    }

    #[test]
    fn absurd_sizes_find_nothing() {
        let mut bins = Bins::default();
        bins.insert(Key::new(MAX_BLOCK, 0, 0));
        assert_eq!(bins.find(MAX_BLOCK).map(Key::bytes), Some(MAX_BLOCK));
        assert_eq!(bins.find(MAX_BLOCK + 1), None);
        assert_eq!(bins.find(u64::MAX), None);
    }
}
