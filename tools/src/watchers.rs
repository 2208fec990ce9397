//! Watchers: what a replay leaves behind for charts and snapshots.

use blockyard::lab::Watch;
use blockyard::trace::{Event, Kind, NO_ALLOCATION};
use blockyard::vocab::{Address, Change, Observe, PoolId, StreamId, Ticket};

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

/// Collects the history of a replay as entries with addresses, in PyTorch's kinds, for snapshots.
#[derive(Debug, Default)]
pub struct Tape {
    /// The entries.
    pub events: Vec<Event>,
}

impl Observe for Tape {
    fn observe(&mut self, change: Change) {
        let mut push = |kind, address: Address, bytes, stream, pool, ticket: Option<Ticket>| {
            let allocation = ticket.and_then(|ticket| u32::try_from(ticket.0).ok());
            self.events.push(Event {
                address: address.0,
                bytes,
                allocation: allocation.unwrap_or(NO_ALLOCATION),
                stream,
                pool,
                ..Event::new(kind)
            });
        };
        let (s0, p0) = (StreamId(0), PoolId(0));
        match change {
            Change::Allocated { ticket, address, requested, .. } => {
                push(Kind::Alloc, address, requested, s0, p0, Some(ticket));
            }
            Change::FreeRequested { ticket, address, bytes, .. } => {
                push(Kind::FreeRequested, address, bytes, s0, p0, Some(ticket));
            }
            Change::FreeCompleted { ticket, address, requested, .. } => {
                push(Kind::FreeCompleted, address, requested, s0, p0, Some(ticket));
            }
            Change::SegmentAllocated { base, bytes, stream, pool, .. } => {
                push(Kind::SegmentAlloc, base, bytes, stream, pool, None);
            }
            Change::SegmentFreed { base, bytes, stream, pool, .. } => {
                push(Kind::SegmentFree, base, bytes, stream, pool, None);
            }
            Change::Mapped { base, bytes, stream, pool, .. } => {
                push(Kind::SegmentMap, base, bytes, stream, pool, None);
            }
            Change::Unmapped { base, bytes, stream, pool, .. } => {
                push(Kind::SegmentUnmap, base, bytes, stream, pool, None);
            }
            Change::RanOut { bytes, stream, pool } => {
                push(Kind::Oom, Address(0), bytes, stream, pool, None);
            }
            Change::InactiveSplit { .. }
            | Change::Borrowed { .. }
            | Change::Retried
            | Change::Synchronized => {}
        }
    }
}

impl Watch for Tape {}
