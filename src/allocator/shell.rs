//! Shell: the core behind its lock, with everything that must be in step with it.

use hashbrown::HashMap;

use super::inbox::Inbox;
use super::recorder::Recorder;
use super::scopes::Scopes;
use super::sync::{AtomicUsize, Gate, Lock, Slow};
use super::tags::TagId;
use crate::device::Device;
use crate::heap::Heap;
use crate::ledger::Stats;
use crate::vocab::{Address, BlockId, Change, Input, Observe, Output, PoolId, StreamId, Ticket};

/// What the lock guards.
pub(crate) struct Inner {
    pub heap: Heap,
    pub books: Books,
    next_ticket: u64,
    /// Blocks handed out by address, for the raw interface.
    pub raw: HashMap<u64, RawBlock>,
    /// The tag of each live block, by slot.
    tags: Vec<TagId>,
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
    pub(super) total: Option<u64>,
}

impl Shared {
    pub(super) fn new(heap: Heap, recorder: Recorder, device: Box<dyn Device + Send>) -> Self {
        let stats = Stats::new(heap.policy().max_split);
        Self {
            total: device.total(),
            lock: Lock::new(Inner {
                heap,
                books: Books { stats, scopes: Scopes::default(), recorder },
                next_ticket: 0,
                raw: HashMap::new(),
                tags: Vec::new(),
            }),
            inbox: Inbox::new(),
            gate: Gate::default(),
            device: Slow::new(device),
            pool_scopes: AtomicUsize::new(0),
            hooks: super::hooks::Hooks::default(),
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
        let output = inner.heap.apply(input, &mut inner.books);
        (output, inner.heap.landings())
    }

    /// Serves a request: its block, or what it came to. `note` is called with the block, under the lock.
    #[inline]
    pub(super) fn alloc(
        &self,
        bytes: u64,
        stream: StreamId,
        pool: PoolId,
        tag: TagId,
        note: impl FnOnce(&mut Inner, BlockId, Address),
    ) -> Output {
        let (output, landings) = {
            let mut inner = self.locked();
            let inner = &mut *inner;
            inner.next_ticket += 1;
            let ticket = Ticket(inner.next_ticket);
            inner.books.recorder.asked(ticket, bytes, stream, pool, tag);
            let input = Input::Alloc { ticket, bytes, stream, pool };
            let output = inner.heap.apply(input, &mut inner.books);
            if let Output::Served { block, address, .. } = output {
                inner.keep_tag(block, tag);
                note(inner, block, address);
                return output;
            }
            (output, inner.heap.landings())
        };
        let output = self.carry(output, landings);
        if let Output::Served { block, address, .. } = output {
            let mut inner = self.locked();
            inner.keep_tag(block, tag);
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
    fn keep_tag(&mut self, block: BlockId, tag: TagId) {
        let slot = block.index as usize;
        if slot < self.tags.len() {
            self.tags[slot] = tag;
        } else if tag != TagId::NONE {
            self.tags.resize(slot + 1, TagId::NONE);
            self.tags[slot] = tag;
        }
    }

    /// The tag of a live block.
    pub(super) fn tag_of(&self, block: BlockId) -> TagId {
        self.tags.get(block.index as usize).copied().unwrap_or(TagId::NONE)
    }
}
