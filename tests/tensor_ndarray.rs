//! Interop: arrays of the crate `ndarray` there and back (feature `ndarray`).
#![cfg(feature = "ndarray")]
#![allow(missing_docs, clippy::unwrap_used)]

use blockyard::tensor::{DType, Place, Tensor, bf16};
use ndarray::{Array3, s};

#[test]
fn arrays_come_and_go_whatever_their_strides() {
    let place = Place::host();
    let array = Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (100 * i + 10 * j + k) as f32);
    let tensor = Tensor::from_ndarray(&place, &array).unwrap();
    assert_eq!(tensor.to_ndarray::<f32>().unwrap(), array.clone().into_dyn());
    let part = array.slice(s![.., 1..;2, ..;-1]);
    let tensor = Tensor::from_ndarray(&place, &part).unwrap();
    assert_eq!(tensor.shape(), [2, 1, 4]);
    assert_eq!(tensor.to_ndarray::<f32>().unwrap(), part.into_owned().into_dyn());
    let turned = tensor.transpose(0, 2).unwrap().to_ndarray::<f32>().unwrap();
    assert_eq!(turned[[3, 0, 1]], 110.0);
    assert!(tensor.to_ndarray::<f64>().is_err());
}

#[test]
fn sixteen_bit_floats_are_those_of_the_crate_half() {
    let place = Place::host();
    let array = ndarray::arr1(&[1.0f32, 2.5].map(bf16::from_f32));
    let tensor = Tensor::from_ndarray(&place, &array).unwrap();
    assert_eq!(tensor.dtype(), DType::BF16);
    assert_eq!(tensor.to_ndarray::<bf16>().unwrap(), array.into_dyn());
}
