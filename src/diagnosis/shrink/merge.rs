//! Merge: the second pass: blocks are merged, live longer, and get round sizes.
//!
//! The request that fails stays as it is. What the others become is a new trace, and only that it fails the same
//! way makes it a likeness of the old one.

use crate::diagnosis::search::Crew;
use crate::diagnosis::shrink::delete::polish;
use crate::diagnosis::shrink::script::{Op, Piece, Script};
use crate::diagnosis::shrink::{BATCH, Work};
use crate::vocab::{GIB, KIB, MIB, UNIT};

/// How far apart merged blocks may have been requested, by turns.
const REACHES: [usize; 4] = [1, 2, 6, 24];

/// Merges and resizes until nothing helps any more.
pub(crate) fn merge<C: Crew>(work: &mut Work<'_, '_, C>, best: &mut Script) {
    loop {
        let before = best.ops.len();
        for reach in REACHES {
            sweep(work, best, reach);
            work.progress(best.ops.len(), "merging");
        }
        lengthen(work, best);
        polish(work, best);
        if best.ops.len() == before {
            break;
        }
    }
    round(work, best);
}

/// One block of a script: where it is requested, and where it is given back.
#[derive(Clone, Copy, Debug)]
struct Life {
    piece: Piece,
    from: usize,
    to: Option<usize>,
}

/// Every block but the one whose request fails, in the order of their requests.
fn lives(script: &Script) -> Vec<Life> {
    let mut places = vec![usize::MAX; script.requests.len()];
    let mut lives: Vec<Life> = Vec::new();
    for (at, op) in script.ops.iter().enumerate() {
        match *op {
            Op::Alloc(piece) => {
                places[piece as usize] = lives.len();
                lives.push(Life { piece, from: at, to: None });
            }
            Op::Free(piece) => {
                if let Some(life) = lives.get_mut(places[piece as usize]) {
                    life.to = Some(at);
                }
            }
            Op::Use(..) | Op::Trim(_) => {}
        }
    }
    lives.retain(|life| life.from + 1 < script.ops.len());
    lives
}

/// How two blocks become one.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// As large as both together; else as the larger one.
    sum: bool,
    /// Requested where the second one was; else where the first one was.
    late: bool,
    /// Given back where the first or the second one was, or never.
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    First,
    Second,
    Never,
}

const WAYS: [Way; 12] = [
    Way { sum: true, late: false, end: End::Second },
    Way { sum: true, late: false, end: End::First },
    Way { sum: true, late: true, end: End::Second },
    Way { sum: true, late: true, end: End::First },
    Way { sum: true, late: false, end: End::Never },
    Way { sum: true, late: true, end: End::Never },
    Way { sum: false, late: false, end: End::Second },
    Way { sum: false, late: false, end: End::First },
    Way { sum: false, late: true, end: End::Second },
    Way { sum: false, late: true, end: End::First },
    Way { sum: false, late: false, end: End::Never },
    Way { sum: false, late: true, end: End::Never },
];

/// Merges pairs so far apart, front to back, until it has been through once.
fn sweep<C: Crew>(work: &mut Work<'_, '_, C>, best: &mut Script, reach: usize) {
    let mut at = 0;
    loop {
        *best = best.compact();
        let lives = lives(best);
        let pairs = lives.len().saturating_sub(1) * reach;
        let candidates = pairs * WAYS.len();
        if at >= candidates {
            return;
        }
        let base: &Script = best;
        let found = work.each(BATCH.min(candidates - at), &|index| {
            let (pair, way) = ((at + index) / WAYS.len(), WAYS[(at + index) % WAYS.len()]);
            let (first, distance) = (pair / reach, pair % reach + 1);
            merged(base, lives[first], *lives.get(first + distance)?, way)
        });
        match found.into_iter().enumerate().find_map(|(index, kept)| Some((index, kept?))) {
            Some((index, kept)) => {
                *best = kept;
                at = (at + index) / WAYS.len() * WAYS.len();
            }
            None => at += BATCH,
        }
    }
}

/// Two blocks as one; `None` where that is no shorter, or they are of different streams or pools.
fn merged(script: &Script, first: Life, second: Life, way: Way) -> Option<Script> {
    let of = |life: Life| script.requests[life.piece as usize];
    let (a, b) = (of(first), of(second));
    if (a.stream, a.pool) != (b.stream, b.pool) {
        return None;
    }
    let from = if way.late { second.from } else { first.from };
    let to = match way.end {
        End::First => Some(first.to?),
        End::Second => Some(second.to?),
        End::Never => None,
    };
    if to.is_some_and(|to| to < from) {
        return None;
    }
    let bytes = if way.sum { a.bytes.checked_add(b.bytes)? } else { a.bytes.max(b.bytes) };
    let mut made = Script { ops: Vec::with_capacity(script.ops.len()), ..script.clone() };
    made.requests[first.piece as usize].bytes = bytes;
    for (at, op) in script.ops.iter().enumerate() {
        if at == from {
            made.ops.push(Op::Alloc(first.piece));
        } else if Some(at) == to {
            made.ops.push(Op::Free(first.piece));
        } else if op.block() != Some(first.piece) && op.block() != Some(second.piece) {
            made.ops.push(*op);
        }
    }
    (made.ops.len() < script.ops.len()).then_some(made)
}

/// Leaves frees out: what is never given back has one line less.
fn lengthen<C: Crew>(work: &mut Work<'_, '_, C>, best: &mut Script) {
    let mut from = 0;
    loop {
        let frees: Vec<usize> =
            (from..best.ops.len()).filter(|&at| matches!(best.ops[at], Op::Free(_))).collect();
        let Some(batch) = frees.chunks(BATCH).next() else { return };
        let base: &Script = best;
        let found = work.each(batch.len(), &|index| {
            let mut script = base.clone();
            script.ops.remove(batch[index]);
            Some(script)
        });
        let hit = found.into_iter().enumerate().find_map(|(index, kept)| Some((index, kept?)));
        match hit {
            Some((index, kept)) => (*best, from) = (kept, batch[index]),
            None => from = batch[batch.len() - 1] + 1,
        }
    }
}

/// Sizes that people read easily, the roundest first.
const ROUND: [u64; 12] = [
    GIB,
    512 * MIB,
    256 * MIB,
    128 * MIB,
    64 * MIB,
    32 * MIB,
    16 * MIB,
    8 * MIB,
    2 * MIB,
    MIB,
    64 * KIB,
    UNIT,
];

/// Gives every block the roundest size with which the trace still fails.
fn round<C: Crew>(work: &mut Work<'_, '_, C>, best: &mut Script) {
    for piece in best.pieces() {
        let bytes = best.requests[piece as usize].bytes;
        let near =
            ROUND.iter().flat_map(|unit| [bytes / unit * unit, bytes.next_multiple_of(*unit)]);
        let sizes: Vec<u64> = near.filter(|&size| size > 0 && size != bytes).collect();
        let base: &Script = best;
        let steps = base.ops.len();
        let found = work.each(sizes.len(), &|index| {
            let mut script = base.clone();
            script.requests[piece as usize].bytes = sizes[index];
            Some(script)
        });
        if let Some(kept) = found.into_iter().flatten().find(|kept| kept.ops.len() <= steps) {
            *best = kept;
        }
    }
}
