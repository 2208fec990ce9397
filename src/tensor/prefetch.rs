//! Prefetch: batches that are on their way to a device before they are asked for.
//!
//! ```text
//!   source --> staging (page-locked, depth) --lane--> landing (device, depth + 1) --> program
//!                batch 4      batch 3                   batch 2, 3        batch 1 in its hands
//! ```
//!
//! No thread: each call launches copies until `depth` of them are under way, and gives out the
//! oldest. *Back-pressure*: memory is bounded by the two pools. A source is asked only when a landing
//! is free; a copy into a landing waits, on the device, for what its last user had launched, and the
//! host waits only for a staging that is still being read. *Order*: batches come as the source gave
//! them, and so does an error, in its place.

use std::collections::VecDeque;

use super::Tensor;
use super::dtype::DType;
use super::error::{Result, TensorError};
use super::place::Place;
use super::pool::{PoolStats, Pooled, TensorPool};

/// A batch, and what it is being copied from.
#[derive(Debug)]
struct Batch {
    landing: Pooled,
    _staging: Option<Pooled>,
}

/// An iterator over batches on a device. Dropping a batch lets its memory be filled again, behind
/// the work that was launched on its stream by then.
#[derive(Debug)]
pub struct Prefetcher<I> {
    source: I,
    staging: TensorPool,
    pinned: Place,
    landing: TensorPool,
    coming: VecDeque<Result<Batch>>,
    depth: usize,
    ended: bool,
}

impl<I: Iterator<Item = Result<Tensor>>> Prefetcher<I> {
    /// Batches of this shape and type from `source`, by way of page-locked memory, `depth` of them
    /// ahead. A batch that is page-locked already is sent as it is.
    ///
    /// # Errors
    /// A depth of zero; [`TensorError::NonBlocking`] if copies from `pinned` to `device` wait.
    pub fn new(
        source: I,
        pinned: &Place,
        device: &Place,
        (shape, dtype): (&[usize], DType),
        depth: usize,
    ) -> Result<Self> {
        if depth == 0 {
            return Err(TensorError::Zero { what: "the depth of a prefetcher" });
        }
        let on_one_bus =
            pinned.compute().bus().is_some_and(|bus| device.compute().bus() == Some(bus));
        if !on_one_bus || !pinned.is_page_locked() || device.is_page_locked() {
            let (from, to) = (pinned.name().into(), device.name().into());
            return Err(TensorError::NonBlocking { from, to });
        }
        Ok(Self {
            source,
            staging: TensorPool::new(pinned, shape, dtype, depth.saturating_add(1)),
            pinned: pinned.clone(),
            landing: TensorPool::new(device, shape, dtype, depth.saturating_add(1)),
            coming: VecDeque::new(),
            depth,
            ended: false,
        })
    }

    /// How many batches are on their way.
    #[must_use]
    pub fn coming(&self) -> usize {
        self.coming.len()
    }

    /// What the page-locked and the device's tensors did.
    #[must_use]
    pub fn stats(&self) -> (PoolStats, PoolStats) {
        (self.staging.stats(), self.landing.stats())
    }

    fn fill(&mut self) {
        while self.coming.len() < self.depth && !self.ended {
            // A program that holds batches back holds the source back.
            if !self.landing.has_one() {
                return;
            }
            match self.source.next() {
                Some(batch) => {
                    let sent = batch.and_then(|batch| self.send(&batch));
                    self.coming.push_back(sent);
                }
                None => self.ended = true,
            }
        }
    }

    fn send(&self, batch: &Tensor) -> Result<Batch> {
        self.landing.fits(batch)?;
        let landing = self.landing.take()?;
        if batch.place() == &self.pinned {
            let dense = batch.contiguous()?;
            landing.refill(&dense, landing.free_at())?;
            return Ok(Batch { landing, _staging: None });
        }
        // Its last copy may still be read: writing to it waits for that.
        let staging = self.staging.take()?;
        staging.copy_(batch)?;
        landing.refill(&staging, landing.free_at())?;
        Ok(Batch { landing, _staging: Some(staging) })
    }
}

impl<I: Iterator<Item = Result<Tensor>>> Iterator for Prefetcher<I> {
    type Item = Result<Pooled>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.fill();
            if let Some(batch) = self.coming.pop_front() {
                return Some(batch.map(|batch| batch.landing));
            }
            if self.ended {
                return None;
            }
            // The program holds every tensor: it hears of it, and the source keeps its batch.
            if let Err(error) = self.landing.take() {
                return Some(Err(error));
            }
        }
    }
}
