//! Compare: where two views of what should be one heap differ.
//!
//! Owns what counts as equal. Asked by tests that hold a heap to its twin. Never knows whose views
//! they are.

use crate::vocab::{BlockState, BlockView, HeapView, SegmentView, Ticket};

/// The first segment or block in which two views differ, if any; tickets of free memory mean
/// nothing.
#[must_use]
pub fn first_difference(ours: &HeapView, theirs: &HeapView) -> Option<String> {
    let pairs = ours.segments.iter().zip(&theirs.segments);
    for (our, their) in pairs {
        let heads = [our, their].map(|one| SegmentView { blocks: Vec::new(), ..one.clone() });
        if heads[0] != heads[1] {
            return Some(format!("{:?} against {:?}", heads[0], heads[1]));
        }
        let length = our.blocks.len().max(their.blocks.len());
        let block = |view: &SegmentView, at| view.blocks.get(at).copied().map(without_idle_ticket);
        let mut blocks = (0..length).map(|at| (block(our, at), block(their, at)));
        if let Some((our, their)) = blocks.find(|(our, their)| our != their) {
            return Some(format!("{our:?} against {their:?}"));
        }
    }
    let (our, their) = (ours.segments.len(), theirs.segments.len());
    (our != their).then(|| format!("{our} segments against {their}"))
}

fn without_idle_ticket(block: BlockView) -> BlockView {
    let idle = matches!(block.state, BlockState::Free | BlockState::Unmapped);
    BlockView { ticket: if idle { Ticket(0) } else { block.ticket }, ..block }
}
