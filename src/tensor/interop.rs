//! Interop: arrays of the crate `ndarray`, by copy.

use ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn};

use super::Tensor;
use super::dtype::Element;
use super::error::{Result, TensorError};
use super::place::Place;

impl Tensor {
    /// The values of an array, whatever its strides.
    ///
    /// # Errors
    /// As [`Tensor::from_slice`].
    pub fn from_ndarray<T, S, D>(place: &Place, array: &ArrayBase<S, D>) -> Result<Self>
    where
        T: Element,
        S: Data<Elem = T>,
        D: Dimension,
    {
        match array.as_slice() {
            Some(values) => Self::from_slice(place, array.shape(), values),
            None => {
                let values: Vec<T> = array.iter().copied().collect();
                Self::from_slice(place, array.shape(), &values)
            }
        }
    }

    /// The values as an array.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`].
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        let values = self.to_vec()?;
        let (found, shape) = (values.len(), self.shape().to_vec());
        ArrayD::from_shape_vec(IxDyn(&shape), values).map_err(|_| TensorError::Values {
            found,
            needs: self.elements(),
            shape,
        })
    }
}
