//! CSR: a matrix in compressed rows: where each row starts, and column and value of each element.

use super::super::Tensor;
use super::super::compute::CsrTimesDense;
use super::super::dtype::DType;
use super::super::error::{Result, TensorError};
use super::super::layout::elements;
use super::super::place::Place;
use super::{Coo, broken, indices, inside, parts, stored};

/// A matrix in compressed rows.
#[derive(Clone, Debug)]
pub struct Csr {
    shape: [usize; 2],
    starts: Tensor,
    column: Tensor,
    values: Tensor,
}

impl Csr {
    /// A matrix of these parts, which it shares: one-dimensional, in one place; `starts` has one
    /// more entry than there are rows, rises from 0 to the number of values, and each row's columns
    /// rise. They are read and checked, where they can be read.
    ///
    /// # Errors
    /// Parts that contradict each other; the device's.
    pub fn new(shape: [usize; 2], starts: Tensor, column: Tensor, values: Tensor) -> Result<Self> {
        elements(&shape)?;
        let count = values.elements();
        let one_more = shape[0].saturating_add(1);
        parts(&values, &[("row starts", &starts, one_more), ("columns", &column, count)])?;
        if values.place().has_values() {
            let (starts, columns) = (indices(&starts)?, indices(&column)?);
            inside("column", &columns, shape[1])?;
            rising(&starts, &columns)?;
        }
        let [starts, column, values] =
            [starts.contiguous()?, column.contiguous()?, values.contiguous()?];
        Ok(Self { shape, starts, column, values })
    }

    /// Parts that are known to be sound.
    pub(super) const fn sound(
        shape: [usize; 2],
        starts: Tensor,
        column: Tensor,
        values: Tensor,
    ) -> Self {
        Self { shape, starts, column, values }
    }

    /// Rows and columns.
    #[must_use]
    pub const fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// How many elements are stored.
    #[must_use]
    pub fn stored(&self) -> usize {
        self.values.elements()
    }

    /// Where each row starts among the values; the last entry is their number.
    #[must_use]
    pub const fn starts(&self) -> &Tensor {
        &self.starts
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
        self.starts.bytes() + self.column.bytes() + self.values.bytes()
    }

    /// The same matrix in coordinates, coalesced.
    ///
    /// # Errors
    /// No values to read, no memory, or the device's.
    pub fn to_coo(&self) -> Result<Coo> {
        let starts = indices(&self.starts)?;
        // Whoever shares the parts may have changed them.
        rising(&starts, &indices(&self.column)?)?;
        let rows = starts.windows(2).zip(0i64..);
        let row: Vec<i64> =
            rows.flat_map(|(ends, row)| (ends[0]..ends[1]).map(move |_| row)).collect();
        let row = stored(self.place(), self.starts.dtype(), &row)?;
        Ok(Coo::sound(self.shape, row, self.column.clone(), self.values.clone()))
    }

    /// All elements, those that are not stored as zeros.
    ///
    /// # Errors
    /// As [`Csr::to_coo`].
    pub fn to_dense(&self) -> Result<Tensor> {
        self.to_coo()?.to_dense()
    }

    /// This matrix times a dense one, on the place itself. Each element is summed in the order of
    /// its row, with one rounding for each product and sum, so that every place gives the same bits.
    ///
    /// # Errors
    /// Shapes, places or types that do not fit; types other than `f32` and `f64`; the device's.
    pub fn matmul(&self, dense: &Tensor) -> Result<Tensor> {
        self.place().same(dense.place())?;
        dense.expect_dtype(self.dtype())?;
        if !matches!(self.dtype(), DType::F32 | DType::F64) {
            return Err(TensorError::NotDefined {
                what: "the sparse product",
                dtype: self.dtype(),
            });
        }
        if dense.rank() != 2 || dense.shape()[0] != self.shape[1] {
            let (left, right) = (self.shape.to_vec(), dense.shape().to_vec());
            return Err(TensorError::Shapes { what: "a matrix product", left, right });
        }
        let x = dense.dense_or_temporary()?;
        let out = Tensor::zeros(self.place(), &[self.shape[0], x.shape()[1]], self.dtype())?;
        if self.stored() > 0 && out.elements() > 0 {
            let job = self.job(&x, &out);
            let place = out.place();
            let done = place.compute().csr_times_dense(&job, place.stream_id());
            done.map_err(|error| place.failed(error))?;
        }
        Ok(out)
    }

    fn job(&self, x: &Tensor, out: &Tensor) -> CsrTimesDense {
        CsrTimesDense {
            starts: self.starts.side(),
            column: self.column.side(),
            values: self.values.side(),
            x: x.side(),
            out: out.side(),
            rows: self.shape[0] as u64,
            columns: x.shape()[1] as u64,
            count: self.stored() as u64,
            inner: self.shape[1] as u64,
        }
    }
}

/// That row starts rise from 0 to the number of columns, and columns within each row.
fn rising(starts: &[i64], columns: &[i64]) -> Result<()> {
    let ends = (starts.first().copied(), starts.last().copied());
    if ends != (Some(0), Some(columns.len() as i64)) || !starts.is_sorted() {
        return broken(format!("row starts do not rise from 0 to {}", columns.len()));
    }
    let row = |ends: &[i64]| &columns[ends[0] as usize..ends[1] as usize];
    let sorted = starts.windows(2).position(|ends| !row(ends).is_sorted_by(|a, b| a < b));
    sorted.map_or(Ok(()), |row| broken(format!("the columns of row {row} do not rise")))
}
