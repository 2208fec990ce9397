//! Delete: the first pass: whole pieces are taken away, in halves, quarters and so on down to single ones.
//!
//! Which pieces go together is a matter of order, and no order is best for every trace: several are tried from the
//! same middle-sized script, and the shortest result is polished with all of them.

use crate::diagnosis::search::Crew;
use crate::diagnosis::shrink::script::{Piece, Script};
use crate::diagnosis::shrink::{BATCH, Work};
use crate::lab::rng::Rng;

/// In which order pieces are taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The last ones first.
    Newest,
    /// The first ones first.
    Oldest,
    /// Small ones first: they cost a line each and hold little.
    Smallest,
    /// Large ones first.
    Largest,
    /// Those with the fewest bytes for each line first: a block that is given back has two.
    Cheapest,
    /// As a seed has it.
    Shuffled(u64),
}

const ORDERS: [Order; 7] = [
    Order::Newest,
    Order::Smallest,
    Order::Cheapest,
    Order::Oldest,
    Order::Largest,
    Order::Shuffled(1),
    Order::Shuffled(2),
];

/// Orders are compared from a script of about so many steps.
const MIDDLE: usize = 12_000;

/// Takes pieces away until none can go alone, in any order.
pub(crate) fn delete<C: Crew>(work: &mut Work<'_, '_, C>, best: &mut Script) {
    let mut middle: Option<Script> = None;
    descend(work, best, ORDERS[0], &mut |script| {
        if middle.is_none() && script.ops.len() <= MIDDLE {
            middle = Some(script.clone());
        }
    });
    for order in &ORDERS[1..] {
        let Some(mut other) = middle.clone() else { break };
        descend(work, &mut other, *order, &mut |_| {});
        if other.ops.len() < best.ops.len() {
            *best = other;
        }
    }
    polish(work, best);
}

/// Goes down in every order until none takes anything more.
pub(crate) fn polish<C: Crew>(work: &mut Work<'_, '_, C>, best: &mut Script) {
    loop {
        let before = best.ops.len();
        for order in ORDERS {
            descend(work, best, order, &mut |_| {});
        }
        if best.ops.len() == before {
            return;
        }
    }
}

/// From halves down to single pieces.
fn descend<C: Crew>(
    work: &mut Work<'_, '_, C>,
    best: &mut Script,
    order: Order,
    look: &mut dyn FnMut(&Script),
) {
    let mut chunk = best.pieces().len().div_ceil(2);
    while chunk > 0 {
        *best = best.compact();
        look(best);
        let before = best.ops.len();
        sweep(work, best, chunk, order);
        work.progress(best.ops.len(), "deleting");
        if chunk > 1 || best.ops.len() == before {
            chunk /= 2;
        }
    }
}

/// One pass over the script in chunks of so many pieces.
fn sweep<C: Crew>(work: &mut Work<'_, '_, C>, best: &mut Script, chunk: usize, order: Order) {
    let pieces = ordered(best, order);
    let chunks: Vec<&[Piece]> = pieces.chunks(chunk).collect();
    for batch in chunks.chunks(BATCH) {
        let base: &Script = best;
        let found = work.each(batch.len(), &|index| Some(base.without(batch[index])));
        let good = batch.iter().zip(&found).filter(|(_, kept)| kept.is_some());
        let good: Vec<&[Piece]> = good.map(|(chunk, _)| *chunk).collect();
        together(work, best, &good);
    }
}

/// Takes away as many as go together: all, else of each half what goes.
fn together<C: Crew>(work: &mut Work<'_, '_, C>, best: &mut Script, chunks: &[&[Piece]]) {
    if chunks.is_empty() {
        return;
    }
    if let Some(kept) = work.one(best.without(&chunks.concat())) {
        *best = kept;
        return;
    }
    if chunks.len() > 1 {
        let (first, rest) = chunks.split_at(chunks.len() / 2);
        together(work, best, first);
        together(work, best, rest);
    }
}

/// The pieces in this order.
fn ordered(script: &Script, order: Order) -> Vec<Piece> {
    let mut pieces = script.pieces();
    let bytes = |piece: &Piece| script.requests[*piece as usize].bytes;
    match order {
        Order::Oldest => {}
        Order::Newest => pieces.reverse(),
        Order::Smallest => pieces.sort_by_key(bytes),
        Order::Largest => pieces.sort_by_key(|piece| u64::MAX - bytes(piece)),
        Order::Cheapest => {
            let mut lines = vec![0; script.requests.len()];
            for block in script.ops.iter().map(|op| op.block().unwrap_or(op.piece())) {
                lines[block as usize] += 1;
            }
            pieces.sort_by_key(|piece| bytes(piece) / lines[*piece as usize].max(1));
        }
        Order::Shuffled(seed) => {
            let mut rng = Rng::new(seed);
            for place in (1..pieces.len()).rev() {
                pieces.swap(place, (rng.bits() % (place as u64 + 1)) as usize);
            }
        }
    }
    pieces
}
