//! Capture: what waits while a stream records its work into a graph, and the limit that changes at
//! run time.
//!
//! A graph under construction must not see a fence, a poll, a wait or memory that goes away: CUDA
//! invalidates a capture for each of them. So while any capture is underway most rungs are closed,
//! a trim gives nothing, and a free that needs fences is deferred: its block stays draining and
//! keeps its uses (**E1**). Growth stays open.
//!
//! Asked by the heap's entry, by climbs and by frees. Never knows which stream captures: the
//! driver's rule is about all of them.

use alloc::vec::Vec;

use super::climb::Errand;
use super::state::Heap;
use crate::vocab::{Fault, Output, Rung, StreamId, Ticket};

/// Whether a rung may be climbed while a capture is underway.
pub(super) const fn capture_allows(rung: Rung) -> bool {
    match rung {
        Rung::Search | Rung::SearchAgain | Rung::Grow | Rung::GrowLeast | Rung::BorrowClass => true,
        // An order behind work outside of the graph would be such a wait.
        Rung::Poll | Rung::Wait | Rung::Regrow | Rung::Borrow => false,
        Rung::Collect | Rung::EvictSome | Rung::EvictAll => false,
    }
}

impl Heap {
    /// Whether a capture is underway.
    #[inline]
    #[must_use]
    pub const fn capturing(&self) -> bool {
        self.captures > 0
    }

    /// A capture begins or ends. Either end of capturing opens something for climbs underway:
    /// rungs, or the first growth to those that its beginning cut off from their last.
    pub(super) fn capture(&mut self, ticket: Ticket, begins: bool) -> Output {
        if begins {
            if !self.capturing() {
                self.open();
            }
            self.captures += 1;
            return Output::Quiet;
        }
        let Some(left) = self.captures.checked_sub(1) else {
            return Output::Refused { fault: Fault::NoCapture };
        };
        self.captures = left;
        if left > 0 {
            return Output::Quiet;
        }
        self.open();
        for slot in core::mem::take(&mut self.deferred) {
            self.enqueue(slot);
        }
        let streams: Vec<StreamId> = self.fences.unrecorded().rev().collect();
        self.next_fence(Errand::fence(ticket, streams))
    }

    /// The limit from now on. What is held above it stays, and counts (**H2**).
    pub(super) fn limit_to(&mut self, limit: Option<u64>) -> Output {
        self.limit = limit;
        self.excused = self.reserved + self.growing;
        self.collects = self.policy.collect_threshold > 0.0 && limit.is_some();
        // What is cached above the limit can still be had.
        let above = limit.map(|limit| limit.max(self.excused));
        self.most = self.policy.most(above, self.total);
        self.open();
        Output::Quiet
    }
}
