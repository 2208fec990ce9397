//! Audit: every invariant of store and heap re-derived from nothing. O(blocks log blocks); for tests.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::climb::{Errand, Job, Phase};
use super::reclaim::Eviction;
use super::state::Heap;
use crate::policy::LimitCheck;
use crate::store::{Block, NONE, Segment, State};
use crate::vocab::{Class, PoolId, UNIT};

/// An invariant that does not hold: its number and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant's number, as in `docs/invariants.md`.
    pub invariant: &'static str,
    /// What was found.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.found)
    }
}

impl core::error::Error for Violation {}

fn check(
    holds: bool,
    invariant: &'static str,
    found: impl FnOnce() -> String,
) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { invariant, found: found() }) }
}

impl Heap {
    /// Checks everything.
    ///
    /// # Errors
    /// The first violation found.
    pub fn audit(&self) -> Result<(), Violation> {
        let mut reached = 0;
        let mut bytes = 0;
        for (number, segment) in self.segments.iter() {
            let (blocks, mapped) = self.audit_segment(number, segment)?;
            reached += blocks;
            bytes += mapped;
        }
        check(reached == self.blocks.len(), "S1", || {
            format!("{} blocks exist, {reached} are reached from segments", self.blocks.len())
        })?;
        check(bytes == self.reserved, "H1", || {
            format!("blocks hold {bytes}, reserved {}", self.reserved)
        })?;
        self.audit_overlap()?;
        self.audit_lists()?;
        self.audit_pools()?;
        self.audit_fences()?;
        self.audit_flight()
    }

    /// Blocks reached, and the bytes of memory under them.
    fn audit_segment(&self, number: u32, segment: &Segment) -> Result<(usize, u64), Violation> {
        let (mut slot, mut prev, mut at, mut count, mut mapped) =
            (segment.first, NONE, segment.base, 0, 0);
        while slot != NONE {
            let block = &self.blocks[slot];
            check(block.address == at, "S1", || {
                format!("block at {:#x}, expected {at:#x}", block.address)
            })?;
            check(block.prev == prev, "B1", || {
                format!("block at {at:#x} points back to {}", block.prev)
            })?;
            check(block.segment == number && block.lists == segment.lists, "B1", || {
                format!("block at {at:#x} names another segment or list")
            })?;
            check(block.size > 0 && block.size.is_multiple_of(UNIT), "U1", || {
                format!("block at {at:#x} has {} bytes", block.size)
            })?;
            let class = self.lists[segment.lists].class;
            check(block.paged == segment.is_paged() && block.class == class, "B1", || {
                format!("block at {at:#x}: paged or class differs")
            })?;
            if prev != NONE {
                self.audit_neighbours(&self.blocks[prev], block)?;
            }
            mapped += self.audit_block(slot, block)?;
            (prev, at, count, slot) = (slot, block.end(), count + 1, block.next);
        }
        let end = segment.base + segment.bytes;
        check(at == end, "S1", || format!("blocks end at {at:#x}, the segment at {end:#x}"))?;
        Ok((count, mapped))
    }

    fn audit_neighbours(&self, before: &Block, block: &Block) -> Result<(), Violation> {
        let same =
            before.state == block.state && matches!(block.state, State::Free | State::Unmapped);
        check(!same, "B2", || format!("two {:?} neighbours at {:#x}", block.state, block.address))
    }

    /// Bytes of memory under the block.
    fn audit_block(&self, slot: u32, block: &Block) -> Result<u64, Violation> {
        let at = block.address;
        let lists = &self.lists[block.lists];
        let binned = lists.bins.find(block.size).is_some()
            && lists.bins.iter().any(|key| key == block.key(slot));
        check(binned == (block.state == State::Free), "F1", || {
            format!("{:?} block at {at:#x}", block.state)
        })?;
        let unmapped = lists.unmapped.contains(&(at, slot));
        check(unmapped == (block.state == State::Unmapped), "F1", || {
            format!("{:?} block at {at:#x}: unmapped list says {unmapped}", block.state)
        })?;
        let held = matches!(block.state, State::Live | State::Draining);
        check(!held || (block.requested > 0 && block.requested <= block.size), "B4", || {
            format!("block at {at:#x}: {} requested, {} given", block.requested, block.size)
        })?;
        let drains = block.state == State::Draining && !self.deferred.contains(&slot);
        check((block.fences > 0) == drains, "E1", || {
            format!("{:?} block at {at:#x} waits for {} fences", block.state, block.fences)
        })?;
        Ok(match block.state {
            State::Unmapped => 0,
            State::Moving if self.is_unbacked(slot) => 0,
            _ => block.size,
        })
    }

    /// Whether a moving block has no memory: pages not yet mapped, or an empty range on its way out.
    fn is_unbacked(&self, slot: u32) -> bool {
        self.errands.iter().any(|errand| match &errand.phase {
            Phase::Mapping(mapping) => *mapping == slot,
            Phase::Evicting(eviction) => eviction.returns_range(slot),
            _ => false,
        })
    }

    /// Whether the whole segment is being given back.
    fn is_leaving(&self, segment: &Segment) -> bool {
        let moves = |eviction: &Eviction| eviction.moves(segment.first);
        self.blocks[segment.first].is_alone()
            && self.errands.iter().any(|e| matches!(&e.phase, Phase::Evicting(it) if moves(it)))
    }

    fn audit_overlap(&self) -> Result<(), Violation> {
        // The driver may give the addresses of a segment away before the core hears that it is gone.
        let staying = self.segments.iter().filter(|(_, segment)| !self.is_leaving(segment));
        let mut by_base: Vec<(u64, u64)> = staying.map(|(_, s)| (s.base, s.bytes)).collect();
        by_base.sort_unstable();
        let mut end = 0;
        for (base, bytes) in by_base {
            check(base >= end, "S2", || format!("segment at {base:#x} begins before {end:#x}"))?;
            end = base + bytes;
        }
        Ok(())
    }

    /// F2, and that lists hold nothing but free blocks.
    fn audit_lists(&self) -> Result<(), Violation> {
        let (mut binned, mut last) = (0, None);
        for (_, lists) in self.lists.iter() {
            for key in lists.bins.iter() {
                check(last < Some(key) || binned == 0, "F2", || "a bin is out of order".into())?;
                last = Some(key);
                binned += 1;
            }
            last = None;
            check(lists.bins.iter().count() == lists.bins.len(), "F1", || {
                "a bin miscounts".into()
            })?;
        }
        let free = self.blocks.iter().filter(|(_, block)| block.state == State::Free).count();
        check(binned == free, "F1", || format!("{free} blocks are free, {binned} stand in bins"))
    }

    /// P1, and that pools and lists name each other.
    fn audit_pools(&self) -> Result<(), Violation> {
        let mut segments: BTreeMap<PoolId, usize> = BTreeMap::new();
        for (_, segment) in self.segments.iter() {
            *segments.entry(self.lists[segment.lists].pool).or_default() += 1;
        }
        let mut named = 0;
        for pool in self.pools.ids() {
            for class in Class::BOTH {
                for lists in self.pools.side(pool, class) {
                    let held = &self.lists[lists];
                    check((held.pool, held.class) == (pool, class), "P1", || {
                        format!("{pool:?} has lists of {:?}", held.pool)
                    })?;
                    named += 1;
                }
            }
            let has = segments.get(&pool).copied().unwrap_or(0);
            check(self.pools.segments(pool) == has, "P1", || {
                format!("{pool:?} has {has} segments, {} counted", self.pools.segments(pool))
            })?;
            let stays = !self.pools.is_retired(pool) || has > 0 || self.is_awaited(pool);
            check(stays || self.pools.may_give_up(), "P1", || {
                format!("{pool:?} is retired and empty, and has lists")
            })?;
        }
        check(named == self.lists.len(), "P1", || {
            format!("{} lists exist, pools have {named}", self.lists.len())
        })
    }

    fn audit_fences(&self) -> Result<(), Violation> {
        let mut waits: BTreeMap<u32, u32> = BTreeMap::new();
        for slot in self.fences.waiting() {
            *waits.entry(slot).or_default() += 1;
        }
        let draining: BTreeMap<u32, u32> = self
            .blocks
            .iter()
            .filter(|(slot, block)| block.state == State::Draining && !self.deferred.contains(slot))
            .map(|(slot, block)| (slot, block.fences))
            .collect();
        check(waits == draining, "E1", || format!("waiting {waits:?}, draining {draining:?}"))?;
        let used: BTreeSet<u32> = self.fences.used().collect();
        let marked: BTreeSet<u32> = self
            .blocks
            .iter()
            .filter(|(_, b)| b.used && b.state == State::Live)
            .map(|(s, _)| s)
            .chain(self.deferred.iter().copied())
            .collect();
        let deferred = |&slot: &u32| {
            self.blocks.get(slot).is_some_and(|b| b.used && b.state == State::Draining)
        };
        let waits_for_a_capture = self.capturing() || self.deferred.is_empty();
        check(waits_for_a_capture && self.deferred.iter().all(deferred), "E1", || {
            format!("deferred {:?} with {} captures underway", self.deferred, self.captures)
        })?;
        let records = |e: &&Errand| matches!(e.phase, Phase::Recording(..) | Phase::Fencing { .. });
        let at_it = self.errands.iter().filter(records).count();
        check(self.fences.recordings() == at_it, "E1", || {
            format!("{at_it} errands record a fence, {} streams say so", self.fences.recordings())
        })?;
        check(used == marked, "E1", || format!("uses noted for {used:?}, marked {marked:?}"))
    }

    /// H2, H3 and H5.
    fn audit_flight(&self) -> Result<(), Violation> {
        if let Some(limit) = self.limit {
            let held = self.reserved + self.growing;
            // PyTorch checks by the segment and then maps whole pages: it can pass the limit by less
            // than one page of each map operation.
            let loose = self.policy.page_mapped() && self.policy.limit_check == LimitCheck::Segment;
            // What was held when the limit was set below it may stay, and nothing is added to it.
            check(loose || held <= limit.max(self.excused), "H2", || {
                format!("{held} reserved or in flight, limit {limit}")
            })?;
        }
        let flying = self.errands.iter().filter(|e| !e.parked && is_flight(&e.phase)).count();
        check(flying == self.in_flight as usize, "H3", || {
            format!("{flying} errands are in flight, {} counted", self.in_flight)
        })?;
        for errand in self.errands.iter().filter(|errand| errand.parked) {
            check(self.in_flight > 0 || self.landings > errand.landings, "H5", || {
                format!("ticket {} is parked and nothing is in flight", errand.ticket.0)
            })?;
        }
        let tickets: BTreeSet<_> =
            self.errands.iter().map(|e| (e.ticket, matches!(e.job, Job::Fence { .. }))).collect();
        check(tickets.len() == self.errands.len(), "H3", || "two errands share a ticket".into())
    }
}

fn is_flight(phase: &Phase) -> bool {
    match phase {
        Phase::Enter | Phase::Asked(_) => false,
        Phase::Recording(..) | Phase::Reserving | Phase::Ranging(_) => true,
        Phase::Mapping(_) | Phase::Evicting(_) => true,
        Phase::Fencing { .. } | Phase::Ordering(_) => true,
    }
}
