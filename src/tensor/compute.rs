//! Compute: what a place can do with the memory of its storages.
//!
//! Owns the contract that the host fulfils here, that a GPU fulfils with kernels, and that a
//! simulated device pretends to. Asked by copies and constructors. Never knows tensors: memory is a
//! region, a side of a copy is a region with an offset, and shapes come simplified.
//!
//! What every implementor may rely on: sides lie inside their regions (**X1**); a destination has no
//! two elements in one place; the two sides of a copy share no byte; regions were admitted and not
//! yet dismissed. What it promises: work on one stream runs in order; `write` and `read` are done
//! when they return.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use super::axes::MAX_RANK;
use super::dtype::DType;
use super::hazards::Reached;
use crate::device::{HostFile, HostMemory};
use crate::vocab::{Address, Fault, StreamId};

/// The memory of one storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Where it starts.
    pub address: Address,
    /// How long it is.
    pub bytes: u64,
}

/// One side of a copy: elements of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// The storage's memory.
    pub memory: Region,
    /// The type of its elements.
    pub dtype: DType,
    /// Index zero, in elements from the start of the memory.
    pub offset: u64,
}

impl Side {
    /// Index zero, in bytes from the start of the memory.
    #[must_use]
    pub const fn byte_offset(&self) -> u64 {
        self.offset * self.dtype.size() as u64
    }

    /// Where index zero lies.
    #[must_use]
    pub const fn address(&self) -> Address {
        Address(self.memory.address.0 + self.byte_offset())
    }
}

/// One shape over two sides, the last axis fastest; as few axes as can be, none of size 1. Strides
/// count elements. Axes from `rank` on are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strided {
    /// The size of each axis.
    pub sizes: [u64; MAX_RANK],
    /// The strides of the destination; none is zero.
    pub dst: [u64; MAX_RANK],
    /// The strides of the source, which may be zero.
    pub src: [u64; MAX_RANK],
    /// How many axes there are; 0: one element.
    pub rank: usize,
}

impl Strided {
    /// How many elements are copied.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.sizes[..self.rank].iter().product()
    }

    /// Whether both sides are elements in a row.
    #[must_use]
    pub const fn is_run(&self) -> bool {
        self.rank == 0 || (self.rank == 1 && self.dst[0] == 1 && self.src[0] == 1)
    }
}

/// `out = a x + beta out`: a sparse matrix in compressed rows, times a dense one; both dense ones
/// with the last axis fastest and without gaps. Starts and columns are of one integer type, all
/// others of one floating-point type. Indices were checked when the matrix was made.
#[derive(Clone, Copy, Debug)]
pub struct CsrTimesDense {
    /// Where each row starts in `column` and `values`; one more than there are rows.
    pub starts: Side,
    /// The column of each value.
    pub column: Side,
    /// The values.
    pub values: Side,
    /// The dense matrix.
    pub x: Side,
    /// The result.
    pub out: Side,
    /// Rows of the sparse matrix.
    pub rows: u64,
    /// Columns of the dense matrix.
    pub columns: u64,
    /// How many values there are.
    pub count: u64,
    /// Rows of the dense matrix.
    pub inner: u64,
}

/// What joins a device to page-locked memory that it copies from and to while the host goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bus(u64);

impl Bus {
    /// Another one than all before.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "no two are alike")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Does a place's work.
pub trait Compute: Send + Sync + fmt::Debug {
    /// Whether there are bytes at all: a simulated device has none, and reading from it fails.
    fn has_values(&self) -> bool {
        true
    }

    /// A storage was made here.
    ///
    /// # Errors
    /// The memory is not to be had; the storage is given up.
    fn admit(&self, _memory: Region) -> Result<(), ComputeError> {
        Ok(())
    }

    /// A file becomes a storage as it is.
    ///
    /// # Errors
    /// The file, where that is impossible; it is copied then.
    fn adopt(&self, _file: HostFile) -> Result<Region, HostFile>;

    /// The storage goes. Its memory is freed afterwards, in the stream's order.
    fn dismiss(&self, _memory: Region) {}

    /// Writes one element, the low bytes of `bits`, `count` times in a row.
    ///
    /// # Errors
    /// The device's.
    fn fill(&self, dst: Side, count: u64, bits: u64, stream: StreamId) -> Result<(), ComputeError>;

    /// Copies elements, converting them if the types differ.
    ///
    /// # Errors
    /// The device's.
    fn copy(
        &self,
        dst: Side,
        src: Side,
        shape: &Strided,
        stream: StreamId,
    ) -> Result<(), ComputeError>;

    /// Bytes from the host.
    ///
    /// # Errors
    /// The device's.
    fn write(&self, dst: Side, bytes: &[u8], stream: StreamId) -> Result<(), ComputeError>;

    /// Bytes to the host, after the stream's work so far.
    ///
    /// # Errors
    /// The device's; always where there are no values.
    fn read(&self, src: Side, bytes: &mut [u8], stream: StreamId) -> Result<(), ComputeError>;

    /// A sparse matrix times a dense one.
    ///
    /// # Errors
    /// The device's, or not for these types.
    fn csr_times_dense(&self, _job: &CsrTimesDense, _: StreamId) -> Result<(), ComputeError> {
        Err(ComputeError::NotSupported("the product of sparse and dense"))
    }

    /// The memory that storages are claimed from, where the host works on it.
    fn host_memory(&self) -> Option<HostMemory> {
        None
    }

    /// The bus that a device is at, or that page-locked memory is for; `None`: copies between places
    /// wait.
    fn bus(&self) -> Option<Bus> {
        None
    }

    /// Whether a device on the bus copies from and to this memory while the host goes on.
    fn is_page_locked(&self) -> bool {
        false
    }

    /// Launches a copy from page-locked memory of the bus, behind what the lane has to do.
    ///
    /// # Errors
    /// The device's, or the memory is not page-locked.
    fn upload(
        &self,
        _dst: Side,
        _from: Side,
        _bytes: u64,
        _: StreamId,
    ) -> Result<Reached, ComputeError> {
        Err(ComputeError::NotSupported("an upload"))
    }

    /// Launches a copy to page-locked memory of the bus.
    ///
    /// # Errors
    /// As [`Compute::upload`].
    fn download(
        &self,
        _src: Side,
        _to: Side,
        _bytes: u64,
        _: StreamId,
    ) -> Result<Reached, ComputeError> {
        Err(ComputeError::NotSupported("a download"))
    }

    /// A milestone behind the stream's work so far; `None`: all of it is done.
    ///
    /// # Errors
    /// The device's.
    fn mark(&self, _: StreamId) -> Result<Option<Reached>, ComputeError> {
        Ok(None)
    }

    /// Page-locked memory: a copy uses it until then, and perhaps writes it.
    fn note(&self, _memory: Region, _until: Reached, _writes: bool) {}

    /// Holds the stream's later work back until no copy stands in the way of writing the storage; on
    /// page-locked memory, stops the host until then.
    ///
    /// # Errors
    /// The device's.
    fn settle(&self, _memory: Region, _: StreamId) -> Result<(), ComputeError> {
        Ok(())
    }
}

/// Why a device could not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ComputeError {
    /// The device is simulated.
    #[error("values cannot be read: a simulated device has none")]
    NoValues,
    /// Not on this device, or not for these types.
    #[error("{0} is not supported here")]
    NotSupported(&'static str),
    /// An index of a sparse matrix was changed to one that leads nowhere.
    #[error("an index of a sparse matrix leads nowhere")]
    Index,
    /// No storage lies there, or it is somebody else's.
    #[error("no storage of this place lies at {0}")]
    Unknown(Address),
    /// The memory is not page-locked, or not for this device.
    #[error("the memory at {0} is not page-locked for this device")]
    Pageable(Address),
    /// The driver failed.
    #[error("{0}")]
    Driver(Fault),
}
