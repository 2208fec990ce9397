//! Views: chains of random views against `ndarray`, element by element: X1, X2, and no allocation.
//!
//! A tensor starts as 0, 1, 2, ... and so its values are the places of its elements; an array of the
//! crate `ndarray` goes through the same operations.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "common/chain.rs"]
mod chain;

use blockyard::tensor::{ALIGNMENT, DType, Format, INFER, Place, Tensor, TensorError};
use chain::{Chain, chains, expressible, grow, step};
use ndarray::{ArrayD, Axis, Dimension, IxDyn, Slice};
use proptest::prelude::*;

fn allocations(place: &Place) -> i64 {
    let stats = place.allocator().memory_stats();
    stats.iter().find(|(key, _)| key == "allocation.all.allocated").unwrap().1
}

/// Everything that must be true of a view whose elements lie at these places.
fn holds(tensor: &Tensor, places: &ArrayD<i64>) {
    assert_eq!(tensor.shape(), places.shape());
    assert_eq!(tensor.to_vec::<i64>().unwrap(), places.iter().copied().collect::<Vec<_>>());
    let held = tensor.storage().bytes() / tensor.dtype().size() as u64;
    let mut indices = ndarray::indices(IxDyn(places.shape())).into_iter();
    assert!(
        indices
            .all(|index| (tensor.layout().at(index.as_array_view().as_slice().unwrap()) as u64)
                < held),
        "X1"
    );
    let in_a_row = places.iter().zip(places.iter().skip(1)).all(|(a, b)| a + 1 == *b);
    assert_eq!(
        tensor.is_contiguous(Format::Contiguous),
        in_a_row,
        "{tensor:?} {:?}",
        tensor.strides()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn x1_every_view_reaches_what_ndarray_reaches_and_allocates_nothing(chain in chains()) {
        let Chain { shape, steps } = chain;
        let place = Place::host();
        let (mut tensor, mut places) = grow(&place, &shape);
        prop_assert!(!tensor.is_view() && tensor.storage().address().0 % ALIGNMENT == 0);
        holds(&tensor, &places);
        for bytes in steps {
            let before = allocations(&place);
            (tensor, places) = step(&tensor, &places, bytes);
            prop_assert_eq!(allocations(&place), before, "a view allocated");
            prop_assert!(tensor.is_view());
            holds(&tensor, &places);
        }
        place.allocator().audit().unwrap();
    }

    #[test]
    fn a_view_of_another_shape_exists_exactly_where_strides_can_say_it(
        chain in chains(),
        cut in prop::collection::vec(1usize..5, 0..4),
    ) {
        let Chain { shape, steps } = chain;
        let place = Place::host();
        let (mut tensor, mut places) = grow(&place, &shape);
        for bytes in steps {
            (tensor, places) = step(&tensor, &places, bytes);
        }
        // Divisors of what is left, then the rest.
        let mut rest = places.len();
        let mut wanted = Vec::new();
        for size in cut {
            if rest.is_multiple_of(size) {
                wanted.push(size);
                rest /= size;
            }
        }
        wanted.push(rest);
        let values: Vec<i64> = places.iter().copied().collect();
        let reshaped = ArrayD::from_shape_vec(IxDyn(&wanted), values).unwrap();
        match tensor.view(&wanted) {
            Ok(view) => {
                prop_assert!(expressible(&reshaped));
                holds(&view, &reshaped);
                prop_assert!(view.shares_storage(&tensor));
            }
            Err(TensorError::NotViewable { .. }) => prop_assert!(!expressible(&reshaped)),
            Err(other) => prop_assert!(false, "{other}"),
        }
        let before = place.tallies().reshape_copies;
        let viewable = tensor.view(&wanted).is_ok();
        let copy = tensor.reshape(&wanted).unwrap();
        prop_assert_eq!(copy.to_vec::<i64>().unwrap(), reshaped.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!(copy.shares_storage(&tensor), viewable);
        prop_assert_eq!(place.tallies().reshape_copies - before, u64::from(!viewable));
        place.refuse_reshape_copies(true);
        prop_assert_eq!(tensor.reshape(&wanted).is_ok(), viewable);
    }

    #[test]
    fn x1_no_strides_leave_the_storage(
        held in 0usize..40,
        axes in prop::collection::vec((0usize..5, prop_oneof![0usize..9, Just(usize::MAX), Just(1 << 62)]), 0..4),
        offset in prop_oneof![0usize..50, Just(usize::MAX)],
    ) {
        let place = Place::host();
        let owner = Tensor::zeros(&place, &[held], DType::I64).unwrap();
        let (shape, strides): (Vec<_>, Vec<_>) = axes.into_iter().unzip();
        let farthest = shape.iter().zip(&strides).map(|(&n, &s)| (n.max(1) - 1) as u128 * s as u128).sum::<u128>();
        let empty = shape.contains(&0);
        let end = offset as u128 + if empty { 0 } else { farthest + 1 };
        let view = owner.as_strided(&shape, &strides, offset);
        prop_assert_eq!(view.is_ok(), end <= held as u128);
        if let Ok(view) = view {
            prop_assert_eq!(view.to_vec::<i64>().unwrap(), vec![0; view.elements()]);
        }
    }
}

#[test]
fn split_and_unfold_are_ndarrays_chunks_and_windows() {
    let place = Place::host();
    let (tensor, places) = grow(&place, &[5, 7]);
    for size in 1..9 {
        let parts = tensor.split(1, size).unwrap();
        let expected: Vec<_> = places.axis_chunks_iter(Axis(1), size).collect();
        assert_eq!(parts.len(), expected.len());
        for (part, expected) in parts.iter().zip(expected) {
            holds_values(part, &expected.to_owned());
        }
    }
    for (size, by) in [(1, 1), (2, 1), (3, 2), (5, 3), (7, 9)] {
        let windows = tensor.unfold(1, size, by).unwrap();
        for (number, from) in (0..=7 - size).step_by(by).enumerate() {
            let window = places.slice_axis(Axis(1), Slice::from(from..from + size)).to_owned();
            holds_values(&windows.select(1, number).unwrap(), &window);
        }
    }
    assert_eq!(tensor.narrow(0, 2, 0).unwrap().split(0, 3).unwrap().len(), 1, "an empty part");
}

fn holds_values(tensor: &Tensor, places: &ArrayD<i64>) {
    assert_eq!(tensor.shape(), places.shape());
    assert_eq!(tensor.to_vec::<i64>().unwrap(), places.iter().copied().collect::<Vec<_>>());
}

#[test]
fn bytes_can_be_seen_as_other_elements() {
    let place = Place::host();
    let words = Tensor::from_slice(&place, &[2, 2], &[1i32, 2, 3, 0x0403_0201]).unwrap();
    let bytes = words.view_dtype(DType::U8).unwrap();
    assert_eq!(bytes.shape(), [2, 8]);
    assert_eq!(bytes.narrow(1, 4, 4).unwrap().to_vec::<u8>().unwrap(), [2, 0, 0, 0, 1, 2, 3, 4]);
    let long = bytes.narrow(1, 0, 8).unwrap().view_dtype(DType::I64).unwrap();
    assert_eq!(long.to_vec::<i64>().unwrap()[0], 1 + (2 << 32));
    let refused = bytes.narrow(1, 1, 4).unwrap().view_dtype(DType::I32);
    assert!(matches!(refused, Err(TensorError::NotWhole { .. })), "starts between two");
    assert!(words.transpose(0, 1).unwrap().view_dtype(DType::I64).is_err());
    assert!(words.transpose(0, 1).unwrap().view_dtype(DType::F32).is_ok(), "same size");
}

#[test]
fn infer_stands_for_one_size() {
    let tensor = grow(&Place::host(), &[4, 6]).0;
    assert_eq!(tensor.view(&[3, INFER]).unwrap().shape(), [3, 8]);
    assert_eq!(tensor.unsqueeze(0).unwrap().expand(&[5, INFER, INFER]).unwrap().shape(), [5, 4, 6]);
    assert!(tensor.view(&[7, INFER]).is_err() && tensor.expand(&[INFER, 4, 6]).is_err());
}
