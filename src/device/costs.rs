//! Costs: what driver calls cost, as data: a model, not a measurement.
//!
//! Asked by the simulator, once a call. Never knows the state of a device: it is told sizes and
//! counts.
//!
//! The default figures come from published measurements on A100 GPUs and from common reports; a
//! figure that rests on them should say so. Nothing here was measured with this crate.

use crate::vocab::MIB;

/// The price of one call: `fixed` nanoseconds, and `per_mib` nanoseconds for each MiB beyond
/// `beyond` bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Nanoseconds for the call, whatever its size.
    pub fixed: u64,
    /// Nanoseconds for each MiB.
    pub per_mib: u64,
    /// Bytes that are covered by the fixed part.
    pub beyond: u64,
}

impl Price {
    /// A price of microseconds for the call and nanoseconds for each MiB of it.
    #[must_use]
    pub const fn new(fixed_us: u64, per_mib: u64) -> Self {
        Self { fixed: fixed_us * 1_000, per_mib, beyond: 0 }
    }

    /// The same, with the first 2 MiB covered by the fixed part.
    #[must_use]
    pub const fn beyond_page(fixed_us: u64, per_mib: u64) -> Self {
        Self { fixed: fixed_us * 1_000, per_mib, beyond: 2 * MIB }
    }

    /// Nanoseconds for a call on `bytes`.
    #[must_use]
    pub const fn of(&self, bytes: u64) -> u64 {
        let counted = bytes.saturating_sub(self.beyond);
        let sized = counted as u128 * self.per_mib as u128 / MIB as u128;
        self.fixed + sized as u64
    }
}

/// The prices of all calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostModel {
    /// `cuMemAlloc`.
    pub alloc: Price,
    /// `cuMemFree`; it waits for work besides.
    pub free: Price,
    /// `cuMemAddressReserve`.
    pub address_reserve: Price,
    /// `cuMemAddressFree`.
    pub address_free: Price,
    /// `cuMemCreate`, one handle.
    pub create: Price,
    /// `cuMemMap`, one handle.
    pub map: Price,
    /// `cuMemSetAccess`, one range.
    pub set_access: Price,
    /// `cuMemUnmap`, one range.
    pub unmap: Price,
    /// `cuMemRelease`, one handle.
    pub release: Price,
    /// Recording an event, asking for it, or ordering a stream behind it.
    pub event: Price,
    /// Waiting for a stream or the device, besides the work that is outstanding.
    pub synchronise: Price,
    /// Nanoseconds of one item of simulated work, for the calls that wait for it.
    pub work_item: u64,
}

impl Default for CostModel {
    fn default() -> Self {
        Self {
            // Common reports of cudaMalloc and cudaFree.
            alloc: Price::new(50, 800),
            free: Price::new(50, 400),
            // vAttention (arXiv 2405.04437), table 3: microseconds for 2 MiB on an A100.
            address_reserve: Price::new(2, 0),
            address_free: Price::new(1, 0),
            // The fixed parts of these five: the same table. Their parts for each MiB: fitted to
            // table 1 of GMLake (ASPLOS 2024), which builds 2 GB from chunks of 2, 128 and 1,024
            // MB.
            create: Price::beyond_page(29, 600),
            map: Price::new(2, 0),
            set_access: Price::beyond_page(38, 500),
            unmap: Price::beyond_page(34, 200),
            release: Price::new(23, 100),
            // Common reports of event and synchronise calls.
            event: Price::new(1, 0),
            synchronise: Price::new(5, 0),
            // No source: simulated work takes no time unless a test says otherwise.
            work_item: 0,
        }
    }
}

impl CostModel {
    /// Prices of page-locked host memory (`cudaHostAlloc`, `cudaFreeHost`; common reports): the
    /// pages are pinned one by one, which is why the part for each MiB is so large.
    #[must_use]
    pub fn page_locked() -> Self {
        Self { alloc: Price::new(100, 150_000), free: Price::new(100, 150_000), ..Self::default() }
    }

    /// A model in which nothing costs anything.
    #[must_use]
    pub const fn zero() -> Self {
        const FREE: Price = Price { fixed: 0, per_mib: 0, beyond: 0 };
        Self {
            alloc: FREE,
            free: FREE,
            address_reserve: FREE,
            address_free: FREE,
            create: FREE,
            map: FREE,
            set_access: FREE,
            unmap: FREE,
            release: FREE,
            event: FREE,
            synchronise: FREE,
            work_item: 0,
        }
    }

    /// Mapping `pages` pages: a handle created and mapped for each, access set once for the whole
    /// range.
    #[must_use]
    pub const fn map_pages(&self, pages: u64, page: u64) -> u64 {
        pages * (self.create.of(page) + self.map.of(page)) + self.set_access.of(pages * page)
    }

    /// Unmapping `pages` pages: one call for the whole range, then each handle released.
    #[must_use]
    pub const fn unmap_pages(&self, pages: u64, page: u64) -> u64 {
        self.unmap.of(pages * page) + pages * self.release.of(page)
    }

    /// A mapping that the driver refused after `created` handles, which were released again.
    #[must_use]
    pub const fn refused_map(&self, created: u64, page: u64) -> u64 {
        created * (self.create.of(page) + self.release.of(page)) + self.create.fixed
    }
}

#[cfg(test)]
mod tests {
    use super::{CostModel, Price};
    use crate::vocab::{GIB, MIB};

    #[test]
    fn a_price_has_a_fixed_part_and_a_part_for_each_mib() {
        assert_eq!(Price::new(50, 800).of(20 * MIB), 50_000 + 20 * 800);
        assert_eq!(Price::new(0, 800).of(MIB / 2), 400);
        assert_eq!(Price::beyond_page(29, 600).of(2 * MIB), 29_000);
        assert_eq!(Price::beyond_page(29, 600).of(20 * MIB), 29_000 + 18 * 600);
        assert_eq!(Price::new(0, 150_000).of(1 << 44), 150_000 << 24, "no overflow at 16 TiB");
    }

    #[test]
    fn small_pages_cost_more_than_one_allocation_of_the_same_bytes() {
        let costs = CostModel::default();
        let whole = costs.alloc.of(2 * GIB);
        let paged = costs.map_pages(1024, 2 * MIB);
        assert!(paged > 10 * whole, "{paged} {whole}");
        assert!(costs.map_pages(2, GIB) < 3 * whole);
    }

    #[test]
    fn one_page_costs_the_sum_of_its_calls() {
        let costs = CostModel::default();
        assert_eq!(costs.map_pages(1, 2 * MIB), 29_000 + 2_000 + 38_000);
        assert_eq!(costs.unmap_pages(1, 2 * MIB), 34_000 + 23_000 + 200);
        assert_eq!(costs.refused_map(0, 2 * MIB), 29_000);
    }
}
