//! Display: a tensor for people: at most a thousand of its numbers are read and printed.

use std::fmt;

use super::Tensor;
use super::dtype::{Element, with_dtype};
use super::error::Result;

/// Tensors with more elements are shown by their edges.
const WHOLE: usize = 1000;

/// Indices shown at either end of an axis, if not so many axes multiply them.
const EDGE: usize = 3;

/// Which indices of an axis are shown, and whether some in the middle are not.
fn shown(size: usize, edge: usize) -> (Vec<usize>, bool) {
    if size <= 2 * edge {
        ((0..size).collect(), false)
    } else {
        ((0..edge).chain(size - edge..size).collect(), true)
    }
}

/// One number, as short as it is clear.
fn number<T: Element>(value: T) -> String {
    match value.widen() {
        super::Wide::I64(x) if T::DTYPE == super::DType::Bool => (x != 0).to_string(),
        super::Wide::I64(x) => x.to_string(),
        super::Wide::F32(x) => real(x.into()),
        super::Wide::F64(x) => real(x),
    }
}

fn real(x: f64) -> String {
    let size = x.abs();
    if x == 0.0 || !x.is_finite() || (1e-4..1e8).contains(&size) {
        format!("{x:.4}")
    } else {
        format!("{x:.4e}")
    }
}

/// The numbers that are shown, in order, and how they are nested.
struct Picture {
    numbers: Vec<String>,
    /// For each axis: how many entries, and where the gap is.
    axes: Vec<(usize, Option<usize>)>,
    width: usize,
}

impl Tensor {
    fn picture(&self) -> Result<Picture> {
        let rank = self.rank() as u32;
        let fits = |edge: &usize| (2 * edge).pow(rank) <= WHOLE;
        let edge = (1..=EDGE).rev().find(fits).unwrap_or(1);
        let edge = if self.elements() <= WHOLE { usize::MAX / 2 } else { edge };
        let shown: Vec<_> = self.shape().iter().map(|&size| shown(size, edge)).collect();
        let mut places = vec![self.offset()];
        for ((indices, _), stride) in shown.iter().zip(self.strides()) {
            let step = |place: &usize| {
                indices.iter().map(move |index| *place + index * stride).collect::<Vec<_>>()
            };
            places = places.iter().flat_map(step).collect();
        }
        let read = |at: &usize| with_dtype!(self.dtype, T => self.element_at::<T>(*at).map(number));
        let numbers = places.iter().map(read).collect::<Result<Vec<String>>>()?;
        let axes =
            shown.iter().map(|(all, gap)| (all.len(), gap.then_some(all.len() / 2))).collect();
        let width = numbers.iter().map(String::len).max().unwrap_or(0);
        Ok(Picture { numbers, axes, width })
    }
}

impl Picture {
    /// The part of the picture that starts at `axis` and at this number.
    fn write(&self, f: &mut fmt::Formatter<'_>, axis: usize, from: usize) -> fmt::Result {
        let Some(&(count, gap)) = self.axes.get(axis) else {
            let text = self.numbers.get(from).map_or("", String::as_str);
            return write!(f, "{text:>width$}", width = self.width);
        };
        let inner: usize = self.axes[axis + 1..].iter().map(|(count, _)| count).product();
        let last = axis + 1 == self.axes.len();
        let between = if last { ", ".into() } else { format!(",\n{}", " ".repeat(axis + 1)) };
        f.write_str("[")?;
        for index in 0..count {
            if index > 0 {
                f.write_str(&between)?;
            }
            if gap == Some(index) {
                write!(f, "...{between}")?;
            }
            self.write(f, axis + 1, from + index * inner)?;
        }
        f.write_str("]")
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.picture() {
            Ok(picture) => picture.write(f, 0, 0)?,
            Err(error) => write!(f, "({error})")?,
        }
        write!(f, "\n{self:?}")
    }
}

/// Without any values: never reads.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dtype, shape, place) = (self.dtype, self.shape(), self.place());
        write!(f, "Tensor({dtype}, {shape:?}, {place})")
    }
}
