//! Release: how the twin gives memory back to its device.
//!
//! Owns the ways back: by age, just enough oversize blocks, everything idle. Asked by the ladder
//! and by trims. Never touches a block that is not free.

use super::{Block, Home, Twin};
use crate::policy::evict;
use crate::vocab::{Address, BlockState, Class, PoolId, StreamId};

impl Twin {
    /// Releases idle segments of the default pool's large side by age, pass by pass, until the
    /// target is met or a pass finds none that are old enough.
    pub(super) fn collect(&mut self) -> Option<u64> {
        let limit = self.limit.filter(|_| self.policy.collects())?;
        let target = evict::collect_target(&self.policy, limit, self.figures.reserved);
        let goal = self.figures.reserved - target;
        while self.figures.reserved > goal {
            let idle = self.idle_segments(PoolId::DEFAULT, Class::Large);
            let ages: Vec<_> = idle.iter().map(|block| (block.address, self.age(block))).collect();
            let (total, count) = (ages.iter().map(|one| one.1).sum(), ages.len() as u64);
            let mut old =
                ages.iter().filter(|one| evict::old_enough(one.1, total, count)).peekable();
            old.peek()?;
            old.for_each(|&(address, _)| self.release_segment(address));
        }
        None
    }

    fn age(&self, block: &Block) -> u64 {
        self.searches(self.home(block)) - block.born
    }

    /// Releases the smallest free block that is large enough, if it is a whole segment, or else
    /// oversize segments from the largest down; whether that was enough.
    pub(super) fn evict_some(&mut self, home: Home, rounded: u64) -> bool {
        let Some(target) = evict::oversize_target(&self.policy, rounded) else { return false };
        let free = self.free_in(home);
        let fitting = free.iter().find(|block| block.bytes >= target);
        if let Some(block) = fitting.filter(|block| self.is_idle_segment(block)) {
            self.release_segment(block.address);
            return true;
        }
        let idle = free.into_iter().filter(|block| self.is_idle_segment(block));
        let oversize = idle.filter(|block| block.bytes >= self.policy.max_split);
        let oversize: Vec<_> = oversize.map(|block| (block.address, block.bytes)).collect();
        let mut released = 0;
        for (address, bytes) in oversize.into_iter().rev() {
            if released < target {
                self.release_segment(address);
                released += bytes;
            }
        }
        released >= target
    }

    /// Releases everything idle: the default pool large then small, then private pools small then
    /// large, those in use only if the policy says so.
    pub(super) fn evict_all(&mut self) -> Option<u64> {
        let mut pools: Vec<_> = self.segments.iter().map(|segment| segment.home.pool).collect();
        pools.sort_unstable();
        pools.dedup();
        pools.into_iter().for_each(|pool| self.release_pool(pool));
        None
    }

    pub(super) fn release_pool(&mut self, pool: PoolId) {
        if pool == PoolId::DEFAULT {
            self.release_side(pool, Class::Large);
            self.release_side(pool, Class::Small);
        } else if self.policy.evict_private || self.retired.contains(&pool) {
            self.release_side(pool, Class::Small);
            self.release_side(pool, Class::Large);
        }
        if self.retired.contains(&pool) {
            self.release_empty_ranges(pool);
        }
    }

    /// Releases the address ranges of a pool that have no pages: nobody will grow into them.
    fn release_empty_ranges(&mut self, pool: PoolId) {
        let ours = self.segments.iter().filter(|segment| segment.home.pool == pool);
        let ranges: Vec<u64> = ours.map(|segment| segment.base).collect();
        for base in ranges {
            let first = &self.blocks[self.index(base)];
            let whole = first.bytes == self.segment(base).bytes;
            if first.state == BlockState::Unmapped && whole {
                self.device.release_range(Address(base));
                self.forget_segment(base);
            }
        }
    }

    /// Releases idle segments and pages of one side of a pool, streams ascending, blocks in search
    /// order.
    fn release_side(&mut self, pool: PoolId, class: Class) {
        for stream in self.streams(pool, class) {
            let home = Home { pool, class, stream };
            let free: Vec<_> = self.free_in(home).iter().map(|block| block.address).collect();
            for address in free {
                let block = &self.blocks[self.index(address)];
                if let Some(page) = self.segment(block.segment).page {
                    self.unmap(address, page);
                } else if self.is_idle_segment(block) {
                    self.release_segment(address);
                }
            }
        }
    }

    fn streams(&self, pool: PoolId, class: Class) -> Vec<StreamId> {
        let homes = self.segments.iter().map(|segment| segment.home);
        let ours = homes.filter(|home| home.pool == pool && home.class == class);
        let mut streams: Vec<_> = ours.map(|home| home.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        streams
    }

    /// A whole segment that is free and not page-mapped.
    fn is_idle_segment(&self, block: &Block) -> bool {
        let segment = self.segment(block.segment);
        block.state == BlockState::Free && segment.page.is_none() && block.bytes == segment.bytes
    }

    fn idle_segments(&self, pool: PoolId, class: Class) -> Vec<&Block> {
        let ours = |block: &&Block| {
            let home = self.home(block);
            home.pool == pool && home.class == class && self.is_idle_segment(block)
        };
        self.blocks.iter().filter(ours).collect()
    }

    fn release_segment(&mut self, base: u64) {
        let bytes = self.segment(base).bytes;
        self.device.release(Address(base), bytes);
        self.figures.device_frees += 1;
        self.figures.reserved -= bytes;
        self.forget_segment(base);
    }

    fn forget_segment(&mut self, base: u64) {
        self.segments.retain(|segment| segment.base != base);
        self.blocks.retain(|block| block.segment != base);
    }

    /// Takes the whole pages inside a free block away, and the range with them once nothing else is
    /// in it.
    fn unmap(&mut self, address: u64, page: u64) {
        let block = self.blocks[self.index(address)].clone();
        let base = block.segment;
        let first = base + (block.address - base).next_multiple_of(page);
        let end = base + (block.end() - base) / page * page;
        if first >= end {
            return;
        }
        if first > block.address {
            self.split(block.address, first - block.address);
            let head = self.index(block.address);
            self.blocks[head].born = self.searches(self.home(&block));
        }
        if block.end() > end {
            self.split(first, end - first);
        }
        self.device.unmap((end - first) / page, page);
        self.figures.device_frees += 1;
        self.figures.pages_unmapped += (end - first) / page;
        self.figures.reserved -= end - first;
        let middle = self.index(first);
        self.blocks[middle].state = BlockState::Unmapped;
        let whole = self.join(first);
        if self.blocks[self.index(whole)].bytes == self.segment(base).bytes {
            self.device.release_range(Address(base));
            self.forget_segment(base);
        }
    }
}
