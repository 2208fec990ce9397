//! Buffer: a block of device memory that goes back when it is dropped.
//!
//! It carries its block's id, so giving it back needs no look-up. **C3** dropping it frees once and never waits:
//! for the device, a fence is recorded where other streams used the block, and that does not block.
//!
//! Every buffer keeps its allocator alive. A counted one does so with two atomic operations, a quarter of a pair
//! that the cache serves; a borrowed one by its lifetime, for nothing.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering as Memory};

use super::hooks::BlockEvent;
use super::shell::Shared;
use super::stream::Stream;
use super::sync::Arc;
use super::tags::TagId;
use crate::vocab::{Address, BlockId, Input, PoolId, StreamId, Target};

/// A block of device memory. Sizes are bytes. `H` is how it holds on to its allocator; see [`BorrowedBuffer`].
pub struct DeviceBuffer<H: Deref<Target = Shared> = Arc<Shared>> {
    shared: H,
    block: BlockId,
    address: Address,
    bytes: u64,
    stream: StreamId,
    pool: PoolId,
    used: AtomicBool,
}

/// A buffer that cannot outlive the stream handle it was allocated by ([`Stream::alloc_borrowed`]).
pub type BorrowedBuffer<'a> = DeviceBuffer<&'a Shared>;

impl<H: Deref<Target = Shared>> DeviceBuffer<H> {
    #[inline]
    pub(super) const fn new(
        shared: H,
        block: BlockId,
        address: Address,
        bytes: u64,
        stream: StreamId,
        pool: PoolId,
    ) -> Self {
        Self { shared, block, address, bytes, stream, pool, used: AtomicBool::new(false) }
    }

    /// Where it starts; 0 of a buffer of zero bytes.
    #[must_use]
    pub const fn address(&self) -> Address {
        self.address
    }

    /// The size that was asked for, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The stream it was allocated on.
    #[must_use]
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// The pool it was allocated from.
    #[must_use]
    pub const fn pool(&self) -> PoolId {
        self.pool
    }

    /// Whose it is.
    #[must_use]
    pub fn tag(&self) -> TagId {
        self.shared.locked().tag_of(self.block)
    }

    /// `stream` uses the buffer too: after the drop its memory is reused only when that stream's work so far is
    /// done.
    pub fn record_stream(&self, stream: &Stream) {
        if self.block == BlockId::NONE || stream.id() == self.stream {
            return;
        }
        self.used.store(true, Memory::Relaxed);
        self.shared.apply(Input::Use { block: self.block, stream: stream.id() });
    }
}

impl<H: Deref<Target = Shared>> std::fmt::Debug for DeviceBuffer<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "DeviceBuffer({} bytes at {}, stream {})",
            self.bytes, self.address, self.stream.0
        )
    }
}

impl<H: Deref<Target = Shared>> Drop for DeviceBuffer<H> {
    #[inline]
    fn drop(&mut self) {
        if self.block == BlockId::NONE {
            return;
        }
        let (address, bytes, stream) = (self.address, self.bytes, self.stream);
        self.shared.hooks.block(|| BlockEvent { is_alloc: false, address, bytes, stream });
        self.shared.free(self.block, *self.used.get_mut());
        if self.pool != PoolId::DEFAULT {
            self.shared.tidy_pool(self.pool);
        }
    }
}

impl Shared {
    /// A private pool that has no users left gives back what is idle.
    #[cold]
    fn tidy_pool(&self, pool: PoolId) {
        let retired = self.locked().heap.is_retired(pool);
        if retired {
            let ticket = self.ticket();
            self.pump(Input::Trim { ticket, target: Target::Pool(pool) });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::allocator::{CachingAllocator, Config, FreeError};
    use crate::device::{SimConfig, SimDevice};
    use crate::vocab::MIB;

    fn allocator() -> CachingAllocator {
        CachingAllocator::new(SimDevice::new(SimConfig::with_capacity(64 * MIB)), Config::default())
    }

    #[test]
    fn c3_a_borrowed_buffer_is_placed_as_a_counted_one_and_goes_back_once() -> Result<(), String> {
        let all = allocator();
        let (stream, other) = (all.default_stream(), all.stream(7));
        let said = |error| format!("{error:?}");
        let counted = stream.alloc(MIB).map_err(said)?.address();
        let borrowed = stream.alloc_borrowed(MIB).map_err(said)?;
        assert_eq!(borrowed.address(), counted, "the same hole");
        assert_eq!(all.memory_allocated(), MIB);
        borrowed.record_stream(&other);
        drop(borrowed);
        assert_eq!(all.memory_allocated(), 0);
        assert_eq!(stream.alloc_borrowed(0).map_err(said)?.address().0, 0);
        all.audit()
    }

    #[test]
    fn a_refused_free_by_address_changes_nothing() -> Result<(), String> {
        let all = allocator();
        let stream = all.default_stream();
        let address = all.alloc_raw(MIB, &stream).map_err(|error| format!("{error:?}"))?;
        let wrong = FreeError::WrongSize { address: address.0, said: 1, requested: MIB };
        assert_eq!(all.free_raw(address, Some(1)), Err(wrong));
        assert_eq!(all.find_raw(address), Some((address, MIB)));
        assert_eq!(all.memory_allocated(), MIB);
        assert_eq!(all.free_raw(address, Some(MIB)), Ok(()));
        assert_eq!(all.free_raw(address, None), Err(FreeError::UnknownAddress(address.0)));
        assert_eq!(all.memory_allocated(), 0);
        all.audit()
    }
}
