//! Journal: the last changes, in order, in bounded memory.
//!
//! **J1** the ring loses oldest first and says how many.
//!
//! Owns a ring of changes with sequence numbers. Asked by reports ("what led to this") and by
//! recorders. Never knows a clock: a sequence number is its only time.

use alloc::vec::Vec;

use crate::vocab::{Change, Observe};

/// One change and its place in the order of all changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// 0 for the first change ever observed.
    pub sequence: u64,
    /// What changed.
    pub change: Change,
}

/// The last changes.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// Until full, by sequence; from then on the oldest stands at `oldest`.
    ring: Vec<Change>,
    oldest: usize,
    capacity: usize,
    observed: u64,
}

impl Journal {
    /// A journal that keeps the last `capacity` changes; 0 keeps none and still counts.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self { ring: Vec::new(), oldest: 0, capacity, observed: 0 }
    }

    /// How many changes are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// How many changes were ever observed: the next one's sequence number.
    #[must_use]
    pub const fn observed(&self) -> u64 {
        self.observed
    }

    /// How many of the oldest changes are gone (**J1**): the sequence number of the oldest kept.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.observed - self.ring.len() as u64
    }

    /// What is kept, oldest first.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let (newer, older) = self.ring.split_at(self.oldest);
        let changes = older.iter().chain(newer);
        (self.lost()..).zip(changes).map(|(sequence, &change)| Record { sequence, change })
    }

    /// Forgets what is kept; it counts as lost.
    pub fn clear(&mut self) {
        self.ring.clear();
        self.oldest = 0;
    }

    #[cold]
    fn fill(&mut self, change: Change) {
        self.ring.push(change);
    }
}

impl Observe for Journal {
    #[inline]
    fn observe(&mut self, change: Change) {
        self.observed += 1;
        if self.ring.len() < self.capacity {
            self.fill(change);
        } else if let Some(slot) = self.ring.get_mut(self.oldest) {
            *slot = change;
            self.oldest += 1;
            if self.oldest == self.capacity {
                self.oldest = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::Class;

    fn change(bytes: i64) -> Change {
        Change::InactiveSplit { class: Class::Small, blocks: 0, bytes }
    }

    fn kept(journal: &Journal) -> Vec<(u64, Change)> {
        journal.records().map(|record| (record.sequence, record.change)).collect()
    }

    #[test]
    fn j1_the_oldest_are_lost_first_and_counted() {
        for capacity in 1..5usize {
            let mut journal = Journal::new(capacity);
            for n in 0..13 {
                journal.observe(change(n));
                let first = (n as u64 + 1).saturating_sub(capacity as u64);
                let expected: Vec<_> = (first..=n as u64).map(|s| (s, change(s as i64))).collect();
                assert_eq!(kept(&journal), expected, "capacity {capacity}");
                assert_eq!(journal.lost(), first);
            }
        }
    }

    #[test]
    fn a_cleared_journal_goes_on_counting() {
        let mut journal = Journal::new(3);
        (0..5).for_each(|n| journal.observe(change(n)));
        journal.clear();
        assert!(journal.is_empty());
        assert_eq!(journal.lost(), 5);
        (5..9).for_each(|n| journal.observe(change(n)));
        assert_eq!(kept(&journal), [6, 7, 8].map(|n| (n, change(n as i64))));
    }

    #[test]
    fn a_journal_of_nothing_counts() {
        let mut journal = Journal::new(0);
        journal.observe(change(1));
        assert_eq!((journal.len(), journal.lost(), journal.observed()), (0, 1, 1));
    }
}
