//! Segment: memory obtained from the driver in one call, or an address range that pages are mapped
//! into.
//!
//! **S1** its blocks tile it exactly. **S2** segments never overlap, but for
//! one on its way out, whose addresses the driver may already have given away.

/// One segment. Sizes are bytes.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Where it starts.
    pub base: u64,
    /// What it spans.
    pub bytes: u64,
    /// Creation order: 0 was first.
    pub order: u32,
    /// The free lists its blocks return to.
    pub lists: u32,
    /// Its first block by address.
    pub first: u32,
    /// The page size, of a page-mapped segment; 0 of a whole one.
    pub page: u64,
}

impl Segment {
    /// Whether pages are mapped into it.
    #[inline]
    #[must_use]
    pub const fn is_paged(&self) -> bool {
        self.page != 0
    }

    /// The whole pages inside `start..end`, as a range; empty (`start == end`) where there are
    /// none.
    #[must_use]
    pub const fn pages_inside(&self, start: u64, end: u64) -> (u64, u64) {
        let first = self.base + (start - self.base).next_multiple_of(self.page);
        let last = self.base + (end - self.base) / self.page * self.page;
        if first < last { (first, last) } else { (start, start) }
    }
}
