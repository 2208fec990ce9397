//! Host device: real memory of this process, so that a tensor can live in what the core hands out.
//!
//! Owns: the segments it granted, and frees them when it is dropped. Asked by tests and by programs
//! without a GPU. Never knows streams: all work on the host is done by the time anyone asks, so
//! every fence passes at once. It cannot map pages.
//!
//! Segments are zero when granted and the system gives their pages as they are touched, so a large
//! segment costs little until it is used.

use std::collections::BTreeMap;

use super::contract::{Calls, Device, INVALID_VALUE, NOT_SUPPORTED};
use super::host_memory::{GRANULARITY, HostMemory};
use crate::vocab::{Address, Answer, Fault, Serial, StreamId, Want};

/// The host's memory as a device.
#[derive(Debug, Default)]
pub struct HostDevice {
    cap: Option<u64>,
    used: u64,
    memory: HostMemory,
    fences: BTreeMap<StreamId, Serial>,
    calls: Calls,
}

impl HostDevice {
    /// Memory as long as the system has some: how much is not known, so neither a fraction of it nor the largest
    /// request that it would serve can be told.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// No more than `cap` bytes at a time.
    #[must_use]
    pub fn with_cap(cap: u64) -> Self {
        let mut device = Self::new();
        device.cap = Some(cap);
        device
    }

    /// The way to the bytes of what this device grants, also when the device itself has been given away.
    #[must_use]
    pub fn memory(&self) -> HostMemory {
        self.memory.clone()
    }

    fn reserve(&mut self, bytes: u64) -> Answer {
        if bytes == 0 {
            return Answer::Refused(Fault::Driver(INVALID_VALUE));
        }
        let rounded = bytes.checked_next_multiple_of(GRANULARITY);
        let fits = rounded.filter(|&whole| self.free().is_none_or(|free| whole <= free));
        let granted = fits.and_then(|whole| Some((whole, self.memory.grant(whole)?)));
        let Some((whole, base)) = granted else {
            return Answer::Refused(Fault::OutOfMemory);
        };
        self.used += whole;
        Answer::Granted { base }
    }

    fn release(&mut self, base: Address, bytes: u64) -> Answer {
        let whole = bytes.checked_next_multiple_of(GRANULARITY);
        let Some(whole) = whole.filter(|&whole| self.memory.release(base, whole)) else {
            return Answer::Refused(Fault::Driver(INVALID_VALUE));
        };
        self.used -= whole;
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

impl Drop for HostDevice {
    fn drop(&mut self) {
        self.memory.clear();
    }
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
        let memory = device.memory();
        let (first, second) = (reserve(&mut device, 3 * MIB), reserve(&mut device, 100));
        assert_eq!((first.0 % GRANULARITY, second.0 % GRANULARITY), (0, 0));
        let last = first.plus(4 * MIB - 4);
        let mut tail = memory.claim(last, 4).expect("inside");
        assert_eq!((tail.bytes(), tail.address()), (&[0; 4][..], last));
        tail.bytes_mut().copy_from_slice(b"tail");
        memory.claim(second, 4).expect("inside").bytes_mut().copy_from_slice(b"head");
        assert_eq!(tail.bytes(), b"tail");
        let release = Want::Release { base: first, bytes: 3 * MIB };
        assert!(matches!(device.perform(release), Answer::Refused(_)), "somebody works on it");
        drop(tail);
        assert_eq!(device.perform(release), Answer::Released);
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
