//! Grow: how the twin gets memory from its device.
//!
//! Owns the plan of a growth: a whole segment, or the pages missing from the lowest place where
//! they would make room. Asked only by the ladder. Never knows what was tried before.

use super::{Block, Home, Segment, Twin};
use crate::policy::{LimitCheck, grow};
use crate::vocab::{BlockState, Ticket};

impl Twin {
    /// A free block of at least `rounded` bytes with fresh memory in it. Map operations that
    /// succeeded before one failed keep their memory.
    pub(super) fn grow(&mut self, home: Home, rounded: u64) -> Option<u64> {
        let segment = grow::segment_bytes(&self.policy, rounded);
        let Some(page) = grow::page_bytes(&self.policy, home.class) else {
            return self.grow_segment(home, segment);
        };
        if self.policy.limit_check == LimitCheck::Segment && self.over_limit(segment) {
            return None;
        }
        let place = self.place(home, rounded);
        let taken = match place {
            Some(start) => self.gaps(start, rounded, page).iter().map(|gap| gap.1).sum(),
            None => rounded.next_multiple_of(page),
        };
        if self.policy.limit_check == LimitCheck::Exact && self.over_limit(taken) {
            return None;
        }
        let start = match place {
            Some(start) => start,
            None => self.new_range(home, rounded, page)?,
        };
        for (gap, bytes) in self.gaps(start, rounded, page) {
            self.map(gap, bytes, page)?;
        }
        Some(start)
    }

    /// The smallest segment that holds `rounded` bytes, where that is not the one of its class.
    pub(super) fn grow_least(&mut self, home: Home, rounded: u64) -> Option<u64> {
        let whole = grow::page_bytes(&self.policy, home.class).is_none();
        let least = rounded.next_multiple_of(self.policy.segment_granule);
        let less = least < grow::segment_bytes(&self.policy, rounded);
        if whole && less { self.grow_segment(home, least) } else { None }
    }

    fn over_limit(&self, bytes: u64) -> bool {
        self.limit.is_some_and(|limit| self.figures.reserved + bytes > limit)
    }

    fn grow_segment(&mut self, home: Home, bytes: u64) -> Option<u64> {
        if self.over_limit(bytes) {
            return None;
        }
        let base = self.device.reserve(bytes)?.0;
        self.figures.device_allocs += 1;
        self.figures.reserved += bytes;
        self.figures.raise_peaks();
        self.add_segment(base, bytes, home, None, BlockState::Free);
        Some(base)
    }

    /// A new address range; a shorter one where the device has no space for the whole.
    fn new_range(&mut self, home: Home, rounded: u64, page: u64) -> Option<u64> {
        let lengths = [
            grow::range_bytes(self.total, page, rounded),
            grow::frugal_range_bytes(page, rounded),
            rounded.next_multiple_of(page),
        ];
        let mut ranges = lengths.into_iter();
        let (base, bytes) = ranges
            .find_map(|bytes| self.device.reserve_range(bytes).map(|base| (base.0, bytes)))?;
        self.add_segment(base, bytes, home, Some(page), BlockState::Unmapped);
        Some(base)
    }

    fn add_segment(
        &mut self,
        base: u64,
        bytes: u64,
        home: Home,
        page: Option<u64>,
        state: BlockState,
    ) {
        let order = self.segments_created;
        self.segments_created += 1;
        self.segments.push(Segment { base, bytes, order, home, page });
        let born = self.searches(home);
        let (ticket, requested, uses) = (Ticket(0), 0, Vec::new());
        let (segment, address) = (base, base);
        let lent = false;
        self.blocks.push(Block {
            segment,
            address,
            bytes,
            state,
            ticket,
            requested,
            uses,
            lent,
            born,
        });
    }

    /// Where room can be made: from the lowest gap, or the free block before it, on through free
    /// blocks and gaps.
    fn place(&self, home: Home, rounded: u64) -> Option<u64> {
        let unmapped =
            |block: &&Block| block.state == BlockState::Unmapped && self.home(block) == home;
        let mut gaps: Vec<_> = self.blocks.iter().filter(unmapped).collect();
        gaps.sort_by_key(|gap| gap.address);
        let starts = gaps.into_iter().map(|gap| {
            let before = self.before(gap).filter(|before| before.state == BlockState::Free);
            before.unwrap_or(gap)
        });
        starts.into_iter().find(|start| self.room(start) >= rounded).map(|start| start.address)
    }

    /// Bytes from a block on that are free or could be.
    fn room(&self, start: &Block) -> u64 {
        let run = std::iter::successors(Some(start), |block| self.after(block));
        let usable =
            |block: &&Block| matches!(block.state, BlockState::Free | BlockState::Unmapped);
        run.take_while(usable).map(|block| block.bytes).sum()
    }

    /// What must be mapped so that `rounded` bytes are free from `start` on: each gap's address and
    /// bytes.
    fn gaps(&self, start: u64, rounded: u64, page: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut missing = rounded;
        let mut next = Some(&self.blocks[self.index(start)]);
        while let Some(block) = next.filter(|_| missing > 0) {
            let mut bytes = block.bytes;
            if block.state == BlockState::Unmapped {
                bytes = missing.min(bytes).next_multiple_of(page);
                gaps.push((block.address, bytes));
            }
            missing = missing.saturating_sub(bytes);
            next = self.after(block);
        }
        gaps
    }

    /// Puts memory under the first `bytes` of a gap.
    fn map(&mut self, gap: u64, bytes: u64, page: u64) -> Option<()> {
        self.device.map(bytes / page, page)?;
        self.figures.device_allocs += 1;
        self.figures.pages_mapped += bytes / page;
        self.figures.reserved += bytes;
        self.figures.raise_peaks();
        let index = self.index(gap);
        if self.blocks[index].bytes > bytes {
            self.split(gap, bytes);
        }
        self.blocks[index].state = BlockState::Free;
        self.join(gap);
        Some(())
    }
}
