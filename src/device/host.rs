//! Host device: real memory of this process, so that a tensor can live in what the core hands out.
//!
//! Owns: the segments it granted, and frees them when it is dropped. Asked by tests and by programs
//! without a GPU. Never knows streams: all work on the host is done by the time anyone asks, so
//! every fence passes at once. It cannot map pages.
//!
//! Segments are zero when granted and the system gives their pages as they are touched, so a large
//! segment costs little until it is used.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;

use super::contract::{Calls, Device, INVALID_VALUE, NOT_SUPPORTED};
use crate::vocab::{Address, Answer, Fault, MIB, Serial, StreamId, Want};

/// Bases are multiples of this, as on a GPU, and segments take whole multiples of it.
const GRANULARITY: u64 = 2 * MIB;

/// One segment: what the system gave, and where in it the segment starts.
#[derive(Debug)]
struct Segment {
    whole: NonNull<u8>,
    layout: Layout,
    /// From `whole` to the aligned base.
    skip: usize,
    bytes: usize,
}

// SAFETY: a segment owns its memory as a `Box<[u8]>` would; the pointer has no other copy.
unsafe impl Send for Segment {}
// SAFETY: through `&Segment` the memory can only be read.
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
        Some(Self { whole, layout, skip, bytes })
    }

    fn base(&self) -> u64 {
        (self.whole.addr().get() + self.skip) as u64
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `skip < granularity` and `skip + bytes` is within the layout, whose memory was
        // zeroed when it was obtained; writes go through `&mut self` only.
        unsafe { std::slice::from_raw_parts(self.whole.as_ptr().add(self.skip), self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.whole.as_ptr().add(self.skip), self.bytes) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: `whole` came from `alloc_zeroed` with this layout and is freed here only.
        unsafe { dealloc(self.whole.as_ptr(), self.layout) }
    }
}

/// The host's memory as a device.
#[derive(Debug, Default)]
pub struct HostDevice {
    cap: Option<u64>,
    used: u64,
    segments: BTreeMap<u64, Segment>,
    fences: BTreeMap<StreamId, Serial>,
    calls: Calls,
}

impl HostDevice {
    /// Memory as long as the system has some.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// No more than `cap` bytes at a time.
    #[must_use]
    pub fn with_cap(cap: u64) -> Self {
        Self { cap: Some(cap), ..Self::default() }
    }

    /// The bytes of a stretch inside one segment; `None` if there is no such memory.
    #[must_use]
    pub fn bytes(&self, base: Address, bytes: u64) -> Option<&[u8]> {
        let (&from, segment) = self.segments.range(..=base.0).next_back()?;
        segment.bytes().get(stretch(from, base, bytes)?)
    }

    /// The same, to write to.
    #[must_use]
    pub fn bytes_mut(&mut self, base: Address, bytes: u64) -> Option<&mut [u8]> {
        let (&from, segment) = self.segments.range_mut(..=base.0).next_back()?;
        segment.bytes_mut().get_mut(stretch(from, base, bytes)?)
    }

    fn reserve(&mut self, bytes: u64) -> Answer {
        if bytes == 0 {
            return Answer::Refused(Fault::Driver(INVALID_VALUE));
        }
        let rounded = bytes.checked_next_multiple_of(GRANULARITY);
        let fits = rounded.filter(|&whole| self.free().is_none_or(|free| whole <= free));
        let Some((whole, segment)) = fits.and_then(|whole| Some((whole, Segment::new(whole)?)))
        else {
            return Answer::Refused(Fault::OutOfMemory);
        };
        let base = segment.base();
        self.used += whole;
        self.segments.insert(base, segment);
        Answer::Granted { base: Address(base) }
    }

    fn release(&mut self, base: Address, bytes: u64) -> Answer {
        let whole = bytes.checked_next_multiple_of(GRANULARITY);
        let found = self.segments.get(&base.0).filter(|found| Some(found.bytes as u64) == whole);
        let Some(size) = found.map(|found| found.bytes as u64) else {
            return Answer::Refused(Fault::Driver(INVALID_VALUE));
        };
        self.segments.remove(&base.0);
        self.used -= size;
        Answer::Released
    }

    fn fence(&mut self, stream: StreamId, serial: Serial) -> Answer {
        let recorded = self.fences.entry(stream).or_default();
        if serial <= *recorded {
            return Answer::Refused(Fault::Driver(INVALID_VALUE));
        }
        *recorded = serial;
        Answer::Fenced
    }

    fn recorded(&self, stream: StreamId) -> Serial {
        self.fences.get(&stream).copied().unwrap_or_default()
    }

    fn wait(&self, stream: StreamId, serial: Serial) -> Answer {
        let through = self.recorded(stream);
        if serial > through {
            return Answer::Refused(Fault::Driver(INVALID_VALUE));
        }
        Answer::Passed { through }
    }
}

/// Where a stretch lies in the segment that starts at `from`.
fn stretch(from: u64, base: Address, bytes: u64) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(base.0 - from).ok()?;
    Some(start..start.checked_add(usize::try_from(bytes).ok()?)?)
}

impl Device for HostDevice {
    fn perform(&mut self, want: Want) -> Answer {
        let answer = match want {
            Want::Reserve { bytes } => self.reserve(bytes),
            Want::Release { base, bytes } => self.release(base, bytes),
            Want::ReserveRange { .. }
            | Want::ReleaseRange { .. }
            | Want::Map { .. }
            | Want::Unmap { .. } => Answer::Refused(Fault::Driver(NOT_SUPPORTED)),
            Want::Fence { stream, serial } => self.fence(stream, serial),
            Want::Poll { stream, newest } => {
                Answer::Passed { through: self.recorded(stream).min(newest) }
            }
            Want::Wait { stream, serial } => self.wait(stream, serial),
            Want::Order { after, serial, .. } => match self.wait(after, serial) {
                Answer::Passed { .. } => Answer::Ordered,
                refused => refused,
            },
        };
        self.calls.count(&want, &answer);
        answer
    }

    fn total(&self) -> Option<u64> {
        self.cap
    }

    fn free(&self) -> Option<u64> {
        self.cap.map(|cap| cap - self.used)
    }

    fn granularity(&self) -> u64 {
        GRANULARITY
    }

    fn page_mapping(&self) -> bool {
        false
    }

    fn nanos(&self) -> u64 {
        0
    }

    fn calls(&self) -> Calls {
        self.calls
    }
}

#[cfg(test)]
mod tests {
    use super::{Device, GRANULARITY, HostDevice, NOT_SUPPORTED};
    use crate::vocab::{Address, Answer, Fault, MIB, Want};

    fn reserve(device: &mut HostDevice, bytes: u64) -> Address {
        match device.perform(Want::Reserve { bytes }) {
            Answer::Granted { base } => base,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn memory_is_aligned_zeroed_and_keeps_what_is_written() {
        let mut device = HostDevice::new();
        let (first, second) = (reserve(&mut device, 3 * MIB), reserve(&mut device, 100));
        assert_eq!((first.0 % GRANULARITY, second.0 % GRANULARITY), (0, 0));
        let last = first.plus(4 * MIB - 4);
        assert_eq!(device.bytes(last, 4), Some(&[0; 4][..]));
        device.bytes_mut(last, 4).expect("inside").copy_from_slice(b"tail");
        device.bytes_mut(second, 4).expect("inside").copy_from_slice(b"head");
        assert_eq!(device.bytes(last, 4), Some(&b"tail"[..]));
        assert_eq!(device.bytes(last, 5), None, "over the end");
        assert_eq!(device.bytes(last, u64::MAX), None);
        assert_eq!(device.bytes(Address(8), 1), None);
    }

    #[test]
    fn the_cap_counts_whole_granules() {
        let mut device = HostDevice::with_cap(4 * MIB);
        let base = reserve(&mut device, 1);
        assert_eq!(device.free(), Some(2 * MIB));
        let refused = device.perform(Want::Reserve { bytes: 2 * MIB + 1 });
        assert_eq!(refused, Answer::Refused(Fault::OutOfMemory));
        let release = Want::Release { base, bytes: 1 };
        assert_eq!(device.perform(release), Answer::Released);
        assert_eq!(device.free(), Some(4 * MIB));
        assert!(matches!(device.perform(release), Answer::Refused(_)), "only once");
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let mut device = HostDevice::new();
        for bytes in [u64::MAX, u64::MAX / 2, 0] {
            assert!(matches!(device.perform(Want::Reserve { bytes }), Answer::Refused(_)));
        }
    }

    #[test]
    fn pages_are_not_supported() {
        let mut device = HostDevice::new();
        let refused = device.perform(Want::ReserveRange { bytes: 2 * MIB, page: 2 * MIB });
        assert_eq!(refused, Answer::Refused(Fault::Driver(NOT_SUPPORTED)));
        assert!(!device.page_mapping());
    }
}
