//! Device: the twin's own world, one address space and one sum of bytes.
//!
//! Owns which ranges are taken and how much memory is used. Asked only by the twin. Never knows a
//! block.
//!
//! The lowest free range is handed out. Ranges start at multiples of the granule and take whole
//! granules; address space alone takes no capacity, pages do.

use crate::vocab::Address;

/// Where the address space begins.
const FIRST: u64 = 0x2000_0000_0000;
/// Its size: 16 TiB.
const SPACE: u64 = 16 << 40;

/// A device that says yes or no at once.
#[derive(Clone, Debug)]
pub(super) struct Device {
    capacity: Option<u64>,
    granule: u64,
    used: u64,
    /// Ranges taken, by address: start and end.
    ranges: Vec<(u64, u64)>,
}

impl Device {
    pub(super) const fn new(capacity: Option<u64>, granule: u64) -> Self {
        Self { capacity, granule, used: 0, ranges: Vec::new() }
    }

    /// Takes memory, if there is enough.
    fn take(&mut self, bytes: u64) -> Option<()> {
        let used = self.used + bytes;
        if self.capacity.is_some_and(|capacity| used > capacity) {
            return None;
        }
        self.used = used;
        Some(())
    }

    /// The lowest range of `bytes` that is free, without memory.
    pub(super) fn reserve_range(&mut self, bytes: u64) -> Option<Address> {
        let bytes = bytes.next_multiple_of(self.granule);
        let mut start = FIRST;
        for &(taken, end) in &self.ranges {
            if taken - start >= bytes {
                break;
            }
            start = end;
        }
        if start + bytes > FIRST + SPACE {
            return None;
        }
        self.ranges.push((start, start + bytes));
        self.ranges.sort_unstable();
        Some(Address(start))
    }

    pub(super) fn release_range(&mut self, base: Address) {
        self.ranges.retain(|&(start, _)| start != base.0);
    }

    /// A segment: memory and the range it lies in.
    pub(super) fn reserve(&mut self, bytes: u64) -> Option<Address> {
        let whole = bytes.next_multiple_of(self.granule);
        self.take(whole)?;
        let base = self.reserve_range(bytes);
        if base.is_none() {
            self.used -= whole;
        }
        base
    }

    pub(super) fn release(&mut self, base: Address, bytes: u64) {
        self.used -= bytes.next_multiple_of(self.granule);
        self.release_range(base);
    }

    /// Memory for `pages` pages, all or none.
    pub(super) fn map(&mut self, pages: u64, page: u64) -> Option<()> {
        self.take(pages * page.next_multiple_of(self.granule))
    }

    pub(super) fn unmap(&mut self, pages: u64, page: u64) {
        self.used -= pages * page.next_multiple_of(self.granule);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_range_that_fits_is_taken() {
        let mut device = Device::new(Some(100), 10);
        let bases = [15, 30, 5].map(|bytes| device.reserve(bytes).expect("it fits").0 - FIRST);
        assert_eq!(bases, [0, 20, 50]);
        device.release(Address(FIRST + 20), 30);
        assert_eq!(device.reserve(31), Some(Address(FIRST + 60)), "40 bytes do not fit in 30");
        assert_eq!(device.reserve(10), Some(Address(FIRST + 20)));
        assert_eq!(device.reserve(21), None, "80 of 100 are taken");
        assert_eq!(device.reserve(20), Some(Address(FIRST + 30)));
    }

    #[test]
    fn space_takes_no_memory_and_pages_do() {
        let mut device = Device::new(Some(100), 10);
        let base = device.reserve_range(1000).expect("space is plenty");
        assert_eq!((device.map(3, 20), device.map(3, 20)), (Some(()), None));
        device.unmap(1, 20);
        assert_eq!(device.map(3, 20), Some(()));
        device.release_range(base);
        assert_eq!(device.reserve_range(SPACE + 1), None);
    }
}
