//! Memory: which segments, address ranges and pages exist, and how much capacity they take.
//!
//! Asked by the simulated device. Never knows streams, costs or refusals that a test ordered.
//!
//! | thing | address space | capacity |
//! |---|---|---|
//! | segment | its bytes, rounded up to the granularity | the same |
//! | address range | its bytes, rounded up likewise | none |
//! | mapped page | within its range | the page |

use std::collections::BTreeMap;

use super::intervals::Intervals;
use super::space::Space;
use crate::vocab::Fault;

/// Why a call changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The device says no.
    Refused(Fault),
    /// The call is a bug of the caller; in words.
    Misuse(String),
}

fn misuse<T>(text: String) -> Result<T, Trouble> {
    Err(Trouble::Misuse(text))
}

/// Address space that pages may be mapped into.
#[derive(Clone, Debug)]
struct Range {
    bytes: u64,
    page: u64,
    mapped: Intervals<()>,
}

/// All that was granted and not yet given back.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    space: Space,
    granularity: u64,
    capacity: Option<u64>,
    used: u64,
    /// By base: the bytes asked for.
    segments: BTreeMap<u64, u64>,
    ranges: BTreeMap<u64, Range>,
}

impl Memory {
    /// Nothing granted; `hidden` bytes of the capacity belong to others.
    pub(super) const fn new(
        space: Space,
        granularity: u64,
        capacity: Option<u64>,
        hidden: u64,
    ) -> Self {
        Self {
            space,
            granularity,
            capacity,
            used: hidden,
            segments: BTreeMap::new(),
            ranges: BTreeMap::new(),
        }
    }

    /// What the capacity leaves.
    pub(super) fn free(&self) -> Option<u64> {
        self.capacity.map(|capacity| capacity.saturating_sub(self.used))
    }

    /// Grants a segment.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<u64, Trouble> {
        if bytes == 0 {
            return misuse("a segment of no bytes".to_string());
        }
        let out_of_memory = Trouble::Refused(Fault::OutOfMemory);
        let whole =
            bytes.checked_next_multiple_of(self.granularity).ok_or(out_of_memory.clone())?;
        if self.free().is_some_and(|free| whole > free) {
            return Err(out_of_memory);
        }
        let base = self.space.take(whole).ok_or(out_of_memory)?;
        self.used += whole;
        self.segments.insert(base, bytes);
        Ok(base)
    }

    /// Checks that a segment may be released.
    pub(super) fn may_release(&self, base: u64, bytes: u64) -> Result<(), Trouble> {
        match self.segments.get(&base) {
            None => misuse(format!("released {base:#x}, which is no segment")),
            Some(&size) if size != bytes => {
                misuse(format!("released {base:#x} as {bytes} bytes; it has {size}"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Takes a segment back; [`Memory::may_release`] must have agreed.
    pub(super) fn release(&mut self, base: u64, bytes: u64) {
        let whole = bytes.next_multiple_of(self.granularity);
        self.segments.remove(&base);
        self.used -= whole;
        self.space.give(base, whole);
    }

    /// Grants address space.
    pub(super) fn reserve_range(&mut self, bytes: u64, page: u64) -> Result<u64, Trouble> {
        if page == 0 || !page.is_multiple_of(self.granularity) {
            return misuse(format!("a page of {page} bytes, no multiple of the granularity"));
        }
        if bytes == 0 || !bytes.is_multiple_of(page) {
            return misuse(format!("a range of {bytes} bytes, no multiple of its page of {page}"));
        }
        let base = self.space.take(bytes).ok_or(Trouble::Refused(Fault::OutOfMemory))?;
        self.ranges.insert(base, Range { bytes, page, mapped: Intervals::new() });
        Ok(base)
    }

    /// Takes address space back.
    pub(super) fn release_range(&mut self, base: u64, bytes: u64) -> Result<(), Trouble> {
        match self.ranges.get(&base) {
            None => return misuse(format!("released {base:#x}, which is no address range")),
            Some(range) if range.bytes != bytes => {
                let size = range.bytes;
                return misuse(format!("released range {base:#x} as {bytes} bytes; it has {size}"));
            }
            Some(range) if !range.mapped.is_empty() => {
                return misuse(format!("released range {base:#x} with pages mapped in it"));
            }
            Some(_) => {}
        }
        self.ranges.remove(&base);
        self.space.give(base, bytes);
        Ok(())
    }

    /// Maps pages: all of them or none. Refused, it says how many would have fitted.
    pub(super) fn map(&mut self, base: u64, bytes: u64, page: u64) -> Result<(), (Trouble, u64)> {
        let free = self.free();
        let range = self.range_of("mapped", base, bytes, page).map_err(|trouble| (trouble, 0))?;
        if range.mapped.touches(base, base + bytes) {
            let text = format!("mapped {bytes} bytes at {base:#x}, some of them mapped already");
            return Err((Trouble::Misuse(text), 0));
        }
        if let Some(free) = free.filter(|&free| bytes > free) {
            return Err((Trouble::Refused(Fault::OutOfMemory), free / page));
        }
        range.mapped.set(base, base + bytes, ());
        self.used += bytes;
        Ok(())
    }

    /// Checks that pages may be unmapped.
    pub(super) fn may_unmap(&mut self, base: u64, bytes: u64, page: u64) -> Result<(), Trouble> {
        let range = self.range_of("unmapped", base, bytes, page)?;
        if range.mapped.covers(base, base + bytes) {
            Ok(())
        } else {
            misuse(format!("unmapped {bytes} bytes at {base:#x}, some of them not mapped"))
        }
    }

    /// Unmaps pages; [`Memory::may_unmap`] must have agreed.
    pub(super) fn unmap(&mut self, base: u64, bytes: u64) {
        if let Some((_, range)) = self.ranges.range_mut(..=base).next_back() {
            range.mapped.clear(base, base + bytes);
            self.used -= bytes;
        }
    }

    /// Whether there is memory under every byte of the stretch, in one segment or one range.
    pub(super) fn backs(&self, base: u64, bytes: u64) -> bool {
        let Some(end) = base.checked_add(bytes) else { return false };
        let segment = self.segments.range(..=base).next_back();
        let range = self.ranges.range(..=base).next_back();
        segment.is_some_and(|(from, size)| end <= from + size)
            || range.is_some_and(|(_, range)| range.mapped.covers(base, end))
    }

    /// The range that holds the stretch, if it lies on that range's page borders.
    fn range_of(
        &mut self,
        verb: &str,
        base: u64,
        bytes: u64,
        page: u64,
    ) -> Result<&mut Range, Trouble> {
        let found = self.ranges.range_mut(..=base).next_back();
        let inside = found.filter(|(from, range)| {
            base.checked_add(bytes).is_some_and(|end| end <= *from + range.bytes)
        });
        let Some((&from, range)) = inside else {
            return misuse(format!("{verb} {bytes} bytes at {base:#x}, not inside one range"));
        };
        if page != range.page {
            let promised = range.page;
            return misuse(format!(
                "{verb} {base:#x} by pages of {page}; its range has {promised}"
            ));
        }
        if bytes == 0 || !bytes.is_multiple_of(page) || !(base - from).is_multiple_of(page) {
            return misuse(format!("{verb} {bytes} bytes at {base:#x}, off the page borders"));
        }
        Ok(range)
    }
}

#[cfg(test)]
mod tests {
    use super::{Memory, Trouble};
    use crate::device::sim::{Placement, space::Space};
    use crate::vocab::{Fault, MIB};

    const PAGE: u64 = 20 * MIB;

    fn memory(capacity: u64) -> Memory {
        Memory::new(Space::new(0, 1 << 40, 2 * MIB, Placement::Lowest), 2 * MIB, Some(capacity), 0)
    }

    #[test]
    fn a_segment_takes_whole_granules() {
        let mut memory = memory(4 * MIB);
        assert_eq!(memory.reserve(MIB), Ok(0));
        assert_eq!(memory.free(), Some(2 * MIB));
        assert_eq!(memory.reserve(2 * MIB + 1), Err(Trouble::Refused(Fault::OutOfMemory)));
        assert_eq!(memory.reserve(u64::MAX), Err(Trouble::Refused(Fault::OutOfMemory)));
        assert_eq!(memory.free(), Some(2 * MIB), "a refusal leaves nothing behind");
        memory.release(0, MIB);
        assert_eq!(memory.free(), Some(4 * MIB));
    }

    #[test]
    fn a_mapping_is_all_or_nothing() {
        let mut memory = memory(3 * PAGE);
        let base = memory.reserve_range(10 * PAGE, PAGE).expect("there is room");
        assert_eq!(memory.free(), Some(3 * PAGE), "address space takes no capacity");
        let refused = memory.map(base, 4 * PAGE, PAGE);
        assert_eq!(refused, Err((Trouble::Refused(Fault::OutOfMemory), 3)));
        assert!(!memory.backs(base, 1));
        assert_eq!(memory.map(base + PAGE, 3 * PAGE, PAGE), Ok(()));
        assert!(memory.backs(base + PAGE, 3 * PAGE) && !memory.backs(base + PAGE, 3 * PAGE + 1));
        assert_eq!(memory.may_unmap(base + 2 * PAGE, PAGE, PAGE), Ok(()));
        memory.unmap(base + 2 * PAGE, PAGE);
        assert_eq!(memory.free(), Some(PAGE));
        assert!(memory.may_unmap(base + PAGE, 3 * PAGE, PAGE).is_err(), "a hole in it");
    }

    #[test]
    fn misuse_is_told_in_words() {
        let mut memory = memory(1 << 40);
        let base = memory.reserve_range(4 * PAGE, PAGE).expect("there is room");
        let text = |result: Result<(), Trouble>| match result {
            Err(Trouble::Misuse(text)) => text,
            other => panic!("{other:?}"),
        };
        assert!(text(memory.may_release(base, 4 * PAGE)).contains("no segment"));
        assert!(text(memory.may_unmap(base, PAGE, PAGE)).contains("not mapped"));
        memory.map(base, PAGE, PAGE).expect("there is room");
        let mut map = |base, bytes, page| text(memory.map(base, bytes, page).map_err(|e| e.0));
        assert!(map(base, PAGE, PAGE).contains("mapped already"));
        assert!(map(base + MIB, PAGE, PAGE).contains("off the page borders"));
        assert!(map(base + PAGE, 2 * MIB, 2 * MIB).contains("its range has"));
        assert!(map(base + 3 * PAGE, 2 * PAGE, PAGE).contains("not inside one range"));
        assert!(text(memory.release_range(base, 4 * PAGE)).contains("pages mapped"));
        assert!(text(memory.release_range(base, PAGE)).contains("it has"));
    }
}
