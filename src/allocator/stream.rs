//! Stream: an order of device work, and the requests that are served for it.

use super::buffer::{BorrowedBuffer, DeviceBuffer};
use super::error::AllocError;
use super::hooks::BlockEvent;
use super::pool::{PrivatePool, scoped_pool};
use super::shell::{Inner, Shared};
use super::sync::Arc;
use crate::vocab::{Address, BlockId, OutOfMemory, Output, PoolId, StreamId};

/// A stream of one allocator's device. Cheap to clone.
#[derive(Clone)]
pub struct Stream {
    pub(super) shared: Arc<Shared>,
    pub(super) id: StreamId,
    pub(super) handle: u64,
}

impl Stream {
    /// Whether it is a stream of the allocator behind `shared`; numbers of another one mean nothing
    /// here.
    ///
    /// # Panics
    /// If it is not.
    #[inline]
    pub(super) fn assert_of(&self, shared: &Shared) {
        assert!(std::ptr::eq(&*self.shared, shared), "{self:?} belongs to another allocator");
    }

    /// Its number: the allocator's own, in the order in which handles came.
    #[must_use]
    pub const fn id(&self) -> StreamId {
        self.id
    }

    /// The driver's handle that it was named by; 0 of the default stream.
    #[must_use]
    pub const fn handle(&self) -> u64 {
        self.handle
    }

    /// A buffer of `bytes`, from the pool of this thread's innermost pool scope, else the default
    /// pool. Zero bytes give an empty buffer at address 0. O(log n) where the cache serves it; else
    /// driver calls, made with no lock held.
    ///
    /// # Errors
    /// Out of memory, with the report; or a failure of the driver.
    #[inline]
    pub fn alloc(&self, bytes: u64) -> Result<DeviceBuffer, AllocError> {
        self.alloc_from(bytes, scoped_pool(&self.shared))
    }

    /// As [`Stream::alloc`], a buffer that borrows this handle instead of counting as a user of the allocator: cheaper
    /// by two atomic operations, and threads do not meet at the count.
    ///
    /// # Errors
    /// As [`Stream::alloc`].
    #[inline]
    pub fn alloc_borrowed(&self, bytes: u64) -> Result<BorrowedBuffer<'_>, AllocError> {
        let pool = scoped_pool(&self.shared);
        let served = self.shared.serve(bytes, self.id, pool)?;
        Ok(BorrowedBuffer::new(&*self.shared, served, bytes, self.id, pool))
    }

    /// A buffer of `bytes` from a private pool.
    ///
    /// # Errors
    /// As [`Stream::alloc`].
    ///
    /// # Panics
    /// If the pool belongs to another allocator.
    pub fn alloc_in(&self, pool: &PrivatePool, bytes: u64) -> Result<DeviceBuffer, AllocError> {
        assert!(pool.belongs_to(&self.shared), "{pool:?} belongs to another allocator");
        self.alloc_from(bytes, pool.id())
    }

    #[inline]
    fn alloc_from(&self, bytes: u64, pool: PoolId) -> Result<DeviceBuffer, AllocError> {
        let served = self.shared.serve(bytes, self.id, pool)?;
        Ok(DeviceBuffer::new(Arc::clone(&self.shared), served, bytes, self.id, pool))
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({})", self.id.0)
    }
}

/// What a request got.
#[derive(Clone, Copy)]
pub(super) struct ServedBlock {
    pub block: BlockId,
    pub address: Address,
    /// It is another stream's, so its free waits for a fence.
    pub lent: bool,
}

impl Shared {
    /// A block for `bytes`, or the error the client sees.
    #[inline]
    pub(super) fn serve(
        &self,
        bytes: u64,
        stream: StreamId,
        pool: PoolId,
    ) -> Result<ServedBlock, AllocError> {
        let mut lent = false;
        let note = |inner: &mut Inner, block, _| lent = inner.heap.is_used(block);
        let (block, address) = self.serve_noting(bytes, stream, pool, note)?;
        Ok(ServedBlock { block, address, lent })
    }

    /// The same; `note` is called with the block under the lock that handed it out.
    #[inline]
    pub(super) fn serve_noting(
        &self,
        bytes: u64,
        stream: StreamId,
        pool: PoolId,
        note: impl FnOnce(&mut Inner, BlockId, Address),
    ) -> Result<(BlockId, Address), AllocError> {
        match self.alloc(bytes, stream, pool, self.watch.origin(), note) {
            Output::Served { block, address, .. } => {
                self.hooks.block(|| BlockEvent { is_alloc: true, address, bytes, stream });
                Ok((block, address))
            }
            other => self.unserved(other, stream),
        }
    }

    #[cold]
    fn unserved(&self, output: Output, stream: StreamId) -> Result<(BlockId, Address), AllocError> {
        match output {
            Output::Failed { mut report, .. } => {
                report.stream_handle = self.watch.handle_of(stream);
                self.failed(&report);
                Err(AllocError::OutOfMemory(OutOfMemory { report }))
            }
            Output::DriverFailed { fault, .. } | Output::Refused { fault } => {
                Err(AllocError::Driver(fault))
            }
            // Zero bytes need no block.
            _ => Ok((BlockId::NONE, Address(0))),
        }
    }
}
