//! View: the heap at one moment as plain data, and the report of a failed request.

use alloc::vec::Vec;

use super::climb::Request;
use super::state::Heap;
use crate::policy::{diagnose, grow};
use crate::store::{Block, NONE, Segment, State};
use crate::vocab::{
    Address, BlockState, BlockView, Class, HeapView, PoolId, PoolUsage, Report, Rung, RungOutcome,
    SegmentView, StreamId, Ticket, Verdict,
};

impl Heap {
    /// The blocks of a segment by address.
    pub(super) fn blocks_of(&self, segment: &Segment) -> impl Iterator<Item = &Block> + '_ {
        let mut slot = segment.first;
        core::iter::from_fn(move || {
            let block = (slot != NONE).then(|| &self.blocks[slot])?;
            slot = block.next;
            Some(block)
        })
    }

    /// Everything, segments by address. O(blocks).
    #[must_use]
    pub fn view(&self) -> HeapView {
        let mut segments: Vec<SegmentView> =
            self.segments.iter().map(|(_, segment)| self.segment_view(segment)).collect();
        segments.sort_by_key(|segment| segment.base);
        HeapView { segments }
    }

    fn segment_view(&self, segment: &Segment) -> SegmentView {
        let lists = &self.lists[segment.lists];
        SegmentView {
            base: Address(segment.base),
            bytes: segment.bytes,
            stream: lists.stream,
            pool: lists.pool,
            class: lists.class,
            expandable: segment.is_paged(),
            order: u64::from(segment.order),
            blocks: self.blocks_of(segment).map(block_view).collect(),
        }
    }

    /// Where the memory of each side of each pool on each stream is. O(blocks).
    #[must_use]
    pub fn usage(&self) -> Vec<(PoolId, Class, StreamId, PoolUsage)> {
        let mut books: Vec<PoolUsage> = alloc::vec![PoolUsage::default(); self.lists.slots()];
        for (_, segment) in self.segments.iter() {
            let book = &mut books[segment.lists as usize];
            for block in self.blocks_of(segment) {
                add_block(book, segment, block);
            }
        }
        let named = self
            .lists
            .iter()
            .map(|(number, l)| (l.pool, l.class, l.stream, books[number as usize]));
        let mut rows: Vec<_> = named.collect();
        rows.sort_by_key(|row| (row.0, row.1, row.2));
        rows
    }

    /// Why a request failed. O(blocks): whether a free block is pinned is seen from its neighbours, and a figure kept
    /// for it would have to change with every free and every cut.
    pub(super) fn report(&self, request: &Request, rungs: Vec<(Rung, RungOutcome)>) -> Report {
        let page_bytes = grow::page_bytes(&self.policy, request.class);
        let mut report = Report {
            requested_bytes: request.bytes,
            rounded_bytes: request.size,
            driver_bytes: page_bytes.map_or(request.segment_bytes, |page| {
                request.size.checked_next_multiple_of(page).unwrap_or(request.size)
            }),
            stream: request.stream,
            stream_handle: None,
            pool: request.pool,
            class: request.class,
            device_bytes: self.total,
            limit_bytes: self.limit,
            reserved_bytes: self.reserved,
            allocated_bytes: 0,
            live_bytes: 0,
            awaiting_free_bytes: 0,
            releasable_bytes: 0,
            pinned_free_bytes: 0,
            withheld_bytes: 0,
            capture_held_bytes: 0,
            other_stream_free_bytes: 0,
            other_class_free_bytes: 0,
            other_pool_free_bytes: 0,
            own_free_bytes: 0,
            largest_free_bytes: 0,
            largest_free_anywhere_bytes: 0,
            page_bytes,
            rungs,
            verdict: Verdict::Capacity,
        };
        for (pool, class, stream, book) in self.usage() {
            let free = book.releasable_bytes + book.pinned_free_bytes;
            report.allocated_bytes += book.allocated_bytes;
            report.live_bytes += book.allocated_bytes - book.rounding_bytes;
            report.awaiting_free_bytes += book.awaiting_free_bytes;
            report.releasable_bytes += book.releasable_bytes;
            report.pinned_free_bytes += book.pinned_free_bytes;
            report.withheld_bytes += if self.gives(pool) { 0 } else { book.releasable_bytes };
            if self.capturing() {
                let idle = if self.gives(pool) { book.releasable_bytes } else { 0 };
                report.capture_held_bytes += idle + book.awaiting_free_bytes;
            }
            let anywhere = &mut report.largest_free_anywhere_bytes;
            *anywhere = (*anywhere).max(book.largest_free_bytes);
            if pool != request.pool {
                report.other_pool_free_bytes += free;
            } else if class != request.class {
                report.other_class_free_bytes += free;
            } else if stream != request.stream {
                report.other_stream_free_bytes += free;
            } else {
                report.own_free_bytes += free;
                report.largest_free_bytes = book.largest_free_bytes;
            }
        }
        report.verdict = diagnose::verdict(&report);
        report
    }
}

fn add_block(book: &mut PoolUsage, segment: &Segment, block: &Block) {
    match block.state {
        State::Unmapped | State::Moving => return,
        State::Live => {
            book.allocated_bytes += block.size;
            book.rounding_bytes += block.size - block.requested;
        }
        State::Draining => book.awaiting_free_bytes += block.size,
        State::Free => {
            let idle = if segment.is_paged() {
                let (first, last) = segment.pages_inside(block.address, block.end());
                last - first
            } else if block.is_alone() {
                block.size
            } else {
                0
            };
            book.releasable_bytes += idle;
            book.pinned_free_bytes += block.size - idle;
            book.largest_free_bytes = book.largest_free_bytes.max(block.size);
        }
    }
    book.reserved_bytes += block.size;
}

fn block_view(block: &Block) -> BlockView {
    let (state, requested) = match block.state {
        State::Live => (BlockState::Allocated, block.requested),
        State::Draining => (BlockState::AwaitingFree, block.requested),
        State::Free => (BlockState::Free, 0),
        State::Unmapped | State::Moving => (BlockState::Unmapped, 0),
    };
    BlockView {
        address: Address(block.address),
        bytes: block.size,
        requested,
        state,
        ticket: Ticket(block.ticket),
    }
}
