//! Raw: blocks by address, for callers that cannot hold a buffer: a C interface, plug-ins.
//!
//! Dearer than borrowed buffers by one hash table look-up under the lock; in return every wrong free is refused
//! with a reason.

use hashbrown::hash_map::Entry;

use super::error::{AllocError, FreeError};
use super::pool::scoped_pool;
use super::shell::Inner;
use super::{CachingAllocator, Stream};
use crate::vocab::{Address, Input};

impl CachingAllocator {
    /// A block of `bytes`, by its address; address 0 for zero bytes.
    ///
    /// # Errors
    /// Out of memory, or a failure of the driver.
    pub fn alloc_raw(&self, bytes: u64, stream: &Stream) -> Result<Address, AllocError> {
        let pool = scoped_pool(&self.shared);
        let note = |inner: &mut Inner, block, address| inner.note_raw(address, block, bytes);
        let (_, address) = self.shared.serve_noting(bytes, stream.id(), pool, note)?;
        Ok(address)
    }

    /// Gives back the block at `address`; `bytes`, if given, must be what was requested. Address 0 is nothing.
    ///
    /// # Errors
    /// An address where no live block starts, or another size; nothing is changed then.
    pub fn free_raw(&self, address: Address, bytes: Option<u64>) -> Result<(), FreeError> {
        if address.0 == 0 {
            return Ok(());
        }
        let (output, landings) = {
            let mut inner = self.shared.locked();
            let inner = &mut *inner;
            let Entry::Occupied(entry) = inner.raw.entry(address.0) else {
                return Err(FreeError::UnknownAddress(address.0));
            };
            let (block, requested) = *entry.get();
            if let Some(said) = bytes
                && said != requested
            {
                return Err(FreeError::WrongSize { address: address.0, said, requested });
            }
            entry.remove();
            (inner.heap.apply(Input::Free { block }, &mut inner.books), inner.heap.landings())
        };
        self.shared.carry(output, landings);
        Ok(())
    }

    /// `stream` uses the block at `address` too.
    ///
    /// # Errors
    /// An address where no live block starts.
    pub fn record_stream_raw(&self, address: Address, stream: &Stream) -> Result<(), FreeError> {
        let mut inner = self.shared.locked();
        let inner = &mut *inner;
        let Some(&(block, _)) = inner.raw.get(&address.0) else {
            return Err(FreeError::UnknownAddress(address.0));
        };
        inner.heap.apply(Input::Use { block, stream: stream.id() }, &mut inner.books);
        Ok(())
    }

    /// The block around `address`: where it starts and what was requested, in bytes. O(blocks).
    #[must_use]
    pub fn find_raw(&self, address: Address) -> Option<(Address, u64)> {
        let inner = self.shared.locked();
        inner.raw.iter().find_map(|(&base, &(block, requested))| {
            let (_, size) = inner.heap.live(block)?;
            (base..base + size).contains(&address.0).then_some((Address(base), requested))
        })
    }
}
