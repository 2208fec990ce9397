//! Delete: the first pass: whole pieces are taken away, in halves, quarters and so on down to single ones.

use super::search::Crew;
use super::shrink::{BATCH, Work};
use super::shrink_script::{Piece, Script};

/// Takes pieces away until none can go alone.
pub(super) fn delete<C: Crew>(work: &mut Work<'_, '_, C>, best: &mut Script) {
    let mut chunk = best.pieces().len().div_ceil(2);
    while chunk > 0 {
        *best = best.compact();
        let before = best.ops.len();
        sweep(work, best, chunk);
        work.progress(best.ops.len(), "deleting");
        if chunk == 1 && best.ops.len() < before {
            continue;
        }
        chunk /= 2;
    }
}

/// One pass over the script in chunks of so many pieces, last ones first.
fn sweep<C: Crew>(work: &mut Work<'_, '_, C>, best: &mut Script, chunk: usize) {
    let pieces = best.pieces();
    let chunks: Vec<&[Piece]> = pieces.rchunks(chunk).collect();
    for batch in chunks.chunks(BATCH) {
        let base: &Script = best;
        let found = work.each(batch.len(), &|index| Some(base.without(batch[index])));
        let good: Vec<&[Piece]> =
            batch.iter().zip(&found).filter_map(|(chunk, kept)| kept.as_ref().map(|_| *chunk)).collect();
        let taken = together(work, best, &good);
        if taken == 0
            && let Some(kept) = found.into_iter().flatten().next()
        {
            *best = kept;
        }
    }
}

/// Takes away as many as go together: all, else the first half, then what of the rest still goes. Returns how many went.
fn together<C: Crew>(work: &mut Work<'_, '_, C>, best: &mut Script, chunks: &[&[Piece]]) -> usize {
    if chunks.is_empty() {
        return 0;
    }
    if let Some(kept) = work.one(best.without(&chunks.concat())) {
        *best = kept;
        return chunks.len();
    }
    if chunks.len() == 1 {
        return 0;
    }
    let (first, rest) = chunks.split_at(chunks.len() / 2);
    together(work, best, first) + together(work, best, rest)
}
