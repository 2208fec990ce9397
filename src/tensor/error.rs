//! Error: why an operation on tensors was refused. Nothing was changed.

use std::io;

use super::axes::MAX_RANK;
use super::compute::ComputeError;
use super::dtype::DType;
use crate::allocator::AllocError;

/// Why an operation was refused. Both sides are named wherever there are two.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// Operands live in different places.
    #[error("expected all tensors on the same device: {left} and {right}")]
    Device {
        /// The place of the first operand.
        left: String,
        /// The place of the other one.
        right: String,
    },
    /// Another type of elements was expected.
    #[error("expected elements of {expected}, found {found}")]
    DType {
        /// What was asked for, or the first operand's.
        expected: DType,
        /// What is there.
        found: DType,
    },
    /// The operation is not defined on such elements.
    #[error("{what} is not defined on elements of {dtype}")]
    NotDefined {
        /// The operation.
        what: &'static str,
        /// The elements.
        dtype: DType,
    },
    /// No broadcasting makes one shape of the other.
    #[error("shapes {from:?} and {to:?} do not broadcast")]
    Broadcast {
        /// The shape there is.
        from: Vec<usize>,
        /// The shape that it should get.
        to: Vec<usize>,
    },
    /// The operands' shapes do not go together.
    #[error("{what}: shapes {left:?} and {right:?} do not fit")]
    Shapes {
        /// The operation.
        what: &'static str,
        /// The shape of the first operand.
        left: Vec<usize>,
        /// The shape of the other one.
        right: Vec<usize>,
    },
    /// The number of elements differs.
    #[error("shape {to:?} does not hold the {have} elements of shape {from:?}")]
    Elements {
        /// The shape there is.
        from: Vec<usize>,
        /// Its elements.
        have: usize,
        /// The shape that was asked for.
        to: Vec<usize>,
    },
    /// The elements do not lie such that a view can have this shape.
    #[error("shape {from:?} with strides {strides:?} has no view of shape {to:?}: it takes a copy")]
    NotViewable {
        /// The shape there is.
        from: Vec<usize>,
        /// Its strides.
        strides: Vec<usize>,
        /// The shape that was asked for.
        to: Vec<usize>,
    },
    /// The bytes of the last axis do not make whole elements of another type.
    #[error(
        "elements of {from} in shape {shape:?}, strides {strides:?} are no whole elements of {to}"
    )]
    NotWhole {
        /// The type there is.
        from: DType,
        /// The type that was asked for.
        to: DType,
        /// The shape.
        shape: Vec<usize>,
        /// The strides.
        strides: Vec<usize>,
    },
    /// There is no such axis.
    #[error("axis {axis} of a tensor that has {rank}")]
    Axis {
        /// The axis.
        axis: usize,
        /// How many there are.
        rank: usize,
    },
    /// The first axis comes after the last.
    #[error("axes {from} to {to}: the first comes after the last")]
    Order {
        /// The first.
        from: usize,
        /// The last.
        to: usize,
    },
    /// Not each axis exactly once.
    #[error("{axes:?} does not name each of {rank} axes once")]
    Permutation {
        /// What was said.
        axes: Vec<usize>,
        /// How many axes there are.
        rank: usize,
    },
    /// Too many axes.
    #[error("a shape of {rank} axes; at most {MAX_RANK} are possible")]
    Rank {
        /// How many were asked for.
        rank: usize,
    },
    /// A memory format needs another number of axes.
    #[error("{format} needs {needs} axes, the tensor has {rank}")]
    Format {
        /// The format.
        format: &'static str,
        /// The axes it is defined for.
        needs: usize,
        /// The axes there are.
        rank: usize,
    },
    /// A range leaves its axis.
    #[error("{from}..{end} lies outside axis {axis} of size {size}")]
    Range {
        /// First index.
        from: usize,
        /// One past the last.
        end: usize,
        /// The axis.
        axis: usize,
        /// Its size.
        size: usize,
    },
    /// Steps and lengths of views are positive.
    #[error("{what} must be positive")]
    Zero {
        /// The argument.
        what: &'static str,
    },
    /// A view would leave its storage.
    #[error(
        "shape {shape:?}, strides {strides:?} from {offset} leave a storage of {elements} elements"
    )]
    Outside {
        /// The shape.
        shape: Vec<usize>,
        /// The strides.
        strides: Vec<usize>,
        /// The first element.
        offset: usize,
        /// How many elements the storage holds.
        elements: usize,
    },
    /// No memory can be so large.
    #[error("shape {shape:?} is larger than any memory")]
    TooLarge {
        /// The shape.
        shape: Vec<usize>,
    },
    /// Two indices lead to one element, so that writing has no meaning.
    #[error(
        "shape {shape:?}, strides {strides:?}: indices share elements; duplicate() before writing"
    )]
    Overlap {
        /// The shape.
        shape: Vec<usize>,
        /// The strides.
        strides: Vec<usize>,
    },
    /// The storage has other users, or is no allocation.
    #[error("a storage with {users} users cannot be resized")]
    Shared {
        /// How many tensors hold it, or 1 of a mapped file.
        users: usize,
    },
    /// A data slice has another length than the shape.
    #[error("{found} values for shape {shape:?}, which has {needs}")]
    Values {
        /// How many were given.
        found: usize,
        /// How many are needed.
        needs: usize,
        /// The shape.
        shape: Vec<usize>,
    },
    /// A copy between places from memory that is not page-locked waits.
    #[error("a copy from {from} to {to} cannot be non-blocking: the memory is not page-locked")]
    NonBlocking {
        /// The source's place.
        from: String,
        /// The destination's place.
        to: String,
    },
    /// All tensors of a pool are out.
    #[error("all {bound} tensors of a pool are out")]
    PoolEmpty {
        /// How many it lends at a time.
        bound: usize,
    },
    /// Reshaping would have copied, which this place refuses.
    #[error(
        "reshape of {from:?}, strides {strides:?}, to {to:?} would copy, which {place} refuses"
    )]
    ReshapeCopies {
        /// The shape there is.
        from: Vec<usize>,
        /// Its strides.
        strides: Vec<usize>,
        /// The shape that was asked for.
        to: Vec<usize>,
        /// The place.
        place: String,
    },
    /// A sparse matrix's parts contradict each other.
    #[error("sparse: {0}")]
    Sparse(String),
    /// No memory, or the driver failed.
    #[error(transparent)]
    Alloc(Box<AllocError>),
    /// The device could not do it.
    #[error("{place}: {error}")]
    Compute {
        /// Where.
        place: String,
        /// Why.
        error: ComputeError,
    },
    /// A file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<AllocError> for TensorError {
    fn from(error: AllocError) -> Self {
        Self::Alloc(Box::new(error))
    }
}

/// What an operation on tensors comes to.
pub type Result<T, E = TensorError> = core::result::Result<T, E>;
