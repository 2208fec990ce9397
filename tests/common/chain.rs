//! Chain: random views of a tensor, and the same done to an array of the crate `ndarray`.
#![allow(missing_docs, clippy::unwrap_used, dead_code)]

use blockyard::tensor::{Place, Tensor};
use ndarray::{ArrayD, Axis, IxDyn, Slice, stack};
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub struct Chain {
    pub shape: Vec<usize>,
    pub steps: Vec<[u8; 4]>,
}

pub fn chains() -> impl Strategy<Value = Chain> {
    let shape = prop::collection::vec(0usize..6, 0..5);
    let steps = prop::collection::vec(any::<[u8; 4]>(), 0..6);
    (shape, steps).prop_map(|(shape, steps)| Chain { shape, steps })
}

/// A tensor whose values are the places of its elements, and the same array.
pub fn grow(place: &Place, shape: &[usize]) -> (Tensor, ArrayD<i64>) {
    let count = shape.iter().product::<usize>() as i64;
    let tensor = Tensor::arange(place, 0, count, 1).unwrap();
    let values = ArrayD::from_shape_vec(IxDyn(shape), (0..count).collect()).unwrap();
    let slice: Vec<i64> = values.iter().copied().collect();
    assert_eq!(tensor.to_vec::<i64>().unwrap(), slice);
    (Tensor::from_slice(place, shape, &slice).unwrap(), values)
}

/// One view of both: `bytes` choose which and how.
pub fn step(tensor: &Tensor, places: &ArrayD<i64>, bytes: [u8; 4]) -> (Tensor, ArrayD<i64>) {
    let [kind, a, b, c] = bytes.map(usize::from);
    let rank = places.ndim();
    if rank == 0 || kind % 11 == 0 {
        let axis = a % (rank + 1);
        if rank == 8 {
            return (tensor.squeeze().unwrap(), squeezed(places));
        }
        return (tensor.unsqueeze(axis).unwrap(), places.clone().insert_axis(Axis(axis)));
    }
    let axis = a % rank;
    let size = places.shape()[axis];
    match kind % 11 {
        1 => {
            let other = b % rank;
            let mut swapped = places.clone();
            swapped.swap_axes(axis, other);
            (tensor.transpose(axis, other).unwrap(), swapped.as_standard_layout().into_owned())
        }
        2 => {
            let mut order: Vec<usize> = (0..rank).collect();
            order.rotate_left(a % rank);
            order.swap(b % rank, c % rank);
            let turned = places.clone().permuted_axes(IxDyn(&order));
            (tensor.permute(&order).unwrap(), turned.as_standard_layout().into_owned())
        }
        3 => {
            let from = b % (size + 1);
            let length = c % (size - from + 1);
            let part = places.slice_axis(Axis(axis), Slice::from(from..from + length));
            (tensor.narrow(axis, from, length).unwrap(), part.to_owned())
        }
        4 => {
            let (from, by) = (b % (size + 1), c % 4 + 1);
            let part = places.slice_axis(Axis(axis), Slice::new(from as isize, None, by as isize));
            (tensor.slice(axis, from.., by).unwrap(), part.to_owned())
        }
        5 if size > 0 => {
            let index = b % size;
            (tensor.select(axis, index).unwrap(), places.index_axis(Axis(axis), index).to_owned())
        }
        6 => (tensor.squeeze().unwrap(), squeezed(places)),
        7 => {
            let one = if size == 1 {
                places.index_axis(Axis(axis), 0).to_owned()
            } else {
                places.clone()
            };
            (tensor.squeeze_axis(axis).unwrap(), one)
        }
        8 if places.len() < 500 => {
            let mut shape = places.shape().to_vec();
            if size == 1 {
                shape[axis] = b % 4;
            }
            if rank < 6 && c % 2 == 0 {
                shape.insert(0, c % 3);
            }
            (tensor.expand(&shape).unwrap(), places.broadcast(IxDyn(&shape)).unwrap().to_owned())
        }
        9 if rank < 8 && size > 0 && places.len() < 500 => {
            let (window, by) = (b % size + 1, c % 3 + 1);
            let starts = (0..=size - window).step_by(by);
            let cut = |from| places.slice_axis(Axis(axis), Slice::from(from..from + window));
            let windows: Vec<_> = starts.map(cut).collect();
            let mut stacked = stack(Axis(axis), &windows).unwrap();
            // The window, now behind `axis`, becomes the last axis.
            let mut order: Vec<usize> = (0..=rank).filter(|&other| other != axis + 1).collect();
            order.push(axis + 1);
            stacked = stacked.permuted_axes(IxDyn(&order)).as_standard_layout().into_owned();
            (tensor.unfold(axis, window, by).unwrap(), stacked)
        }
        10 => {
            let parts = tensor.split(axis, b % 5 + 1).unwrap();
            let number = c % parts.len();
            let from = number * (b % 5 + 1);
            let end = size.min(from + b % 5 + 1);
            let part = places.slice_axis(Axis(axis), Slice::from(from..end));
            (parts[number].clone(), part.to_owned())
        }
        _ => (tensor.transpose(axis, axis).unwrap(), places.clone()),
    }
}

fn squeezed(places: &ArrayD<i64>) -> ArrayD<i64> {
    let shape: Vec<usize> = places.shape().iter().copied().filter(|&size| size != 1).collect();
    places.to_shape(IxDyn(&shape)).unwrap().into_owned()
}

/// Whether strides can lead through these places.
pub fn expressible(places: &ArrayD<i64>) -> bool {
    if places.is_empty() {
        return true;
    }
    let first = *places.first().unwrap();
    let unit = |axis: usize| {
        let mut index = vec![0; places.ndim()];
        index[axis] = usize::from(places.shape()[axis] > 1);
        places[IxDyn(&index)] - first
    };
    let strides: Vec<i64> = (0..places.ndim()).map(unit).collect();
    places.indexed_iter().all(|(index, &place)| {
        let steps = (0..places.ndim()).map(|axis| index[axis] as i64 * strides[axis]);
        place == first + steps.sum::<i64>() && strides.iter().all(|&stride| stride >= 0)
    })
}
