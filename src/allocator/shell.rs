//! Shell: the core behind its lock, with everything that must be in step with it.

use hashbrown::HashMap;

use super::inbox::Inbox;
use super::recorder::Recorder;
use super::scopes::Scopes;
use super::sync::{AtomicUsize, Gate, Lock, Slow};
use super::tags::TagId;
use super::watch::Watch;
use crate::device::Device;
use crate::heap::Heap;
use crate::ledger::Stats;
#[cfg(feature = "metrics")]
use crate::ledger::stats::Counters;
use crate::vocab::{
    Address, Answer, BlockId, Change, Input, Mark, Observe, Origin, Output, PoolId, StreamId,
    Ticket, Want,
};

/// What the lock guards.
pub(crate) struct Inner {
    pub heap: Heap,
    pub books: Books,
    next_ticket: u64,
    /// Blocks handed out by address, for the raw interface.
    pub raw: HashMap<u64, RawBlock>,
    /// Who made the request of each live block, by slot.
    marks: Vec<Mark>,
}

/// A block that was handed out by address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawBlock {
    pub block: BlockId,
    /// The client's size in bytes.
    pub requested: u64,
    pub stream: StreamId,
    pub pool: PoolId,
}

/// Whoever hears of the core's changes.
pub(crate) struct Books {
    pub stats: Stats,
    pub scopes: Scopes,
    pub recorder: Recorder,
    /// What the counters came to until they were last reset.
    #[cfg(feature = "metrics")]
    before_reset: Counters,
}

impl Observe for Books {
    // Inlined, so that the statistics find at compile time which change it is.
    #[inline(always)]
    fn observe(&mut self, change: Change) {
        self.stats.observe(change);
        if self.recorder.listens() | self.scopes.listen() {
            self.tell(change);
        }
    }
}

impl Books {
    /// Totals and counters begin at zero; what was counted so far stays in [`Books::counted`].
    pub(super) fn reset_accumulated(&mut self) {
        #[cfg(feature = "metrics")]
        {
            self.before_reset = self.counted();
        }
        self.stats.reset_accumulated();
    }

    /// The counters since the allocator was made, whatever was reset.
    #[cfg(feature = "metrics")]
    pub(super) fn counted(&self) -> Counters {
        let (now, before) = (self.stats.counters(), &self.before_reset);
        Counters {
            alloc_retries: before.alloc_retries + now.alloc_retries,
            ooms: before.ooms + now.ooms,
            device_alloc: before.device_alloc + now.device_alloc,
            device_free: before.device_free + now.device_free,
            ..Counters::default()
        }
    }

    #[inline(never)]
    fn tell(&mut self, change: Change) {
        if self.recorder.listens() {
            self.recorder.observe(change);
        }
        if self.scopes.listen() {
            self.scopes.observe(change);
        }
    }
}

/// What all handles of one allocator share. Clients see it only as what a buffer holds on to.
pub struct Shared {
    lock: Lock<Inner>,
    inbox: Inbox,
    pub(super) gate: Gate,
    pub(super) device: Slow<Box<dyn Device + Send>>,
    /// How many pool scopes are open on any thread: none is the common case.
    pub(super) pool_scopes: AtomicUsize,
    pub(super) hooks: super::hooks::Hooks,
    pub(super) watch: Watch,
    pub(super) total: Option<u64>,
}

impl Shared {
    pub(super) fn new(
        heap: Heap,
        record: usize,
        watch: Watch,
        device: Box<dyn Device + Send>,
    ) -> Self {
        let recorder = Recorder::new(record, super::sync::Arc::clone(&watch.clock));
        let stats = Stats::new(heap.policy().max_split);
        Self {
            total: device.total(),
            lock: Lock::new(Inner {
                heap,
                books: Books {
                    stats,
                    scopes: Scopes::default(),
                    recorder,
                    #[cfg(feature = "metrics")]
                    before_reset: Counters::default(),
                },
                next_ticket: 0,
                raw: HashMap::new(),
                marks: Vec::new(),
            }),
            inbox: Inbox::new(),
            gate: Gate::default(),
            device: Slow::new(device),
            pool_scopes: AtomicUsize::new(0),
            hooks: super::hooks::Hooks::default(),
            watch,
        }
    }

    /// The core, with every free that was left in the inbox done.
    #[inline]
    pub(super) fn locked(&self) -> impl std::ops::DerefMut<Target = Inner> + '_ {
        let mut inner = self.lock.lock();
        if self.inbox.may_hold() {
            self.collect(&mut inner);
        }
        inner
    }

    /// As [`Shared::locked`], if the lock is free.
    #[cfg(not(loom))]
    pub(super) fn try_locked(&self) -> Option<impl std::ops::DerefMut<Target = Inner> + '_> {
        let mut inner = self.lock.try_lock()?;
        if self.inbox.may_hold() {
            self.collect(&mut inner);
        }
        Some(inner)
    }

    #[cold]
    fn collect(&self, inner: &mut Inner) {
        self.inbox.empty(|block| {
            let output = inner.heap.apply(Input::Free { block }, &mut inner.books);
            debug_assert!(matches!(output, Output::Quiet), "only frees that want nothing are left");
        });
    }

    /// One input; the output, and how many driver calls have landed.
    pub(super) fn apply(&self, input: Input) -> (Output, u64) {
        let mut inner = self.locked();
        let inner = &mut *inner;
        inner.books.recorder.told(&input, &inner.heap);
        let output = inner.heap.apply(input, &mut inner.books);
        (output, inner.heap.landings())
    }

    /// The device's answer to a want; the output, and how many driver calls have landed.
    pub(super) fn answer(&self, ticket: Ticket, want: Want, answer: Answer) -> (Output, u64) {
        let mut inner = self.locked();
        let inner = &mut *inner;
        inner.books.recorder.answered(ticket, want, answer);
        let output = inner.heap.apply(Input::Answer { ticket, answer }, &mut inner.books);
        (output, inner.heap.landings())
    }

    /// Serves a request: its block, or what it came to. `note` is called with the block, under the lock.
    #[inline]
    pub(super) fn alloc(
        &self,
        bytes: u64,
        stream: StreamId,
        pool: PoolId,
        origin: Origin,
        note: impl FnOnce(&mut Inner, BlockId, Address),
    ) -> Output {
        let (output, landings) = {
            let mut inner = self.locked();
            let inner = &mut *inner;
            inner.next_ticket += 1;
            let ticket = Ticket(inner.next_ticket);
            inner.books.recorder.asked(ticket, bytes, stream, pool, origin);
            let input = Input::Alloc { ticket, bytes, stream, pool };
            let output = inner.heap.apply(input, &mut inner.books);
            if let Output::Served { block, address, .. } = output {
                inner.keep_mark(block, Mark { ticket, origin });
                note(inner, block, address);
                return output;
            }
            (output, inner.heap.landings())
        };
        let output = self.carry(output, landings);
        if let Output::Served { ticket, block, address } = output {
            let mut inner = self.locked();
            inner.keep_mark(block, Mark { ticket, origin });
            note(&mut inner, block, address);
        }
        output
    }

    /// Takes a block back. One that nobody else used needs no driver call: it may be left in the
    /// inbox where the lock is taken.
    #[inline]
    pub(super) fn free(&self, block: BlockId, used: bool) {
        if used {
            self.pump(Input::Free { block });
            return;
        }
        let Some(mut inner) = self.lock.try_lock() else {
            if !self.inbox.leave(block) {
                self.pump(Input::Free { block });
            }
            return;
        };
        let output = {
            let inner = &mut *inner;
            if self.inbox.may_hold() {
                self.collect(inner);
            }
            inner.heap.apply(Input::Free { block }, &mut inner.books)
        };
        debug_assert!(matches!(output, Output::Quiet), "{output:?}");
    }

    /// A ticket for an input that is no request.
    pub(super) fn ticket(&self) -> Ticket {
        let mut inner = self.locked();
        inner.next_ticket += 1;
        Ticket(inner.next_ticket)
    }
}

impl Inner {
    #[inline]
    fn keep_mark(&mut self, block: BlockId, mark: Mark) {
        let slot = block.index as usize;
        if slot < self.marks.len() {
            self.marks[slot] = mark;
        } else if mark.origin != Origin::default() {
            self.marks.resize(slot + 1, Mark::default());
            self.marks[slot] = mark;
        }
    }

    /// Who made the requests of live blocks, by slot; of free slots, of their last tenants.
    pub(super) fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// The tag of a live block.
    pub(super) fn tag_of(&self, block: BlockId) -> TagId {
        self.marks.get(block.index as usize).map_or(TagId::NONE, |mark| mark.origin.tag)
    }
}
