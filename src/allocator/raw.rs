//! Raw: blocks by address, for callers that cannot hold a buffer: a C interface, plug-ins.
//!
//! Dearer than buffers by one hash table look-up under the lock; in return every wrong free is
//! refused with a reason.

use super::error::{AllocError, FreeError};
use super::pool::scoped_pool;
use super::shell::{Inner, RawBlock};
use super::{CachingAllocator, Stream};
use crate::vocab::{Address, Input};

impl CachingAllocator {
    /// A block of `bytes`, by its address; address 0 for zero bytes.
    ///
    /// # Errors
    /// Out of memory, or a failure of the driver.
    ///
    /// # Panics
    /// If the stream belongs to another allocator.
    pub fn alloc_raw(&self, bytes: u64, stream: &Stream) -> Result<Address, AllocError> {
        stream.assert_of(&self.shared);
        let pool = scoped_pool(&self.shared);
        let note = |inner: &mut Inner, block, address: Address| {
            let raw = RawBlock { block, requested: bytes, stream: stream.id(), pool };
            inner.raw.insert(address.0, raw);
        };
        let (_, address) = self.shared.serve_noting(bytes, stream.id(), pool, note)?;
        Ok(address)
    }

    /// Gives back the block at `address`; `bytes`, if given, must be what was requested. Address 0
    /// is nothing.
    ///
    /// # Errors
    /// An address where no live block starts, or another size; nothing is changed then.
    pub fn free_raw(&self, address: Address, bytes: Option<u64>) -> Result<(), FreeError> {
        if address.0 == 0 {
            return Ok(());
        }
        let raw = {
            let mut inner = self.shared.locked();
            let Some(&raw) = inner.raw.get(&address.0) else {
                return Err(FreeError::UnknownAddress(address.0));
            };
            let requested = raw.requested;
            if let Some(said) = bytes
                && said != requested
            {
                return Err(FreeError::WrongSize { address: address.0, said, requested });
            }
            inner.raw.remove(&address.0);
            raw
        };
        self.shared.free_raw(address, raw);
        Ok(())
    }

    /// `stream` uses the block at `address` too.
    ///
    /// # Errors
    /// An address where no live block starts.
    ///
    /// # Panics
    /// If the stream belongs to another allocator.
    pub fn record_stream_raw(&self, address: Address, stream: &Stream) -> Result<(), FreeError> {
        stream.assert_of(&self.shared);
        let mut inner = self.shared.locked();
        let inner = &mut *inner;
        let Some(&RawBlock { block, .. }) = inner.raw.get(&address.0) else {
            return Err(FreeError::UnknownAddress(address.0));
        };
        let input = Input::Use { block, stream: stream.id() };
        inner.books.recorder.told(&input, &inner.heap);
        inner.heap.apply(input, &mut inner.books);
        Ok(())
    }

    /// The block around `address`: where it starts and what was requested, in bytes. O(blocks).
    #[must_use]
    pub fn find_raw(&self, address: Address) -> Option<(Address, u64)> {
        let inner = self.shared.locked();
        inner.raw.iter().find_map(|(&base, &RawBlock { block, requested, .. })| {
            let (_, size) = inner.heap.live(block)?;
            (base..base + size).contains(&address.0).then_some((Address(base), requested))
        })
    }
}
