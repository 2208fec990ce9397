//! Room: the largest request that would be served now, without waiting for pending frees.
//!
//! Asked by shells that must say how much is left, or which parked request to try. It changes
//! nothing: what emptying the cache would leave is worked out on the layout as it would be.
//!
//! Exact where the device holds nothing back. While more is held than a limit that was lowered
//! allows it may name too much in two cases: a pool that gives nothing (PyTorch's private ones) with
//! a split limit, where how much is released depends on the request; and a block to borrow that a
//! collection by age would give back first.
//!
//! A page-mapped request goes to the lowest run of free blocks and gaps that can hold it, whether
//! or not there is memory to fill its gaps. So a larger request may be served where a smaller one
//! fails, and each run is asked only for the sizes that no lower run would take.

use alloc::vec::Vec;

use super::capture::capture_allows;
use super::state::Heap;
use crate::policy::{LimitCheck, fit, grow, size};
use crate::store::{Segment, State, bins::MAX_BLOCK};
use crate::vocab::{Class, PoolId, Rung, StreamId};

/// What may be asked of the driver, in bytes.
#[derive(Clone, Copy)]
struct Room {
    /// Of the limit.
    limit: u64,
    /// Of the device.
    device: u64,
    /// After everything idle has gone back.
    emptied: bool,
}

/// Free blocks and gaps without a break: whether it is a gap, and bytes.
type Run = Vec<(bool, u64)>;

/// Whose requests, and of which sizes: above the first and at most the second, in bytes.
#[derive(Clone, Copy)]
struct Side {
    pool: PoolId,
    class: Class,
    stream: StreamId,
    sizes: (u64, u64),
}

impl Heap {
    /// The largest rounded request that would be served now, in bytes, if pending frees stayed
    /// pending: from the cache, or by growing once everything idle has been given back. 0: none.
    /// O(blocks). Where neither the device's memory nor a limit is known, it is what could be asked
    /// of the driver.
    #[must_use]
    pub fn largest_possible(&self, stream: StreamId, pool: PoolId) -> u64 {
        let small = self.policy.small_limit;
        let sides = [
            (Class::Large, (small, MAX_BLOCK.min(self.most))),
            (Class::Small, (0, small.min(self.most))),
        ];
        let found = sides.into_iter().find_map(|(class, sizes)| {
            let side = Side { pool, class, stream, sizes };
            self.largest_cached(side).max(self.largest_grown(side))
        });
        found.unwrap_or(0)
    }

    fn climbs(&self, rung: Rung) -> bool {
        self.policy.ladder.rungs().contains(&rung) && (!self.capturing() || capture_allows(rung))
    }

    fn largest_cached(&self, side: Side) -> Option<u64> {
        let mut best = None;
        for lists in Class::BOTH.into_iter().flat_map(|class| self.pools.side(side.pool, class)) {
            let at = &self.lists[lists];
            let open = match (at.class == side.class, at.stream == side.stream) {
                (true, true) => true,
                (true, false) => self.borrows && self.climbs(Rung::Borrow),
                (false, true) => at.class == Class::Large && self.climbs(Rung::BorrowClass),
                _ => false,
            };
            if open {
                best = best.max(self.largest_in(lists, side.sizes));
            }
        }
        best
    }

    /// The largest rounded size that a search of these lists would serve.
    fn largest_in(&self, lists: u32, (over, most): (u64, u64)) -> Option<u64> {
        let bins = &self.lists[lists].bins;
        let sizes = bins.iter().rev().map(|key| size::floor(&self.policy, key.bytes().min(most)));
        sizes.take_while(|&size| size > over).find(|&size| {
            bins.find(size).is_some_and(|key| fit::accepts(&self.policy, key.bytes(), size))
        })
    }

    fn largest_grown(&self, side: Side) -> Option<u64> {
        let held = self.reserved + self.growing;
        let room = |cap: Option<u64>| cap.map_or(MAX_BLOCK, |cap| cap.saturating_sub(held));
        let now = Room { limit: room(self.limit), device: room(self.total), emptied: false };
        let grown = self.grown_within(side, now);
        if !self.climbs(Rung::EvictAll) || !self.climbs(Rung::Regrow) {
            return grown;
        }
        let everything = self.plan_pools(&self.every_pool());
        let idle: u64 = everything.iter().map(|id| self.idle_bytes(id.index)).sum();
        let idle = idle + self.oversize_withheld(side);
        // Over the limit, what goes back makes room only below it.
        let over = self.limit.map_or(0, |limit| held.saturating_sub(limit));
        let limit = now.limit.saturating_add(idle).saturating_sub(over);
        let emptied = Room { limit, device: now.device.saturating_add(idle), emptied: true };
        grown.max(self.grown_within(side, emptied))
    }

    /// Idle oversize segments of a pool that gives nothing else: its own requests have them
    /// released all the same.
    fn oversize_withheld(&self, side: Side) -> u64 {
        let lists = self.known_lists(side).filter(|_| !self.gives(side.pool));
        let open = self.climbs(Rung::EvictSome) && self.policy.max_split != u64::MAX;
        lists.filter(|_| open).map_or(0, |lists| {
            let large = self.lists[lists].bins.iter().rev();
            let large = large.take_while(|key| key.bytes() >= self.policy.max_split);
            let whole = large.filter(|key| !self.blocks[key.slot()].paged);
            whole.map(|key| self.idle_bytes(key.slot())).sum()
        })
    }

    fn known_lists(&self, side: Side) -> Option<u32> {
        self.pools.lists(side.pool, side.class, side.stream)
    }

    fn grown_within(&self, side: Side, room: Room) -> Option<u64> {
        let (over, most) = (side.sizes.0, side.sizes.1.min(MAX_BLOCK));
        let both = room.limit.min(room.device);
        let Some(page) = grow::page_bytes(&self.policy, side.class) else {
            let served = grow::largest_within(&self.policy, over, most, both);
            if !self.climbs(Rung::GrowLeast) {
                return served;
            }
            return served.max(grow::largest_least_within(&self.policy, over, most, both));
        };
        let exact = self.policy.limit_check == LimitCheck::Exact;
        let pages = if exact { both } else { room.device };
        let within = |over: u64, most: u64| {
            if !exact {
                return grow::largest_within(&self.policy, over, most, room.limit);
            }
            let size = size::floor(&self.policy, most);
            (size > over).then_some(size)
        };
        let (mut best, mut lower) = (None, over);
        for run in self.runs(side, room.emptied) {
            best = best.max(within(lower, most.min(filled(&run, pages, page))));
            lower = lower.max(run.iter().map(|&(_, bytes)| bytes).sum());
        }
        best.max(within(lower, most.min(pages / page * page)))
    }

    /// The runs with a gap, from the lowest, as they are or as they would be once everything idle
    /// is gone.
    fn runs(&self, side: Side, emptied: bool) -> Vec<Run> {
        let lists = self.known_lists(side);
        let ours = |segment: &&Segment| segment.is_paged() && Some(segment.lists) == lists;
        let mut segments: Vec<&Segment> =
            self.segments.iter().map(|(_, segment)| segment).filter(ours).collect();
        segments.sort_by_key(|segment| segment.base);
        let empties = emptied && self.gives(side.pool);
        let runs = segments.into_iter().flat_map(|segment| self.runs_of(segment, empties));
        runs.filter(|run| run.iter().any(|&(gap, _)| gap)).collect()
    }

    fn runs_of(&self, segment: &Segment, empties: bool) -> Vec<Run> {
        let mut runs: Vec<Run> = alloc::vec![Run::new()];
        let mut freed = false;
        for block in self.blocks_of(segment) {
            let Some(run) = runs.last_mut() else { break };
            match block.state {
                State::Unmapped => run.push((true, block.size)),
                State::Free if empties => {
                    let (first, last) = segment.pages_inside(block.address, block.end());
                    freed |= first < last;
                    let parts = [
                        (false, first - block.address),
                        (true, last - first),
                        (false, block.end() - last),
                    ];
                    run.extend(parts.into_iter().filter(|&(_, bytes)| bytes > 0));
                }
                State::Free => run.push((false, block.size)),
                State::Live | State::Draining | State::Moving => runs.push(Run::new()),
            }
        }
        // A range that was emptied goes back whole, and so does an empty one of a retired pool.
        let all_gaps = runs.len() == 1 && runs[0].iter().all(|&(gap, _)| gap);
        let retired = self.pools.is_retired(self.lists[segment.lists].pool);
        if (freed || (empties && retired)) && all_gaps { Vec::new() } else { runs }
    }
}

/// How much from the start of a run would be free, once so much memory is under its gaps, in whole
/// pages.
fn filled(run: &Run, mut room: u64, page: u64) -> u64 {
    let mut bytes = 0;
    for &(gap, size) in run {
        let taken = if gap { size.min(room / page * page) } else { 0 };
        room -= taken;
        bytes += if gap { taken } else { size };
        if gap && taken < size {
            break;
        }
    }
    bytes
}
