//! Viewing: from one layout to the layout of a view. No memory is touched, and none is needed.
//!
//! Owns the arithmetic of every view. Asked by `views`. Never knows a storage. What a view reaches,
//! its origin reached; only [`Layout::as_strided`] can say otherwise, and **X1** is checked on both.

use std::ops::Range;

use super::axes::Axes;
use super::error::{Result, TensorError};
use super::layout::{Layout, elements};

/// In a shape: the size that follows from the others. In [`Layout::expand`]: the size there is.
pub const INFER: usize = usize::MAX;

impl Layout {
    fn axis(&self, axis: usize) -> Result<usize> {
        let rank = self.rank();
        if axis < rank { Ok(self.shape[axis]) } else { Err(TensorError::Axis { axis, rank }) }
    }

    /// The same elements in another shape, if these strides can say so.
    ///
    /// # Errors
    /// Another number of elements; or only a copy would do ([`TensorError::NotViewable`]).
    pub fn view(&self, shape: &[usize]) -> Result<Self> {
        let shape = inferred(&self.shape, shape)?;
        let strides = self.restride(&shape).ok_or_else(|| TensorError::NotViewable {
            from: self.shape.to_vec(),
            strides: self.strides.to_vec(),
            to: shape.to_vec(),
        })?;
        Ok(Self { shape, strides, offset: self.offset })
    }

    /// Strides that lead through `shape` in the same order. Old axes that follow each other without
    /// a gap are one run; each new axis must lie in one run.
    fn restride(&self, shape: &Axes) -> Option<Axes> {
        if self.elements() == 0 {
            let same = *shape == self.shape;
            return if same {
                Some(self.strides)
            } else {
                Some(Self::contiguous(shape).ok()?.strides)
            };
        }
        let mut runs = self.runs();
        let (mut stride, mut left) = runs.next().unwrap_or((1, 1));
        let mut strides = *shape;
        for axis in (0..shape.len()).rev() {
            let size = shape[axis];
            if left == 1 && size != 1 {
                (stride, left) = runs.next()?;
            }
            if left % size != 0 {
                return None;
            }
            strides[axis] = stride;
            (stride, left) = (stride * size, left / size);
        }
        Some(strides)
    }

    /// Stride and size of each run, the fastest first. Axes of size 1 are in none.
    fn runs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut axes = (0..self.rank()).rev().filter(|&axis| self.shape[axis] != 1).peekable();
        std::iter::from_fn(move || {
            let first = axes.next()?;
            let (stride, mut size) = (self.strides[first], self.shape[first]);
            while let Some(axis) = axes.next_if(|&axis| self.strides[axis] == stride * size) {
                size *= self.shape[axis];
            }
            Some((stride, size))
        })
    }

    /// Axes in another order.
    ///
    /// # Errors
    /// Not each axis once.
    pub fn permute(&self, order: &[usize]) -> Result<Self> {
        let rank = self.rank();
        let once = (0..rank).all(|axis| order.iter().filter(|&&other| other == axis).count() == 1);
        if order.len() != rank || !once {
            return Err(TensorError::Permutation { axes: order.to_vec(), rank });
        }
        let mut view = *self;
        for (place, &axis) in order.iter().enumerate() {
            (view.shape[place], view.strides[place]) = (self.shape[axis], self.strides[axis]);
        }
        Ok(view)
    }

    /// Two axes exchanged.
    ///
    /// # Errors
    /// No such axis.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Self> {
        self.axis(a).and(self.axis(b))?;
        let mut view = *self;
        view.shape.swap(a, b);
        view.strides.swap(a, b);
        Ok(view)
    }

    /// `length` indices of one axis, from `from` on.
    ///
    /// # Errors
    /// No such axis, or the range leaves it.
    pub fn narrow(&self, axis: usize, from: usize, length: usize) -> Result<Self> {
        let size = self.axis(axis)?;
        let end = from.saturating_add(length);
        if end > size {
            return Err(TensorError::Range { from, end, axis, size });
        }
        let mut view = *self;
        view.shape[axis] = length;
        // A view of nothing starts anywhere: it stays where its origin is, which is inside.
        if view.elements() > 0 {
            view.offset += from * self.strides[axis];
        }
        Ok(view)
    }

    /// Every `step`-th index of a range of one axis; the range is cut to the axis.
    ///
    /// # Errors
    /// No such axis, or a step of zero.
    pub fn slice(&self, axis: usize, range: Range<usize>, step: usize) -> Result<Self> {
        let size = self.axis(axis)?;
        if step == 0 {
            return Err(TensorError::Zero { what: "the step of a slice" });
        }
        let from = range.start.min(size);
        let end = range.end.clamp(from, size);
        let mut view = self.narrow(axis, from, end - from)?;
        view.shape[axis] = (end - from).div_ceil(step);
        // One index needs no stride: any would do, but a huge one could not be counted.
        let stride = self.strides[axis].checked_mul(step);
        view.strides[axis] = stride.unwrap_or(self.strides[axis]);
        Ok(view)
    }

    /// One index of an axis, which goes.
    ///
    /// # Errors
    /// No such axis, or no such index.
    pub fn select(&self, axis: usize, index: usize) -> Result<Self> {
        let view = self.narrow(axis, index, 1)?;
        let (shape, strides) = (view.shape.removed(axis), view.strides.removed(axis));
        Ok(Self { shape, strides, offset: view.offset })
    }

    /// Without any axis of size 1.
    #[must_use]
    pub fn squeeze(&self) -> Self {
        let mut view = *self;
        for axis in (0..self.rank()).rev().filter(|&axis| self.shape[axis] == 1) {
            (view.shape, view.strides) = (view.shape.removed(axis), view.strides.removed(axis));
        }
        view
    }

    /// Without this axis, if its size is 1.
    ///
    /// # Errors
    /// No such axis.
    pub fn squeeze_axis(&self, axis: usize) -> Result<Self> {
        if self.axis(axis)? == 1 { self.select(axis, 0) } else { Ok(*self) }
    }

    /// A new axis of size 1 before `axis`, or behind the last.
    ///
    /// # Errors
    /// No such place, or too many axes.
    pub fn unsqueeze(&self, axis: usize) -> Result<Self> {
        let rank = self.rank();
        if axis > rank {
            return Err(TensorError::Axis { axis, rank });
        }
        let stride =
            if axis == rank { 1 } else { self.shape[axis].saturating_mul(self.strides[axis]) };
        let (shape, strides) =
            (self.shape.inserted(axis, 1)?, self.strides.inserted(axis, stride)?);
        Ok(Self { shape, strides, offset: self.offset })
    }

    /// Axes of size 1 repeated by a stride of zero, and new axes before the first.
    ///
    /// # Errors
    /// The shapes do not broadcast, too many axes, or more elements than can be counted.
    pub fn expand(&self, shape: &[usize]) -> Result<Self> {
        let error = || TensorError::Broadcast { from: self.shape.to_vec(), to: shape.to_vec() };
        let new = shape.len().checked_sub(self.rank()).ok_or_else(error)?;
        let mut view = Self { shape: Axes::new(shape)?, ..*self };
        view.strides = view.shape.filled(0);
        for (axis, &wanted) in shape.iter().enumerate() {
            let here = axis.checked_sub(new).map(|old| (self.shape[old], self.strides[old]));
            (view.shape[axis], view.strides[axis]) = match here {
                Some((size, stride)) if wanted == INFER || wanted == size => (size, stride),
                Some((1, _)) => (wanted, 0),
                None if wanted != INFER => (wanted, 0),
                _ => return Err(error()),
            };
        }
        elements(&view.shape)?;
        Ok(view)
    }

    /// Windows of `size` indices of one axis, `step` apart; the window becomes the last axis.
    ///
    /// # Errors
    /// No such axis, a window longer than the axis, a step of zero, or too many axes.
    pub fn unfold(&self, axis: usize, size: usize, step: usize) -> Result<Self> {
        let whole = self.axis(axis)?;
        if step == 0 {
            return Err(TensorError::Zero { what: "the step of unfold" });
        }
        if size > whole {
            return Err(TensorError::Range { from: 0, end: size, axis, size: whole });
        }
        let stride = self.strides[axis];
        let mut view = Self {
            shape: self.shape.inserted(self.rank(), size)?,
            strides: self.strides.inserted(self.rank(), stride)?,
            offset: self.offset,
        };
        view.shape[axis] = (whole - size) / step + 1;
        view.strides[axis] = stride.checked_mul(step).unwrap_or(stride);
        elements(&view.shape)?;
        Ok(view)
    }

    /// The shape after axes `from` to `to`, inclusive, become one. A tensor without axes gets one.
    ///
    /// # Errors
    /// No such axes.
    pub fn flattened_shape(&self, from: usize, to: usize) -> Result<Axes> {
        if self.rank() == 0 && from == 0 && to == 0 {
            return Axes::new(&[1]);
        }
        self.axis(to)?;
        if from > to {
            return Err(TensorError::Order { from, to });
        }
        let merged = &self.shape[from..=to];
        let mut shape = self.shape.with(from, merged.iter().product());
        for _ in from..to {
            shape = shape.removed(from + 1);
        }
        Ok(shape)
    }

    /// Any shape, strides and offset. Only [`Layout::fits`] says whether it makes sense.
    ///
    /// # Errors
    /// Not one stride for each size, or too many.
    pub fn as_strided(shape: &[usize], strides: &[usize], offset: usize) -> Result<Self> {
        if shape.len() != strides.len() {
            let (left, right) = (shape.to_vec(), strides.to_vec());
            return Err(TensorError::Shapes { what: "sizes and strides", left, right });
        }
        elements(shape)?;
        Ok(Self { shape: Axes::new(shape)?, strides: Axes::new(strides)?, offset })
    }

    /// The same bytes as elements of another size: those of the last axis are joined or cut.
    pub(super) fn recount(&self, from: usize, to: usize) -> Option<Self> {
        let mut view = *self;
        if from == to {
            return Some(view);
        }
        let last = self.rank().checked_sub(1).filter(|&last| self.strides[last] == 1)?;
        let exact = |count: usize| {
            let bytes = count.checked_mul(from)?;
            (bytes % to == 0).then_some(bytes / to)
        };
        view.shape[last] = exact(self.shape[last])?;
        view.offset = exact(self.offset)?;
        for axis in 0..last {
            view.strides[axis] = exact(self.strides[axis])?;
        }
        Some(view)
    }
}

/// `shape` with [`INFER`] replaced by the one size that fits, checked against the elements of `from`.
fn inferred(from: &Axes, shape: &[usize]) -> Result<Axes> {
    let have = elements(from)?;
    let mut wanted = Axes::new(shape)?;
    let error = || TensorError::Elements { from: from.to_vec(), have, to: shape.to_vec() };
    if let Some(place) = shape.iter().position(|&size| size == INFER) {
        let others = elements(&wanted.with(place, 1)).map_err(|_| error())?;
        wanted[place] = have.checked_div(others).ok_or_else(error)?;
    }
    let fits = elements(&wanted).is_ok_and(|count| count == have);
    if fits { Ok(wanted) } else { Err(error()) }
}

#[cfg(test)]
mod tests {
    use super::{INFER, Layout};

    fn dense(shape: &[usize]) -> Layout {
        Layout::contiguous(shape).unwrap()
    }

    #[test]
    fn a_view_spans_what_lies_together_and_nothing_else() {
        let layout = dense(&[4, 3, 2]).transpose(0, 1).unwrap();
        assert_eq!(layout.view(&[3, 2, 2, 2]).unwrap().strides[..], [2, 12, 6, 1]);
        assert_eq!(layout.view(&[3, 1, 4, 2, 1]).unwrap().elements(), 24);
        assert!(layout.view(&[12, 2]).is_err(), "over a gap");
        assert!(layout.view(&[3, 8]).is_err(), "over a gap");
        assert!(layout.view(&[5, 5]).is_err(), "another size");
        assert_eq!(dense(&[6]).view(&[2, INFER]).unwrap().shape[..], [2, 3]);
        assert!(dense(&[6]).view(&[INFER, INFER]).is_err());
        assert!(dense(&[0]).view(&[0, INFER]).is_err(), "any size would do");
        assert_eq!(dense(&[]).view(&[1, 1]).unwrap().shape[..], [1, 1]);
        let repeated = dense(&[1]).expand(&[6]).unwrap();
        assert_eq!(repeated.view(&[2, 3]).unwrap().strides[..], [0, 0]);
    }

    #[test]
    fn huge_arguments_are_cut_or_refused() {
        let layout = dense(&[5]);
        assert_eq!(layout.slice(0, 1..usize::MAX, usize::MAX).unwrap().shape[..], [1]);
        assert!(layout.narrow(0, usize::MAX, 2).is_err());
        assert!(layout.unfold(0, usize::MAX, 1).is_err());
        assert_eq!(layout.unfold(0, 2, usize::MAX).unwrap().shape[..], [1, 2]);
        assert!(dense(&[1]).expand(&[usize::MAX - 1, 2]).is_err());
    }

    #[test]
    fn axes_are_joined_in_order_only() {
        let layout = dense(&[2, 3, 4]);
        assert_eq!(layout.flattened_shape(1, 2).unwrap()[..], [2, 12]);
        assert_eq!(layout.flattened_shape(1, 1).unwrap(), layout.shape);
        assert!(layout.flattened_shape(1, 0).is_err() && layout.flattened_shape(1, 3).is_err());
        assert_eq!(dense(&[]).flattened_shape(0, 0).unwrap()[..], [1]);
    }

    #[test]
    fn an_empty_range_at_the_end_stays_inside() {
        assert!(dense(&[0, 2]).narrow(1, 1, 1).unwrap().fits(0).is_ok());
        let layout = dense(&[3, 4]).narrow(0, 3, 0).unwrap();
        assert!(layout.fits(12).is_ok());
        assert_eq!(layout.offset, 0);
    }
}
