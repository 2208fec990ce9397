//! Views: tensors over the storage of another one. None copies, none allocates memory of the device.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::Tensor;
use super::dtype::DType;
use super::error::{Result, TensorError};
use super::layout::Layout;

impl Tensor {
    /// The same elements in another shape, without a copy; one size may be [`super::INFER`].
    ///
    /// # Errors
    /// Another number of elements; or no strides can say so ([`TensorError::NotViewable`]).
    pub fn view(&self, shape: &[usize]) -> Result<Self> {
        self.viewed(self.layout.view(shape)?)
    }

    /// The same bytes as elements of another type. If these are larger or smaller, the last axis
    /// gets shorter or longer.
    ///
    /// # Errors
    /// The bytes of the last axis are no whole elements in a row ([`TensorError::NotWhole`]).
    pub fn view_dtype(&self, dtype: DType) -> Result<Self> {
        let layout = self.layout.recount(self.dtype.size(), dtype.size());
        let layout = layout.ok_or_else(|| TensorError::NotWhole {
            from: self.dtype,
            to: dtype,
            shape: self.shape().to_vec(),
            strides: self.strides().to_vec(),
        })?;
        Self::over(Arc::clone(&self.storage), layout, dtype, true)
    }

    /// Two axes exchanged.
    ///
    /// # Errors
    /// No such axis.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Self> {
        self.viewed(self.layout.transpose(a, b)?)
    }

    /// Axes in another order.
    ///
    /// # Errors
    /// Not each axis once.
    pub fn permute(&self, order: &[usize]) -> Result<Self> {
        self.viewed(self.layout.permute(order)?)
    }

    /// `length` indices of one axis, from `from` on.
    ///
    /// # Errors
    /// No such axis, or the range leaves it.
    pub fn narrow(&self, axis: usize, from: usize, length: usize) -> Result<Self> {
        self.viewed(self.layout.narrow(axis, from, length)?)
    }

    /// Every `step`-th index of a range of one axis (`x[a:b:step]`); the range is cut to the axis.
    ///
    /// # Errors
    /// No such axis, or a step of zero.
    pub fn slice(&self, axis: usize, range: impl RangeBounds<usize>, step: usize) -> Result<Self> {
        let from = match range.start_bound() {
            Bound::Included(&from) => from,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => usize::MAX,
        };
        self.viewed(self.layout.slice(axis, from..end, step)?)
    }

    /// One index of an axis, which goes.
    ///
    /// # Errors
    /// No such axis, or no such index.
    pub fn select(&self, axis: usize, index: usize) -> Result<Self> {
        self.viewed(self.layout.select(axis, index)?)
    }

    /// Without any axis of size 1.
    ///
    /// # Errors
    /// None: for the sake of one form.
    pub fn squeeze(&self) -> Result<Self> {
        self.viewed(self.layout.squeeze())
    }

    /// Without this axis, if its size is 1.
    ///
    /// # Errors
    /// No such axis.
    pub fn squeeze_axis(&self, axis: usize) -> Result<Self> {
        self.viewed(self.layout.squeeze_axis(axis)?)
    }

    /// A new axis of size 1 before `axis`, or behind the last.
    ///
    /// # Errors
    /// No such place, or too many axes.
    pub fn unsqueeze(&self, axis: usize) -> Result<Self> {
        self.viewed(self.layout.unsqueeze(axis)?)
    }

    /// Axes of size 1 repeated without memory, and new axes before the first; [`super::INFER`]
    /// keeps a size.
    ///
    /// # Errors
    /// The shapes do not broadcast, or too many axes.
    pub fn expand(&self, shape: &[usize]) -> Result<Self> {
        self.viewed(self.layout.expand(shape)?)
    }

    /// Parts of `size` indices of one axis; the last may be shorter.
    ///
    /// # Errors
    /// No such axis, or a size of zero.
    pub fn split(&self, axis: usize, size: usize) -> Result<Vec<Self>> {
        if size == 0 {
            return Err(TensorError::Zero { what: "the size of a part" });
        }
        let whole = self.narrow(axis, 0, 0).map(|_| self.shape()[axis])?;
        // An axis of size zero has one part, which is empty.
        let starts = (0..whole.max(1)).step_by(size);
        starts.map(|from| self.narrow(axis, from, size.min(whole - from))).collect()
    }

    /// Windows of `size` indices of one axis, `step` apart; the window becomes the last axis.
    ///
    /// # Errors
    /// No such axis, a window longer than the axis, a step of zero, or too many axes.
    pub fn unfold(&self, axis: usize, size: usize, step: usize) -> Result<Self> {
        self.viewed(self.layout.unfold(axis, size, step)?)
    }

    /// Any shape, strides and offset over the whole storage.
    ///
    /// # Errors
    /// It leaves the storage (**X1**), or not one stride for each size.
    pub fn as_strided(&self, shape: &[usize], strides: &[usize], offset: usize) -> Result<Self> {
        self.viewed(Layout::as_strided(shape, strides, offset)?)
    }
}
