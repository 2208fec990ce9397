//! COO: a matrix as coordinates: the row, the column and the value of each stored element.

use super::super::Tensor;
use super::super::dtype::{DType, Element, with_dtype};
use super::super::error::{Result, TensorError};
use super::super::layout::elements;
use super::super::place::Place;
use super::{Csr, broken, indices, inside, parts, stored, sum};

/// A matrix in coordinates. The same coordinates may be stored more than once: their values add up.
#[derive(Clone, Debug)]
pub struct Coo {
    shape: [usize; 2],
    row: Tensor,
    column: Tensor,
    values: Tensor,
    coalesced: bool,
}

impl Coo {
    /// A matrix of these parts, which it shares: one-dimensional, of one length, in one place;
    /// indices are `i32` or `i64`. They are read and checked, where they can be read.
    ///
    /// # Errors
    /// Parts that contradict each other; the device's.
    pub fn new(shape: [usize; 2], row: Tensor, column: Tensor, values: Tensor) -> Result<Self> {
        elements(&shape)?;
        let count = values.elements();
        parts(&values, &[("rows", &row, count), ("columns", &column, count)])?;
        if values.place().has_values() {
            inside("row", &indices(&row)?, shape[0])?;
            inside("column", &indices(&column)?, shape[1])?;
        }
        let [row, column, values] = [row.contiguous()?, column.contiguous()?, values.contiguous()?];
        Ok(Self { shape, row, column, values, coalesced: false })
    }

    /// A matrix from slices of the program.
    ///
    /// # Errors
    /// As [`Coo::new`].
    pub fn from_slices<I: Element, T: Element>(
        place: &Place,
        shape: [usize; 2],
        row: &[I],
        column: &[I],
        values: &[T],
    ) -> Result<Self> {
        let row = Tensor::from_slice(place, &[row.len()], row)?;
        let column = Tensor::from_slice(place, &[column.len()], column)?;
        Self::new(shape, row, column, Tensor::from_slice(place, &[values.len()], values)?)
    }

    /// Parts that are known to be sound, in order and without doubles.
    pub(super) const fn sound(
        shape: [usize; 2],
        row: Tensor,
        column: Tensor,
        values: Tensor,
    ) -> Self {
        Self { shape, row, column, values, coalesced: true }
    }

    /// Rows and columns.
    #[must_use]
    pub const fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// How many elements are stored, doubles counted.
    #[must_use]
    pub fn stored(&self) -> usize {
        self.values.elements()
    }

    /// The row of each stored element.
    #[must_use]
    pub const fn row(&self) -> &Tensor {
        &self.row
    }

    /// The column of each stored element.
    #[must_use]
    pub const fn column(&self) -> &Tensor {
        &self.column
    }

    /// The values.
    #[must_use]
    pub const fn values(&self) -> &Tensor {
        &self.values
    }

    /// The type of the values.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.values.dtype()
    }

    /// Where it lives.
    #[must_use]
    pub fn place(&self) -> &Place {
        self.values.place()
    }

    /// Bytes of its three parts.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.row.bytes() + self.column.bytes() + self.values.bytes()
    }

    /// Whether it is known to be sorted by row, then column, with nothing stored twice.
    #[must_use]
    pub const fn is_coalesced(&self) -> bool {
        self.coalesced
    }

    /// Sorted by row, then column; values of the same coordinates are summed in their order, and
    /// rounded once.
    ///
    /// # Errors
    /// No values to read, no memory, or the device's.
    pub fn coalesce(&self) -> Result<Self> {
        if self.coalesced {
            return Ok(self.clone());
        }
        with_dtype!(self.dtype(), T => self.summed::<T>())
    }

    fn summed<T: Element>(&self) -> Result<Self> {
        let (row, column) = (indices(&self.row)?, indices(&self.column)?);
        let values = self.values.to_vec::<T>()?;
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by_key(|&at| (row[at], column[at]));
        let groups = || order.chunk_by(|&a, &b| (row[a], column[a]) == (row[b], column[b]));
        let rows: Vec<i64> = groups().map(|group| row[group[0]]).collect();
        let columns: Vec<i64> = groups().map(|group| column[group[0]]).collect();
        let sums: Vec<T> = groups().map(|group| sum(group.iter().map(|&at| values[at]))).collect();
        let (place, kind) = (self.place(), self.row.dtype());
        let values = Tensor::from_slice(place, &[sums.len()], &sums)?;
        Ok(Self::sound(
            self.shape,
            stored(place, kind, &rows)?,
            stored(place, kind, &columns)?,
            values,
        ))
    }

    /// All elements, those that are not stored as zeros.
    ///
    /// # Errors
    /// As [`Coo::coalesce`].
    pub fn to_dense(&self) -> Result<Tensor> {
        let whole = self.coalesce()?;
        with_dtype!(self.dtype(), T => {
            let zero = <T as Element>::narrow(super::super::Wide::I64(0));
            let mut dense = vec![zero; self.shape.iter().product()];
            let (row, column) = (indices(&whole.row)?, indices(&whole.column)?);
            // Whoever shares the parts may have changed them.
            inside("row", &row, self.shape[0]).and(inside("column", &column, self.shape[1]))?;
            for ((row, column), value) in row.iter().zip(column).zip(whole.values.to_vec::<T>()?) {
                dense[*row as usize * self.shape[1] + column as usize] = value;
            }
            Tensor::from_slice(self.place(), &self.shape, &dense)
        })
    }

    /// What a dense matrix has that is not zero.
    ///
    /// # Errors
    /// Not two axes; as [`Coo::coalesce`].
    pub fn from_dense(dense: &Tensor) -> Result<Self> {
        let Ok(shape) = <[usize; 2]>::try_from(dense.shape()) else {
            return broken(format!("a matrix has two axes, not shape {:?}", dense.shape()));
        };
        with_dtype!(dense.dtype(), T => {
            let values = dense.to_vec::<T>()?;
            let kept = |at: &usize| bool::narrow(values[*at].widen());
            let kept: Vec<usize> = (0..values.len()).filter(kept).collect();
            let rows: Vec<i64> = kept.iter().map(|at| (at / shape[1]) as i64).collect();
            let columns: Vec<i64> = kept.iter().map(|at| (at % shape[1]) as i64).collect();
            let values: Vec<T> = kept.iter().map(|&at| values[at]).collect();
            let whole = Self::from_slices(dense.place(), shape, &rows, &columns, &values)?;
            Ok(Self { coalesced: true, ..whole })
        })
    }

    /// The same matrix in compressed rows, coalesced.
    ///
    /// # Errors
    /// As [`Coo::coalesce`].
    pub fn to_csr(&self) -> Result<Csr> {
        let whole = self.coalesce()?;
        let rows = indices(&whole.row)?;
        let bound = |row: usize| rows.partition_point(|&other| other < row as i64) as i64;
        let mut starts = Vec::new();
        let room = starts.try_reserve_exact(self.shape[0].saturating_add(1));
        room.map_err(|_| TensorError::TooLarge { shape: self.shape.to_vec() })?;
        starts.extend((0..=self.shape[0]).map(bound));
        let starts = stored(self.place(), self.row.dtype(), &starts)?;
        Ok(Csr::sound(self.shape, starts, whole.column, whole.values))
    }

    /// This matrix times a dense one: by way of [`Coo::to_csr`].
    ///
    /// # Errors
    /// As [`Csr::matmul`].
    pub fn matmul(&self, dense: &Tensor) -> Result<Tensor> {
        self.to_csr()?.matmul(dense)
    }
}
