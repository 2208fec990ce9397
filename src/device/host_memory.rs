//! Memory: what the host device granted, and exclusive claims on parts of it: the safe face of raw memory.
//!
//! Owns: the segments, and which bytes of them are claimed. A [`HostBlock`] is the only way to the
//! bytes, no two of them share one, and a segment lives as long as a block of it, whoever errs: so
//! that safe code cannot make a data race or a dangling pointer out of addresses. Asked by the host
//! device, and by whoever works on what an allocator handed out. Never knows blocks of the heap:
//! that two owners of memory cannot both claim it makes every claim a test of the allocator.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::vocab::{Address, MIB};

/// Bases are multiples of this, as on a GPU, and segments take whole multiples of it.
pub(super) const GRANULARITY: u64 = 2 * MIB;

/// Who takes a segment's memory back.
enum Owner {
    /// The system's allocator.
    System(Layout),
    /// Whoever lent it: by being dropped.
    Lender { _keep: Box<dyn Any + Send + Sync> },
}

/// One segment: what the system gave, and where in it the segment starts.
struct Segment {
    whole: NonNull<u8>,
    owner: Owner,
    /// From `whole` to the aligned base.
    skip: usize,
    bytes: usize,
}

// SAFETY: a segment owns its memory as a `Box<[u8]>` would; the pointer has no other copy.
unsafe impl Send for Segment {}
// SAFETY: through `&Segment` nothing is read or written but by blocks, whose bytes are disjoint.
unsafe impl Sync for Segment {}

impl Segment {
    /// `bytes` of zeroed memory at an aligned base. More is asked for and the base moved up inside
    /// it: an allocation aligned by the system would have to be zeroed by hand, page by page.
    fn new(bytes: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes).ok()?;
        let granularity = GRANULARITY as usize;
        let layout = Layout::from_size_align(bytes.checked_add(granularity)?, 16).ok()?;
        // SAFETY: the layout's size is at least `granularity`, so not zero.
        let whole = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let skip = whole.addr().get().next_multiple_of(granularity) - whole.addr().get();
        Some(Self { whole, owner: Owner::System(layout), skip, bytes })
    }

    fn base(&self) -> u64 {
        (self.whole.addr().get() + self.skip) as u64
    }

    /// Where byte `start` of the segment lies; at most one past its end.
    fn at(&self, start: usize) -> *mut u8 {
        debug_assert!(start <= self.bytes);
        // SAFETY: `skip` and `start <= bytes` stay within what was asked of the system or lent.
        unsafe { self.whole.as_ptr().add(self.skip + start) }
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segment({} bytes at {:#x})", self.bytes, self.base())
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if let Owner::System(layout) = self.owner {
            // SAFETY: `whole` came from `alloc_zeroed` with this layout and is freed here only.
            unsafe { dealloc(self.whole.as_ptr(), layout) }
        }
    }
}

/// Segments by their base, and claims: from a first address to one past the last.
#[derive(Debug, Default)]
struct Books {
    segments: BTreeMap<u64, Arc<Segment>>,
    claims: BTreeMap<u64, u64>,
}

impl Books {
    /// Whether someone has claimed any of these addresses.
    fn claimed(&self, from: u64, end: u64) -> bool {
        self.claims.range(..end).next_back().is_some_and(|(_, &its_end)| its_end > from)
    }
}

/// The memory of one host device. Cheap to clone; every clone is the same memory.
#[derive(Clone, Debug, Default)]
pub struct HostMemory(Arc<Mutex<Books>>);

impl HostMemory {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new segment's base.
    pub(super) fn grant(&self, bytes: u64) -> Option<Address> {
        let segment = Segment::new(bytes)?;
        let base = segment.base();
        self.books().segments.insert(base, Arc::new(segment));
        Some(Address(base))
    }

    /// Memory of somebody else becomes a segment; `keep` takes it back when it is dropped, which is
    /// after the last claim on it. False, and `keep` is dropped: it would lie over another segment.
    ///
    /// # Safety
    /// These bytes are initialised, and as long as `keep` lives nobody else reads or writes them while
    /// a claim on them is used.
    #[must_use]
    pub unsafe fn lend(
        &self,
        base: NonNull<u8>,
        bytes: usize,
        keep: Box<dyn Any + Send + Sync>,
    ) -> bool {
        let segment = Segment { whole: base, owner: Owner::Lender { _keep: keep }, skip: 0, bytes };
        let (from, end) = (segment.base(), segment.base() + bytes as u64);
        let mut books = self.books();
        let before = books.segments.range(..end).next_back();
        if bytes == 0 || before.is_some_and(|(at, other)| at + other.bytes as u64 > from) {
            drop(books);
            return false;
        }
        books.segments.insert(from, Arc::new(segment));
        true
    }

    /// Takes a segment of this very size back, unless some of it is claimed.
    pub(crate) fn release(&self, base: Address, bytes: u64) -> bool {
        let mut books = self.books();
        let found = books.segments.get(&base.0).is_some_and(|found| found.bytes as u64 == bytes);
        let idle = found && !books.claimed(base.0, base.0 + bytes);
        let gone = if idle { books.segments.remove(&base.0) } else { None };
        // Its memory goes back with no lock held.
        drop(books);
        gone.is_some()
    }

    /// Takes every segment back; one with claims on it goes when the last of them does.
    pub(super) fn clear(&self) {
        let gone = std::mem::take(&mut self.books().segments);
        drop(gone);
    }

    /// These bytes for one owner, who alone may read and write them; `None` if they are not inside
    /// one segment, or none, or somebody else's.
    #[must_use]
    pub fn claim(&self, base: Address, bytes: u64) -> Option<HostBlock> {
        let mut books = self.books();
        let (&from, segment) = books.segments.range(..=base.0).next_back()?;
        let start = usize::try_from(base.0 - from).ok()?;
        let length = usize::try_from(bytes).ok().filter(|&length| length > 0)?;
        let inside = start.checked_add(length)? <= segment.bytes;
        if !inside || books.claimed(base.0, base.0 + bytes) {
            return None;
        }
        let segment = Arc::clone(segment);
        books.claims.insert(base.0, base.0 + bytes);
        Some(HostBlock { memory: self.clone(), segment, start, length })
    }
}

/// Bytes that nobody else can reach. They are given up when this is dropped.
#[derive(Debug)]
pub struct HostBlock {
    memory: HostMemory,
    segment: Arc<Segment>,
    start: usize,
    length: usize,
}

impl HostBlock {
    /// Where it starts.
    #[must_use]
    pub fn address(&self) -> Address {
        Address(self.segment.base() + self.start as u64)
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start + length` is within the segment, as `claim` has checked; the memory was
        // zeroed when obtained and lives as long as `segment`; no other block has any of it, and
        // this one writes through `&mut self` only.
        unsafe { std::slice::from_raw_parts(self.segment.at(self.start), self.length) }
    }

    /// The same, to write to.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.segment.at(self.start), self.length) }
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        let address = self.address().0;
        self.memory.books().claims.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::{GRANULARITY, HostMemory};
    use crate::vocab::Address;

    #[test]
    fn no_byte_is_claimed_twice_nor_released_while_claimed() {
        let memory = HostMemory::default();
        let base = memory.grant(GRANULARITY).expect("memory");
        let middle = memory.claim(base.plus(512), 512).expect("free");
        for (from, bytes) in [(0, 513), (512, 512), (600, 1), (1023, 2), (0, 4096)] {
            assert!(memory.claim(base.plus(from), bytes).is_none(), "{from} {bytes}");
        }
        let beside = [memory.claim(base, 512), memory.claim(base.plus(1024), 512)];
        assert!(beside.iter().all(Option::is_some));
        assert!(!memory.release(base, GRANULARITY), "claimed");
        drop((middle, beside));
        assert!(memory.claim(base, GRANULARITY).is_some(), "all given up");
        assert!(!memory.release(base, GRANULARITY + 1), "another size");
        assert!(memory.release(base, GRANULARITY));
        assert!(memory.claim(base, 1).is_none(), "gone");
    }

    #[test]
    fn claims_lie_inside_one_segment() {
        let memory = HostMemory::default();
        let base = memory.grant(GRANULARITY).expect("memory");
        let last = base.plus(GRANULARITY - 4);
        assert!(memory.claim(last, 5).is_none(), "over the end");
        assert!(memory.claim(last, u64::MAX).is_none());
        assert!(memory.claim(base, 0).is_none());
        assert!(memory.claim(Address(8), 1).is_none());
        let mut block = memory.claim(last, 4).expect("inside");
        assert_eq!(block.bytes(), [0; 4]);
        block.bytes_mut().copy_from_slice(b"tail");
        drop(block);
        assert_eq!(memory.claim(last, 4).expect("inside").bytes(), b"tail");
    }
}
