//! Values: from a tensor to numbers of the program and back.

use super::Tensor;
use super::dtype::Element;
use super::error::{Result, TensorError};

/// One element, in the low bytes.
pub(super) fn bits_of<T: Element>(value: T) -> u64 {
    let mut bits = [0; 8];
    let bytes = value.to_bits();
    bits[..size_of::<T::Bits>()].copy_from_slice(bytemuck::bytes_of(&bytes));
    u64::from_le_bytes(bits)
}

impl Tensor {
    /// All values, the last axis fastest. Waits for the place's work so far. Needs a temporary of
    /// the tensor's size if it is not contiguous.
    ///
    /// # Errors
    /// Another type of elements; no values ([`super::ComputeError::NoValues`]); the device's.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.expect_dtype(T::DTYPE)?;
        let dense = self.dense_or_temporary()?;
        let mut bits = vec![<T::Bits as bytemuck::Zeroable>::zeroed(); dense.elements()];
        dense.read_at(0, bytemuck::cast_slice_mut(&mut bits))?;
        Ok(bits.into_iter().map(T::from_bits).collect())
    }

    /// The value of a tensor of one element.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`]; or more elements, or none.
    pub fn item<T: Element>(&self) -> Result<T> {
        self.expect_dtype(T::DTYPE)?;
        if self.elements() != 1 {
            let shape = self.shape().to_vec();
            return Err(TensorError::Values { found: 1, needs: self.elements(), shape });
        }
        self.element_at(self.offset())
    }

    /// The element at this place in the storage.
    pub(super) fn element_at<T: Element>(&self, at: usize) -> Result<T> {
        let mut bits = <T::Bits as bytemuck::Zeroable>::zeroed();
        let from = at - self.offset();
        self.read_at(from, bytemuck::bytes_of_mut(&mut bits))?;
        Ok(T::from_bits(bits))
    }

    /// Bytes from this element behind index zero on.
    pub(super) fn read_at(&self, element: usize, bytes: &mut [u8]) -> Result<()> {
        let place = self.place();
        if bytes.is_empty() {
            return if place.has_values() {
                Ok(())
            } else {
                Err(place.failed(super::ComputeError::NoValues))
            };
        }
        let mut side = self.side();
        side.offset += element as u64;
        let read = place.compute().read(side, bytes, place.stream_id());
        read.map_err(|error| place.failed(error))
    }

    /// Whether all values of two tensors are the same bits, wherever they live.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`].
    pub fn same_values(&self, other: &Self) -> Result<bool> {
        if (self.dtype, self.shape()) != (other.dtype, other.shape()) {
            return Ok(false);
        }
        Ok(self.raw_values()? == other.raw_values()?)
    }

    /// All values as they lie in memory, the last axis fastest.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`].
    pub fn raw_values(&self) -> Result<Vec<u8>> {
        let dense = self.dense_or_temporary()?;
        let mut bytes = vec![0; dense.bytes() as usize];
        dense.read_at(0, &mut bytes)?;
        Ok(bytes)
    }
}
