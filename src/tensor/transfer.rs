//! Transfer: from place to place, and without waiting where page-locked memory makes that possible.
//!
//! A transfer runs on a *lane*, a stream of its own for each direction, so that a device computes and
//! copies at once. Its fences:
//!
//! - Up: the destination is memory of the lane, so nothing that the device has to do stands before
//!   the copy. The first operation that touches the destination holds its own stream back until the
//!   copy is done ([`super::hazards`]).
//! - Down: the lane waits for the work of the source's stream so far. Who writes the source later
//!   waits for the copy.
//! - Page-locked memory: reading what is being written, and writing what is being read, stops the
//!   host until the copy is done. Dropped memory is reused only behind the lane's fence.

use std::sync::Arc;

use super::Tensor;
use super::dtype::DType;
use super::error::{Result, TensorError};
use super::hazards::Reached;
use super::layout::Layout;
use super::place::{Lane, Place};
use super::storage::Storage;

/// Which way a transfer goes that need not wait.
fn direction(from: &Place, to: &Place) -> Option<Lane> {
    if from.compute().bus()? != to.compute().bus()? {
        return None;
    }
    match (from.is_page_locked(), to.is_page_locked()) {
        (true, false) => Some(Lane::Up),
        (false, true) => Some(Lane::Down),
        _ => None,
    }
}

impl Tensor {
    /// Itself if it has this place and type, else a copy that has. `non_blocking` asks that a copy
    /// between places does not wait: from page-locked memory to its device, or back.
    ///
    /// # Errors
    /// No memory; no values to bring; [`TensorError::NonBlocking`] where a copy would have to wait:
    /// nothing waits in silence. With [`Place::allow_blocking_copies`] it waits and is counted.
    pub fn to(&self, place: &Place, dtype: DType, non_blocking: bool) -> Result<Self> {
        let stays = place == self.place();
        if stays && dtype == self.dtype {
            return Ok(self.clone());
        }
        if !stays && non_blocking {
            match direction(self.place(), place) {
                Some(lane) => return self.sent(place, dtype, lane),
                None if place.lets_wait() => {}
                None => return Err(self.would_wait(place)),
            }
        }
        let copy = Self::laid_out(place, self.dense_layout()?, dtype)?;
        copy.copy_(self)?;
        Ok(copy)
    }

    fn would_wait(&self, place: &Place) -> TensorError {
        TensorError::NonBlocking { from: self.place().name().into(), to: place.name().into() }
    }

    /// A copy there that arrives by itself, converted on the device unless that sends more bytes up.
    fn sent(&self, place: &Place, dtype: DType, lane: Lane) -> Result<Self> {
        let here = lane == Lane::Down || dtype.size() < self.dtype.size();
        let cast = if here && dtype != self.dtype { self.cast_there(dtype)? } else { self.clone() };
        let dense = if cast.layout.is_dense() { cast } else { cast.dense_or_temporary()? };
        let landed = Self::landing(place, dense.layout, dense.dtype, lane)?;
        landed.receive(&dense, lane, None)?;
        if landed.dtype == dtype { Ok(landed) } else { landed.to(place, dtype, false) }
    }

    /// Memory for what a lane will bring.
    fn landing(place: &Place, layout: Layout, dtype: DType, lane: Lane) -> Result<Self> {
        let layout = Layout { offset: 0, ..layout };
        let bytes = layout.elements() as u64 * dtype.size() as u64;
        let storage = match lane {
            Lane::Up => Storage::on_lane(place, lane, bytes)?,
            Lane::Down => Storage::new(place, bytes)?,
        };
        Self::over(Arc::new(storage), layout, dtype, false)
    }

    /// Overwrites a tensor on a device with one of page-locked memory, without waiting, behind the
    /// work of this tensor's stream up to `after`, or, without it, up to now. Shapes, types and
    /// strides are the same.
    pub(super) fn refill(&self, src: &Self, after: Option<&Reached>) -> Result<()> {
        let lane = direction(src.place(), self.place()).filter(|lane| *lane == Lane::Up);
        let lane = lane.ok_or_else(|| src.would_wait(self.place()))?;
        self.storage.used_in(lane);
        self.receive(src, lane, after)
    }

    /// Launches the copy. Both sides are dense alike.
    fn receive(&self, src: &Self, lane: Lane, after: Option<&Reached>) -> Result<()> {
        if self.elements() == 0 {
            return Ok(());
        }
        let (up, down) = (lane == Lane::Up, lane == Lane::Down);
        let (device, host) = if up { (self, src) } else { (src, self) };
        let place = device.place();
        let number = place.lane(lane).id();
        let launch = || {
            if let Some(after) = after {
                after.hold_back(number)?;
            }
            if down && let Some(so_far) = place.compute().mark(place.stream_id())? {
                so_far.hold_back(number)?;
            }
            // What the host still waits for must be done before the device looks.
            host.place().compute().settle(host.storage.memory(), host.place().stream_id())?;
            match lane {
                Lane::Up => place.compute().upload(self.side(), src.side(), self.bytes(), number),
                Lane::Down => {
                    place.compute().download(src.side(), self.side(), self.bytes(), number)
                }
            }
        };
        // Told before the copy is launched: if it fails, a fence too many is no harm.
        host.storage.used_in(lane);
        if down {
            src.storage.used_in(lane);
        }
        let reached = launch().map_err(|error| place.failed(error))?;
        host.place().compute().note(host.storage.memory(), reached, down);
        self.place().count_transfer(self.bytes());
        Ok(())
    }

    /// Holds later work of this tensor's stream back until every transfer to and from its storage is
    /// done; on page-locked memory, waits. Operations on tensors do this by themselves; code that
    /// launches kernels on the address must.
    ///
    /// # Errors
    /// The device's.
    pub fn settle(&self) -> Result<()> {
        let place = self.place();
        let settled = place.compute().settle(self.storage.memory(), place.stream_id());
        settled.map_err(|error| place.failed(error))
    }
}
