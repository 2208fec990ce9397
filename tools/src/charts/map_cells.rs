//! Cells of a bar: what is drawn for a range of bytes, when blocks may be far thinner than a pixel.
//!
//! A block at least a pixel wide is a cell of its own. Thinner neighbours share a cell that is
//! divided by height in proportion to their bytes, so that no scale hides how much of a range is
//! free.

use blockyard::vocab::{BlockState, BlockView, SegmentView};

/// Shared cells are at least this many pixels wide, if there is that much to share.
const SHARED: f64 = 2.0;

/// Bytes of one cell by what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Live, rounding included.
    pub allocated: u64,
    /// Awaiting free.
    pub awaiting: u64,
    /// Free.
    pub free: u64,
    /// Without memory.
    pub unmapped: u64,
}

/// What is drawn for some bytes of a bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// One block, or the part of it that lies in the range.
    One {
        /// The block.
        block: &'a BlockView,
        /// From which byte of the bar.
        from: u64,
        /// To which byte.
        to: u64,
        /// The block ends within the range.
        ends: bool,
    },
    /// Several.
    Shared {
        /// From which byte of the bar.
        from: u64,
        /// To which byte.
        to: u64,
        /// What they are.
        shares: Shares,
    },
}

/// The cells of the bytes `from..to`, counted through all of `segments`.
pub fn cells<'a>(
    segments: &[&'a SegmentView],
    from: u64,
    to: u64,
    bytes_per_pixel: f64,
) -> Vec<Cell<'a>> {
    let mut out = Vec::new();
    let mut open: Option<(u64, u64, Shares)> = None;
    let flush = |open: &mut Option<(u64, u64, Shares)>, out: &mut Vec<Cell<'a>>| {
        if let Some((from, to, shares)) = open.take() {
            out.push(Cell::Shared { from, to, shares });
        }
    };
    let mut start = 0;
    for segment in segments {
        for block in &segment.blocks {
            let offset = start + block.address.0.saturating_sub(segment.base.0);
            let (left, right) = (offset.max(from), (offset + block.bytes).min(to));
            if left >= right {
                continue;
            }
            if (right - left) as f64 >= bytes_per_pixel {
                flush(&mut open, &mut out);
                let ends = right == offset + block.bytes;
                out.push(Cell::One { block, from: left, to: right, ends });
                continue;
            }
            let (first, _, mut shares) = open.take().unwrap_or((left, left, Shares::default()));
            shares.add(block.state, right - left);
            open = Some((first, right, shares));
            if (right - first) as f64 >= SHARED * bytes_per_pixel {
                flush(&mut open, &mut out);
            }
        }
        start += segment.bytes;
    }
    flush(&mut open, &mut out);
    out
}

impl Shares {
    fn add(&mut self, state: BlockState, bytes: u64) {
        match state {
            BlockState::Allocated => self.allocated += bytes,
            BlockState::AwaitingFree => self.awaiting += bytes,
            BlockState::Free => self.free += bytes,
            BlockState::Unmapped => self.unmapped += bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard::vocab::{Address, Class, PoolId, StreamId, Ticket};

    #[test]
    fn thin_blocks_share_a_cell_and_no_byte_is_lost() {
        let mut blocks = Vec::new();
        let mut at = 0;
        for index in 0..100u64 {
            let state = if index % 2 == 0 { BlockState::Allocated } else { BlockState::Free };
            let bytes = if index == 50 { 10_000 } else { 100 };
            blocks.push(BlockView {
                address: Address(at),
                bytes,
                requested: 0,
                state,
                ticket: Ticket(0),
            });
            at += bytes;
        }
        let (stream, pool, class) = (StreamId(0), PoolId(0), Class::Large);
        let segment = SegmentView {
            base: Address(0),
            bytes: at,
            stream,
            pool,
            class,
            expandable: false,
            order: 0,
            blocks,
        };
        let cells = cells(&[&segment], 0, at, 1000.0);
        let mut end = 0;
        for cell in &cells {
            let (from, to) = match *cell {
                Cell::One { from, to, .. } => (from, to),
                Cell::Shared { from, to, shares } => {
                    assert_eq!(shares.allocated + shares.free, to - from);
                    (from, to)
                }
            };
            assert_eq!(from, end);
            end = to;
        }
        assert_eq!(end, at);
        assert_eq!(cells.iter().filter(|cell| matches!(cell, Cell::One { .. })).count(), 1);
        assert!(cells.len() < 12, "{}", cells.len());
    }
}
