//! Copies: every operation that moves elements, between random views, against `ndarray`.
//!
//! A storage's values are its elements' places; what a copy does to the storage is derived from the
//! places that both views have.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "common/chain.rs"]
mod chain;
#[path = "common/copying.rs"]
mod copying;

use blockyard::tensor::{Format, Place, Tensor, TensorError};
use chain::{chains, grow};
use copying::{list, values};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_copy_writes_what_the_source_had_where_the_destination_is(
        chain in chains(),
        other in prop::collection::vec(any::<[u8; 4]>(), 0..6),
        shared in any::<bool>(),
    ) {
        copying::copy(&Place::host(), chain, &other, shared)?;
    }

    #[test]
    fn a_fill_writes_where_the_view_is_and_nowhere_else(chain in chains()) {
        copying::fill(&Place::host(), chain)?;
    }

    #[test]
    fn copies_of_their_own_have_the_values_and_not_the_storage(chain in chains(), to in 0usize..10) {
        copying::own(&Place::host(), &Place::host(), chain, to)?;
    }

    #[test]
    fn formats_keep_the_values(shape in prop::collection::vec(0usize..4, 4..6)) {
        let (tensor, places) = grow(&Place::host(), &shape);
        let format = if shape.len() == 4 { Format::ChannelsLast } else { Format::ChannelsLast3d };
        let last = tensor.to_memory_format(format).unwrap();
        prop_assert!(last.is_contiguous(format));
        prop_assert_eq!(values(&last), list(&places));
        let mut order = vec![0];
        order.extend(2..shape.len());
        order.push(1);
        prop_assert!(last.permute(&order).unwrap().is_contiguous(Format::Contiguous) || last.elements() == 0);
        if shape[1] > 1 && shape[2..].iter().any(|&size| size > 1) && !shape.contains(&0) {
            prop_assert_eq!(last.suggest_memory_format(), format);
            let copy = last.duplicate().unwrap();
            prop_assert_eq!(copy.strides(), last.strides(), "clones keep it");
        }
    }

    #[test]
    fn resizing_keeps_what_stays(
        old in prop::collection::vec(0usize..5, 0..4),
        new in prop::collection::vec(0usize..5, 0..4),
    ) {
        let (mut tensor, places) = grow(&Place::host(), &old);
        tensor.resize_(&new).unwrap();
        prop_assert_eq!(tensor.shape(), &new[..]);
        let kept = places.len().min(tensor.elements());
        prop_assert_eq!(&values(&tensor)[..kept], &list(&places)[..kept]);
        let grew = new.iter().product::<usize>() > places.len();
        prop_assert_eq!(tensor.storage().bytes() as usize, 8 * if grew { tensor.elements() } else { places.len() });
    }
}

#[test]
fn casts_and_products_on_the_host_are_themselves() {
    copying::casts(&Place::host());
    copying::product(&Place::host());
}

#[test]
fn a_shared_storage_is_not_resized() {
    let mut tensor = grow(&Place::host(), &[4]).0;
    let other = tensor.narrow(0, 1, 2).unwrap();
    assert!(matches!(tensor.resize_(&[2]), Err(TensorError::Shared { users: 2 })));
    drop(other);
    tensor.resize_(&[2]).unwrap();
    assert_eq!(values(&tensor), [0, 1]);
}

#[test]
fn overlapping_copies_go_through_a_temporary_and_disjoint_ones_do_not() {
    let place = Place::host();
    let tensor = grow(&place, &[8]).0;
    let part = |from| tensor.narrow(0, from, 4).unwrap();
    part(4).copy_(&part(0)).unwrap();
    assert_eq!(place.tallies().temporaries, 0, "side by side");
    part(0).copy_(&part(0)).unwrap();
    assert_eq!(place.tallies().temporaries, 0, "onto itself");
    part(2).copy_(&part(1)).unwrap();
    assert_eq!(place.tallies().temporaries, 1);
    assert_eq!(values(&tensor), [0, 1, 1, 2, 3, 0, 2, 3]);
}

#[test]
fn an_arange_counts_as_python_does() {
    let place = Place::host();
    let whole = |start, end, step| {
        Tensor::arange::<i32>(&place, start, end, step).unwrap().to_vec::<i32>().unwrap()
    };
    assert_eq!(whole(0, 5, 2), [0, 2, 4]);
    assert_eq!(whole(5, 0, -2), [5, 3, 1]);
    assert!(whole(3, 3, 1).is_empty());
    assert!(Tensor::arange(&place, 0, 5, -1).is_err() && Tensor::arange(&place, 0, 5, 0).is_err());
    let real = Tensor::arange(&place, 0.0f32, 1.0, 0.25).unwrap();
    assert_eq!(real.to_vec::<f32>().unwrap(), [0.0, 0.25, 0.5, 0.75]);
    assert!(Tensor::arange(&place, 0.0f64, 1.0, 0.0).is_err());
    assert!(Tensor::arange(&place, 0.0f64, f64::NAN, 1.0).is_err());
    let most = Tensor::arange(&place, i64::MIN, i64::MAX, i64::MAX).unwrap();
    assert_eq!(values(&most), [i64::MIN, -1, i64::MAX - 1]);
    let long = Tensor::arange::<i64>(&place, 0, 200_000, 1).unwrap();
    assert!((0..200_000).eq(values(&long)));
}

#[test]
fn threads_that_copy_back_and_forth_neither_tear_nor_wait_for_each_other() {
    let place = Place::host();
    let [a, b] = [1i64, 2].map(|value| Tensor::full(&place, &[1000], value).unwrap());
    std::thread::scope(|scope| {
        for (to, from) in [(&a, &b), (&b, &a), (&a, &b), (&b, &a)] {
            scope.spawn(move || {
                for _ in 0..200 {
                    to.copy_(from).unwrap();
                    let seen = values(to);
                    assert!(seen.iter().all(|value| *value == seen[0]), "torn");
                }
            });
        }
    });
    assert_eq!(values(&a)[0], values(&b)[0]);
}
