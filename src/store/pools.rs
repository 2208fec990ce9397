//! Pools: which free lists each pool has, and which pools have no users left.
//!
//! Owns, for each pool, the lists of its two sides by stream, how many segments it has, and the numbers of the retired
//! ones. Asked by the heap. Never knows what stands in a list, nor when a pool should give.
//!
//! **P1** a retired pool that has no segment, and that no request waits for, has no lists. Its number stays retired:
//! a request that names it later finds a pool that is retired from the start. So pools that come and go cost nothing
//! but a range of numbers, and neighbouring ranges are one.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::NONE;
use crate::vocab::{Class, PoolId, StreamId};

/// One pool.
#[derive(Clone, Debug, Default)]
struct Pool {
    /// For each side: stream number -> lists, [`NONE`] where there are none yet.
    by_class: [Vec<u32>; 2],
    segments: usize,
}

impl Pool {
    fn lists(&self) -> impl Iterator<Item = u32> {
        self.by_class.iter().flatten().copied().filter(|&lists| lists != NONE)
    }
}

/// All pools.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    /// The default pool.
    common: Pool,
    private: BTreeMap<PoolId, Pool>,
    /// Ranges of numbers: the first -> the last.
    retired: BTreeMap<u32, u32>,
    /// The highest number ever named.
    newest: PoolId,
    /// Retired pools that may have nothing left.
    vacated: Vec<PoolId>,
}

impl Pools {
    #[inline]
    fn pool(&self, pool: PoolId) -> Option<&Pool> {
        if pool == PoolId::DEFAULT { Some(&self.common) } else { self.private.get(&pool) }
    }

    fn pool_mut(&mut self, pool: PoolId) -> Option<&mut Pool> {
        if pool == PoolId::DEFAULT { Some(&mut self.common) } else { self.private.get_mut(&pool) }
    }

    /// The lists of one side of a pool on a stream, if there are any. O(1) in the default pool, O(log n) in others.
    #[inline]
    #[must_use]
    pub fn lists(&self, pool: PoolId, class: Class, stream: StreamId) -> Option<u32> {
        let by_stream = &self.pool(pool)?.by_class[class as usize];
        by_stream.get(stream.0 as usize).copied().filter(|&lists| lists != NONE)
    }

    /// Gives one side of a pool on a stream its lists; the pool is made when first named.
    pub fn adopt(&mut self, pool: PoolId, class: Class, stream: StreamId, lists: u32) {
        self.newest = self.newest.max(pool);
        if self.is_retired(pool) {
            self.look_at(pool);
        }
        let pool = if pool == PoolId::DEFAULT {
            &mut self.common
        } else {
            self.private.entry(pool).or_default()
        };
        let by_stream = &mut pool.by_class[class as usize];
        if by_stream.len() <= stream.0 as usize {
            by_stream.resize(stream.0 as usize + 1, NONE);
        }
        by_stream[stream.0 as usize] = lists;
    }

    /// The lists of one side of a pool, streams ascending.
    pub fn side(&self, pool: PoolId, class: Class) -> impl Iterator<Item = u32> {
        let by_stream = self.pool(pool).map(|pool| &pool.by_class[class as usize]);
        by_stream.into_iter().flatten().copied().filter(|&lists| lists != NONE)
    }

    /// The lists of a stream in every pool.
    pub fn of_stream(&self, stream: StreamId) -> impl Iterator<Item = u32> {
        let pools = core::iter::once(&self.common).chain(self.private.values());
        let sides = pools.flat_map(|pool| &pool.by_class);
        let lists = sides.filter_map(move |side| side.get(stream.0 as usize).copied());
        lists.filter(|&lists| lists != NONE)
    }

    /// The pools that have lists, ascending; the default pool first, whatever it has.
    pub fn ids(&self) -> impl Iterator<Item = PoolId> {
        core::iter::once(PoolId::DEFAULT).chain(self.private.keys().copied())
    }

    /// Whether a request has ever named this number or a higher one.
    #[must_use]
    pub fn knows(&self, pool: PoolId) -> bool {
        pool <= self.newest
    }

    /// How many segments a pool has.
    #[must_use]
    pub fn segments(&self, pool: PoolId) -> usize {
        self.pool(pool).map_or(0, |pool| pool.segments)
    }

    /// The pool, which has lists, has one segment more.
    pub fn gained(&mut self, pool: PoolId) {
        if let Some(pool) = self.pool_mut(pool) {
            pool.segments += 1;
        }
    }

    /// The pool has one segment less.
    pub fn lost(&mut self, pool: PoolId) {
        if let Some(entry) = self.pool_mut(pool) {
            debug_assert!(entry.segments > 0, "P1");
            entry.segments -= 1;
            if entry.segments == 0 && self.is_retired(pool) {
                self.look_at(pool);
            }
        }
    }

    /// The pool has no users left.
    pub fn retire(&mut self, pool: PoolId) {
        if self.is_retired(pool) {
            return;
        }
        let (mut first, mut last) = (pool.0, pool.0);
        if let Some((&start, &end)) = self.retired.range(..pool.0).next_back()
            && end + 1 == pool.0
        {
            first = start;
        }
        if let Some(end) = pool.0.checked_add(1).and_then(|next| self.retired.remove(&next)) {
            last = end;
        }
        self.retired.insert(first, last);
        self.look_at(pool);
    }

    /// Whether the pool has no users left.
    #[must_use]
    pub fn is_retired(&self, pool: PoolId) -> bool {
        let before = self.retired.range(..=pool.0).next_back();
        before.is_some_and(|(_, &last)| pool.0 <= last)
    }

    fn look_at(&mut self, pool: PoolId) {
        if !self.vacated.contains(&pool) {
            self.vacated.push(pool);
        }
    }

    /// Whether some retired pool may have nothing left. O(1).
    #[inline]
    #[must_use]
    pub const fn may_give_up(&self) -> bool {
        !self.vacated.is_empty()
    }

    /// Retired pools without a segment that `is_awaited` says no request waits for are forgotten (**P1**): their
    /// lists.
    pub fn give_up(&mut self, is_awaited: impl Fn(PoolId) -> bool) -> Vec<u32> {
        let mut gone = Vec::new();
        let looked_at = core::mem::take(&mut self.vacated);
        for pool in looked_at {
            if self.segments(pool) > 0 {
                // Looked at again when the last of them is lost.
                continue;
            }
            if is_awaited(pool) {
                self.vacated.push(pool);
            } else if let Some(entry) = self.private.remove(&pool) {
                gone.extend(entry.lists());
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S0: StreamId = StreamId(0);

    #[test]
    fn p1_a_retired_pool_without_memory_has_no_lists() {
        let mut pools = Pools::default();
        let (one, two) = (PoolId(1), PoolId(2));
        pools.adopt(one, Class::Small, S0, 7);
        pools.adopt(one, Class::Large, StreamId(3), 8);
        pools.adopt(two, Class::Large, S0, 9);
        pools.gained(one);
        pools.retire(one);
        assert!(pools.give_up(|_| false).is_empty(), "it has a segment");
        pools.lost(one);
        assert!(pools.may_give_up() && pools.give_up(|pool| pool == one).is_empty(), "awaited");
        assert_eq!(pools.give_up(|_| false), [7, 8]);
        assert!(!pools.may_give_up() && pools.is_retired(one) && !pools.is_retired(two));
        assert_eq!(pools.ids().collect::<Vec<_>>(), [PoolId::DEFAULT, two]);
        pools.adopt(one, Class::Small, S0, 7);
        assert!(pools.may_give_up(), "named again, it is retired from the start");
        assert_eq!(pools.give_up(|_| false), [7]);
    }

    #[test]
    fn numbers_of_retired_pools_are_kept_as_ranges() {
        let mut pools = Pools::default();
        for number in (1..1000).step_by(2).chain((2..1000).step_by(2)).chain([u32::MAX]) {
            assert!(!pools.is_retired(PoolId(number)));
            pools.retire(PoolId(number));
            assert!(pools.is_retired(PoolId(number)));
            pools.retire(PoolId(number));
        }
        assert_eq!(pools.retired, BTreeMap::from([(1, 999), (u32::MAX, u32::MAX)]));
        assert!(!pools.is_retired(PoolId::DEFAULT) && !pools.is_retired(PoolId(1000)));
    }
}
