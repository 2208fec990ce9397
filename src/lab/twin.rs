//! Twin: the allocator again, as simply as it can be written, to doubt the heap with.
//!
//! Owns one plain list of segments and one of blocks; everything is found by looking at all of
//! them. It shares the heap's policy functions and nothing else, and it calls its own device and
//! waits. Asked by tests: whatever heap and twin do with the same requests must be equal, addresses
//! included. Never knows a bin, an id or a want.
//!
//! | state | who may enter | who may leave |
//! |---|---|---|
//! | `Free` | what was grown, split off, or completed | `alloc`; eviction, to `Unmapped` or away |
//! | `Allocated` | `Free` | `free`, to `Free` or, with uses on other streams, `AwaitingFree` |
//! | `AwaitingFree` | `Allocated` | the last fence to pass, to `Free` |
//! | `Unmapped` | a new range, eviction | growth, to `Free` |

mod compare;
mod device;
mod grow;
mod release;

use crate::policy::{Policy, fit, size};
use crate::vocab::{
    Address, BlockState, BlockView, Class, HeapView, MIB, Order, PoolId, Rung, SegmentView,
    StreamId, Ticket,
};
pub use compare::first_difference;
use device::Device;

/// The granule of the twin's device, in bytes, unless said otherwise.
pub const GRANULE: u64 = 2 * MIB;
/// What a device of unknown capacity is taken to hold when a range is reserved, in bytes: 1 TiB.
pub const UNKNOWN_TOTAL: u64 = 1 << 40;

/// What the twin has counted. All sizes are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Handed out.
    pub allocated: u64,
    /// Not reusable: handed out or awaiting free.
    pub active: u64,
    /// What clients asked for, of what is active.
    pub requested: u64,
    /// Obtained from the device.
    pub reserved: u64,
    /// The most that was allocated.
    pub peak_allocated: u64,
    /// The most that was active.
    pub peak_active: u64,
    /// The most that was requested.
    pub peak_requested: u64,
    /// The most that was reserved.
    pub peak_reserved: u64,
    /// Segments obtained and map operations (`num_device_alloc`).
    pub device_allocs: u64,
    /// Segments returned and unmap operations (`num_device_free`).
    pub device_frees: u64,
    /// The driver was asked again after the cache was emptied (`num_alloc_retries`).
    pub retries: u64,
    /// Requests that failed (`num_ooms`).
    pub ooms: u64,
    /// Every pending free was waited for (`num_sync_all_streams`).
    pub syncs: u64,
    /// Pages mapped.
    pub pages_mapped: u64,
    /// Pages unmapped.
    pub pages_unmapped: u64,
}

impl Figures {
    fn raise_peaks(&mut self) {
        self.peak_allocated = self.peak_allocated.max(self.allocated);
        self.peak_active = self.peak_active.max(self.active);
        self.peak_requested = self.peak_requested.max(self.requested);
        self.peak_reserved = self.peak_reserved.max(self.reserved);
    }
}

/// The lists that a request may be served from: one side of a pool on one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Home {
    pool: PoolId,
    class: Class,
    stream: StreamId,
}

#[derive(Clone, Debug)]
struct Segment {
    base: u64,
    bytes: u64,
    order: u64,
    home: Home,
    /// The page size, if page-mapped.
    page: Option<u64>,
}

#[derive(Clone, Debug)]
struct Block {
    /// The base of its segment.
    segment: u64,
    address: u64,
    bytes: u64,
    state: BlockState,
    ticket: Ticket,
    requested: u64,
    uses: Vec<StreamId>,
    /// Handed out to another stream than its home's.
    lent: bool,
    /// Searches of its side of the pool before it became free.
    born: u64,
}

impl Block {
    const fn end(&self) -> u64 {
        self.address + self.bytes
    }
}

/// The naive model of the allocator.
#[derive(Clone, Debug)]
pub struct Twin {
    policy: Policy,
    device: Device,
    capacity: Option<u64>,
    total: u64,
    limit: Option<u64>,
    fences_immediate: bool,
    segments: Vec<Segment>,
    blocks: Vec<Block>,
    /// Fences not yet known to have passed: the stream, and the block that waits.
    fences: Vec<(StreamId, u64)>,
    /// Searches of each side of each pool, counted only when idle memory is released by age.
    searches: Vec<(PoolId, Class, u64)>,
    /// The highest pool that a request has named.
    newest_pool: PoolId,
    retired: Vec<PoolId>,
    segments_created: u64,
    figures: Figures,
}

impl Twin {
    /// An empty allocator on a device of `capacity` bytes (`None`: unlimited). Fences pass as soon
    /// as they are polled, or else only when waited for.
    #[must_use]
    pub fn new(policy: Policy, capacity: Option<u64>, fences_immediate: bool) -> Self {
        Self {
            limit: policy.limit(capacity),
            policy,
            device: Device::new(capacity, GRANULE),
            capacity,
            total: capacity.unwrap_or(UNKNOWN_TOTAL),
            fences_immediate,
            segments: Vec::new(),
            blocks: Vec::new(),
            fences: Vec::new(),
            searches: Vec::new(),
            newest_pool: PoolId::DEFAULT,
            retired: Vec::new(),
            segments_created: 0,
            figures: Figures::default(),
        }
    }

    /// The same on a device of this granule, and with this total when ranges are reserved, both in
    /// bytes. Before the first request.
    #[must_use]
    pub fn on_device(self, capacity: Option<u64>, granule: u64, total: u64) -> Self {
        Self { device: Device::new(capacity, granule), capacity, total, ..self }
    }

    /// What was counted so far.
    #[must_use]
    pub const fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Serves a request, or counts an out-of-memory. Zero bytes get the null address.
    pub fn alloc(
        &mut self,
        ticket: Ticket,
        bytes: u64,
        stream: StreamId,
        pool: PoolId,
    ) -> Option<Address> {
        if bytes == 0 {
            return Some(Address(0));
        }
        let address = self.climb(bytes, stream, pool);
        match address {
            Some((address, rounded)) => {
                self.hand_out(address, rounded, ticket, bytes);
                self.note_loan(ticket, stream);
            }
            None => self.figures.ooms += 1,
        }
        address.map(|(address, _)| Address(address))
    }

    /// Climbs the policy's ladder: the free block found, and how many bytes of it are wanted.
    fn climb(&mut self, bytes: u64, stream: StreamId, pool: PoolId) -> Option<(u64, u64)> {
        if bytes > self.policy.most(self.limit, self.capacity) {
            return None;
        }
        let rounded = size::round(&self.policy, bytes);
        let class = size::class(&self.policy, rounded);
        let home = Home { pool, class, stream };
        self.newest_pool = self.newest_pool.max(pool);
        let mut evicted_enough = true;
        for rung in self.policy.ladder.rungs() {
            let found = match rung {
                Rung::Poll => self.poll(),
                Rung::Search | Rung::SearchAgain => self.search(home, rounded),
                Rung::Collect => self.collect(),
                Rung::Grow if evicted_enough => self.grow(home, rounded),
                Rung::Grow => None,
                Rung::Borrow => self.borrow(home, rounded),
                Rung::EvictSome => {
                    evicted_enough = self.evict_some(home, rounded);
                    None
                }
                Rung::Wait => self.wait(),
                Rung::EvictAll => self.evict_all(),
                Rung::Regrow => {
                    self.figures.retries += 1;
                    self.grow(home, rounded)
                }
                Rung::GrowLeast => self.grow_least(home, rounded),
                Rung::BorrowClass if class == Class::Small => {
                    self.search(Home { class: Class::Large, ..home }, rounded)
                }
                Rung::BorrowClass => None,
            };
            if let Some(address) = found {
                return Some((address, rounded));
            }
        }
        None
    }

    /// A block of another stream's counts as used by the one that got it.
    fn note_loan(&mut self, ticket: Ticket, stream: StreamId) {
        if let Some(index) = self.live(ticket)
            && self.home(&self.blocks[index]).stream != stream
        {
            self.blocks[index].lent = true;
            self.blocks[index].uses.push(stream);
        }
    }

    /// `stream` uses the request's block besides its own stream.
    pub fn use_on(&mut self, ticket: Ticket, stream: StreamId) {
        if let Some(index) = self.live(ticket)
            && (self.blocks[index].lent || self.home(&self.blocks[index]).stream != stream)
            && !self.blocks[index].uses.contains(&stream)
        {
            self.blocks[index].uses.push(stream);
        }
    }

    /// The client is done with the request's block. Tickets without one are ignored.
    pub fn free(&mut self, ticket: Ticket) {
        let Some(index) = self.live(ticket) else { return };
        let block = &mut self.blocks[index];
        self.figures.allocated -= block.bytes;
        block.state = BlockState::AwaitingFree;
        block.lent = false;
        let (address, uses) = (block.address, core::mem::take(&mut block.uses));
        if uses.is_empty() {
            self.complete(address);
        }
        self.fences.extend(uses.into_iter().map(|stream| (stream, address)));
    }

    /// Gives everything idle back to the device, after waiting for every pending free. Bytes given
    /// back.
    pub fn trim(&mut self) -> u64 {
        let before = self.figures.reserved;
        self.wait();
        self.evict_all();
        before - self.figures.reserved
    }

    /// Gives one pool's idle memory back and waits for nothing. A private pool in use gives only if
    /// the policy says so. Bytes given back.
    pub fn trim_pool(&mut self, pool: PoolId) -> u64 {
        let before = self.figures.reserved;
        self.release_pool(pool);
        before - self.figures.reserved
    }

    /// The private pool has no users left: its idle memory goes with the next eviction of
    /// everything. Pools that no request has named are unknown, and ignored.
    pub fn retire(&mut self, pool: PoolId) {
        let known = pool != PoolId::DEFAULT && pool <= self.newest_pool;
        if known && !self.retired.contains(&pool) {
            self.retired.push(pool);
        }
    }

    /// Every segment and block, by address.
    #[must_use]
    pub fn view(&self) -> HeapView {
        let mut segments: Vec<_> = self.segments.iter().map(|one| self.view_segment(one)).collect();
        segments.sort_by_key(|segment| segment.base);
        HeapView { segments }
    }

    fn view_segment(&self, segment: &Segment) -> SegmentView {
        let blocks = self.blocks.iter().filter(|block| block.segment == segment.base);
        let mut blocks: Vec<_> = blocks
            .map(|block| BlockView {
                address: Address(block.address),
                bytes: block.bytes,
                requested: block.requested,
                state: block.state,
                ticket: block.ticket,
            })
            .collect();
        blocks.sort_by_key(|block| block.address);
        SegmentView {
            base: Address(segment.base),
            bytes: segment.bytes,
            stream: segment.home.stream,
            pool: segment.home.pool,
            class: segment.home.class,
            expandable: segment.page.is_some(),
            order: segment.order,
            blocks,
        }
    }

    /// The best free block: the smallest that fits, ties by the policy's order.
    fn search(&mut self, home: Home, rounded: u64) -> Option<u64> {
        self.count_search(home);
        let fits = |block: &&Block| block.bytes >= rounded;
        let found: Vec<Block> = self.free_in(home).into_iter().filter(fits).cloned().collect();
        let mut best = found.first()?;
        if self.policy.page_mapped() && self.policy.prefer_ungrowable {
            for next in &found[1..] {
                if self.growable(next) >= self.growable(best) {
                    break;
                }
                best = next;
            }
        }
        fit::accepts(&self.policy, best.bytes, rounded).then_some(best.address)
    }

    /// The best free block of another stream's that fits; what its streams do is not modelled.
    fn borrow(&self, home: Home, rounded: u64) -> Option<u64> {
        let mut streams: Vec<_> = self.segments.iter().map(|segment| segment.home).collect();
        streams.retain(|other| (other.pool, other.class) == (home.pool, home.class));
        streams.retain(|other| other.stream != home.stream && self.policy.borrow);
        let best = |other: Home| self.free_in(other).into_iter().find(|b| b.bytes >= rounded);
        let found = streams.into_iter().filter_map(best);
        let accepted = found.filter(|block| fit::accepts(&self.policy, block.bytes, rounded));
        let first = |block: &&Block| (block.bytes, self.order(block), block.address);
        accepted.min_by_key(first).map(|block| block.address)
    }

    fn order(&self, block: &Block) -> u64 {
        match self.policy.order {
            Order::SegmentThenAddress => self.segment(block.segment).order,
            Order::Address => 0,
        }
    }

    /// A block's size with the unmapped space behind it.
    fn growable(&self, block: &Block) -> u64 {
        let after = self.after(block).filter(|after| after.state == BlockState::Unmapped);
        block.bytes + after.map_or(0, |after| after.bytes)
    }

    fn hand_out(&mut self, address: u64, rounded: u64, ticket: Ticket, requested: u64) {
        let index = self.index(address);
        let class = self.home(&self.blocks[index]).class;
        if fit::splits(&self.policy, class, self.blocks[index].bytes, rounded) {
            self.split(address, rounded);
        }
        let block = &mut self.blocks[index];
        (block.state, block.ticket, block.requested) = (BlockState::Allocated, ticket, requested);
        self.figures.allocated += block.bytes;
        self.figures.active += block.bytes;
        self.figures.requested += requested;
        self.figures.raise_peaks();
    }

    fn poll(&mut self) -> Option<u64> {
        if self.fences_immediate {
            self.pass_all();
        }
        None
    }

    fn wait(&mut self) -> Option<u64> {
        self.figures.syncs += 1;
        self.pass_all();
        None
    }

    /// Every fence passes.
    fn pass_all(&mut self) {
        while let Some((_, address)) = self.fences.pop() {
            if self.fences.iter().all(|&(_, other)| other != address) {
                self.complete(address);
            }
        }
    }

    /// The block's memory can be reused.
    fn complete(&mut self, address: u64) {
        let index = self.index(address);
        let block = &mut self.blocks[index];
        self.figures.active -= block.bytes;
        self.figures.requested -= block.requested;
        (block.state, block.requested) = (BlockState::Free, 0);
        self.join(address);
    }

    /// Splits a block at `bytes`; the tail has the same state and is born now.
    fn split(&mut self, address: u64, bytes: u64) {
        let index = self.index(address);
        let mut tail = self.blocks[index].clone();
        tail.address += bytes;
        tail.bytes -= bytes;
        tail.born = self.searches(self.home(&tail));
        self.blocks[index].bytes = bytes;
        self.blocks.push(tail);
    }

    /// Joins a free or unmapped block with neighbours of the same state; the whole is born now.
    fn join(&mut self, address: u64) -> u64 {
        let mut block = self.blocks.swap_remove(self.index(address));
        let joins = |other: &Block| other.state == block.state;
        let before = self.before(&block).filter(|other| joins(other)).map(|other| other.address);
        let after = self.after(&block).filter(|other| joins(other)).map(|other| other.address);
        for neighbour in [before, after].into_iter().flatten() {
            let other = self.blocks.swap_remove(self.index(neighbour));
            block.address = block.address.min(other.address);
            block.bytes += other.bytes;
        }
        block.born = self.searches(self.home(&block));
        let address = block.address;
        self.blocks.push(block);
        address
    }

    fn live(&self, ticket: Ticket) -> Option<usize> {
        self.blocks
            .iter()
            .position(|block| block.state == BlockState::Allocated && block.ticket == ticket)
    }

    /// Where the block that starts here stands in the list.
    fn index(&self, address: u64) -> usize {
        let found = self.blocks.iter().position(|block| block.address == address);
        found.expect("the twin only names blocks that it has just seen")
    }

    fn segment(&self, base: u64) -> &Segment {
        let found = self.segments.iter().find(|segment| segment.base == base);
        found.expect("every block lies in a segment")
    }

    fn home(&self, block: &Block) -> Home {
        self.segment(block.segment).home
    }

    fn before(&self, block: &Block) -> Option<&Block> {
        self.blocks
            .iter()
            .find(|other| other.segment == block.segment && other.end() == block.address)
    }

    fn after(&self, block: &Block) -> Option<&Block> {
        self.blocks
            .iter()
            .find(|other| other.segment == block.segment && other.address == block.end())
    }

    /// The free blocks of a home in search order.
    fn free_in(&self, home: Home) -> Vec<&Block> {
        let free = |block: &&Block| block.state == BlockState::Free && self.home(block) == home;
        let mut found: Vec<_> = self.blocks.iter().filter(free).collect();
        found.sort_by_key(|block| (block.bytes, self.order(block), block.address));
        found
    }

    fn count_search(&mut self, home: Home) {
        if !self.policy.collects() {
            return;
        }
        let side =
            |entry: &&mut (PoolId, Class, u64)| (entry.0, entry.1) == (home.pool, home.class);
        match self.searches.iter_mut().find(side) {
            Some(entry) => entry.2 += 1,
            None => self.searches.push((home.pool, home.class, 1)),
        }
    }

    fn searches(&self, home: Home) -> u64 {
        let side = |entry: &&(PoolId, Class, u64)| (entry.0, entry.1) == (home.pool, home.class);
        self.searches.iter().find(side).map_or(0, |entry| entry.2)
    }
}

#[cfg(test)]
mod tests;
