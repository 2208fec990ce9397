//! CUDA tensor: the host's properties again on a GPU; transfers, and what waits for what.
//!
//! Runs on the simulated driver, or on the one that `BLOCKYARD_CUDA_DRIVER` names.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "common/chain.rs"]
mod chain;
#[path = "common/copying.rs"]
mod copying;
#[path = "common/driver.rs"]
mod driver;

use std::sync::Arc;

use blockyard::allocator::Config;
use blockyard::device::cuda::{CudaConfig, CudaStreamHandle};
use blockyard::tensor::{ComputeError, DType, Place, Prefetcher, Tensor, TensorError, TensorPool};
use blockyard::vocab::MIB;
use chain::{Chain, chains};
use driver::Rig;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

fn place(rig: &Rig) -> Place {
    let device = CudaConfig { cap: Some(512 * MIB), ..CudaConfig::default() };
    Place::cuda_on(Arc::clone(&rig.gpu), device, Config::default()).unwrap()
}

/// A property on one place of a GPU, which must be clean afterwards.
fn holds<S: Strategy>(
    cases: u32,
    of: S,
    test: impl Fn(&Place, S::Value) -> Result<(), TestCaseError>,
) {
    let Some(rig) = Rig::new() else { return };
    let there = place(&rig);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(cases));
    runner.run(&of, |value| test(&there, value)).unwrap();
    assert_eq!(there.allocator().memory_allocated(), 0);
    drop(there);
    rig.ends_clean();
}

#[test]
fn a_copy_writes_what_the_source_had_where_the_destination_is() {
    let other = prop::collection::vec(any::<[u8; 4]>(), 0..6);
    holds(250, (chains(), other, any::<bool>()), |place, (chain, other, shared)| {
        copying::copy(place, chain, &other, shared)
    });
}

#[test]
fn a_fill_writes_where_the_view_is_and_nowhere_else() {
    holds(200, chains(), |place, chain: Chain| copying::fill(place, chain));
}

#[test]
fn copies_of_their_own_have_the_values_and_not_the_storage() {
    holds(250, (chains(), 0usize..10), |place, (chain, to)| {
        copying::own(place, &Place::host(), chain, to)
    });
}

#[test]
fn casts_and_products_are_the_hosts_bit_for_bit() {
    let Some(rig) = Rig::new() else { return };
    let there = place(&rig);
    copying::casts(&there);
    copying::product(&there);
    assert_eq!(there.name(), "cuda:0");
    drop(there);
    rig.ends_clean();
}

/// A GPU and its page-locked memory.
fn pair(rig: &Rig) -> (Place, Place) {
    let there = place(rig);
    let pinned = Place::pinned(&there, Some(64 * MIB)).unwrap();
    (there, pinned)
}

fn numbers(place: &Place, from: i64) -> Tensor {
    Tensor::arange(place, from, from + 100_000, 1).unwrap()
}

#[test]
fn a_transfer_waits_for_nothing_and_everything_waits_for_it() {
    let Some((rig, control)) = Rig::simulated() else { return };
    let (there, pinned) = pair(&rig);
    let source = numbers(&pinned, 5);
    let list: Vec<i64> = (5..100_005).collect();
    control.pause();
    let copy = source.to(&there, DType::I64, true).unwrap();
    let twice = copy.duplicate().unwrap();
    let back = twice.to(&pinned, DType::I64, true).unwrap();
    // Still to be read by the copy: it is overwritten on the device only, and behind the copy down.
    twice.zero_().unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| source.fill_(0).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!writer.is_finished(), "the source is still to be read");
        control.resume();
    });
    assert_eq!(back.to_vec::<i64>().unwrap(), list);
    assert_eq!(copy.to_vec::<i64>().unwrap(), list);
    assert_eq!(twice.to_vec::<i64>().unwrap(), vec![0; 100_000]);
    assert_eq!(source.to_vec::<i64>().unwrap(), vec![0; 100_000]);
    drop((source, copy, twice, back, pinned, there));
    assert_eq!(control.alive("host"), Some(0));
    rig.ends_clean();
}

#[test]
fn a_dropped_source_is_kept_until_it_was_read() {
    let Some((rig, control)) = Rig::simulated() else { return };
    let (there, pinned) = pair(&rig);
    let source = numbers(&pinned, 0);
    let address = source.storage().address();
    control.pause();
    let copy = source.to(&there, DType::I64, true).unwrap();
    drop(source);
    let other = numbers(&pinned, 7);
    assert_ne!(other.storage().address(), address, "the copy has not read it");
    control.resume();
    assert_eq!(copy.to_vec::<i64>().unwrap(), (0..100_000).collect::<Vec<_>>());
    rig.gpu.synchronize().unwrap();
    assert_eq!(numbers(&pinned, 9).storage().address(), address, "now it has");
    drop((other, copy, pinned, there));
    rig.ends_clean();
}

#[test]
fn every_type_and_stride_crosses_over_and_back() {
    let Some(rig) = Rig::new() else { return };
    let (there, pinned) = pair(&rig);
    let grid = Tensor::arange(&pinned, -30i64, 30, 1).unwrap().view(&[5, 12]).unwrap();
    for from in DType::ALL {
        let whole = grid.to(&pinned, from, false).unwrap();
        for view in [whole.clone(), whole.transpose(0, 1).unwrap(), whole.slice(1, 1.., 3).unwrap()]
        {
            for to in DType::ALL {
                let up = view.to(&there, to, true).unwrap();
                let expected = view.to(&pinned, to, false).unwrap();
                assert!(up.same_values(&expected).unwrap(), "{from} to {to}");
                let down = up.to(&pinned, from, true).unwrap();
                let expected = expected.to(&pinned, from, false).unwrap();
                assert!(down.same_values(&expected).unwrap(), "{to} to {from}");
            }
        }
    }
    drop((grid, pinned, there));
    rig.ends_clean();
}

#[test]
fn pageable_memory_is_reported_and_waits_only_if_it_may() {
    let Some(rig) = Rig::new() else { return };
    let (there, pinned) = pair(&rig);
    let host = Place::host();
    let source = numbers(&host, 0);
    let error = source.to(&there, DType::I64, true).unwrap_err();
    assert!(matches!(error, TensorError::NonBlocking { .. }));
    assert_eq!(
        error.to_string(),
        "a copy from host to cuda:0 cannot be non-blocking: the memory is not page-locked"
    );
    there.allow_blocking_copies(true);
    let copy = source.to(&there, DType::I64, true).unwrap();
    assert!(copy.same_values(&source).unwrap());
    assert_eq!((there.tallies().blocking_copies, pinned.tallies().blocking_copies), (1, 0));
    there.allow_blocking_copies(false);
    let other =
        Place::cuda_on(Arc::clone(&rig.gpu), CudaConfig::default(), Config::default()).unwrap();
    let foreign = numbers(&pinned, 0).to(&other, DType::I64, true);
    assert!(matches!(foreign, Err(TensorError::NonBlocking { .. })), "it has lanes of its own");
    assert!(pinned.is_page_locked() && !there.is_page_locked());
    drop((copy, other, pinned, there));
    rig.ends_clean();
}

#[test]
fn batches_arrive_in_order_and_errors_in_their_place() {
    let Some(rig) = Rig::new() else { return };
    let (there, pinned) = pair(&rig);
    let host = Place::host();
    let source = (0..40i64).map(|number| match number {
        13 => Err(TensorError::Zero { what: "a planted fault" }),
        20 => Tensor::full(&host, &[3], number),
        n if n % 3 == 0 => Tensor::full(&pinned, &[1000], number),
        _ => Tensor::full(&host, &[1000], number),
    });
    let mut batches = Prefetcher::new(source, &pinned, &there, (&[1000], DType::I64), 3).unwrap();
    for number in 0..40 {
        let batch = batches.next().unwrap();
        assert!(batches.coming() <= 3);
        match number {
            13 => assert_eq!(batch.unwrap_err().to_string(), "a planted fault must be positive"),
            20 => assert!(matches!(batch, Err(TensorError::Shapes { .. }))),
            _ => assert_eq!(batch.unwrap().to_vec::<i64>().unwrap(), vec![number; 1000]),
        }
    }
    assert!(batches.next().is_none() && batches.next().is_none());
    let (staging, landing) = batches.stats();
    assert!(staging.made <= 4 && landing.made <= 4, "{staging:?} {landing:?}");
    assert_eq!((landing.made + landing.reused, landing.out), (38, 0));
    drop(batches);
    drop((pinned, there));
    rig.ends_clean();
}

/// Another stream of the program uses what the pool lends.
#[test]
fn streams_of_the_program_have_places_of_their_own() {
    let Some(rig) = Rig::new() else { return };
    let (there, pinned) = pair(&rig);
    let side = there.on_cuda_stream(&CudaStreamHandle::new(&rig.gpu).unwrap()).unwrap();
    assert_eq!(side, there, "streams do not matter");
    let up = numbers(&pinned, 1).to(&side, DType::F32, true).unwrap();
    assert_eq!(up.place().stream().id(), side.stream().id());
    assert_eq!(up.to_vec::<f32>().unwrap()[99_999], 100_000.0);
    let refused = Place::host().on_cuda_stream(&CudaStreamHandle::default_stream());
    assert!(matches!(refused, Err(ComputeError::NotSupported(_))));
    let pool = TensorPool::new(&there, &[4], DType::U8, 1);
    let first = pool.take().unwrap();
    assert!(matches!(pool.take(), Err(TensorError::PoolEmpty { bound: 1 })));
    let address = first.storage().address();
    drop(first);
    rig.gpu.synchronize().unwrap();
    let again = pool.take().unwrap();
    assert_eq!(again.storage().address(), address);
    let held = again.clone();
    drop(again);
    assert_ne!(pool.take().unwrap().storage().address(), address, "somebody holds it");
    rig.gpu.synchronize().unwrap();
    let stats = pool.stats();
    assert_eq!((stats.made, stats.reused, stats.lost, stats.idle, stats.out), (2, 1, 1, 1, 0));
    drop((held, pool, up, side, pinned, there));
    rig.ends_clean();
}
