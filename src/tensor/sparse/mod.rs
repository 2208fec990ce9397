//! Sparse: matrices of which only some elements are stored: COO and CSR, three storages each.
//!
//! Owns what both have in common: shape, checks, memory. Asked by programs. Never knows kernels: the
//! product goes to the place's [`super::Compute`]. Conversions read the parts, work on the host and
//! put the result where the matrix lives.

mod coo;
mod csr;

pub use coo::Coo;
pub use csr::Csr;

use super::Tensor;
use super::dtype::{DType, Element};
use super::error::{Result, TensorError};
use super::place::Place;

fn broken<T>(text: impl Into<String>) -> Result<T> {
    Err(TensorError::Sparse(text.into()))
}

/// Indices as 64-bit integers.
fn indices(tensor: &Tensor) -> Result<Vec<i64>> {
    match tensor.dtype() {
        DType::I32 => Ok(tensor.to_vec::<i32>()?.into_iter().map(i64::from).collect()),
        _ => tensor.to_vec(),
    }
}

/// Indices as a tensor of the type that the matrix uses.
fn stored(place: &Place, dtype: DType, values: &[i64]) -> Result<Tensor> {
    if dtype == DType::I64 {
        return Tensor::from_slice(place, &[values.len()], values);
    }
    let short: Result<Vec<i32>, _> = values.iter().map(|&value| i32::try_from(value)).collect();
    match short {
        Ok(short) => Tensor::from_slice(place, &[short.len()], &short),
        Err(_) => broken("an index does not fit into i32"),
    }
}

/// That every index leads into an axis of this size.
fn inside(name: &str, found: &[i64], size: usize) -> Result<()> {
    let bad =
        found.iter().position(|&index| usize::try_from(index).map_or(true, |index| index >= size));
    bad.map_or(Ok(()), |at| broken(format!("{name} {at} is {}, outside 0..{size}", found[at])))
}

/// That parts are one-dimensional, contiguous, in one place, and that indices are integers of one
/// type. `indices` come with their length.
fn parts(values: &Tensor, indices: &[(&str, &Tensor, usize)]) -> Result<()> {
    if values.rank() != 1 {
        return broken(format!("values have shape {:?}, expected one axis", values.shape()));
    }
    for &(name, tensor, length) in indices {
        values.place().same(tensor.place())?;
        indices[0].1.expect_same_dtype(tensor)?;
        if !matches!(tensor.dtype(), DType::I32 | DType::I64) {
            return broken(format!("{name} are {}, expected i32 or i64", tensor.dtype()));
        }
        if tensor.shape() != [length] {
            return broken(format!("{name} have shape {:?}, expected [{length}]", tensor.shape()));
        }
    }
    Ok(())
}

/// A sum in the widened type, so that it is rounded once.
fn sum<T: Element>(values: impl Iterator<Item = T>) -> T {
    use super::Wide::{F32, F64, I64};
    let add = |left, right| match (left, right) {
        (I64(a), I64(b)) => I64(a.wrapping_add(b)),
        (F32(a), F32(b)) => F32(a + b),
        (a, b) => F64(f64::narrow(a) + f64::narrow(b)),
    };
    T::narrow(values.map(Element::widen).reduce(add).unwrap_or(I64(0)))
}

impl Tensor {
    fn expect_same_dtype(&self, other: &Self) -> Result<()> {
        other.expect_dtype(self.dtype())
    }
}
