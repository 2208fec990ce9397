//! Contenders: allocators of an address range, behind one trait.
//!
//! | contender | rule | statistics | touches the memory |
//! |---|---|---|---|
//! | [`Ours`] | best fit, total order; segments or pages from a device that always grants | all | no |
//! | [`Tree`] | best fit in two B-trees, one range | none | no |
//! | `offset_allocator` | size classes, any block of the class, one range | none | no |
//! | `rlsf` | TLSF, any block of the class, one range | none | yes: its headers lie in it |

use std::alloc::Layout;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use blockyard::heap::Heap;
use blockyard::ledger::Stats;
use blockyard::policy::{Policy, presets};
use blockyard::vocab::{
    Address, Answer, BlockId, GIB, Input, Output, PoolId, StreamId, Ticket, UNIT, Want,
};

/// What a contender must be able to hold.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The most bytes live or between live blocks.
    pub bytes: u64,
    /// The most blocks, live and free.
    pub blocks: u32,
}

/// An allocator of an address range.
pub trait Contender {
    /// What it hands out.
    type Block: Copy;
    /// What it is called in tables.
    const NAME: &'static str;

    /// An empty one that can hold so much.
    fn new(spec: Spec) -> Self;
    /// A block of at least `bytes`.
    fn alloc(&mut self, bytes: u64) -> Self::Block;
    /// Takes a block back.
    fn free(&mut self, block: Self::Block);
}

/// Blockyard's core with all statistics, on a device that grants everything.
#[derive(Clone, Debug)]
pub struct Ours {
    heap: Heap,
    stats: Stats,
    granted: u64,
    tickets: u64,
}

impl Ours {
    /// Under this policy.
    #[must_use]
    pub fn with(policy: Policy) -> Self {
        let stats = Stats::new(policy.max_split);
        Self { heap: Heap::new(policy, Some(1 << 42)), stats, granted: GIB, tickets: 0 }
    }

    /// The statistics so far.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The core.
    #[must_use]
    pub const fn heap(&self) -> &Heap {
        &self.heap
    }

    #[cold]
    fn pump(&mut self, mut output: Output) -> BlockId {
        loop {
            match output {
                Output::Want { ticket, want } => {
                    let answer = self.answer(want);
                    output = self.heap.apply(Input::Answer { ticket, answer }, &mut self.stats);
                }
                Output::Served { block, .. } => return block,
                other => panic!("a device that grants everything: {other:?}"),
            }
        }
    }

    fn answer(&mut self, want: Want) -> Answer {
        match want {
            Want::Reserve { bytes } | Want::ReserveRange { bytes, .. } => {
                let base = Address(self.granted);
                self.granted += bytes.next_multiple_of(1 << 21);
                Answer::Granted { base }
            }
            Want::Map { .. } => Answer::Mapped,
            Want::Unmap { .. } => Answer::Unmapped,
            Want::Release { .. } | Want::ReleaseRange { .. } => Answer::Released,
            Want::Fence { .. } => Answer::Fenced,
            Want::Order { .. } => Answer::Ordered,
            Want::Poll { newest: serial, .. } | Want::Wait { serial, .. } => {
                Answer::Passed { through: serial }
            }
        }
    }
}

impl Contender for Ours {
    type Block = BlockId;
    const NAME: &'static str = "ours";

    fn new(_: Spec) -> Self {
        Self::with(presets::blockyard())
    }

    #[inline]
    fn alloc(&mut self, bytes: u64) -> BlockId {
        self.tickets += 1;
        let input = Input::Alloc {
            ticket: Ticket(self.tickets),
            bytes,
            stream: StreamId(0),
            pool: PoolId::DEFAULT,
        };
        match self.heap.apply(input, &mut self.stats) {
            Output::Served { block, .. } => block,
            other => self.pump(other),
        }
    }

    #[inline]
    fn free(&mut self, block: BlockId) {
        let output = self.heap.apply(Input::Free { block }, &mut self.stats);
        debug_assert_eq!(output, Output::Quiet);
    }
}

/// Blockyard under PyTorch's rules: whole segments.
#[derive(Clone, Debug)]
pub struct OursAsPytorch(Ours);

impl Contender for OursAsPytorch {
    type Block = BlockId;
    const NAME: &'static str = "ours, preset pytorch";

    fn new(_: Spec) -> Self {
        Self(Ours::with(presets::pytorch()))
    }

    #[inline]
    fn alloc(&mut self, bytes: u64) -> BlockId {
        self.0.alloc(bytes)
    }

    #[inline]
    fn free(&mut self, block: BlockId) {
        self.0.free(block);
    }
}

/// Best fit in two B-trees: the plain way to write it.
#[derive(Clone, Debug)]
pub struct Tree {
    by_size: BTreeSet<(u64, u64)>,
    by_start: BTreeMap<u64, u64>,
}

impl Tree {
    fn put(&mut self, start: u64, size: u64) {
        self.by_size.insert((size, start));
        self.by_start.insert(start, size);
    }

    fn take(&mut self, start: u64, size: u64) {
        self.by_size.remove(&(size, start));
        self.by_start.remove(&start);
    }
}

impl Contender for Tree {
    type Block = (u64, u64);
    const NAME: &'static str = "B-tree";

    fn new(spec: Spec) -> Self {
        let mut tree = Self { by_size: BTreeSet::new(), by_start: BTreeMap::new() };
        tree.put(0, spec.bytes);
        tree
    }

    fn alloc(&mut self, bytes: u64) -> (u64, u64) {
        let bytes = bytes.next_multiple_of(UNIT);
        let found = self.by_size.range((bytes, 0)..).next().copied();
        let (size, start) = found.expect("the range holds the work");
        self.take(start, size);
        if size > bytes {
            self.put(start + bytes, size - bytes);
        }
        (start, bytes)
    }

    fn free(&mut self, (mut start, mut size): (u64, u64)) {
        if let Some((&before, &bytes)) = self.by_start.range(..start).next_back()
            && before + bytes == start
        {
            self.take(before, bytes);
            (start, size) = (before, size + bytes);
        }
        if let Some(&bytes) = self.by_start.get(&(start + size)) {
            self.take(start + size, bytes);
            size += bytes;
        }
        self.put(start, size);
    }
}

/// The crate `offset-allocator`, in units of 512 bytes.
#[derive(Debug)]
pub struct Offset(offset_allocator::Allocator);

impl Contender for Offset {
    type Block = offset_allocator::Allocation;
    const NAME: &'static str = "offset-allocator";

    fn new(spec: Spec) -> Self {
        let units = (spec.bytes / UNIT) as u32;
        Self(offset_allocator::Allocator::with_max_allocs(units, 4 * spec.blocks))
    }

    #[inline]
    fn alloc(&mut self, bytes: u64) -> Self::Block {
        self.0.allocate(bytes.div_ceil(UNIT) as u32).expect("the range holds the work")
    }

    #[inline]
    fn free(&mut self, block: Self::Block) {
        self.0.free(block);
    }
}

type Tlsf = rlsf::Tlsf<'static, u32, u32, 30, 32>;

/// The crate `rlsf`.
#[derive(Debug)]
pub struct Rlsf {
    tlsf: Tlsf,
}

const ALIGNED: Layout = match Layout::from_size_align(1, 64) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

impl Contender for Rlsf {
    type Block = NonNull<u8>;
    const NAME: &'static str = "rlsf";

    /// Its range is address space that is never given back: only pages that hold a header become memory.
    fn new(spec: Spec) -> Self {
        let range: &'static mut [MaybeUninit<u8>] =
            Box::leak(Box::<[u8]>::new_uninit_slice(spec.bytes as usize));
        let mut tlsf = Tlsf::new();
        tlsf.insert_free_block(range);
        Self { tlsf }
    }

    #[inline]
    fn alloc(&mut self, bytes: u64) -> NonNull<u8> {
        let size = bytes.next_multiple_of(UNIT) as usize;
        let layout = Layout::from_size_align(size, ALIGNED.align()).expect("a power of two");
        self.tlsf.allocate(layout).expect("the range holds the work")
    }

    #[inline]
    fn free(&mut self, block: NonNull<u8>) {
        // SAFETY: `block` came from `alloc` of the same arena with this alignment, and each is freed once.
        #[allow(unsafe_code)]
        unsafe {
            self.tlsf.deallocate(block, ALIGNED.align());
        }
    }
}
