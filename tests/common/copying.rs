//! Copying: what copies, fills and casts must do on any place, against `ndarray`.
//!
//! A storage's values are its elements' places; what a copy does to the storage is derived from the
//! places that both views have.
#![allow(missing_docs, clippy::unwrap_used, dead_code)]

use std::collections::HashSet;

use super::chain::{Chain, grow, step};
use blockyard::tensor::sparse::Coo;
use blockyard::tensor::{DType, Format, Place, Tensor, TensorError};
use ndarray::{ArrayD, IxDyn};
use proptest::prelude::*;

pub fn walk(owner: &Tensor, places: &ArrayD<i64>, steps: &[[u8; 4]]) -> (Tensor, ArrayD<i64>) {
    let start = (owner.clone(), places.clone());
    steps.iter().fold(start, |(tensor, places), bytes| step(&tensor, &places, *bytes))
}

pub fn values(tensor: &Tensor) -> Vec<i64> {
    tensor.to_vec().unwrap()
}

pub fn list(places: &ArrayD<i64>) -> Vec<i64> {
    places.iter().copied().collect()
}

pub fn doubles(places: &ArrayD<i64>) -> bool {
    let mut seen = HashSet::new();
    !places.iter().all(|place| seen.insert(*place))
}

pub fn copy(
    place: &Place,
    chain: Chain,
    other: &[[u8; 4]],
    shared: bool,
) -> Result<(), TestCaseError> {
    let Chain { shape, steps } = chain;
    let (owner, places) = grow(place, &shape);
    let (dst, at) = walk(&owner, &places, &steps);
    let source = if shared { owner.clone() } else { owner.duplicate().unwrap() };
    let (src, from) = walk(&source, &places, other);
    let before = values(&owner);
    let copied = dst.copy_(&src);
    let Some(from) = from.broadcast(IxDyn(at.shape())) else {
        let refused = matches!(copied, Err(TensorError::Broadcast { .. }));
        prop_assert!(refused, "they do not broadcast");
        return Ok(());
    };
    let mut expected = before.clone();
    if doubles(&at) {
        let refused = matches!(copied, Err(TensorError::Overlap { .. }));
        prop_assert!(refused, "{:?}", copied);
    } else {
        prop_assert!(copied.is_ok(), "{:?}", copied);
        for (to, from) in at.iter().zip(from.iter()) {
            expected[*to as usize] = before[*from as usize];
        }
    }
    prop_assert_eq!(values(&owner), expected);
    place.allocator().audit().unwrap();
    Ok(())
}

pub fn fill(place: &Place, chain: Chain) -> Result<(), TestCaseError> {
    let Chain { shape, steps } = chain;
    let (owner, places) = grow(place, &shape);
    let (view, at) = walk(&owner, &places, &steps);
    let mut expected = values(&owner);
    let filled = view.fill_(-7.9f32);
    prop_assert_eq!(filled.is_err(), doubles(&at));
    if filled.is_ok() {
        at.iter().for_each(|place| expected[*place as usize] = -7);
    }
    prop_assert_eq!(values(&owner), expected);
    Ok(())
}

pub fn own(place: &Place, elsewhere: &Place, chain: Chain, to: usize) -> Result<(), TestCaseError> {
    let Chain { shape, steps } = chain;
    let (owner, places) = grow(place, &shape);
    let (view, at) = walk(&owner, &places, &steps);
    let copy = view.duplicate().unwrap();
    prop_assert_eq!(values(&copy), list(&at));
    prop_assert!(!copy.shares_storage(&view) && !copy.is_view());
    prop_assert!(copy.layout().is_dense() && copy.offset() == 0);
    prop_assert!(
        !view.layout().is_dense() || view.elements() == 0 || copy.strides() == view.strides()
    );

    let row = view.contiguous().unwrap();
    prop_assert_eq!(values(&row), list(&at));
    prop_assert_eq!(row.shares_storage(&view), view.is_contiguous(Format::Contiguous));

    let dtype = DType::ALL[to];
    let back = |tensor: &Tensor| values(&tensor.to(place, DType::I64, false).unwrap());
    let cast = view.to(place, dtype, false).unwrap();
    let round = |place: &i64| match dtype {
        DType::Bool => i64::from(*place != 0),
        DType::I8 => i64::from(*place as i8),
        DType::U8 => i64::from(*place as u8),
        DType::BF16 => half::bf16::from_f32(*place as f32).to_f32() as i64,
        _ => *place,
    };
    let rounded: Vec<i64> = at.iter().map(round).collect();
    prop_assert_eq!(back(&cast), rounded.clone());
    prop_assert_eq!(back(&view.to(elsewhere, dtype, false).unwrap()), rounded);
    prop_assert!(place.allocator().audit().is_ok() && elsewhere.allocator().audit().is_ok());
    Ok(())
}

/// Every pair of types, contiguous and strided, as on the host.
pub fn casts(place: &Place) {
    let host = Place::host();
    let numbers = [-3.75f64, -1.0, -0.0, 0.3, 1.5, 2.5, 65504.0, 1e9, f64::INFINITY, f64::NAN];
    let grid = Tensor::from_slice(&host, &[2, 5], &numbers).unwrap();
    for from in DType::ALL {
        let source = grid.to(&host, from, false).unwrap();
        let there = source.to(place, from, false).unwrap();
        for to in DType::ALL {
            let bytes = |tensor: &Tensor| tensor.raw_values().unwrap();
            let cast = |tensor: &Tensor| {
                let place = tensor.place().clone();
                let row = tensor.to(&place, to, false).unwrap();
                let turned = Tensor::zeros(&place, &[5, 4], to).unwrap();
                turned.slice(1, .., 2).unwrap().copy_(&tensor.transpose(0, 1).unwrap()).unwrap();
                (bytes(&row), bytes(&turned))
            };
            assert_eq!(cast(&there), cast(&source), "{from} to {to}");
        }
    }
}

/// The sparse product, as on the host, bit for bit.
pub fn product(place: &Place) {
    let host = Place::host();
    for (dtype, short) in
        [(DType::F32, true), (DType::F32, false), (DType::F64, true), (DType::F64, false)]
    {
        let (rows, columns): (Vec<i64>, Vec<i64>) =
            (0..40).map(|i| (i * 7 % 9, i * 5 % 11)).unzip();
        let values: Vec<f64> = (0..40).map(|i| f64::from(i).sin()).collect();
        let index = if short { DType::I32 } else { DType::I64 };
        let part = |list: &[i64]| {
            Tensor::from_slice(&host, &[40], list).unwrap().to(&host, index, false).unwrap()
        };
        let values =
            Tensor::from_slice(&host, &[40], &values).unwrap().to(&host, dtype, false).unwrap();
        let coo = Coo::new([9, 11], part(&rows), part(&columns), values).unwrap();
        let csr = coo.to_csr().unwrap();
        let x = Tensor::arange(&host, -20i64, 24, 1).unwrap().view(&[11, 4]).unwrap();
        let x = x.to(&host, dtype, false).unwrap();
        let expected = csr.matmul(&x).unwrap();
        let there = |tensor: &Tensor| tensor.to(place, tensor.dtype(), false).unwrap();
        let csr = blockyard::tensor::sparse::Csr::new(
            [9, 11],
            there(csr.starts()),
            there(csr.column()),
            there(csr.values()),
        )
        .unwrap();
        assert!(csr.matmul(&there(&x)).unwrap().same_values(&expected).unwrap(), "{dtype} {index}");
    }
}
