//! Layout: which element of a storage each index leads to, as plain numbers.
//!
//! Owns shape, strides and offset, counted in elements, and what can be said of them alone. Asked by
//! every view and copy. Never knows a storage: **X1** "every element that an index reaches lies
//! inside the storage" is checked against the storage's size wherever a layout meets one
//! ([`Layout::fits`], called when a tensor is made).

use super::axes::Axes;
use super::error::{Result, TensorError};

/// In which order the axes of a dense tensor lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// The last axis runs fastest.
    Contiguous,
    /// Four axes N, C, H, W, of which C runs fastest, then W, H, N.
    ChannelsLast,
    /// Five axes N, C, D, H, W, of which C runs fastest, then W, H, D, N.
    ChannelsLast3d,
}

impl Format {
    /// As messages name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Contiguous => "contiguous",
            Self::ChannelsLast => "channels-last",
            Self::ChannelsLast3d => "channels-last 3-D",
        }
    }

    /// The axes, fastest first; `None` if the format has another number of them.
    fn order(self, rank: usize) -> Option<Axes> {
        let order: &[usize] = match (self, rank) {
            (Self::Contiguous, _) => {
                let mut axes = Axes::default();
                for axis in 0..rank {
                    axes = axes.inserted(0, axis).ok()?;
                }
                return Some(axes);
            }
            (Self::ChannelsLast, 4) => &[1, 3, 2, 0],
            (Self::ChannelsLast3d, 5) => &[1, 4, 3, 2, 0],
            _ => return None,
        };
        Axes::new(order).ok()
    }
}

/// Shape, strides and offset, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// The size of each axis.
    pub shape: Axes,
    /// How far apart neighbours are on each axis. Never negative.
    pub strides: Axes,
    /// Where index zero lies.
    pub offset: usize,
}

impl Layout {
    /// Dense, in this format, from element 0 on.
    ///
    /// # Errors
    /// Too many axes, a product beyond any memory, or a format for another number of axes.
    pub fn dense(shape: &[usize], format: Format) -> Result<Self> {
        let shape = Axes::new(shape)?;
        elements(&shape)?;
        let order = format.order(shape.len()).ok_or_else(|| format_error(format, shape.len()))?;
        let mut strides = shape;
        let mut next = 1;
        for &axis in order.iter() {
            strides[axis] = next;
            next *= shape[axis].max(1);
        }
        Ok(Self { shape, strides, offset: 0 })
    }

    /// The last axis fastest.
    ///
    /// # Errors
    /// As [`Layout::dense`].
    pub fn contiguous(shape: &[usize]) -> Result<Self> {
        Self::dense(shape, Format::Contiguous)
    }

    /// As many axes as there are sizes.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// How many indices there are. Small enough for memory, or the layout would not exist.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The distance from index zero to the farthest element; `None`: there is no element, or the
    /// distance is beyond counting.
    #[must_use]
    pub fn reach(&self) -> Option<usize> {
        let mut steps = self.shape.iter().zip(self.strides.iter());
        steps.try_fold(0usize, |sum, (&size, &stride)| {
            sum.checked_add(size.checked_sub(1)?.checked_mul(stride)?)
        })
    }

    /// **X1**: that every index leads into a storage of so many elements. A layout without elements
    /// starts inside it or at its end.
    ///
    /// # Errors
    /// It leaves the storage, or counts too far.
    pub fn fits(&self, elements_held: usize) -> Result<()> {
        let count = elements(&self.shape)?;
        let last =
            if count == 0 { Some(0) } else { self.reach().and_then(|far| far.checked_add(1)) };
        let end = last.and_then(|last| self.offset.checked_add(last));
        if self.strides.len() == self.shape.len() && end.is_some_and(|end| end <= elements_held) {
            return Ok(());
        }
        Err(TensorError::Outside {
            shape: self.shape.to_vec(),
            strides: self.strides.to_vec(),
            offset: self.offset,
            elements: elements_held,
        })
    }

    /// Whether the elements lie densely in this order; axes of size 1 do not matter, and no elements
    /// are in any order.
    #[must_use]
    pub fn is_contiguous(&self, format: Format) -> bool {
        let Some(order) = format.order(self.rank()) else { return false };
        self.elements() == 0 || self.dense_size(&order).is_some()
    }

    /// Whether the elements lie densely in any order: no gap, and nothing twice.
    #[must_use]
    pub fn is_dense(&self) -> bool {
        self.elements() == 0 || self.dense_size(&self.by_stride()).is_some()
    }

    /// The size if the axes, taken in this order, each begin where those before it end.
    fn dense_size(&self, order: &[usize]) -> Option<usize> {
        let long = order.iter().filter(|&&axis| self.shape[axis] != 1);
        long.copied()
            .try_fold(1, |next, axis| (self.strides[axis] == next).then(|| next * self.shape[axis]))
    }

    /// The axes, smallest stride first; equal ones from the last axis to the first.
    pub(super) fn by_stride(&self) -> Axes {
        let mut order = Format::Contiguous.order(self.rank()).unwrap_or_default();
        order.sort_by_key(|&axis| self.strides[axis]);
        order
    }

    /// The format that the strides speak for (`suggest_memory_format`): channels-last if the strides
    /// rise in its order, and would not do so in the contiguous one as well.
    #[must_use]
    pub fn suggested_format(&self) -> Format {
        let format = match self.rank() {
            4 => Format::ChannelsLast,
            5 => Format::ChannelsLast3d,
            _ => return Format::Contiguous,
        };
        if self.rises_as(format) { format } else { Format::Contiguous }
    }

    fn rises_as(&self, format: Format) -> bool {
        let Some(order) = format.order(self.rank()) else { return false };
        let channels = self.strides[1];
        let mut least = 0;
        for &axis in order.iter() {
            let (size, stride) = (self.shape[axis], self.strides[axis]);
            // One column of one pixel lies alike in both formats: then it is the contiguous one.
            let undecided = axis == 0 && least == channels;
            if channels == 0 || size == 0 || stride < least || undecided {
                return false;
            }
            least = stride.saturating_mul(size);
        }
        true
    }

    /// The element that an index leads to.
    #[must_use]
    pub fn at(&self, index: &[usize]) -> usize {
        self.offset
            + index.iter().zip(self.strides.iter()).map(|(i, stride)| i * stride).sum::<usize>()
    }
}

/// The product of the sizes, if memory could hold as many elements of any type.
///
/// # Errors
/// It could not. Axes of size zero do not excuse the others.
pub fn elements(shape: &[usize]) -> Result<usize> {
    const MOST: usize = isize::MAX as usize / 8;
    let most = shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size.max(1)));
    match most {
        Some(most) if most <= MOST => Ok(shape.iter().product()),
        _ => Err(TensorError::TooLarge { shape: shape.to_vec() }),
    }
}

fn format_error(format: Format, rank: usize) -> TensorError {
    let needs = if format == Format::ChannelsLast { 4 } else { 5 };
    TensorError::Format { format: format.name(), needs, rank }
}

#[cfg(test)]
mod tests {
    use super::{Format, Layout};
    use crate::tensor::axes::Axes;

    fn strided(shape: &[usize], strides: &[usize]) -> Layout {
        Layout { shape: Axes::new(shape).unwrap(), strides: Axes::new(strides).unwrap(), offset: 0 }
    }

    #[test]
    fn formats_give_the_strides_that_they_recognise() {
        let shape = [2, 3, 4, 5];
        let last = Layout::dense(&shape, Format::ChannelsLast).unwrap();
        assert_eq!(last.strides[..], [60, 1, 15, 3]);
        assert!(last.is_contiguous(Format::ChannelsLast) && last.is_dense());
        assert!(!last.is_contiguous(Format::Contiguous));
        assert_eq!(last.suggested_format(), Format::ChannelsLast);
        let deep = Layout::dense(&[2, 3, 4, 5, 6], Format::ChannelsLast3d).unwrap();
        assert_eq!(deep.strides[..], [360, 1, 90, 18, 3]);
        assert_eq!(deep.suggested_format(), Format::ChannelsLast3d);
        assert_eq!(Layout::contiguous(&shape).unwrap().suggested_format(), Format::Contiguous);
        assert!(Layout::dense(&[2, 3], Format::ChannelsLast).is_err());
    }

    #[test]
    fn a_shape_that_lies_alike_in_both_formats_is_contiguous() {
        for shape in [[2, 3, 1, 1], [1, 3, 1, 1], [7, 1, 1, 1]] {
            let layout = Layout::contiguous(&shape).unwrap();
            assert!(layout.is_contiguous(Format::ChannelsLast), "{shape:?}");
            assert_eq!(layout.suggested_format(), Format::Contiguous, "{shape:?}");
        }
    }

    #[test]
    fn density_has_no_gap_and_no_double() {
        assert!(strided(&[3, 2], &[1, 3]).is_dense());
        assert!(strided(&[3, 1], &[1, 99]).is_dense(), "one index needs no stride");
        assert!(!strided(&[3, 2], &[4, 1]).is_dense(), "a gap");
        assert!(!strided(&[3, 2], &[1, 1]).is_dense(), "a double");
    }

    #[test]
    fn x1_a_layout_fits_up_to_its_last_element() {
        let layout = Layout { offset: 2, ..strided(&[2, 3], &[10, 2]) };
        assert_eq!(layout.reach(), Some(14));
        assert!(layout.fits(17).is_ok());
        assert!(layout.fits(16).is_err());
        assert!(strided(&[2, 2], &[usize::MAX, 1]).fits(usize::MAX).is_err(), "beyond counting");
        assert!(strided(&[0, 2], &[9, 9]).fits(0).is_ok(), "nothing to reach");
        assert!(Layout { offset: 1, ..strided(&[0], &[1]) }.fits(0).is_err(), "starts outside");
        assert!(Layout::contiguous(&[0, usize::MAX, 8]).is_err());
    }
}
