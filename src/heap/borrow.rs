//! Borrow: serving a request with a block that is cached for another stream.
//!
//! The borrower's stream is ordered behind the earliest fence that its owner's stream recorded
//! after the block was freed, never behind the latest: it waits for the work that may use the block
//! and for nothing that came later. A fence that is known to have passed needs no order; where
//! there is none yet, one is recorded.
//!
//! The block stays at home. It keeps its lists, and its tail goes back to them; the borrower counts
//! as a stream that uses it, so that its free waits behind a fence of the borrower before the owner
//! may have it again (**E1**). While it is lent its owner's uses are noted like any other stream's.
//! While the device is asked the block is `Moving`; a refusal makes it as free as it was.

use super::climb::{Errand, Job, Phase, Request, Step};
use super::state::Heap;
use crate::policy::fit;
use crate::store::{Key, Later, State};
use crate::vocab::{Answer, Change, Fault, Observe, Output, RungOutcome, Serial, Ticket, Want};

impl Heap {
    pub(super) fn borrow(
        &mut self,
        errand: &mut Errand,
        answer: Option<Answer>,
        sink: &mut impl Observe,
    ) -> Step {
        let Job::Alloc(request) = errand.job else { return Step::Next(RungOutcome::Closed) };
        match (core::mem::replace(&mut errand.phase, Phase::Enter), answer) {
            (Phase::Fencing { slot, owner, serial }, Some(answer)) => {
                self.fence_landed(owner, serial, answer);
                errand.openings += 1;
                if answer != Answer::Fenced || self.capturing() {
                    return self.not_lent(errand, slot, answer, Answer::Fenced, sink);
                }
                self.order(errand, &request, slot, serial)
            }
            (Phase::Ordering(slot), Some(answer)) => {
                self.land();
                if answer != Answer::Ordered {
                    return self.not_lent(errand, slot, answer, Answer::Ordered, sink);
                }
                self.blocks[slot].state = State::Free;
                // The tail is about to be.
                self.open();
                Step::Lent(slot, true)
            }
            _ if !self.borrows || errand.keeps_to_itself => Step::Next(RungOutcome::Closed),
            _ => self.begin_to_borrow(errand, &request),
        }
    }

    fn begin_to_borrow(&mut self, errand: &mut Errand, request: &Request) -> Step {
        let Some(key) = self.lendable(request) else { return Step::Next(RungOutcome::Nothing) };
        let slot = key.slot();
        let block = &self.blocks[slot];
        let owner = self.lists[block.lists].stream;
        match self.fences.later(owner, block.freed_after) {
            Later::Passed => {
                self.unshelve(slot);
                Step::Lent(slot, false)
            }
            Later::Recorded(serial) => {
                self.unshelve(slot);
                self.blocks[slot].state = State::Moving;
                self.order(errand, request, slot, serial)
            }
            Later::Unrecorded => {
                // One fence of a stream is recorded at a time: the one under way may be what is
                // needed.
                let Some(serial) = self.fences.begin_anew(owner) else { return Step::Park };
                self.unshelve(slot);
                self.blocks[slot].state = State::Moving;
                self.begun(owner, serial);
                errand.phase = Phase::Fencing { slot, owner, serial };
                Step::Want(Want::Fence { stream: owner, serial })
            }
        }
    }

    /// The best fitting free block of the same pool and side that another stream has cached.
    fn lendable(&self, request: &Request) -> Option<Key> {
        let sides = self.pools.side(request.pool, request.class);
        let others = sides.filter(|&lists| self.lists[lists].stream != request.stream);
        let found = others.filter_map(|lists| self.lists[lists].bins.find(request.size));
        found.filter(|key| fit::accepts(&self.policy, key.bytes(), request.size)).min()
    }

    fn order(&mut self, errand: &mut Errand, request: &Request, slot: u32, serial: Serial) -> Step {
        let after = self.lists[self.blocks[slot].lists].stream;
        self.in_flight += 1;
        errand.phase = Phase::Ordering(slot);
        Step::Want(Want::Order { waiter: request.stream, after, serial })
    }

    /// The block goes back to its bin; others that found it gone look again.
    fn not_lent(
        &mut self,
        errand: &mut Errand,
        slot: u32,
        answer: Answer,
        wanted: Answer,
        sink: &mut impl Observe,
    ) -> Step {
        self.put_back(slot, sink);
        self.open();
        errand.openings += 1;
        errand.keeps_to_itself = answer != wanted;
        match answer {
            answer if answer == wanted => Step::Next(RungOutcome::Closed),
            Answer::Refused(Fault::OutOfMemory) => {
                Step::Next(RungOutcome::Refused(Fault::OutOfMemory))
            }
            Answer::Refused(fault) => Step::Broken(fault),
            _ => Step::Broken(Fault::WrongAnswer),
        }
    }

    fn put_back(&mut self, slot: u32, sink: &mut impl Observe) {
        let block = &mut self.blocks[slot];
        block.state = State::Free;
        let (class, paged, size, was_split) =
            (block.class, block.paged, block.size, !block.is_alone());
        let (gone, joined) = self.merge_idle(slot);
        let block = &self.blocks[slot];
        if !paged && gone > 0 {
            // It and its neighbours counted as free parts of a split segment, each for itself.
            let split = !block.is_alone();
            let blocks = i64::from(split) - gone - i64::from(was_split);
            let bytes = if split { 0 } else { -((size + joined) as i64) };
            sink.observe(Change::InactiveSplit { class, blocks, bytes });
        }
        self.shelve(slot);
    }

    /// What became free behind the block while it was moving joins the tail that was cut off. It
    /// was no part of what was handed out: the fence may stand before the last work on it.
    fn join_tail(&mut self, slot: u32, sink: &mut impl Observe) {
        let tail = self.blocks[slot].next;
        let free = |slot: u32| self.blocks.get(slot).is_some_and(|b| b.state == State::Free);
        if !free(tail) || !free(self.blocks[tail].next) {
            return;
        }
        self.unshelve(tail);
        self.merge_idle(tail);
        self.shelve(tail);
        let block = &self.blocks[tail];
        if !block.paged {
            sink.observe(Change::InactiveSplit { class: block.class, blocks: -1, bytes: 0 });
        }
    }

    /// Hands out the front of another stream's block.
    pub(super) fn lend(
        &mut self,
        ticket: Ticket,
        request: &Request,
        slot: u32,
        waited: bool,
        sink: &mut impl Observe,
    ) -> Output {
        let output = self.hand_out(ticket, request.bytes, request.size, slot, sink);
        let block = &mut self.blocks[slot];
        block.used = true;
        let bytes = block.size;
        self.fences.note_loan(slot, request.stream);
        self.join_tail(slot, sink);
        sink.observe(Change::Borrowed { bytes, waited });
        output
    }
}
