//! Allocations: once warm, the core asks the process for no memory, whatever the client does again.
//!
//! A global allocator counts what this thread asks for. The unsafe below only hands on to the system's allocator.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use blockyard::heap::Heap;
use blockyard::lab::rng::Rng;
use blockyard::ledger::Stats;
use blockyard::policy::{Policy, presets};
use blockyard::vocab::{
    Address, Answer, BlockId, GIB, Input, MIB, Output, PoolId, StreamId, Ticket, Want,
};

struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

fn asked() -> u64 {
    ASKED.with(Cell::get)
}

fn count() {
    ASKED.with(|asked| asked.set(asked.get() + 1));
}

// SAFETY: every call goes to `System` unchanged; the counter is a plain cell without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps `System`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `System`'s contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps `System`'s contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The core on a device that grants everything.
struct World {
    heap: Heap,
    stats: Stats,
    granted: u64,
    wants: u64,
}

impl World {
    fn new(policy: Policy) -> Self {
        let stats = Stats::new(policy.max_split);
        Self { heap: Heap::new(policy, Some(1 << 40)), stats, granted: GIB, wants: 0 }
    }

    fn alloc(&mut self, bytes: u64) -> BlockId {
        let ticket = Ticket(0);
        let (stream, pool) = (StreamId(0), PoolId::DEFAULT);
        let mut input = Input::Alloc { ticket, bytes, stream, pool };
        loop {
            let answer = match self.heap.apply(input, &mut self.stats) {
                Output::Served { block, .. } => return block,
                Output::Want { want: Want::Map { .. }, .. } => Answer::Mapped,
                Output::Want {
                    want: Want::Reserve { bytes } | Want::ReserveRange { bytes, .. },
                    ..
                } => {
                    let base = Address(self.granted);
                    self.granted += bytes.next_multiple_of(2 * MIB);
                    Answer::Granted { base }
                }
                other => panic!("{other:?}"),
            };
            self.wants += 1;
            input = Input::Answer { ticket, answer };
        }
    }

    fn free(&mut self, block: BlockId) {
        assert_eq!(self.heap.apply(Input::Free { block }, &mut self.stats), Output::Quiet);
    }

    /// A step of a program: blocks of many sizes come, some go early, the rest at the end.
    fn step(&mut self, blocks: &mut Vec<BlockId>) {
        let mut rng = Rng::new(5);
        for _ in 0..2000 {
            let bytes = rng.magnitude(8 * MIB);
            blocks.push(self.alloc(bytes));
            if rng.chance(1, 3) {
                let victim = rng.below(blocks.len() as u64) as usize;
                let block = blocks.swap_remove(victim);
                self.free(block);
            }
        }
        while let Some(block) = blocks.pop() {
            self.free(block);
        }
    }
}

#[test]
fn the_counter_counts() {
    let before = asked();
    drop(std::hint::black_box(vec![0u8; 100]));
    assert_eq!(asked() - before, 1);
}

#[test]
fn a_warm_pair_allocates_nothing() {
    for name in presets::NAMES {
        for bytes in [1, 64 << 10, MIB, 3 * MIB, 64 * MIB] {
            let mut world = World::new(presets::named(name).unwrap());
            let live: Vec<_> = (0..64).map(|_| world.alloc(bytes)).collect();
            world.free(live[33]);
            for _ in 0..2 {
                let block = world.alloc(bytes);
                world.free(block);
            }
            let before = asked();
            for _ in 0..1000 {
                let block = world.alloc(bytes);
                world.free(block);
            }
            assert_eq!(asked(), before, "{name}, {bytes} bytes");
        }
    }
}

#[test]
fn a_step_made_again_allocates_nothing() {
    for name in presets::NAMES {
        let mut world = World::new(presets::named(name).unwrap());
        let mut blocks = Vec::with_capacity(2000);
        for _ in 0..3 {
            world.step(&mut blocks);
        }
        let (before, wants) = (asked(), world.wants);
        world.step(&mut blocks);
        assert_eq!(world.wants, wants, "{name}: the cache serves everything");
        // Hundreds of free blocks of one class, as page-locked memory has, are kept in chunks that come and go.
        let chunks = if name == "pinned" { 8 } else { 0 };
        assert!(asked() - before <= chunks, "{name}: {} more", asked() - before);
    }
}
