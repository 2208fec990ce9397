//! Pool: tensors of one shape that are used again and again; at most so many at a time.
//!
//! A tensor that was taken comes back when it is dropped, with a milestone behind the work that its
//! stream had to do by then: whoever fills it next on another stream waits for that. One whose
//! storage somebody still holds does not come back.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Tensor;
use super::dtype::DType;
use super::error::{Result, TensorError};
use super::hazards::Reached;
use super::place::Place;

/// What a pool has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Tensors that were made.
    pub made: u64,
    /// How often one was used again.
    pub reused: u64,
    /// Tensors that did not come back, as their storage was still held.
    pub lost: u64,
    /// Tensors that are waiting to be taken.
    pub idle: usize,
    /// Tensors that are out.
    pub out: usize,
}

#[derive(Debug, Default)]
struct Books {
    /// The one that has waited longest first: its last work is the likeliest to be done.
    idle: VecDeque<(Tensor, Option<Reached>)>,
    stats: PoolStats,
}

#[derive(Debug)]
struct Inner {
    place: Place,
    shape: Vec<usize>,
    dtype: DType,
    bound: usize,
    books: Mutex<Books>,
}

/// Tensors of one place, shape and type. Cheap to clone; clones are the same pool.
#[derive(Clone, Debug)]
pub struct TensorPool(Arc<Inner>);

impl TensorPool {
    /// A pool that lends at most `bound` tensors at a time. They are made when they are first needed.
    #[must_use]
    pub fn new(place: &Place, shape: &[usize], dtype: DType, bound: usize) -> Self {
        let (place, shape, books) = (place.clone(), shape.to_vec(), Mutex::default());
        Self(Arc::new(Inner { place, shape, dtype, bound, books }))
    }

    /// A tensor whose values are not defined.
    ///
    /// # Errors
    /// [`TensorError::PoolEmpty`] if all are out; no memory.
    pub fn take(&self) -> Result<Pooled> {
        let idle = {
            let mut books = self.0.books.lock();
            if books.stats.out >= self.0.bound {
                return Err(TensorError::PoolEmpty { bound: self.0.bound });
            }
            // Rather a new one than one that is still worked on.
            let ready = books
                .idle
                .front()
                .is_some_and(|(_, at)| at.as_ref().is_none_or(|free_at| free_at.passed()));
            let room = books.stats.out + books.idle.len() < self.0.bound;
            books.stats.out += 1;
            let idle = if ready || !room { books.idle.pop_front() } else { None };
            books.stats.reused += u64::from(idle.is_some());
            idle
        };
        let (tensor, free_at) = match idle {
            Some(found) => found,
            None => (self.make()?, None),
        };
        Ok(Pooled { tensor: Some(tensor), free_at, pool: self.clone() })
    }

    fn make(&self) -> Result<Tensor> {
        let made = Tensor::empty(&self.0.place, &self.0.shape, self.0.dtype);
        let mut books = self.0.books.lock();
        match &made {
            Ok(_) => books.stats.made += 1,
            Err(_) => books.stats.out -= 1,
        }
        made
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let books = self.0.books.lock();
        PoolStats { idle: books.idle.len(), ..books.stats }
    }

    /// Gives the memory of the tensors that wait back to the allocator.
    pub fn clear(&self) {
        let idle = std::mem::take(&mut self.0.books.lock().idle);
        drop(idle);
    }

    /// That a tensor could be one of this pool.
    pub(super) fn fits(&self, tensor: &Tensor) -> Result<()> {
        tensor.expect_dtype(self.0.dtype)?;
        if tensor.shape() == self.0.shape {
            return Ok(());
        }
        let (left, right) = (self.0.shape.clone(), tensor.shape().to_vec());
        Err(TensorError::Shapes { what: "a batch", left, right })
    }

    pub(super) fn has_one(&self) -> bool {
        self.0.books.lock().stats.out < self.0.bound
    }
}

/// A tensor on loan: it goes back when this is dropped.
pub struct Pooled {
    /// Gone only inside `drop` and `into_tensor`.
    tensor: Option<Tensor>,
    free_at: Option<Reached>,
    pool: TensorPool,
}

impl Pooled {
    /// The tensor for good: it does not come back, and another may be made instead.
    ///
    /// # Panics
    /// Never: the tensor is there.
    #[must_use]
    pub fn into_tensor(mut self) -> Tensor {
        self.tensor.take().expect("a loan holds its tensor until it ends")
    }

    /// What its last user had to do; `None`: nothing.
    pub(super) const fn free_at(&self) -> Option<&Reached> {
        self.free_at.as_ref()
    }
}

impl Deref for Pooled {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        self.tensor.as_ref().expect("a loan holds its tensor until it ends")
    }
}

impl fmt::Debug for Pooled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tensor.fmt(f)
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let tensor = self.tensor.take();
        // Without a milestone nobody could tell when it is free: then it is not used again.
        let place = self.pool.0.place.clone();
        let free_at = place.compute().mark(place.stream_id());
        let mut books = self.pool.0.books.lock();
        books.stats.out -= 1;
        match (tensor, free_at) {
            (Some(tensor), Ok(free_at)) if tensor.users() == 1 => {
                books.idle.push_back((tensor, free_at));
            }
            (tensor, _) => {
                books.stats.lost += u64::from(tensor.is_some());
                drop(books);
                drop(tensor);
            }
        }
    }
}
