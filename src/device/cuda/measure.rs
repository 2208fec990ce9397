//! Measure: what driver calls cost on this device, in wall-clock time of the host.
//!
//! Asked by the check of a GPU. Never knows a cost model: the figures may become one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::error::CudaError;
use super::gpu::{Gpu, insist};
use super::ranges::Ranges;
use super::streams::CudaStreamHandle;

/// Median nanoseconds of each step of mapping one page, and of taking it away again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCosts {
    /// `cuMemAddressReserve`.
    pub reserve: u64,
    /// `cuMemCreate`.
    pub create: u64,
    /// `cuMemMap`.
    pub map: u64,
    /// `cuMemSetAccess`.
    pub access: u64,
    /// `cuMemUnmap`.
    pub unmap: u64,
    /// `cuMemRelease`.
    pub release: u64,
    /// `cuMemAddressFree`.
    pub free: u64,
}

/// Median nanoseconds of taking memory by one call and giving it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCosts {
    /// `cuMemAlloc`.
    pub alloc: u64,
    /// `cuMemFree`.
    pub free: u64,
    /// `cuMemAllocAsync` and a wait for its stream; 0 where the driver has no pools.
    pub alloc_async: u64,
    /// `cuMemFreeAsync` and a wait for its stream; 0 where the driver has no pools.
    pub free_async: u64,
}

/// Costs of a page of so many bytes.
///
/// # Errors
/// The driver failed: no memory, most likely.
pub fn page_costs(gpu: &Arc<Gpu>, bytes: u64, rounds: usize) -> Result<PageCosts, CudaError> {
    let _scope = gpu.scope()?;
    let runs: Result<Vec<[u64; 7]>, CudaError> =
        (0..rounds.max(1)).map(|_| Ranges::measure(gpu, bytes)).collect();
    let runs = runs?;
    let of = |step: usize| median(runs.iter().map(|run| run[step]).collect());
    Ok(PageCosts {
        reserve: of(0),
        create: of(1),
        map: of(2),
        access: of(3),
        unmap: of(4),
        release: of(5),
        free: of(6),
    })
}

/// Costs of a segment of so many bytes.
///
/// # Errors
/// As [`page_costs`].
pub fn segment_costs(gpu: &Arc<Gpu>, bytes: u64, rounds: usize) -> Result<SegmentCosts, CudaError> {
    let stream = CudaStreamHandle::new(gpu)?;
    let _scope = gpu.scope()?;
    let (mut direct, mut pooled) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        direct.push(direct_pair(gpu, bytes)?);
        if gpu.pools() {
            pooled.push(pooled_pair(gpu, &stream, bytes)?);
        }
    }
    let of = |pairs: &[[u64; 2]], step: usize| median(pairs.iter().map(|p| p[step]).collect());
    Ok(SegmentCosts {
        alloc: of(&direct, 0),
        free: of(&direct, 1),
        alloc_async: of(&pooled, 0),
        free_async: of(&pooled, 1),
    })
}

fn direct_pair(gpu: &Gpu, bytes: u64) -> Result<[u64; 2], CudaError> {
    let (core, mut pointer) = (&gpu.driver().core, 0);
    // SAFETY: writes one address.
    let alloc = timed(|| unsafe { (core.mem_alloc)(&mut pointer, bytes as usize) });
    gpu.check("cuMemAlloc_v2", alloc.1)?;
    // SAFETY: obtained a line above, and nobody uses it.
    let free = timed(|| unsafe { (core.mem_free)(pointer) });
    gpu.check("cuMemFree_v2", free.1)?;
    Ok([alloc.0, free.0])
}

fn pooled_pair(gpu: &Gpu, stream: &CudaStreamHandle, bytes: u64) -> Result<[u64; 2], CudaError> {
    let table = gpu.driver().pooling.as_ref().ok_or(CudaError::Unsupported("memory pools"))?;
    let mut pointer = 0;
    let alloc = timed(|| {
        // SAFETY: writes one address; the stream is kept by its handle.
        let code = unsafe { (table.alloc_default)(&mut pointer, bytes as usize, stream.raw()) };
        gpu.check("cuMemAllocAsync", code).and_then(|()| gpu.drain(stream))
    });
    alloc.1?;
    let free = timed(|| {
        // SAFETY: obtained above on the same stream, and nobody uses it.
        let code = unsafe { (table.free)(pointer, stream.raw()) };
        gpu.check("cuMemFreeAsync", code).and_then(|()| gpu.drain(stream))
    });
    free.1?;
    Ok([alloc.0, free.0])
}

/// Nanoseconds of a call, and what it returned.
pub(super) fn timed<T>(call: impl FnOnce() -> T) -> (u64, T) {
    let begun = Instant::now();
    let result = call();
    (u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX), result)
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// Memory straight from the driver, by the caller's numbers: what a program without a caching
/// allocator would do. What is live goes back when it is dropped.
pub struct Plain {
    gpu: Arc<Gpu>,
    stream: Option<CudaStreamHandle>,
    live: HashMap<u64, u64>,
}

impl Plain {
    /// `cuMemAlloc` and `cuMemFree`.
    #[must_use]
    pub fn direct(gpu: &Arc<Gpu>) -> Self {
        Self { gpu: Arc::clone(gpu), stream: None, live: HashMap::new() }
    }

    /// `cuMemAllocAsync` and `cuMemFreeAsync` on a stream, which is not waited for.
    ///
    /// # Errors
    /// The driver failed, or has no pools.
    pub fn pooled(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        if !gpu.pools() {
            return Err(CudaError::Unsupported("memory pools"));
        }
        let stream = Some(CudaStreamHandle::new(gpu)?);
        Ok(Self { gpu: Arc::clone(gpu), stream, live: HashMap::new() })
    }

    /// Takes memory under a number that is not in use.
    ///
    /// # Errors
    /// The driver failed.
    pub fn alloc(&mut self, id: u64, bytes: u64) -> Result<(), CudaError> {
        let _scope = self.gpu.scope()?;
        let (driver, mut pointer) = (self.gpu.driver(), 0);
        let bytes = bytes as usize;
        let code = match (&self.stream, &driver.pooling) {
            // SAFETY: writes one address; the stream is kept by its handle.
            (Some(stream), Some(table)) => unsafe {
                (table.alloc_default)(&mut pointer, bytes, stream.raw())
            },
            // SAFETY: writes one address.
            _ => unsafe { (driver.core.mem_alloc)(&mut pointer, bytes) },
        };
        self.gpu.check("an allocation", code)?;
        self.live.insert(id, pointer);
        Ok(())
    }

    /// Gives memory back.
    ///
    /// # Errors
    /// The driver failed.
    pub fn free(&mut self, id: u64) -> Result<(), CudaError> {
        let Some(&pointer) = self.live.get(&id) else { return Ok(()) };
        let _scope = self.gpu.scope()?;
        let driver = self.gpu.driver();
        let code = match (&self.stream, &driver.pooling) {
            // SAFETY: taken on this stream, given back once.
            (Some(stream), Some(table)) => unsafe { (table.free)(pointer, stream.raw()) },
            // SAFETY: taken by `alloc`, given back once.
            _ => unsafe { (driver.core.mem_free)(pointer) },
        };
        self.gpu.check("a free", code)?;
        self.live.remove(&id);
        Ok(())
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        let ids: Vec<u64> = self.live.keys().copied().collect();
        for id in ids {
            insist(|| self.free(id));
        }
    }
}
