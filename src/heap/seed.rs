//! Seed: a heap that starts from a known layout instead of from nothing.
//!
//! Used where a recording began mid-run: its first state is rebuilt from what is known and put here.

use alloc::{format, string::String, vec::Vec};

use super::state::Heap;
use crate::store::{State, bins::MAX_BLOCK};
use crate::vocab::{Address, BlockId, Change, Class, Observe, PoolId, StreamId, Ticket, UNIT};

/// A segment to start with. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedSegment {
    /// Where it starts.
    pub base: u64,
    /// What it spans.
    pub bytes: u64,
    /// Its stream.
    pub stream: StreamId,
    /// Its pool.
    pub pool: PoolId,
    /// The side of the pool.
    pub class: Class,
    /// The page size, of a page-mapped segment; 0 of a whole one.
    pub page: u64,
    /// Mapped parts of a page-mapped segment as (start, bytes) by address; of a whole one not read.
    pub mapped: Vec<(u64, u64)>,
    /// Its live blocks by address. What is between them is free.
    pub live: Vec<SeedBlock>,
}

/// A live block to start with. Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeedBlock {
    /// Where it starts.
    pub address: u64,
    /// Its size, a multiple of the unit.
    pub bytes: u64,
    /// The client's size.
    pub requested: u64,
    /// Names it.
    pub ticket: Ticket,
    /// Given back already; what it waits for is not known, so it waits for good.
    pub awaiting: bool,
}

/// Stands for whatever a seeded block waits for.
const UNKNOWN_STREAM: StreamId = StreamId(u32::MAX);

impl SeedSegment {
    /// Whether it can be: sizes and addresses of whole units, pages on their borders, blocks inside.
    ///
    /// # Errors
    /// Says what does not fit.
    pub fn check(&self) -> Result<(), String> {
        let unsound = self.bytes == 0
            || !self.bytes.is_multiple_of(UNIT)
            || self.bytes > MAX_BLOCK
            || !self.base.is_multiple_of(UNIT)
            || self.base.checked_add(self.bytes).is_none()
            || (self.page > 0 && !self.bytes.is_multiple_of(self.page));
        if unsound {
            return Err(format!("segment {:#x} of {} bytes cannot be", self.base, self.bytes));
        }
        let whole = [(self.base, self.bytes)];
        let ranges: &[(u64, u64)] = if self.page == 0 { &whole } else { &self.mapped };
        self.check_ranges(ranges)?;
        self.check_blocks(ranges)
    }

    fn check_ranges(&self, ranges: &[(u64, u64)]) -> Result<(), String> {
        let mut at = self.base;
        for &(start, length) in ranges {
            let end = start.checked_add(length).filter(|&end| end <= self.base + self.bytes);
            let (true, Some(end), false) = (start >= at, end, length == 0) else {
                return Err(format!("mapped range {start:#x} leaves its segment or overlaps"));
            };
            let pages = |bytes: u64| self.page == 0 || bytes.is_multiple_of(self.page);
            if !pages(start - self.base) || !pages(length) {
                return Err(format!("mapped range {start:#x} lies off the page borders"));
            }
            at = end;
        }
        Ok(())
    }

    fn check_blocks(&self, ranges: &[(u64, u64)]) -> Result<(), String> {
        let mut at = 0;
        for block in &self.live {
            let &SeedBlock { address, bytes, requested, .. } = block;
            let end = address.checked_add(bytes);
            let inside = |&(start, length): &(u64, u64)| {
                address >= start && end.is_some_and(|end| end <= start + length)
            };
            let units = address.is_multiple_of(UNIT) && bytes.is_multiple_of(UNIT);
            let sound = ranges.iter().any(inside) && units && address >= at;
            if !sound || requested > bytes || requested == 0 {
                return Err(format!("block {address:#x} of {bytes} bytes does not fit"));
            }
            at = address + bytes;
        }
        Ok(())
    }
}

impl Heap {
    /// Adds a segment as if it had been allocated and used before. Segments are created in the order of the calls.
    /// Returns the ids of its live blocks in their order.
    ///
    /// # Errors
    /// Says what does not fit: blocks that overlap, leave the segment, or are not multiples of the unit.
    pub fn seed(
        &mut self,
        seed: &SeedSegment,
        sink: &mut impl Observe,
    ) -> Result<Vec<BlockId>, String> {
        seed.check()?;
        let lists = self.lists_of(seed.pool, seed.class, seed.stream);
        let &SeedSegment { base, bytes, class, stream, pool, .. } = seed;
        let paged = seed.page != 0;
        if !paged {
            self.reserved += bytes;
            let oversize = bytes >= self.policy.max_split;
            let base = Address(base);
            sink.observe(Change::SegmentAllocated { base, bytes, class, stream, pool, oversize });
        }
        let state = if paged { State::Unmapped } else { State::Free };
        let mut slot = self.add_segment(base, bytes, lists, seed.page, state);
        let mut ids = Vec::new();
        let mut live = seed.live.iter();
        let whole = [(base, bytes)];
        let ranges: &[(u64, u64)] = if paged { &seed.mapped } else { &whole };
        for &(start, length) in ranges {
            if self.blocks[slot].address < start {
                let rest = self.cut(slot, start - self.blocks[slot].address);
                self.shelve_unmapped(slot);
                slot = rest;
            }
            if paged {
                self.reserved += length;
                let pages = length / seed.page;
                let base = Address(start);
                sink.observe(Change::Mapped { base, bytes: length, pages, class, stream, pool });
            }
            let end = start + length;
            let rest = (self.blocks[slot].end() > end).then(|| self.cut(slot, length));
            self.blocks[slot].state = State::Free;
            let inside = live.as_slice().iter().take_while(|block| block.address < end).count();
            let split = live.as_slice().split_at(inside);
            live = split.1.iter();
            self.seed_blocks(slot, split.0, &mut ids, sink);
            match rest {
                Some(rest) => slot = rest,
                None => return Ok(ids),
            }
        }
        self.shelve_unmapped(slot);
        Ok(ids)
    }

    /// A seeded block that was given back already.
    fn await_unknown(
        &mut self,
        slot: u32,
        seed: &SeedBlock,
        class: Class,
        sink: &mut impl Observe,
    ) {
        let SeedBlock { ticket, address, bytes, .. } = *seed;
        let oversize = bytes >= self.policy.max_split;
        let address = Address(address);
        sink.observe(Change::FreeRequested { ticket, address, bytes, class, oversize });
        let block = &mut self.blocks[slot];
        block.state = State::Draining;
        block.fences = 1;
        self.fences.enqueue(UNKNOWN_STREAM, slot);
    }

    /// Cuts the live blocks out of a free one that stands in no list.
    fn seed_blocks(
        &mut self,
        mut slot: u32,
        live: &[SeedBlock],
        ids: &mut Vec<BlockId>,
        sink: &mut impl Observe,
    ) {
        let class = self.lists[self.blocks[slot].lists].class;
        let paged = self.blocks[slot].paged;
        let mut free = Vec::new();
        for seed in live {
            if self.blocks[slot].address < seed.address {
                let rest = self.cut(slot, seed.address - self.blocks[slot].address);
                free.push(slot);
                slot = rest;
            }
            let rest = (self.blocks[slot].size > seed.bytes).then(|| self.cut(slot, seed.bytes));
            let block = &mut self.blocks[slot];
            block.state = State::Live;
            block.requested = seed.requested;
            block.ticket = seed.ticket.0;
            sink.observe(Change::Allocated {
                ticket: seed.ticket,
                address: Address(seed.address),
                bytes: seed.bytes,
                requested: seed.requested,
                class,
                oversize: seed.bytes >= self.policy.max_split,
            });
            if seed.awaiting {
                self.await_unknown(slot, seed, class, sink);
            }
            ids.push(self.id(slot));
            match rest {
                Some(rest) => slot = rest,
                None => slot = crate::store::NONE,
            }
        }
        if slot != crate::store::NONE {
            free.push(slot);
        }
        for slot in free {
            self.shelve(slot);
            let block = &self.blocks[slot];
            if !paged && !block.is_alone() {
                sink.observe(Change::InactiveSplit { class, blocks: 1, bytes: block.size as i64 });
            }
        }
    }
}
