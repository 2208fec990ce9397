//! Create: tensors out of nothing, each on its place at once.

use std::sync::Arc;

use super::Tensor;
use super::convert::Wide;
use super::dtype::{DType, Element, with_dtype};
use super::error::{Result, TensorError};
use super::layout::{Format, Layout};
use super::place::Place;
use super::storage::Storage;
use super::values::bits_of;
use crate::device::HostFile;

impl Tensor {
    /// Memory for a dense layout. What stands in it is not defined.
    pub(super) fn laid_out(place: &Place, layout: Layout, dtype: DType) -> Result<Self> {
        let layout = Layout { offset: 0, ..layout };
        let bytes = layout.elements() as u64 * dtype.size() as u64;
        Self::over(Arc::new(Storage::new(place, bytes)?), layout, dtype, false)
    }

    /// Values that are not defined.
    ///
    /// # Errors
    /// No memory; too many axes or elements.
    pub fn empty(place: &Place, shape: &[usize], dtype: DType) -> Result<Self> {
        Self::laid_out(place, Layout::contiguous(shape)?, dtype)
    }

    /// Values that are not defined, in this memory format.
    ///
    /// # Errors
    /// As [`Tensor::empty`], or a format for another number of axes.
    pub fn empty_in(place: &Place, shape: &[usize], dtype: DType, format: Format) -> Result<Self> {
        Self::laid_out(place, Layout::dense(shape, format)?, dtype)
    }

    /// Place, shape and type of another tensor, and its strides if they are dense.
    ///
    /// # Errors
    /// No memory.
    pub fn empty_like(like: &Self) -> Result<Self> {
        Self::laid_out(like.place(), like.dense_layout()?, like.dtype)
    }

    /// The layout of a copy that preserves the order of the axes where it is dense.
    pub(super) fn dense_layout(&self) -> Result<Layout> {
        if self.layout.is_dense() && self.elements() > 0 {
            return Ok(self.layout);
        }
        Layout::dense(self.shape(), self.layout.suggested_format())
    }

    /// Zeros.
    ///
    /// # Errors
    /// As [`Tensor::empty`], or the device's.
    pub fn zeros(place: &Place, shape: &[usize], dtype: DType) -> Result<Self> {
        let tensor = Self::empty(place, shape, dtype)?;
        tensor.fill_dense(0)?;
        Ok(tensor)
    }

    /// One value everywhere.
    ///
    /// # Errors
    /// As [`Tensor::zeros`].
    pub fn full<T: Element>(place: &Place, shape: &[usize], value: T) -> Result<Self> {
        let tensor = Self::empty(place, shape, T::DTYPE)?;
        tensor.fill_dense(bits_of(value))?;
        Ok(tensor)
    }

    /// Writes the element of these bits over the whole of a dense tensor.
    pub(super) fn fill_dense(&self, bits: u64) -> Result<()> {
        let place = self.place();
        if self.elements() == 0 {
            return Ok(());
        }
        let filled =
            place.compute().fill(self.side(), self.elements() as u64, bits, place.stream_id());
        filled.map_err(|error| place.failed(error))
    }

    /// These values, the last axis fastest.
    ///
    /// # Errors
    /// As [`Tensor::empty`], another number of values than the shape has, or the device's.
    pub fn from_slice<T: Element>(place: &Place, shape: &[usize], values: &[T]) -> Result<Self> {
        let layout = Layout::contiguous(shape)?;
        if layout.elements() != values.len() {
            let (found, needs) = (values.len(), layout.elements());
            return Err(TensorError::Values { found, needs, shape: shape.to_vec() });
        }
        let tensor = Self::laid_out(place, layout, T::DTYPE)?;
        tensor.write_at(0, bytemuck::cast_slice(values))?;
        Ok(tensor)
    }

    /// Writes bytes from this element of a contiguous tensor on.
    pub(super) fn write_at(&self, element: usize, bytes: &[u8]) -> Result<()> {
        let place = self.place();
        if bytes.is_empty() {
            return Ok(());
        }
        let mut side = self.side();
        side.offset += element as u64;
        let written = place.compute().write(side, bytes, place.stream_id());
        written.map_err(|error| place.failed(error))
    }

    /// `start`, `start + step`, and so on, up to `end` and without it. Integers are counted exactly;
    /// floats are counted in double precision and rounded once.
    ///
    /// # Errors
    /// As [`Tensor::empty`]; a step of zero, or away from `end`.
    pub fn arange<T: Element>(place: &Place, start: T, end: T, step: T) -> Result<Self> {
        let row = Row::new(start.widen(), end.widen(), step.widen());
        let row = row.ok_or(TensorError::Zero { what: "the step of arange, towards its end," })?;
        let tensor = Self::empty(place, &[row.count], T::DTYPE)?;
        for from in (0..row.count).step_by(CHUNK) {
            let chunk = from..row.count.min(from + CHUNK);
            let values: Vec<T> = chunk.map(|index| T::narrow(row.at(index))).collect();
            tensor.write_at(from, bytemuck::cast_slice(&values))?;
        }
        Ok(tensor)
    }

    /// A mapped file as bytes: on the host the file is the storage, elsewhere it is copied there.
    /// [`Tensor::view_dtype`] makes elements of the bytes.
    ///
    /// # Errors
    /// As [`Tensor::zeros`].
    pub fn from_file(place: &Place, file: HostFile) -> Result<Self> {
        let storage = Storage::of_file(place, file)?;
        let layout = Layout::contiguous(&[storage.bytes() as usize])?;
        Self::over(Arc::new(storage), layout, DType::U8, false)
    }

    /// One element of this tensor's place and type, from a number of any type.
    pub(super) fn scalar_like<T: Element>(&self, value: T) -> Result<Self> {
        with_dtype!(self.dtype, D => Self::full(self.place(), &[], D::narrow(value.widen())))
    }
}

/// Elements that are computed on the host at a time.
const CHUNK: usize = 1 << 16;

/// Numbers at equal distances.
struct Row {
    count: usize,
    start: Wide,
    step: Wide,
}

impl Row {
    /// `None`: the step does not lead to the end, or too often.
    fn new(start: Wide, end: Wide, step: Wide) -> Option<Self> {
        let count = match (start, end, step) {
            (Wide::I64(from), Wide::I64(end), Wide::I64(by)) => {
                let [from, end, by] = [from, end, by].map(i128::from);
                let span = end - from + by - by.signum();
                usize::try_from(span.checked_div(by)?).ok()?
            }
            _ => {
                let [from, end, by] = [start, end, step].map(f64::narrow);
                let count = ((end - from) / by).ceil();
                (count >= 0.0 && count < isize::MAX as f64).then_some(count as usize)?
            }
        };
        Some(Self { count, start, step })
    }

    fn at(&self, index: usize) -> Wide {
        match (self.start, self.step) {
            (Wide::I64(start), Wide::I64(step)) => {
                Wide::I64(start.wrapping_add(step.wrapping_mul(index as i64)))
            }
            (start, step) => Wide::F64(f64::narrow(step).mul_add(index as f64, f64::narrow(start))),
        }
    }
}
