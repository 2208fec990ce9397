//! Merge: the second pass: blocks are merged, live longer, and get round sizes.

use super::search::Crew;
use super::shrink::Work;
use super::shrink_script::Script;

/// Merges and resizes until nothing helps any more.
pub(super) fn merge<C: Crew>(work: &mut Work<'_, '_, C>, best: &mut Script) {
    let _ = (work, best);
}
