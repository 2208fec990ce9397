//! Ranges: address space of the driver, and the pages that are mapped into it.
//!
//! Asked by the device. Never knows segments or fences.
//!
//! ```text
//!   cuMemAddressReserve    |.....................................|   addresses, no memory
//!   cuMemCreate, cuMemMap        |page|page|page|                    a handle each, by its offset
//!   cuMemSetAccess               |--------------|                    once for what was mapped
//! ```
//!
//! A mapping is all or nothing: what was done is undone when a later step fails. Handles are kept
//! until the last page of a call is unmapped, so that a failure half-way can be put back.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::CudaError;
use super::gpu::{Gpu, insist};
use super::measure::timed;
use super::table::Paging;

/// One address range.
#[derive(Debug)]
struct Range {
    bytes: u64,
    page: u64,
    /// The handles of mapped pages by address.
    pages: BTreeMap<u64, u64>,
}

/// All address ranges of one device.
pub(super) struct Ranges {
    gpu: Arc<Gpu>,
    live: BTreeMap<u64, Range>,
    /// Handles that the driver did not take back; tried again later.
    stuck: Vec<u64>,
}

impl Ranges {
    pub(super) const fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu, live: BTreeMap::new(), stuck: Vec::new() }
    }

    /// Whether these pages of one range can be mapped, or, if `mapped`, unmapped.
    pub(super) fn covers(&self, base: u64, bytes: u64, page: u64, mapped: bool) -> bool {
        let found = self.live.range(..=base).next_back();
        let Some((&from, range)) = found.filter(|(_, range)| range.page == page) else {
            return false;
        };
        let Some(end) = base.checked_add(bytes).filter(|end| *end <= from + range.bytes) else {
            return false;
        };
        let on_borders = (base - from).is_multiple_of(page) && bytes.is_multiple_of(page);
        let there = range.pages.range(base..end).count() as u64;
        bytes > 0 && on_borders && there == if mapped { bytes / page } else { 0 }
    }

    /// The size of the range that starts at `base`, if nothing is mapped in it.
    pub(super) fn empty_size(&self, base: u64) -> Option<u64> {
        let range = self.live.get(&base).filter(|range| range.pages.is_empty());
        range.map(|range| range.bytes)
    }

    /// Addresses for `bytes`, or for half of them as often as it takes: base and size.
    pub(super) fn reserve(&mut self, bytes: u64, page: u64) -> Result<(u64, u64), CudaError> {
        let table = self.table()?;
        let mut bytes = bytes;
        loop {
            let mut base = 0;
            let align = self.gpu.granularity() as usize;
            // SAFETY: writes one address; no address is wished for, flags must be 0.
            let code = unsafe { (table.address_reserve)(&mut base, bytes as usize, align, 0, 0) };
            match self.gpu.check("cuMemAddressReserve", code) {
                Ok(()) => {
                    self.live.insert(base, Range { bytes, page, pages: BTreeMap::new() });
                    return Ok((base, bytes));
                }
                Err(error)
                    if bytes <= page || error.code() != Some(super::error::OUT_OF_MEMORY) =>
                {
                    return Err(error);
                }
                Err(_) => bytes = (bytes / 2).next_multiple_of(page).min(bytes - page),
            }
        }
    }

    /// Gives an empty range back.
    pub(super) fn release(&mut self, base: u64) -> Result<(), CudaError> {
        let table = self.table()?;
        if let Some(range) = self.live.get(&base) {
            // SAFETY: reserved with this base and size; nothing is mapped in it.
            let code = unsafe { (table.address_free)(base, range.bytes as usize) };
            self.gpu.check("cuMemAddressFree", code)?;
            self.live.remove(&base);
        }
        Ok(())
    }

    /// Maps fresh pages; [`Ranges::covers`] agreed.
    pub(super) fn map(&mut self, base: u64, bytes: u64, page: u64) -> Result<(), CudaError> {
        let table = self.table()?;
        let mut fresh = Fresh { gpu: &self.gpu, table, page, pages: Vec::new() };
        for at in (base..base + bytes).step_by(page as usize) {
            fresh.add(at)?;
        }
        access(&self.gpu, table, base, bytes)?;
        let pages = std::mem::take(&mut fresh.pages);
        drop(fresh);
        if let Some((_, range)) = self.live.range_mut(..=base).next_back() {
            range.pages.extend(pages);
        }
        Ok(())
    }

    /// Unmaps pages that no work uses any more; [`Ranges::covers`] agreed.
    pub(super) fn unmap(&mut self, base: u64, bytes: u64, page: u64) -> Result<(), CudaError> {
        let table = self.table()?;
        let Some((_, range)) = self.live.range_mut(..=base).next_back() else { return Ok(()) };
        for at in (base..base + bytes).step_by(page as usize) {
            if let Err(error) = unmap_page(&self.gpu, table, at, page) {
                put_back(&self.gpu, table, range, base..at);
                return Err(error);
            }
        }
        let gone: Vec<u64> = range.pages.range(base..base + bytes).map(|(at, _)| *at).collect();
        let handles = gone.iter().filter_map(|at| range.pages.remove(at));
        self.stuck.extend(handles);
        self.give_handles();
        Ok(())
    }

    /// Nanoseconds of each step of one page's life; see [`super::measure`].
    pub(super) fn measure(gpu: &Arc<Gpu>, bytes: u64) -> Result<[u64; 7], CudaError> {
        let mut ranges = Self::new(Arc::clone(gpu));
        let table = ranges.table()?;
        let (reserve, got) = timed(|| ranges.reserve(bytes, bytes));
        let (base, _) = got?;
        let mut fresh = Fresh { gpu, table, page: bytes, pages: Vec::new() };
        let (create, handle) = timed(|| fresh.create());
        let handle = handle?;
        let (map, mapped) = timed(|| fresh.map(base, handle));
        mapped?;
        let (set, granted) = timed(|| access(gpu, table, base, bytes));
        granted?;
        fresh.pages.clear();
        let (unmap, unmapped) = timed(|| unmap_page(gpu, table, base, bytes));
        let (release, released) = timed(|| release_handle(gpu, table, handle));
        unmapped.and(released)?;
        let (free, freed) = timed(|| ranges.release(base));
        freed?;
        Ok([reserve, create, map, set, unmap, release, free])
    }

    /// Gives the handles of unmapped pages back; those that the driver refuses stay.
    fn give_handles(&mut self) {
        let Ok(table) = self.table() else { return };
        self.stuck.retain(|&handle| !insist(|| release_handle(&self.gpu, table, handle)));
    }

    fn table(&self) -> Result<&'static Paging, CudaError> {
        self.gpu.driver().paging.as_ref().ok_or(CudaError::Unsupported("pages"))
    }
}

/// Pages on their way into a range; what is in here when it is dropped is undone.
struct Fresh<'a> {
    gpu: &'a Gpu,
    table: &'static Paging,
    page: u64,
    pages: Vec<(u64, u64)>,
}

impl Fresh<'_> {
    fn add(&mut self, at: u64) -> Result<(), CudaError> {
        let handle = self.create()?;
        self.map(at, handle)
    }

    fn create(&self) -> Result<u64, CudaError> {
        let (prop, mut handle) = (self.gpu.page_prop(), 0);
        // SAFETY: reads the properties, writes one handle; flags must be 0.
        let code = unsafe { (self.table.create)(&mut handle, self.page as usize, &prop, 0) };
        self.gpu.check("cuMemCreate", code)?;
        Ok(handle)
    }

    /// A handle that cannot be mapped is given back.
    fn map(&mut self, at: u64, handle: u64) -> Result<(), CudaError> {
        if let Err(error) = map_page(self.gpu, self.table, at, self.page, handle) {
            insist(|| release_handle(self.gpu, self.table, handle));
            return Err(error);
        }
        self.pages.push((at, handle));
        Ok(())
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        for (at, handle) in self.pages.drain(..) {
            insist(|| unmap_page(self.gpu, self.table, at, self.page));
            insist(|| release_handle(self.gpu, self.table, handle));
        }
    }
}

fn map_page(gpu: &Gpu, table: &Paging, at: u64, page: u64, handle: u64) -> Result<(), CudaError> {
    // SAFETY: the addresses are reserved and nothing is mapped there; the handle has this size.
    gpu.check("cuMemMap", unsafe { (table.map)(at, page as usize, 0, handle, 0) })
}

fn unmap_page(gpu: &Gpu, table: &Paging, at: u64, page: u64) -> Result<(), CudaError> {
    // SAFETY: exactly one page, mapped by `map_page`; its work was waited for.
    gpu.check("cuMemUnmap", unsafe { (table.unmap)(at, page as usize) })
}

fn release_handle(gpu: &Gpu, table: &Paging, handle: u64) -> Result<(), CudaError> {
    // SAFETY: created in `Fresh::add`, forgotten once this succeeds.
    gpu.check("cuMemRelease", unsafe { (table.release)(handle) })
}

fn access(gpu: &Gpu, table: &Paging, base: u64, bytes: u64) -> Result<(), CudaError> {
    let who = gpu.access();
    // SAFETY: all of it is mapped; reads so many descriptions.
    let code = unsafe { (table.set_access)(base, bytes as usize, who.as_ptr(), who.len()) };
    gpu.check("cuMemSetAccess", code)
}

/// Maps pages again that were unmapped a moment ago. Contents are the same memory's.
fn put_back(gpu: &Gpu, table: &Paging, range: &Range, gone: std::ops::Range<u64>) {
    let bytes = gone.end - gone.start;
    for (&at, &handle) in range.pages.range(gone.clone()) {
        insist(|| map_page(gpu, table, at, range.page, handle));
    }
    if bytes > 0 {
        insist(|| access(gpu, table, gone.start, bytes));
    }
}

impl Drop for Ranges {
    fn drop(&mut self) {
        let Some(_scope) = self.gpu.last_scope() else { return };
        let Ok(table) = self.table() else { return };
        if !self.live.is_empty() {
            // What is still cached may be used by work that nobody waited for.
            let _ = self.gpu.synchronize();
        }
        for (base, range) in std::mem::take(&mut self.live) {
            for (at, handle) in range.pages {
                insist(|| unmap_page(&self.gpu, table, at, range.page));
                self.stuck.push(handle);
            }
            insist(|| {
                // SAFETY: reserved with this base and size; nothing is mapped in it any more.
                let code = unsafe { (table.address_free)(base, range.bytes as usize) };
                self.gpu.check("cuMemAddressFree", code)
            });
        }
        self.give_handles();
    }
}
