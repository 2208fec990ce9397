//! State: everything the heap knows, and the small helpers that keep its parts in step.
//!
//! **H1** live + draining + free = reserved. **H2** reserved + in flight <= limit (where the limit is checked by
//! what is really taken). **H3** every want gets exactly one answer: an errand that wants stands in `errands`,
//! once. **H5** parked implies something is in flight.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::climb::{Errand, Job};
use crate::policy::Policy;
use crate::store::{Bins, Block, Fences, NONE, Pools, Segment, Slab, State};
use crate::vocab::{Address, BlockId, Class, Order, PoolId, Rung, StreamId, Ticket, UNIT};

/// The free blocks of one side of one pool on one stream.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    pub pool: PoolId,
    pub class: Class,
    pub stream: StreamId,
    pub bins: Bins,
    /// The newest fence of the stream that was begun, where the policy lets other streams borrow.
    pub newest: u64,
    /// Address space without memory, by address.
    pub unmapped: BTreeSet<(u64, u32)>,
}

/// The allocator core. See [`Heap::apply`].
#[derive(Clone, Debug)]
pub struct Heap {
    pub(super) policy: Policy,
    pub(super) total: Option<u64>,
    pub(super) limit: Option<u64>,
    /// The largest request that is tried at all, in bytes.
    pub(super) most: u64,
    pub(super) blocks: Slab<Block>,
    pub(super) segments: Slab<Segment>,
    pub(super) lists: Slab<Lists>,
    pub(super) pools: Pools,
    pub(super) fences: Fences,
    pub(super) errands: Vec<Errand>,
    /// Obtained from the driver and not yet given back, in bytes.
    pub(super) reserved: u64,
    /// Asked of the driver, not yet granted, in bytes (counts against the limit).
    pub(super) growing: u64,
    /// Growths, releases and fences under way.
    pub(super) in_flight: u32,
    /// Of those, how many have landed, ever.
    pub(super) landings: u64,
    /// Landings that left something for other errands to take, ever.
    pub(super) openings: u64,
    /// Captures underway.
    pub(super) captures: u32,
    /// Blocks freed during a capture that wait for its end to get their fences.
    pub(super) deferred: Vec<u32>,
    /// What was held when the limit was set below it, until memory is asked for again.
    pub(super) excused: u64,
    /// By rung: how often it served, completed or released something.
    pub(super) helped: [u64; Rung::ALL.len()],
    pub(super) next_order: u32,
    /// Searches of the default pool's large side, counted only while idle memory is collected by age.
    pub(super) searches: u64,
    /// The policy collects by age.
    pub(super) collects: bool,
    /// Other streams may borrow: blocks say which fences stand behind their use.
    pub(super) borrows: bool,
    /// The ladder's second rung is the search: with nothing to poll for, a request begins there.
    pub(super) searches_first: bool,
}

impl Heap {
    /// An empty heap under this policy, for a device of `total` bytes if that is known.
    #[must_use]
    pub fn new(policy: Policy, total: Option<u64>) -> Self {
        Self {
            limit: policy.limit(total),
            most: policy.most(policy.limit(total), total),
            collects: policy.collects() && total.is_some(),
            borrows: policy.borrow,
            searches_first: policy.ladder.rung(1) == Some(Rung::Search),
            policy,
            total,
            blocks: Slab::default(),
            segments: Slab::default(),
            lists: Slab::default(),
            pools: Pools::default(),
            fences: Fences::default(),
            errands: Vec::new(),
            reserved: 0,
            growing: 0,
            in_flight: 0,
            landings: 0,
            openings: 0,
            captures: 0,
            deferred: Vec::new(),
            excused: 0,
            helped: [0; Rung::ALL.len()],
            next_order: 0,
            searches: 0,
        }
    }

    /// The policy in force.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The most that may be reserved, in bytes, if there is a limit.
    #[must_use]
    pub const fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Bytes obtained from the driver.
    #[must_use]
    pub const fn reserved(&self) -> u64 {
        self.reserved
    }

    /// How often something that was in flight has landed: a parked request may be retried when this
    /// has risen.
    #[must_use]
    pub const fn landings(&self) -> u64 {
        self.landings
    }

    /// How often something was left for other requests to take: when this has not risen, a request
    /// that failed would fail again unless something was freed.
    #[must_use]
    pub const fn openings(&self) -> u64 {
        self.openings
    }

    /// How often this rung served a request, completed pending frees or released memory. Requests that the first
    /// search served while nothing was pending are not counted.
    #[must_use]
    pub const fn times_helped(&self, rung: Rung) -> u64 {
        self.helped[rung as usize]
    }

    /// Whether nothing waits for the device.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.errands.is_empty()
    }

    /// Whether any free waits for a fence, or for the end of a capture. O(1).
    #[must_use]
    pub const fn has_pending_frees(&self) -> bool {
        !self.fences.is_idle() || !self.deferred.is_empty()
    }

    /// Where a live block is, if it is live: address and size in bytes.
    #[must_use]
    pub fn live(&self, id: BlockId) -> Option<(Address, u64)> {
        let held = self.blocks.holds(id.index, id.generation);
        let block = held.then(|| &self.blocks[id.index])?;
        (block.state == State::Live).then_some((Address(block.address), block.size))
    }

    /// The lists of one side of one pool on one stream; made when first asked for.
    #[inline]
    pub(super) fn lists_of(&mut self, pool: PoolId, class: Class, stream: StreamId) -> u32 {
        match self.pools.lists(pool, class, stream) {
            Some(lists) => lists,
            None => self.make_lists(pool, class, stream),
        }
    }

    #[cold]
    fn make_lists(&mut self, pool: PoolId, class: Class, stream: StreamId) -> u32 {
        let lists = self.lists.insert(Lists {
            pool,
            class,
            stream,
            bins: Bins::default(),
            newest: self.fences.begun(stream).0,
            unmapped: BTreeSet::new(),
        });
        self.pools.adopt(pool, class, stream, lists);
        lists
    }

    /// Retired pools of which nothing is left give up their lists (**P1**).
    pub(super) fn give_up_pools(&mut self) {
        let mut pools = core::mem::take(&mut self.pools);
        let gone = pools.give_up(|pool| self.is_awaited(pool));
        self.pools = pools;
        for lists in gone {
            self.lists.remove(lists);
            self.lists[lists].bins = Bins::default();
        }
    }

    /// Whether a request for memory of this pool waits for the device.
    pub(super) fn is_awaited(&self, pool: PoolId) -> bool {
        let waits = |errand: &Errand| matches!(errand.job, Job::Alloc(it) if it.pool == pool);
        self.errands.iter().any(waits)
    }

    /// How many free lists there are: one for each side of each pool on each stream that has asked for memory, but
    /// for retired pools that have none left. O(1).
    #[must_use]
    pub fn lists_held(&self) -> usize {
        self.lists.len()
    }

    pub(super) fn id(&self, slot: u32) -> BlockId {
        BlockId { index: slot, generation: self.blocks.generation(slot) }
    }

    /// Puts a free block into its bin (**F1**).
    #[inline(always)]
    pub(super) fn shelve(&mut self, slot: u32) {
        let lists = self.blocks[slot].lists;
        if self.collects {
            self.blocks[slot].idle_since = self.searches;
        }
        let block = &self.blocks[slot];
        debug_assert!(block.state == State::Free, "F1");
        self.lists[lists].bins.insert(block.key(slot));
    }

    /// Takes a free block out of its bin (**F1**).
    #[inline]
    pub(super) fn unshelve(&mut self, slot: u32) {
        let block = &self.blocks[slot];
        let held = self.lists[block.lists].bins.remove(block.key(slot));
        debug_assert!(held, "F1");
    }

    pub(super) fn shelve_unmapped(&mut self, slot: u32) {
        let block = &self.blocks[slot];
        debug_assert!(block.state == State::Unmapped, "F1");
        self.lists[block.lists].unmapped.insert((block.address, slot));
    }

    pub(super) fn unshelve_unmapped(&mut self, slot: u32) {
        let block = &self.blocks[slot];
        let held = self.lists[block.lists].unmapped.remove(&(block.address, slot));
        debug_assert!(held, "F1");
    }

    /// Cuts a block so that it keeps its first `front` bytes; the rest becomes a block of its own in the same
    /// state, in no list yet (**S1**, **B1**).
    #[inline]
    pub(super) fn cut(&mut self, slot: u32, front: u64) -> u32 {
        let block = &mut self.blocks[slot];
        debug_assert!(front > 0 && front < block.size && front.is_multiple_of(UNIT), "T2");
        let next = block.next;
        let rest = Block {
            address: block.address + front,
            size: block.size - front,
            prev: slot,
            next,
            requested: 0,
            ticket: 0,
            fences: 0,
            used: false,
            ..*block
        };
        block.size = front;
        let rest = self.blocks.insert(rest);
        self.blocks[slot].next = rest;
        if let Some(next) = self.blocks.get_mut(next) {
            next.prev = rest;
        }
        rest
    }

    /// Joins the block behind `slot` to it; that one must be in no list (**S1**, **B1**).
    #[inline]
    pub(super) fn absorb_next(&mut self, slot: u32) {
        let next = self.blocks[slot].next;
        let Block { size, next: after, .. } = *self.blocks.remove(next);
        let block = &mut self.blocks[slot];
        block.size += size;
        block.next = after;
        if let Some(after) = self.blocks.get_mut(after) {
            after.prev = slot;
        }
    }

    /// Joins the block before `slot` to it; that one must be in no list.
    #[inline]
    pub(super) fn absorb_prev(&mut self, slot: u32) {
        let prev = self.blocks[slot].prev;
        let Block { address, size, prev: before, .. } = *self.blocks.remove(prev);
        let block = &mut self.blocks[slot];
        block.address = address;
        block.size += size;
        block.prev = before;
        let segment = block.segment;
        if before == NONE {
            self.segments[segment].first = slot;
        } else {
            self.blocks[before].next = slot;
        }
    }

    /// A new segment with one block over all of it, in no list yet.
    pub(super) fn add_segment(
        &mut self,
        base: u64,
        bytes: u64,
        lists: u32,
        page: u64,
        state: State,
    ) -> u32 {
        let order = self.next_order;
        self.next_order += 1;
        let tie_base = match self.policy.order {
            Order::Address => 0,
            Order::SegmentThenAddress => (u64::from(order) << 32).wrapping_sub(base / UNIT),
        };
        let segment =
            self.segments.insert(Segment { base, bytes, order, lists, first: NONE, page });
        let slot = self.blocks.insert(Block {
            address: base,
            size: bytes,
            requested: 0,
            ticket: 0,
            idle_since: 0,
            freed_after: 0,
            tie_base,
            prev: NONE,
            next: NONE,
            segment,
            lists,
            fences: 0,
            class: self.lists[lists].class,
            state,
            used: false,
            paged: page != 0,
        });
        self.segments[segment].first = slot;
        self.pools.gained(self.lists[lists].pool);
        slot
    }

    /// Forgets a segment whose only block this is; that one must be in no list.
    pub(super) fn drop_segment(&mut self, slot: u32) -> Segment {
        debug_assert!(self.blocks[slot].is_alone(), "S1");
        let segment = self.blocks[slot].segment;
        self.blocks.remove(slot);
        let gone = self.segments[segment].clone();
        self.segments.remove(segment);
        self.pools.lost(self.lists[gone.lists].pool);
        gone
    }

    pub(super) fn take_errand(&mut self, ticket: Ticket, parked: bool) -> Option<Errand> {
        let place = self.errands.iter().position(|e| e.ticket == ticket && e.parked == parked)?;
        Some(self.errands.swap_remove(place))
    }

    /// Something is left for other errands to take.
    pub(super) const fn open(&mut self) {
        self.openings += 1;
    }

    /// Something that was in flight has landed.
    pub(super) fn land(&mut self) {
        debug_assert!(self.in_flight > 0, "H3");
        self.in_flight -= 1;
        self.landings += 1;
    }
}
