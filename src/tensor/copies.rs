//! Copies: everything that moves or changes elements.
//!
//! Owns the rules: a source is broadcast to its destination's shape and converted to its type; a
//! destination whose indices share elements is refused; a source that may overlap its destination
//! is copied away first. What an operation allocates for itself is counted as a temporary.

use std::sync::Arc;

use super::Tensor;
use super::dtype::with_dtype;
use super::dtype::{DType, Element};
use super::error::{Result, TensorError};
use super::layout::{Format, Layout};
use super::values::bits_of;

/// Bytes that go from place to place at a time.
const CHUNK: usize = 1 << 22;

impl Tensor {
    /// A tensor of its own with the same values (PyTorch's `clone`). Dense strides are preserved.
    ///
    /// # Errors
    /// No memory, or the device's.
    pub fn duplicate(&self) -> Result<Self> {
        let copy = Self::empty_like(self)?;
        copy.launch_from(self)?;
        Ok(copy)
    }

    /// Itself if it is contiguous, else a copy that is.
    ///
    /// # Errors
    /// As [`Tensor::duplicate`].
    pub fn contiguous(&self) -> Result<Self> {
        self.to_memory_format(Format::Contiguous)
    }

    /// Itself if it has this format, else a copy that has.
    ///
    /// # Errors
    /// As [`Tensor::duplicate`], or a format for another number of axes.
    pub fn to_memory_format(&self, format: Format) -> Result<Self> {
        if self.is_contiguous(format) {
            return Ok(self.clone());
        }
        let copy = Self::empty_in(self.place(), self.shape(), self.dtype, format)?;
        copy.launch_from(self)?;
        Ok(copy)
    }

    /// Another shape: a view where one is possible, else a copy, which is counted
    /// ([`super::Tallies::reshape_copies`]).
    ///
    /// # Errors
    /// Another number of elements; a copy where the place refuses them; no memory.
    pub fn reshape(&self, shape: &[usize]) -> Result<Self> {
        let refused = match self.view(shape) {
            Err(TensorError::NotViewable { from, strides, to }) => (from, strides, to),
            other => return other,
        };
        let (from, strides, to) = refused;
        let place = self.place();
        if place.refuses_reshape_copies() {
            return Err(TensorError::ReshapeCopies {
                from,
                strides,
                to,
                place: place.name().into(),
            });
        }
        let copy = self.contiguous()?;
        place.count_reshape_copy();
        // The copy has no other name: what comes back owns it.
        Ok(Self { is_view: false, ..copy.view(shape)? })
    }

    /// Axes `from` to `to`, inclusive, as one: as [`Tensor::reshape`].
    ///
    /// # Errors
    /// As [`Tensor::reshape`], or no such axes.
    pub fn flatten(&self, from: usize, to: usize) -> Result<Self> {
        self.reshape(&self.layout.flattened_shape(from, to)?)
    }

    /// Overwrites the elements with those of `src`, from any place, broadcast and converted.
    ///
    /// # Errors
    /// Shapes that do not broadcast; indices that share elements ([`TensorError::Overlap`]); no
    /// memory for a temporary; the device's.
    pub fn copy_(&self, src: &Self) -> Result<()> {
        let view = src.expand(self.shape())?;
        self.writable()?;
        if self.elements() == 0 {
            return Ok(());
        }
        if src.place() != self.place() {
            return self.copy_across(src);
        }
        if !self.shares_storage(src) {
            return self.launch_from(&view);
        }
        if view.layout == self.layout && view.dtype == self.dtype {
            return Ok(());
        }
        let (to, from) = (self.byte_range(), view.byte_range());
        if to.end <= from.start || from.end <= to.start {
            return self.launch_from(&view);
        }
        self.place().count_temporary();
        self.launch_from(&src.duplicate()?.expand(self.shape())?)
    }

    fn byte_range(&self) -> std::ops::Range<usize> {
        self.layout.byte_range(self.dtype.size())
    }

    /// That writing to each index has a meaning.
    fn writable(&self) -> Result<()> {
        if !self.layout.overlaps_itself() {
            return Ok(());
        }
        Err(TensorError::Overlap { shape: self.shape().to_vec(), strides: self.strides().to_vec() })
    }

    /// Puts a copy on the destination's stream: same place, same shape, no byte in common.
    pub(super) fn launch_from(&self, src: &Self) -> Result<()> {
        if self.elements() == 0 {
            return Ok(());
        }
        let place = self.place();
        let shape = self.layout.copy_from(&src.layout);
        src.storage.used_by(place);
        let copied = place.compute().copy(self.side(), src.side(), &shape, place.stream_id());
        copied.map_err(|error| place.failed(error))
    }

    /// From another place: made dense there, converted on the side where that saves bytes, carried
    /// over, and copied into shape here unless it arrives in it.
    fn copy_across(&self, src: &Self) -> Result<()> {
        let smaller = self.dtype.size() < src.dtype.size();
        let sent = if smaller { src.cast_there(self.dtype)? } else { src.dense_or_temporary()? };
        let direct = sent.dtype == self.dtype
            && sent.shape() == self.shape()
            && self.is_contiguous(Format::Contiguous);
        if direct {
            return self.carry(&sent);
        }
        let landed = Self::empty(self.place(), sent.shape(), sent.dtype)?;
        self.place().count_temporary();
        landed.carry(&sent)?;
        self.launch_from(&landed.expand(self.shape())?)
    }

    /// A contiguous copy in another type, for the sake of something else.
    pub(super) fn cast_there(&self, dtype: DType) -> Result<Self> {
        let copy = Self::empty(self.place(), self.shape(), dtype)?;
        self.place().count_temporary();
        copy.launch_from(self)?;
        Ok(copy)
    }

    /// Itself if it is contiguous, else a copy for the sake of something else.
    pub(super) fn dense_or_temporary(&self) -> Result<Self> {
        if !self.is_contiguous(Format::Contiguous) {
            self.place().count_temporary();
        }
        self.contiguous()
    }

    /// Bytes between places, both contiguous: from the one to the host and on to the other.
    fn carry(&self, src: &Self) -> Result<()> {
        let step = CHUNK / self.dtype.size();
        let mut bytes = vec![0; CHUNK.min(self.bytes() as usize)];
        for from in (0..self.elements()).step_by(step) {
            let count = step.min(self.elements() - from);
            let chunk = &mut bytes[..count * self.dtype.size()];
            src.read_at(from, chunk)?;
            self.write_at(from, chunk)?;
        }
        self.place().count_transfer(self.bytes());
        Ok(())
    }

    /// Overwrites every element with one value, converted to their type.
    ///
    /// # Errors
    /// Indices that share elements; the device's; no memory for one element, if this is not dense.
    pub fn fill_<T: Element>(&self, value: T) -> Result<()> {
        self.writable()?;
        if self.layout.is_dense() {
            let bits = with_dtype!(self.dtype, D => bits_of(<D as Element>::narrow(value.widen())));
            return self.fill_dense(bits);
        }
        self.place().count_temporary();
        let one = self.scalar_like(value)?;
        self.launch_from(&one.expand(self.shape())?)
    }

    /// Overwrites every element with zero.
    ///
    /// # Errors
    /// As [`Tensor::fill_`].
    pub fn zero_(&self) -> Result<()> {
        self.fill_(0i64)
    }

    /// Another shape, contiguous from where it starts. What the storage has too little of is
    /// allocated anew, and its bytes copied; what it has too much of stays. New elements are not
    /// defined.
    ///
    /// # Errors
    /// Other tensors share the storage, or it is a file ([`TensorError::Shared`]); no memory.
    pub fn resize_(&mut self, shape: &[usize]) -> Result<()> {
        self.storage.resizable(self.users())?;
        let layout = Layout { offset: self.offset(), ..Layout::contiguous(shape)? };
        let needs = layout.elements().saturating_add(layout.offset);
        let held = self.storage.bytes() as usize / self.dtype.size();
        if needs <= held {
            *self = Self::over(Arc::clone(&self.storage), layout, self.dtype, self.is_view)?;
            return Ok(());
        }
        let grown = Self::empty(self.place(), &[needs], self.dtype)?;
        let kept = Layout::contiguous(&[held])?;
        let old = Self::over(Arc::clone(&self.storage), kept, self.dtype, true)?;
        grown.narrow(0, 0, held)?.launch_from(&old)?;
        *self = Self::over(grown.storage, layout, self.dtype, self.is_view)?;
        Ok(())
    }
}
