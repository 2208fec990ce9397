//! Retire: from a free to a free block.
//!
//! A block that other streams used waits behind one fence for each of them (**E1**); then it joins its free
//! neighbours (**B2**) and goes into its bin (**F1**).

use alloc::vec::Vec;

use super::climb::{Errand, Job, Phase};
use super::state::Heap;
use crate::store::{Block, State};
use crate::vocab::{
    Address, Answer, BlockId, Change, Fault, Observe, Output, PoolId, Serial, StreamId, Ticket,
    Want,
};

impl Heap {
    #[inline]
    pub(super) fn free(&mut self, id: BlockId, sink: &mut impl Observe) -> Output {
        let slot = id.index;
        let held = self.blocks.held_mut(slot, id.generation);
        let Some(block) = held.filter(|block| block.state == State::Live) else {
            return Output::Refused { fault: Fault::UnknownBlock };
        };
        sink.observe(Change::FreeRequested {
            ticket: Ticket(block.ticket),
            address: Address(block.address),
            bytes: block.size,
            class: block.class,
            oversize: block.size >= self.policy.max_split,
        });
        let used = block.used;
        self.blocks.renew(slot);
        if used {
            return self.drain(slot);
        }
        self.complete(slot, sink);
        Output::Quiet
    }

    pub(super) fn use_on(&mut self, id: BlockId, stream: StreamId) -> Output {
        if !self.blocks.holds(id.index, id.generation) || self.blocks[id.index].state != State::Live
        {
            return Output::Refused { fault: Fault::UnknownBlock };
        }
        let block = &mut self.blocks[id.index];
        let own = self.lists[block.lists].stream == stream;
        if !own || (block.used && self.fences.is_lent(id.index)) {
            block.used = true;
            self.fences.note_use(id.index, stream);
        }
        Output::Quiet
    }

    /// Whether a live block is used by another stream than its own, so that its free wants a fence.
    #[inline]
    #[must_use]
    pub fn is_used(&self, id: BlockId) -> bool {
        self.blocks.holds(id.index, id.generation) && self.blocks[id.index].used
    }

    /// Whether a private pool has no users left.
    #[must_use]
    pub fn is_retired(&self, pool: PoolId) -> bool {
        self.pools.is_retired(pool)
    }

    pub(super) fn retire_pool(&mut self, pool: PoolId) -> Output {
        if pool == PoolId::DEFAULT || !self.pools.knows(pool) {
            return Output::Refused { fault: Fault::UnknownPool };
        }
        self.pools.retire(pool);
        Output::Quiet
    }

    /// The block waits for a fence on each stream that used it; during a capture, for its end
    /// first.
    #[cold]
    fn drain(&mut self, slot: u32) -> Output {
        let block = &mut self.blocks[slot];
        block.state = State::Draining;
        let ticket = Ticket(block.ticket);
        if self.capturing() {
            self.deferred.push(slot);
            return Output::Quiet;
        }
        let mut streams = self.enqueue(slot);
        streams.reverse();
        self.next_fence(Errand::fence(ticket, streams))
    }

    /// Puts a draining block into the queue of each stream that used it.
    pub(super) fn enqueue(&mut self, slot: u32) -> Vec<StreamId> {
        let streams = self.fences.take_uses(slot);
        let block = &mut self.blocks[slot];
        block.used = false;
        block.fences = streams.len() as u32;
        for &stream in &streams {
            self.fences.enqueue(stream, slot);
        }
        streams
    }

    /// Asks for a fence on the next stream that needs one. A stream on which another errand is
    /// recording is left to that one, so that fences are recorded in the order of their serials;
    /// what a capture interrupts, to its end.
    pub(super) fn next_fence(&mut self, mut errand: Errand) -> Output {
        while !self.capturing()
            && let Job::Fence { streams } = &mut errand.job
            && let Some(&stream) = streams.last()
        {
            if let Some(want) = self.record(stream, &mut errand) {
                let ticket = errand.ticket;
                self.errands.push(errand);
                return Output::Want { ticket, want };
            }
            if let Job::Fence { streams } = &mut errand.job {
                streams.pop();
            }
        }
        Output::Quiet
    }

    /// Begins to record one fence behind everything that waits on `stream`, unless there is nothing to record or
    /// another errand is at it.
    pub(super) fn record(&mut self, stream: StreamId, errand: &mut Errand) -> Option<Want> {
        let serial = self.fences.begin(stream)?;
        self.begun(stream, serial);
        errand.phase = Phase::Recording(stream, serial);
        Some(Want::Fence { stream, serial })
    }

    /// The device is being asked to record a fence. What is freed from now on may be used by work
    /// behind it.
    pub(super) fn begun(&mut self, stream: StreamId, serial: Serial) {
        self.in_flight += 1;
        if !self.borrows {
            return;
        }
        for lists in self.pools.of_stream(stream) {
            self.lists[lists].newest = serial.0;
        }
    }

    /// A fence was recorded, or not.
    pub(super) fn fence_landed(&mut self, stream: StreamId, serial: Serial, answer: Answer) {
        self.fences.end(stream, serial, answer == Answer::Fenced);
        self.land();
        self.open();
    }

    /// One that could not be recorded is left to the next fence of its stream, or to the next wait.
    pub(super) fn fence_answered(&mut self, mut errand: Errand, answer: Answer) -> Output {
        if let Phase::Recording(stream, serial) = errand.phase {
            self.fence_landed(stream, serial, answer);
        }
        match answer {
            Answer::Fenced => {}
            Answer::Refused(_) => {
                if let Job::Fence { streams } = &mut errand.job {
                    streams.pop();
                }
            }
            _ => {
                let fault = Fault::WrongAnswer;
                return Output::DriverFailed { ticket: errand.ticket, fault, released: 0 };
            }
        }
        self.next_fence(errand)
    }

    /// Fences of a stream have passed; returns the bytes whose last fence that was.
    pub(super) fn pass(
        &mut self,
        stream: StreamId,
        through: Serial,
        sink: &mut impl Observe,
    ) -> u64 {
        let mut bytes = 0;
        while let Some(slot) = self.fences.pass(stream, through) {
            let block = &mut self.blocks[slot];
            debug_assert!(block.state == State::Draining && block.fences > 0, "E1");
            block.fences -= 1;
            if block.fences == 0 {
                bytes += block.size;
                self.complete(slot, sink);
            }
        }
        bytes
    }

    /// The block's memory can be reused: it joins its free neighbours and goes into its bin.
    #[inline]
    pub(super) fn complete(&mut self, slot: u32, sink: &mut impl Observe) {
        let block = &mut self.blocks[slot];
        block.state = State::Free;
        let (class, paged) = (block.class, block.paged);
        sink.observe(Change::FreeCompleted {
            ticket: Ticket(block.ticket),
            address: Address(block.address),
            bytes: block.size,
            requested: block.requested,
            class,
        });
        if self.borrows {
            // No neighbour was freed after a later fence, so this holds for the whole.
            let lists = self.blocks[slot].lists;
            self.blocks[slot].freed_after = self.lists[lists].newest;
        }
        let (gone, joined) = self.merge_free(slot);
        let block = &self.blocks[slot];
        if !paged {
            let split = !block.is_alone();
            let blocks = i64::from(split) - gone;
            let bytes = if split { block.size as i64 } else { 0 } - joined as i64;
            if blocks != 0 || bytes != 0 {
                sink.observe(Change::InactiveSplit { class, blocks, bytes });
            }
        }
        self.shelve(slot);
    }

    /// Joins a free block that stands in no list to its free neighbours (**B2**). How many, and their bytes.
    #[inline]
    pub(super) fn merge_free(&mut self, slot: u32) -> (i64, u64) {
        let (mut gone, mut bytes) = (0, 0);
        let Block { prev, next, .. } = self.blocks[slot];
        if let Some(size) = self.size_if_free(prev) {
            self.unshelve(prev);
            bytes += size;
            gone += 1;
            self.absorb_prev(slot);
        }
        if let Some(size) = self.size_if_free(next) {
            self.unshelve(next);
            bytes += size;
            gone += 1;
            self.absorb_next(slot);
        }
        (gone, bytes)
    }

    /// The same for a block that was free before: the whole was freed when the last of its parts
    /// was.
    pub(super) fn merge_idle(&mut self, slot: u32) -> (i64, u64) {
        let Block { prev, next, freed_after, .. } = self.blocks[slot];
        let free = |slot: u32| self.blocks.get(slot).filter(|block| block.state == State::Free);
        let beside = [prev, next].into_iter().filter_map(free).map(|block| block.freed_after);
        self.blocks[slot].freed_after = beside.fold(freed_after, u64::max);
        self.merge_free(slot)
    }

    /// The size of the block in this slot if there is one and it is free. [`NONE`](crate::store::NONE) is no slot.
    #[inline]
    fn size_if_free(&self, slot: u32) -> Option<u64> {
        let block = self.blocks.get(slot)?;
        (block.state == State::Free).then_some(block.size)
    }
}
