//! Serve: from a request to a block, when the cache has one.

use super::climb::{Errand, Request};
use super::state::Heap;
use crate::policy::{fit, grow, size};
use crate::store::{Block, Key, NONE, Slab, State};
use crate::vocab::{Address, Change, Class, Observe, Output, PoolId, StreamId, Ticket};

impl Heap {
    #[inline]
    pub(super) fn alloc(
        &mut self,
        ticket: Ticket,
        bytes: u64,
        stream: StreamId,
        pool: PoolId,
        sink: &mut impl Observe,
    ) -> Output {
        if bytes == 0 {
            return Output::Quiet;
        }
        if bytes > self.most {
            return self.impossible(ticket, bytes, stream, pool, sink);
        }
        let rounded = size::round(&self.policy, bytes);
        let class = size::class(&self.policy, rounded);
        let lists = self.lists_of(pool, class, stream);
        // With no pending frees a poll has nothing to do, and most requests end at the search.
        if self.fences.is_idle()
            && self.searches_first
            && let Some(slot) = self.search(lists, rounded)
        {
            return self.hand_out(ticket, bytes, rounded, slot, sink);
        }
        let request = Request {
            bytes,
            size: rounded,
            segment_bytes: grow::segment_bytes(&self.policy, rounded),
            pool,
            class,
            stream,
            lists,
        };
        self.start(ticket, request, sink)
    }

    /// Whether the cache could serve this request at once. Changes nothing. O(log n).
    #[must_use]
    pub fn fits(&self, bytes: u64, stream: StreamId, pool: PoolId) -> bool {
        if bytes == 0 || bytes >= size::IMPOSSIBLE {
            return false;
        }
        let rounded = size::round(&self.policy, bytes);
        let class = size::class(&self.policy, rounded);
        self.pools.lists(pool, class, stream).is_some_and(|lists| {
            let found = self.lists[lists].bins.find(rounded);
            found.is_some_and(|key| fit::accepts(&self.policy, key.bytes(), rounded))
        })
    }

    /// Takes the best fitting free block of these lists out of its bin. O(log n).
    #[inline]
    pub(super) fn search(&mut self, lists: u32, size: u64) -> Option<u32> {
        if self.collects {
            let side = &self.lists[lists];
            let counts = side.pool == PoolId::DEFAULT && side.class == Class::Large;
            self.searches += u64::from(counts);
        }
        let bins = &mut self.lists[lists].bins;
        if let Some(found) = bins.smallest(size)
            && fit::accepts(&self.policy, found.key.bytes(), size)
            && !(self.policy.prefer_ungrowable && is_growable(&self.blocks, found.key.slot()))
        {
            bins.take(found);
            return Some(found.key.slot());
        }
        self.search_on(lists, size)
    }

    /// The whole search.
    #[inline(never)]
    fn search_on(&mut self, lists: u32, size: u64) -> Option<u32> {
        let bins = &self.lists[lists].bins;
        let mut key = bins.find(size)?;
        if self.policy.prefer_ungrowable
            && is_growable(&self.blocks, key.slot())
            && !bins.is_last(key)
        {
            key = self.least_growable(lists, key);
        }
        if !fit::accepts(&self.policy, key.bytes(), size) {
            return None;
        }
        let held = self.lists[lists].bins.remove(key);
        debug_assert!(held, "F1");
        Some(key.slot())
    }

    /// Walks on from a fitting block while the next one could grow to less.
    /// Source of the rule: PyTorch, for page-mapped blocks "size" is what they can expand to.
    fn least_growable(&self, lists: u32, mut key: Key) -> Key {
        let bins = &self.lists[lists].bins;
        let mut reach = self.growable(key.slot());
        while let Some(next) = bins.after(key) {
            let further = self.growable(next.slot());
            if further >= reach {
                break;
            }
            (key, reach) = (next, further);
        }
        key
    }

    /// What a free block could grow to: itself and the address space behind it.
    fn growable(&self, slot: u32) -> u64 {
        let block = &self.blocks[slot];
        let behind = if is_growable(&self.blocks, slot) { self.blocks[block.next].size } else { 0 };
        block.size + behind
    }

    /// Gives the front of a block that stands in no list to a request; the tail is split off where the policy
    /// says so (**T2**).
    #[inline]
    pub(super) fn hand_out(
        &mut self,
        ticket: Ticket,
        bytes: u64,
        size: u64,
        slot: u32,
        sink: &mut impl Observe,
    ) -> Output {
        let block = &self.blocks[slot];
        debug_assert!(block.size >= size && matches!(block.state, State::Free), "T1 B3");
        let (class, whole, paged) = (block.class, block.size, block.paged);
        let was_split = !block.is_alone();
        if fit::splits(&self.policy, class, whole, size) {
            let tail = self.cut(slot, size);
            self.shelve(tail);
            if !paged {
                let (blocks, left) =
                    if was_split { (0, -(size as i64)) } else { (1, (whole - size) as i64) };
                sink.observe(Change::InactiveSplit { class, blocks, bytes: left });
            }
        } else if was_split && !paged {
            sink.observe(Change::InactiveSplit { class, blocks: -1, bytes: -(whole as i64) });
        }
        let id = self.id(slot);
        let block = &mut self.blocks[slot];
        block.state = State::Live;
        block.requested = bytes;
        block.ticket = ticket.0;
        let (address, given) = (Address(block.address), block.size);
        let oversize = given >= self.policy.max_split;
        sink.observe(Change::Allocated {
            ticket,
            address,
            bytes: given,
            requested: bytes,
            class,
            oversize,
        });
        Output::Served { ticket, block: id, address }
    }

    /// More than there could ever be, or a size that cannot be meant: nothing is tried for it.
    #[cold]
    fn impossible(
        &mut self,
        ticket: Ticket,
        bytes: u64,
        stream: StreamId,
        pool: PoolId,
        sink: &mut impl Observe,
    ) -> Output {
        let meant = bytes < size::IMPOSSIBLE;
        let size = if meant { size::round(&self.policy, bytes) } else { bytes };
        let request = Request {
            bytes,
            size,
            segment_bytes: if meant { grow::segment_bytes(&self.policy, size) } else { bytes },
            pool,
            class: Class::Large,
            stream,
            lists: NONE,
        };
        let errand = Errand::alloc(ticket, request);
        self.fail(errand, request, sink)
    }
}

/// Whether there is address space without memory behind a block. Where there is none the block can grow to no less
/// than any later one in the order.
#[inline]
fn is_growable(blocks: &Slab<Block>, slot: u32) -> bool {
    let block = &blocks[slot];
    block.paged && blocks.get(block.next).is_some_and(|next| next.state == State::Unmapped)
}
