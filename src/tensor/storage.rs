//! Storage: memory that tensors share: it goes back when the last of them is dropped.
//!
//! Owns one block of the place's allocator, or a mapped file. Asked by tensors. Never knows shapes.
//! **X2**: every storage starts at a multiple of [`ALIGNMENT`] bytes.

use super::compute::Region;
use super::dlpack::DlPack;
use super::error::{Result, TensorError};
use super::place::{Lane, Place};
use crate::allocator::DeviceBuffer;
use crate::device::{HostFile, HostMemory};
use crate::vocab::Address;

/// Every storage starts at a multiple of so many bytes: enough for any vector load.
pub const ALIGNMENT: u64 = 256;

/// Memory with a place. Dropped: dismissed from the place's work first, then freed.
#[derive(Debug)]
pub struct Storage {
    place: Place,
    memory: Region,
    buffer: Option<DeviceBuffer>,
    admitted: bool,
    /// Dropped last: another library's memory.
    _foreign: Option<Foreign>,
}

/// Memory of another library, which takes it back when this is dropped.
#[derive(Debug)]
pub(super) enum Foreign {
    /// Lent to the memory that the host's place claims from.
    Host(HostMemory, Region),
    /// On a device, where nothing is claimed.
    Device(#[expect(dead_code, reason = "for its drop")] Box<DlPack>),
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Self::Host(memory, region) = self {
            memory.release(region.address, region.bytes);
        }
    }
}

impl Storage {
    /// New memory. What stands in it is not defined.
    pub(super) fn new(place: &Place, bytes: u64) -> Result<Self> {
        Self::of_buffer(place, place.stream().alloc(bytes)?, bytes)
    }

    /// New memory that belongs to a lane and is used by the place's stream: the lane writes it first
    /// and need not wait for what the stream has to do.
    pub(super) fn on_lane(place: &Place, lane: Lane, bytes: u64) -> Result<Self> {
        let buffer = place.lane(lane).alloc(bytes)?;
        buffer.record_stream(place.stream());
        Self::of_buffer(place, buffer, bytes)
    }

    fn of_buffer(place: &Place, buffer: DeviceBuffer, bytes: u64) -> Result<Self> {
        let memory = Region { address: buffer.address(), bytes };
        let mut storage = Self {
            place: place.clone(),
            memory,
            buffer: Some(buffer),
            admitted: false,
            _foreign: None,
        };
        storage.assert_aligned();
        if bytes > 0 {
            place.compute().admit(memory).map_err(|error| place.failed(error))?;
            storage.admitted = true;
        }
        Ok(storage)
    }

    /// A file as it is, or a copy of it where the place cannot use it so.
    pub(super) fn of_file(place: &Place, file: HostFile) -> Result<Self> {
        let storage = match place.compute().adopt(file) {
            Ok(memory) => {
                Self { place: place.clone(), memory, buffer: None, admitted: true, _foreign: None }
            }
            Err(file) => {
                let storage = Self::new(place, file.bytes().len() as u64)?;
                let written =
                    place.compute().write(storage.start(), file.bytes(), place.stream_id());
                written.map_err(|error| place.failed(error))?;
                place.count_transfer(storage.memory.bytes);
                storage
            }
        };
        storage.assert_aligned();
        Ok(storage)
    }

    /// Memory of another library, which need not start where ours does.
    pub(super) fn of_foreign(place: &Place, memory: Region, foreign: Foreign) -> Result<Self> {
        let (place, _foreign) = (place.clone(), Some(foreign));
        let mut storage = Self { place, memory, buffer: None, admitted: false, _foreign };
        let admitted = storage.place.compute().admit(memory);
        admitted.map_err(|error| storage.place.failed(error))?;
        storage.admitted = true;
        Ok(storage)
    }

    fn assert_aligned(&self) {
        let address = self.memory.address;
        assert!(address.0.is_multiple_of(ALIGNMENT), "X2: a storage at {address}");
    }

    fn start(&self) -> super::compute::Side {
        super::compute::Side { memory: self.memory, dtype: super::DType::U8, offset: 0 }
    }

    /// Where it lives.
    #[must_use]
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// Where it starts; 0 of a storage without bytes.
    #[must_use]
    pub const fn address(&self) -> Address {
        self.memory.address
    }

    /// How long it is, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.memory.bytes
    }

    pub(super) const fn memory(&self) -> Region {
        self.memory
    }

    /// Whether it is a mapped file, or memory of another library.
    #[must_use]
    pub const fn is_mapped(&self) -> bool {
        self.buffer.is_none()
    }

    /// `user`'s stream works on it too: its memory is reused only when that work is done.
    pub(super) fn used_by(&self, user: &Place) {
        if let Some(buffer) = self.buffer.as_ref().filter(|_| user == &self.place) {
            buffer.record_stream(user.stream());
        }
    }

    /// A lane copies from it or to it: its memory is reused only when that is done.
    pub(super) fn used_in(&self, lane: Lane) {
        if let Some(buffer) = &self.buffer {
            buffer.record_stream(&self.place.lane(lane));
        }
    }

    /// That a storage with so many users may be resized.
    pub(super) fn resizable(&self, users: usize) -> Result<()> {
        if users == 1 && !self.is_mapped() { Ok(()) } else { Err(TensorError::Shared { users }) }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if self.admitted {
            self.place.compute().dismiss(self.memory);
        }
    }
}
