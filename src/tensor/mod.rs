//! Tensor: n-dimensional arrays that live in what the allocator hands out, and views of them.
//!
//! Owns storages, layouts, dtypes, views, copies and two sparse layouts. Asked by programs. Never
//! knows how blocks are found, nor which device it runs on: a [`Place`] is an allocator and somebody
//! who does the work ([`Compute`]). Semantics and names are PyTorch's where it has them; an
//! underscore at the end of a name means that the tensor itself is changed. `docs/tensor-tutorial.md`
//! is the way in, `docs/tensor.md` the list of operations and what each of them allocates.
//!
//! - **X1**: every element that an index of a tensor reaches lies inside its storage.
//! - **X2**: every storage starts at a multiple of 256 bytes.
//!
//! A tensor is a handle: its clone is the same memory. Tensors of one storage may be used from many
//! threads: on the host a lock for each storage orders reads and writes; on a device the streams do.
//!
//! | file | what |
//! |---|---|
//! | `axes`, `layout`, `viewing`, `overlap` | which element an index leads to: numbers only |
//! | `dtype`, `convert` | types of elements, and from one to another |
//! | `compute`, `host`, `simulated`, `modelled`, `cuda` | who does the work |
//! | `pinned`, `hazards`, `transfer` | page-locked memory, and copies that do not wait |
//! | `pool`, `prefetch` | tensors that are used again, batches that arrive ahead |
//! | `place`, `storage` | where, and whose memory |
//! | `create`, `views`, `copies`, `values`, `display` | the operations |
//! | `dlpack` | to other libraries and from them |
//! | `sparse` | COO and CSR |

mod axes;
pub mod compute;
mod convert;
mod copies;
mod create;
#[cfg(feature = "cuda")]
mod cuda;
mod display;
pub mod dlpack;
mod dtype;
mod error;
mod hazards;
mod host;
#[cfg(feature = "ndarray")]
mod interop;
mod layout;
mod modelled;
mod overlap;
mod pinned;
mod place;
mod pool;
mod prefetch;
mod simulated;
pub mod sparse;
mod storage;
mod transfer;
mod values;
mod viewing;
mod views;

use std::sync::Arc;

pub use axes::{Axes, MAX_RANK};
pub use compute::{Bus, Compute, ComputeError};
pub use convert::Wide;
#[cfg(feature = "cuda")]
pub use cuda::CudaCompute;
pub use dtype::{DType, Element};
pub use error::{Result, TensorError};
pub use half::{bf16, f16};
pub use hazards::{Milestone, Reached};
pub use host::HostCompute;
pub use layout::{Format, Layout};
pub use modelled::{BusModel, ModelClock};
pub use place::{Place, Tallies};
pub use pool::{PoolStats, Pooled, TensorPool};
pub use prefetch::Prefetcher;
pub use simulated::NoValues;
pub use storage::{ALIGNMENT, Storage};
pub use viewing::INFER;

use compute::Side;

/// An n-dimensional array, or a view of one.
#[derive(Clone)]
pub struct Tensor {
    storage: Arc<Storage>,
    layout: Layout,
    dtype: DType,
    is_view: bool,
}

impl Tensor {
    /// The only way to a tensor: **X1** is checked here.
    fn over(storage: Arc<Storage>, layout: Layout, dtype: DType, is_view: bool) -> Result<Self> {
        layout.fits((storage.bytes() / dtype.size() as u64) as usize)?;
        Ok(Self { storage, layout, dtype, is_view })
    }

    /// A view of this tensor.
    fn viewed(&self, layout: Layout) -> Result<Self> {
        Self::over(Arc::clone(&self.storage), layout, self.dtype, true)
    }

    /// Where it lives. The handle carries the stream on which its storage was made.
    #[must_use]
    pub fn place(&self) -> &Place {
        self.storage.place()
    }

    /// The memory behind it.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Shape, strides and offset.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The size of each axis.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// How far apart neighbours are on each axis, in elements.
    #[must_use]
    pub fn strides(&self) -> &[usize] {
        &self.layout.strides
    }

    /// Where index zero lies in the storage, in elements.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.layout.offset
    }

    /// The type of its elements.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// How many axes it has.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.layout.rank()
    }

    /// How many elements it has; a view's may be more than there is memory.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.layout.elements()
    }

    /// Bytes of its elements, each counted once for every index.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.elements() as u64 * self.dtype.size() as u64
    }

    /// Whether it was made as a view of another tensor. An owner was made with its storage.
    #[must_use]
    pub const fn is_view(&self) -> bool {
        self.is_view
    }

    /// Whether both have the same storage.
    #[must_use]
    pub fn shares_storage(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage)
    }

    /// How many tensors have its storage, itself counted.
    #[must_use]
    pub fn users(&self) -> usize {
        Arc::strong_count(&self.storage)
    }

    /// Whether the elements lie densely in this order.
    #[must_use]
    pub fn is_contiguous(&self, format: Format) -> bool {
        self.layout.is_contiguous(format)
    }

    /// The format that its strides speak for (`suggest_memory_format`).
    #[must_use]
    pub fn suggest_memory_format(&self) -> Format {
        self.layout.suggested_format()
    }

    fn side(&self) -> Side {
        let offset = self.layout.offset as u64;
        Side { memory: self.storage.memory(), dtype: self.dtype, offset }
    }

    fn expect_dtype(&self, expected: DType) -> Result<()> {
        let found = self.dtype;
        if found == expected { Ok(()) } else { Err(TensorError::DType { expected, found }) }
    }
}
