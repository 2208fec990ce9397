//! Grow: asking the driver for segments, and for pages under address ranges.

use super::climb::{Errand, Job, Phase, Request, Step};
use super::state::Heap;
use crate::policy::{LimitCheck, grow};
use crate::store::{NONE, State, bins::MAX_BLOCK};
use crate::vocab::{Address, Answer, Change, Fault, Observe, RungOutcome, Want};

impl Heap {
    pub(super) fn grow(
        &mut self,
        errand: &mut Errand,
        answer: Option<Answer>,
        sink: &mut impl Observe,
    ) -> Step {
        let Job::Alloc(request) = errand.job else { return Step::Next(RungOutcome::Closed) };
        match (errand.phase.clone(), answer) {
            (Phase::Enter, _) => self.first_growth(errand, &request),
            (Phase::Reserving, Some(answer)) => self.segment_answered(&request, answer, sink),
            (Phase::Ranging(bytes), Some(answer)) => {
                self.range_answered(errand, &request, bytes, answer)
            }
            (Phase::Mapping(slot), Some(answer)) => {
                self.map_answered(errand, &request, slot, answer, sink)
            }
            _ => Step::Broken(Fault::WrongAnswer),
        }
    }

    /// Asks for the smallest segment that serves, if that is not its class's. Pages are no more than
    /// the request anyway.
    pub(super) fn grow_least(
        &mut self,
        errand: &mut Errand,
        answer: Option<Answer>,
        sink: &mut impl Observe,
    ) -> Step {
        if let (Job::Alloc(request), None) = (&mut errand.job, &answer) {
            let least = grow::least_segment_bytes(&self.policy, request.size);
            let paged = grow::page_bytes(&self.policy, request.class).is_some();
            if paged || least >= grow::segment_bytes(&self.policy, request.size) {
                return Step::Next(RungOutcome::Closed);
            }
            request.segment_bytes = least;
        }
        self.grow(errand, answer, sink)
    }

    /// By how many bytes `more` would pass the limit; 0 if it would not.
    fn over_limit(&self, more: u64) -> u64 {
        let Some(limit) = self.limit else { return 0 };
        (self.reserved + self.growing).saturating_add(more).saturating_sub(limit)
    }

    /// `bytes` are being asked of the driver.
    const fn takes_off(&mut self, bytes: u64) {
        self.growing += bytes;
        self.in_flight += 1;
        self.excused = 0;
    }

    /// Whether `more` bytes may be asked for; if not, what to do.
    fn limited(&self, more: u64) -> Option<Step> {
        match self.over_limit(more) {
            0 => None,
            over if over <= self.growing => Some(Step::Park),
            over => Some(Step::Next(RungOutcome::OverLimit(over - self.growing))),
        }
    }

    fn first_growth(&mut self, errand: &mut Errand, request: &Request) -> Step {
        let page = grow::page_bytes(&self.policy, request.class);
        if (page.is_none() || self.policy.limit_check == LimitCheck::Segment)
            && let Some(step) = self.limited(request.segment_bytes)
        {
            return step;
        }
        if request.segment_bytes > MAX_BLOCK {
            return Step::Next(RungOutcome::Refused(Fault::OutOfMemory));
        }
        if let Some(page) = page {
            return self.map_more(errand, request, page);
        }
        self.takes_off(request.segment_bytes);
        errand.phase = Phase::Reserving;
        Step::Want(Want::Reserve { bytes: request.segment_bytes })
    }

    fn segment_answered(
        &mut self,
        request: &Request,
        answer: Answer,
        sink: &mut impl Observe,
    ) -> Step {
        let bytes = request.segment_bytes;
        self.growing -= bytes;
        self.land();
        match answer {
            Answer::Granted { base } => {
                self.open();
                self.reserved += bytes;
                let slot = self.add_segment(base.0, bytes, request.lists, 0, State::Free);
                sink.observe(Change::SegmentAllocated {
                    base,
                    bytes,
                    class: request.class,
                    stream: request.stream,
                    pool: request.pool,
                    oversize: bytes >= self.policy.max_split,
                });
                Step::Served(slot)
            }
            Answer::Refused(Fault::OutOfMemory) => {
                Step::Next(RungOutcome::Refused(Fault::OutOfMemory))
            }
            Answer::Refused(fault) => Step::Broken(fault),
            _ => Step::Broken(Fault::WrongAnswer),
        }
    }

    /// Maps the next gap of the lowest run of address space that can hold the request, or reserves
    /// a range. Source of the rule: PyTorch's `find_expandable_block` and
    /// `try_allocate_expandable_block`.
    fn map_more(&mut self, errand: &mut Errand, request: &Request, page: u64) -> Step {
        let run = self.run_for(request, page);
        if self.policy.limit_check == LimitCheck::Exact {
            let taken = run.map_or(request.size.next_multiple_of(page), |(_, taken)| taken);
            if let Some(step) = self.limited(taken) {
                errand.phase = Phase::Enter;
                return step;
            }
        }
        let Some((head, _)) = run else {
            let total = self.total.unwrap_or(UNKNOWN_DEVICE);
            return self.want_range(errand, grow::range_bytes(total, page, request.size));
        };
        let block = &self.blocks[head];
        let (gap, have) =
            if block.state == State::Unmapped { (head, 0) } else { (block.next, block.size) };
        if have >= request.size {
            self.unshelve(head);
            return Step::Served(head);
        }
        let bytes = (request.size - have).min(self.blocks[gap].size).next_multiple_of(page);
        self.unshelve_unmapped(gap);
        if bytes < self.blocks[gap].size {
            let rest = self.cut(gap, bytes);
            self.shelve_unmapped(rest);
        }
        self.blocks[gap].state = State::Moving;
        self.takes_off(bytes);
        errand.phase = Phase::Mapping(gap);
        Step::Want(Want::Map { base: Address(self.blocks[gap].address), bytes, page })
    }

    /// The head of the lowest run of unmapped and free blocks that can hold the request: an
    /// unmapped block, or the free block before it; and the bytes of the pages that it lacks.
    fn run_for(&self, request: &Request, page: u64) -> Option<(u32, u64)> {
        let usable = |slot: u32| {
            slot != NONE && matches!(self.blocks[slot].state, State::Free | State::Unmapped)
        };
        self.lists[request.lists].unmapped.iter().find_map(|&(_, gap)| {
            let before = self.blocks[gap].prev;
            let head = if usable(before) { before } else { gap };
            let (mut slot, mut bytes, mut taken) = (head, 0, 0);
            while bytes < request.size && usable(slot) {
                let block = &self.blocks[slot];
                if block.state == State::Unmapped {
                    taken += (request.size - bytes).min(block.size).next_multiple_of(page);
                }
                bytes += block.size;
                slot = block.next;
            }
            (bytes >= request.size).then_some((head, taken))
        })
    }

    fn want_range(&mut self, errand: &mut Errand, bytes: u64) -> Step {
        let Job::Alloc(request) = &errand.job else { return Step::Next(RungOutcome::Closed) };
        let Some(page) = grow::page_bytes(&self.policy, request.class) else {
            return Step::Next(RungOutcome::Closed);
        };
        errand.phase = Phase::Ranging(bytes);
        self.in_flight += 1;
        Step::Want(Want::ReserveRange { bytes, page })
    }

    fn range_answered(
        &mut self,
        errand: &mut Errand,
        request: &Request,
        bytes: u64,
        answer: Answer,
    ) -> Step {
        self.land();
        let Some(page) = grow::page_bytes(&self.policy, request.class) else {
            return Step::Broken(Fault::WrongAnswer);
        };
        let granted = match answer {
            Answer::Granted { base } => Some((base, bytes)),
            Answer::GrantedRange { base, bytes: given } if given <= bytes => Some((base, given)),
            _ => None,
        };
        if let Some((base, bytes)) = granted {
            self.open();
            errand.openings += 1;
            let slot = self.add_segment(base.0, bytes, request.lists, page, State::Unmapped);
            self.shelve_unmapped(slot);
            return self.map_more(errand, request, page);
        }
        match answer {
            // Many streams and pools have ranges and address space is short: be frugal, then ask
            // for the least.
            Answer::Refused(Fault::OutOfMemory) => {
                let frugal = grow::frugal_range_bytes(page, request.size);
                let least = request.size.next_multiple_of(page);
                match [frugal, least].into_iter().find(|&less| less < bytes) {
                    Some(less) => self.want_range(errand, less),
                    None => Step::Next(RungOutcome::Refused(Fault::OutOfAddresses)),
                }
            }
            Answer::Refused(fault) => Step::Broken(fault),
            _ => Step::Broken(Fault::WrongAnswer),
        }
    }

    fn map_answered(
        &mut self,
        errand: &mut Errand,
        request: &Request,
        slot: u32,
        answer: Answer,
        sink: &mut impl Observe,
    ) -> Step {
        let (base, bytes) = (self.blocks[slot].address, self.blocks[slot].size);
        let page = self.segments[self.blocks[slot].segment].page;
        self.growing -= bytes;
        self.land();
        if answer != Answer::Mapped {
            self.return_to_unmapped(slot);
            return match answer {
                Answer::Refused(Fault::OutOfMemory) => {
                    Step::Next(RungOutcome::Refused(Fault::OutOfMemory))
                }
                Answer::Refused(fault) => Step::Broken(fault),
                _ => Step::Broken(Fault::WrongAnswer),
            };
        }
        self.reserved += bytes;
        sink.observe(Change::Mapped {
            base: Address(base),
            bytes,
            pages: bytes / page,
            class: request.class,
            stream: request.stream,
            pool: request.pool,
        });
        self.blocks[slot].state = State::Free;
        self.blocks[slot].freed_after = 0;
        self.merge_idle(slot);
        self.open();
        errand.openings += 1;
        if self.blocks[slot].size >= request.size {
            return Step::Served(slot);
        }
        self.shelve(slot);
        self.map_more(errand, request, page)
    }

    /// Address space whose memory did not come, or has gone, joins its unmapped neighbours.
    pub(super) fn return_to_unmapped(&mut self, slot: u32) {
        self.blocks[slot].state = State::Unmapped;
        let next = self.blocks[slot].next;
        if next != NONE && self.blocks[next].state == State::Unmapped {
            self.unshelve_unmapped(next);
            self.absorb_next(slot);
        }
        let prev = self.blocks[slot].prev;
        if prev != NONE && self.blocks[prev].state == State::Unmapped {
            self.unshelve_unmapped(prev);
            self.absorb_prev(slot);
        }
        self.shelve_unmapped(slot);
    }
}

/// The device that address ranges are sized for where its memory is not known: 1 TiB.
const UNKNOWN_DEVICE: u64 = 1 << 40;
