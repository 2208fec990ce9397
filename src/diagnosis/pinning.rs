//! Pinning: the smallest set of live blocks whose moving would have let a request fit.
//!
//! Two ways lead there: a run of neighbours in one segment of the request's own pool, side and stream
//! becomes free; or whole segments (or pages) become free and go back to the driver. The first is a
//! sliding window, O(blocks) and exact; the second is a covering choice, in `pinning_cover`. Asked by
//! `explain`. Never knows who owns a block.

mod cover;

use crate::diagnosis::pinning::cover::{Item, cheapest};
use crate::policy::{Policy, grow};
use crate::vocab::{BlockState, BlockView, HeapView, PoolId, Report, SegmentView, Ticket};

/// One live block that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The request that has it.
    pub ticket: Ticket,
    /// Where it starts.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Freed by the client, and waiting for a stream.
    pub awaiting: bool,
}

/// Where the request would have fitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a run of neighbours in one segment.
    Run {
        /// The segment's base.
        segment: u64,
        /// Where the run starts.
        address: u64,
        /// Its size.
        bytes: u64,
    },
    /// On the device, once these segments (or runs of pages) had gone back.
    Returned {
        /// Their bases.
        bases: Vec<u64>,
        /// Their bytes in all.
        bytes: u64,
    },
}

/// The blocks in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinning {
    /// Where the request would have fitted without them.
    pub place: Place,
    /// The blocks.
    pub pins: Vec<Pin>,
    /// No smaller set exists; else it was found by a rule of thumb.
    pub exact: bool,
}

impl Pinning {
    /// Bytes of all blocks in the way.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pins.iter().map(|pin| pin.bytes).sum()
    }
}

/// The smallest set of live blocks whose moving would have served the request under `policy`. `gives`
/// says which pools return memory to the driver. Nothing where no set of blocks would.
#[must_use]
pub fn smallest(
    view: &HeapView,
    report: &Report,
    policy: &Policy,
    gives: impl Fn(PoolId) -> bool,
) -> Option<Pinning> {
    let own = view.segments.iter().filter(|segment| {
        (segment.pool, segment.class, segment.stream) == (report.pool, report.class, report.stream)
    });
    let runs = own.filter_map(|segment| run(segment, report.rounded_bytes));
    let best = runs.min_by_key(Pinning::bytes);
    let returned = returned(view, report, policy, gives);
    match (best, returned) {
        (Some(run), Some(returned)) if returned.bytes() < run.bytes() => Some(returned),
        (run, returned) => run.or(returned),
    }
}

const fn is_live(block: &BlockView) -> bool {
    matches!(block.state, BlockState::Allocated | BlockState::AwaitingFree)
}

const fn pin(block: &BlockView) -> Pin {
    Pin {
        ticket: block.ticket,
        address: block.address.0,
        bytes: block.bytes,
        awaiting: matches!(block.state, BlockState::AwaitingFree),
    }
}

/// The run of mapped neighbours with the fewest live bytes.
fn run(segment: &SegmentView, need: u64) -> Option<Pinning> {
    let blocks = &segment.blocks;
    let (mut from, mut bytes, mut live) = (0, 0u64, 0u64);
    let mut best: Option<(u64, usize, usize, u64)> = None;
    let live_of = |block: &BlockView| if is_live(block) { block.bytes } else { 0 };
    for (to, block) in blocks.iter().enumerate() {
        if block.state == BlockState::Unmapped {
            (from, bytes, live) = (to + 1, 0, 0);
            continue;
        }
        bytes += block.bytes;
        live += live_of(block);
        while from < to && bytes - blocks[from].bytes >= need {
            bytes -= blocks[from].bytes;
            live -= live_of(&blocks[from]);
            from += 1;
        }
        if bytes >= need && best.is_none_or(|(fewest, ..)| live < fewest) {
            best = Some((live, from, to, bytes));
        }
    }
    let (_, from, to, bytes) = best?;
    let inside = &blocks[from..=to];
    Some(Pinning {
        place: Place::Run { segment: segment.base.0, address: inside[0].address.0, bytes },
        pins: inside.iter().filter(|block| is_live(block)).map(pin).collect(),
        exact: true,
    })
}

/// The cheapest set of segments, or of pages, that would have made enough room on the device.
fn returned(
    view: &HeapView,
    report: &Report,
    policy: &Policy,
    gives: impl Fn(PoolId) -> bool,
) -> Option<Pinning> {
    let need = report.driver_bytes.checked_sub(report.room_bytes()?)?;
    if need == 0 {
        return None;
    }
    let mut candidates: Vec<Candidate<'_>> = Vec::new();
    for segment in view.segments.iter().filter(|segment| gives(segment.pool)) {
        if segment.expandable {
            clusters(segment, grow::page_bytes(policy, segment.class), &mut candidates);
        } else {
            candidates.push(Candidate::new(segment.base.0, segment.bytes, &segment.blocks));
        }
    }
    let items: Vec<Item> =
        candidates.iter().map(|c| Item { gain: c.bytes, cost: c.live }).collect();
    let choice = cheapest(&items, need)?;
    let chosen: Vec<&Candidate<'_>> =
        choice.items.iter().map(|&index| &candidates[index]).collect();
    let live = chosen.iter().flat_map(|c| c.blocks).filter(|block| is_live(block));
    Some(Pinning {
        pins: live.map(pin).collect(),
        place: Place::Returned {
            bases: chosen.iter().map(|c| c.base).collect(),
            bytes: chosen.iter().map(|c| c.bytes).sum(),
        },
        exact: choice.exact,
    })
}

struct Candidate<'a> {
    base: u64,
    bytes: u64,
    live: u64,
    blocks: &'a [BlockView],
}

impl<'a> Candidate<'a> {
    fn new(base: u64, bytes: u64, blocks: &'a [BlockView]) -> Self {
        let live = blocks.iter().filter(|block| is_live(block)).map(|block| block.bytes).sum();
        Self { base, bytes, live, blocks }
    }
}

/// Runs of pages that no live block joins to their neighbours: each can go back by itself.
fn clusters<'a>(segment: &'a SegmentView, page: Option<u64>, out: &mut Vec<Candidate<'a>>) {
    let page = page.unwrap_or(2 << 20);
    let down = |address: u64| segment.base.0 + (address - segment.base.0) / page * page;
    let up = |address: u64| segment.base.0 + (address - segment.base.0).div_ceil(page) * page;
    let (mut start, mut end, mut first, mut last) = (0, 0, 0, 0);
    for (index, block) in segment.blocks.iter().enumerate().filter(|(_, block)| is_live(block)) {
        let (from, to) = (down(block.address.0), up(block.address.0 + block.bytes));
        if end > 0 && from < end {
            end = end.max(to);
            last = index;
            continue;
        }
        if end > 0 {
            out.push(Candidate::new(start, end - start, &segment.blocks[first..=last]));
        }
        (start, end, first, last) = (from, to, index, index);
    }
    if end > 0 {
        out.push(Candidate::new(start, end - start, &segment.blocks[first..=last]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::{Address, Class, MIB, StreamId};

    fn segment(pieces: &[(u64, bool)]) -> SegmentView {
        let mut address = 0;
        let mut blocks = Vec::new();
        for &(mib, live) in pieces {
            let state = if live { BlockState::Allocated } else { BlockState::Free };
            let (bytes, ticket) = (mib * MIB, Ticket(blocks.len() as u64));
            blocks.push(BlockView {
                address: Address(address),
                bytes,
                requested: 0,
                state,
                ticket,
            });
            address += bytes;
        }
        SegmentView {
            base: Address(0),
            bytes: address,
            stream: StreamId(0),
            pool: PoolId::DEFAULT,
            class: Class::Large,
            expandable: false,
            order: 0,
            blocks,
        }
    }

    #[test]
    fn the_window_with_the_fewest_live_bytes_wins() {
        let pieces =
            [(10, true), (30, false), (4, true), (20, false), (1, true), (25, false), (50, true)];
        let found = run(&segment(&pieces), 45 * MIB).unwrap();
        assert_eq!(found.bytes(), MIB, "20 + 1 + 25 hold 46");
        let found = run(&segment(&pieces), 50 * MIB).unwrap();
        assert_eq!(found.bytes(), 4 * MIB, "30 + 4 + 20 hold 54");
        assert_eq!(run(&segment(&pieces), 500 * MIB), None);
    }

    #[test]
    fn every_smaller_window_was_looked_at() {
        let pieces: Vec<(u64, bool)> =
            (0..40u64).map(|i| (1 + (i * 7919) % 13, i.is_multiple_of(3))).collect();
        let segment = segment(&pieces);
        for need in 1..80 {
            let mut fewest = u64::MAX;
            for from in 0..pieces.len() {
                for to in from..pieces.len() {
                    let inside = &pieces[from..=to];
                    if inside.iter().map(|p| p.0).sum::<u64>() >= need {
                        let live = inside.iter().filter(|p| p.1).map(|p| p.0).sum::<u64>();
                        fewest = fewest.min(live);
                    }
                }
            }
            assert_eq!(run(&segment, need * MIB).unwrap().bytes(), fewest * MIB, "{need}");
        }
    }
}
