//! Transfer: copies that overlap with work, on the clock of a modelled bus: no second of this is real.
#![allow(missing_docs, clippy::unwrap_used)]

use std::cell::Cell;

use blockyard::device::SimConfig;
use blockyard::tensor::{
    BusModel, DType, ModelClock, Place, Prefetcher, Result, Tensor, TensorError,
};
use blockyard::vocab::GIB;

const BATCHES: usize = 60;
const BYTES: usize = 25_000_000;
/// 25 MB at 25 GB/s, and the latency.
const COPY: u64 = 1_000_000 + 10_000;

fn modelled() -> (Place, Place, ModelClock) {
    let (device, clock) = Place::modelled(SimConfig::with_capacity(4 * GIB), BusModel::default());
    let pinned = Place::pinned(&device, Some(GIB)).unwrap();
    (device, pinned, clock)
}

fn batches(pinned: &Place) -> impl Iterator<Item = Result<Tensor>> {
    (0..BATCHES).map(|_| Tensor::empty(pinned, &[BYTES], DType::U8))
}

/// Nanoseconds of all batches, each with so much work.
fn prefetched(work: u64, depth: usize) -> u64 {
    let (device, pinned, clock) = modelled();
    let shape = (&[BYTES][..], DType::U8);
    for batch in Prefetcher::new(batches(&pinned), &pinned, &device, shape, depth).unwrap() {
        clock.work_on(&batch.unwrap(), work).unwrap();
    }
    assert_eq!(clock.host(), 0, "the host never waits");
    clock.done()
}

#[test]
fn copies_overlap_with_work_to_within_five_percent() {
    for work in [COPY / 10, COPY / 2, COPY, COPY * 2, COPY * 10] {
        for depth in 1..5 {
            let best = BATCHES as u64 * COPY.max(work);
            let took = prefetched(work, depth);
            assert!(took >= best, "faster than the bus or the work allows");
            assert!(took * 100 <= best * 105, "depth {depth}: {took} ns, {best} at best");
        }
    }
}

/// What the prefetcher is compared with: one after the other, as blocking copies are.
#[test]
fn without_lanes_copies_and_work_add_up() {
    let (device, pinned, clock) = modelled();
    for batch in batches(&pinned) {
        let there = batch.unwrap().to(&device, DType::U8, true).unwrap();
        clock.work_on(&there, COPY).unwrap();
        let all = clock.done();
        clock.host_works(all - clock.host());
    }
    assert_eq!(clock.done(), BATCHES as u64 * 2 * COPY);
}

#[test]
fn a_transfer_holds_back_its_own_tensor_and_nothing_else() {
    let (device, pinned, clock) = modelled();
    let other = Tensor::zeros(&device, &[10], DType::U8).unwrap();
    let batch = Tensor::empty(&pinned, &[BYTES], DType::U8).unwrap();
    let there = batch.to(&device, DType::U8, true).unwrap();
    clock.work_on(&other, 300).unwrap();
    assert_eq!(clock.done(), COPY, "work on another tensor goes on meanwhile");
    clock.work_on(&there, 300).unwrap();
    assert_eq!(clock.done(), COPY + 300);
    // Down, beside an upload: two directions, two lanes.
    let _down = there.to(&pinned, DType::U8, true).unwrap();
    let _up = batch.to(&device, DType::U8, true).unwrap();
    assert_eq!(clock.done(), COPY + 300 + COPY, "the copy down waits for the work");
    // Who writes what is being copied waits; the host, too.
    clock.work_on(&there, 5).unwrap();
    assert_eq!(clock.done(), 2 * COPY + 305);
    assert_eq!(clock.host(), 0);
    batch.zero_().unwrap();
    assert_eq!(clock.host(), 2 * COPY, "both copies have read it");
}

#[test]
fn the_source_is_held_back_by_who_holds_batches() {
    let (device, pinned, _) = modelled();
    let asked = Cell::new(0);
    let source = batches(&pinned).inspect(|_| asked.set(asked.get() + 1));
    let mut batches = Prefetcher::new(source, &pinned, &device, (&[BYTES], DType::U8), 2).unwrap();
    let mut held = Vec::new();
    for number in 1..=3 {
        held.push(batches.next().unwrap().unwrap());
        assert!(asked.get() <= number + 2);
    }
    assert_eq!(asked.get(), 3, "three landings, all in the program's hands");
    assert!(matches!(batches.next(), Some(Err(TensorError::PoolEmpty { bound: 3 }))));
    assert_eq!(asked.get(), 3, "and the source keeps its next batch");
    held.clear();
    assert!(batches.next().unwrap().is_ok());
    let memory = device.allocator().max_memory_allocated();
    assert!(memory <= 3 * (BYTES as u64 + 512), "{memory} bytes for three batches");
}

#[test]
fn what_would_wait_is_no_pipeline() {
    let (device, pinned, _) = modelled();
    let host = Place::host();
    let shape = (&[1][..], DType::U8);
    let none = || std::iter::empty::<Result<Tensor>>();
    assert!(matches!(
        Prefetcher::new(none(), &host, &device, shape, 2),
        Err(TensorError::NonBlocking { .. })
    ));
    assert!(Prefetcher::new(none(), &pinned, &host, shape, 2).is_err());
    assert!(Prefetcher::new(none(), &pinned, &device, shape, 0).is_err());
    let stand_in = Place::pinned(&host, None).unwrap();
    assert!(!stand_in.is_page_locked(), "ordinary memory says so");
    let full = Tensor::full(&stand_in, &[3], 2.5f32).unwrap();
    assert_eq!(full.to(&host, DType::F32, false).unwrap().to_vec::<f32>().unwrap(), [2.5; 3]);
    assert!(full.to(&host, DType::F32, true).is_err());
}
