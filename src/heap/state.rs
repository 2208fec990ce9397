//! State: everything the heap knows, and the small helpers that keep its parts in step.
//!
//! **H1** live + draining + free = reserved. **H2** reserved + in flight <= limit (where the limit is checked by
//! what is really taken). **H3** every want gets exactly one answer: an errand that wants stands in `errands`,
//! once. **H5** parked implies something is in flight.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::climb::Errand;
use crate::policy::Policy;
use crate::store::{Bins, Block, Fences, NONE, Segment, Slab, State};
use crate::vocab::{Address, BlockId, Class, Order, PoolId, Rung, StreamId, Ticket, UNIT};

/// The free blocks of one side of one pool on one stream.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    pub pool: PoolId,
    pub class: Class,
    pub stream: StreamId,
    pub bins: Bins,
    /// Address space without memory, by address.
    pub unmapped: BTreeSet<(u64, u32)>,
}

/// One pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    /// For each side: stream number -> lists, [`NONE`] where there are none yet.
    pub by_class: [Vec<u32>; 2],
    /// For each side: how often it was searched, counted only while idle memory is collected by age.
    pub searches: [u64; 2],
    /// No users left.
    pub retired: bool,
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
    pub(super) lists: Vec<Lists>,
    pub(super) pools: Vec<Pool>,
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
    /// By rung: how often it served, completed or released something.
    pub(super) helped: [u64; Rung::ALL.len()],
    pub(super) next_order: u32,
    /// The policy collects by age.
    pub(super) collects: bool,
    /// The ladder's second rung is the search: with nothing to poll for, a request begins there.
    pub(super) searches_first: bool,
}

impl Heap {
    /// An empty heap under this policy, for a device of `total` bytes if that is known.
    #[must_use]
    pub fn new(policy: Policy, total: Option<u64>) -> Self {
        Self {
            limit: policy.limit(total),
            most: policy.most(total),
            collects: policy.collects() && total.is_some(),
            searches_first: policy.ladder.rung(1) == Some(Rung::Search),
            policy,
            total,
            blocks: Slab::default(),
            segments: Slab::default(),
            lists: Vec::new(),
            pools: alloc::vec![Pool::default()],
            fences: Fences::default(),
            errands: Vec::new(),
            reserved: 0,
            growing: 0,
            in_flight: 0,
            landings: 0,
            openings: 0,
            helped: [0; Rung::ALL.len()],
            next_order: 0,
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

    /// The streams that pending frees wait for, and whether there are any. O(1).
    #[must_use]
    pub const fn has_pending_frees(&self) -> bool {
        !self.fences.is_idle()
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
        let known = self
            .pools
            .get(pool.0 as usize)
            .and_then(|pool| pool.by_class[class as usize].get(stream.0 as usize));
        match known {
            Some(&lists) if lists != NONE => lists,
            _ => self.make_lists(pool, class, stream),
        }
    }

    #[cold]
    fn make_lists(&mut self, pool: PoolId, class: Class, stream: StreamId) -> u32 {
        let number = self.lists.len() as u32;
        self.lists.push(Lists {
            pool,
            class,
            stream,
            bins: Bins::default(),
            unmapped: BTreeSet::new(),
        });
        self.pool_mut(pool);
        let by_stream = &mut self.pools[pool.0 as usize].by_class[class as usize];
        if by_stream.len() <= stream.0 as usize {
            by_stream.resize(stream.0 as usize + 1, NONE);
        }
        by_stream[stream.0 as usize] = number;
        number
    }

    /// The pool, made when first named.
    pub(super) fn pool_mut(&mut self, pool: PoolId) -> &mut Pool {
        let index = pool.0 as usize;
        if self.pools.len() <= index {
            self.pools.resize_with(index + 1, Pool::default);
        }
        &mut self.pools[index]
    }

    /// The lists of one side of one pool, streams ascending.
    pub(super) fn lists_of_side(
        &self,
        pool: PoolId,
        class: Class,
    ) -> impl Iterator<Item = u32> + '_ {
        self.pools[pool.0 as usize].by_class[class as usize].iter().copied().filter(|&l| l != NONE)
    }

    pub(super) fn id(&self, slot: u32) -> BlockId {
        BlockId { index: slot, generation: self.blocks.generation(slot) }
    }

    /// Puts a free block into its bin (**F1**).
    #[inline(always)]
    pub(super) fn shelve(&mut self, slot: u32) {
        let lists = self.blocks[slot].lists as usize;
        if self.collects {
            let Lists { pool, class, .. } = self.lists[lists];
            self.blocks[slot].idle_since = self.pools[pool.0 as usize].searches[class as usize];
        }
        let block = &self.blocks[slot];
        debug_assert!(block.state == State::Free, "F1");
        self.lists[lists].bins.insert(block.key(slot));
    }

    /// Takes a free block out of its bin (**F1**).
    #[inline]
    pub(super) fn unshelve(&mut self, slot: u32) {
        let block = &self.blocks[slot];
        let held = self.lists[block.lists as usize].bins.remove(block.key(slot));
        debug_assert!(held, "F1");
    }

    pub(super) fn shelve_unmapped(&mut self, slot: u32) {
        let block = &self.blocks[slot];
        debug_assert!(block.state == State::Unmapped, "F1");
        self.lists[block.lists as usize].unmapped.insert((block.address, slot));
    }

    pub(super) fn unshelve_unmapped(&mut self, slot: u32) {
        let block = &self.blocks[slot];
        let held = self.lists[block.lists as usize].unmapped.remove(&(block.address, slot));
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
            tie_base,
            prev: NONE,
            next: NONE,
            segment,
            lists,
            fences: 0,
            class: self.lists[lists as usize].class,
            state,
            used: false,
            paged: page != 0,
        });
        self.segments[segment].first = slot;
        slot
    }

    /// Forgets a segment whose only block this is; that one must be in no list.
    pub(super) fn drop_segment(&mut self, slot: u32) -> Segment {
        debug_assert!(self.blocks[slot].is_alone(), "S1");
        let segment = self.blocks[slot].segment;
        self.blocks.remove(slot);
        let gone = self.segments[segment].clone();
        self.segments.remove(segment);
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
