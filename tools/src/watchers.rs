//! Watchers: what a replay leaves behind for charts and snapshots.

use blockyard::lab::Watch;
use blockyard::vocab::{Address, Change, Observe, Ticket};

use crate::charts::model::{BlockLife, SegmentLife};

/// Collects the lives of blocks and segments for the address-time chart.
#[derive(Debug, Default)]
pub struct Lives {
    /// Blocks; the end of one that lives is [`u64::MAX`].
    pub blocks: Vec<BlockLife>,
    /// Segments and mapped ranges; the death of one that lives is [`u64::MAX`].
    pub segments: Vec<SegmentLife>,
    event: u64,
    open: std::collections::HashMap<Ticket, usize>,
    standing: std::collections::BTreeMap<u64, usize>,
}

impl Lives {
    /// Ends everything that still lives after the last event.
    pub fn close(&mut self, end: u64) {
        for block in &mut self.blocks {
            block.end_event = block.end_event.min(end);
        }
        for segment in &mut self.segments {
            segment.death = segment.death.min(end);
        }
    }

    fn born(&mut self, address: Address, bytes: u64, ticket: Ticket) {
        self.open.insert(ticket, self.blocks.len());
        self.blocks.push(BlockLife {
            start_event: self.event,
            end_event: u64::MAX,
            address,
            bytes,
            awaiting_free: false,
        });
    }

    /// Memory under `base..base + bytes` is gone: what stood there is cut.
    fn gone(&mut self, base: u64, bytes: u64) {
        let end = base + bytes;
        let touched: Vec<u64> = self
            .standing
            .range(..end)
            .rev()
            .take_while(|&(&start, &index)| start + self.segments[index].bytes > base)
            .map(|(&start, _)| start)
            .collect();
        for start in touched {
            let Some(index) = self.standing.remove(&start) else { continue };
            let stop = start + self.segments[index].bytes;
            self.segments[index].death = self.event;
            if start < base {
                self.stands(start, base - start);
            }
            if stop > end {
                self.stands(end, stop - end);
            }
        }
    }

    fn stands(&mut self, base: u64, bytes: u64) {
        self.standing.insert(base, self.segments.len());
        let birth = self.event;
        self.segments.push(SegmentLife { base: Address(base), bytes, birth, death: u64::MAX });
    }
}

impl Observe for Lives {
    fn observe(&mut self, change: Change) {
        match change {
            Change::Allocated { ticket, address, bytes, .. } => self.born(address, bytes, ticket),
            Change::FreeRequested { ticket, address, bytes, .. } => {
                if let Some(index) = self.open.remove(&ticket) {
                    self.blocks[index].end_event = self.event;
                }
                self.born(address, bytes, ticket);
                if let Some(block) = self.blocks.last_mut() {
                    block.awaiting_free = true;
                }
            }
            Change::FreeCompleted { ticket, .. } => {
                let Some(index) = self.open.remove(&ticket) else { return };
                if self.blocks[index].start_event == self.event {
                    // Completed at once: it never waited.
                    self.blocks.swap_remove(index);
                } else {
                    self.blocks[index].end_event = self.event;
                }
            }
            Change::SegmentAllocated { base, bytes, .. } | Change::Mapped { base, bytes, .. } => {
                self.stands(base.0, bytes);
            }
            Change::SegmentFreed { base, bytes, .. } | Change::Unmapped { base, bytes, .. } => {
                self.gone(base.0, bytes);
            }
            _ => {}
        }
    }
}

impl Watch for Lives {
    fn begin(&mut self, index: u32) {
        self.event = u64::from(index);
    }
}
