//! Write: recordings in the formats of other programs.
//!
//! Asked by `convert`. [`csv`] and [`planner`] need events only; [`snapshot`] and, behind it,
//! [`pickle`] need addresses, which a text trace has only after a replay. The native trace is
//! written by the library.

pub mod csv;
pub mod pickle;
pub mod planner;
pub mod snapshot;

use std::io;

use blockyard::trace::{DeviceTrace, Recording};

pub use snapshot::recording_to_snapshot;

/// A recording that cannot be written in the format that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output.
    #[error("cannot write: {0}")]
    Io(#[from] io::Error),
    /// There is no such device.
    #[error("the recording has no device {wanted}; it has {known}")]
    NoDevice {
        /// The number that was asked for.
        wanted: u32,
        /// The numbers it has.
        known: String,
    },
    /// A snapshot shows where blocks are, and the recording does not say.
    #[error(
        "event {event} of device {device} has no address: a snapshot needs a replay under some policy"
    )]
    NoAddress {
        /// The device's number.
        device: u32,
        /// Which of its events, from 0.
        event: u64,
    },
    /// The device has no place in a snapshot.
    #[error(transparent)]
    Device(#[from] blockyard::trace::snapshot::AbsurdDevice),
}

/// The trace of the device with this number.
pub fn device_of(recording: &Recording, wanted: u32) -> Result<&DeviceTrace, WriteError> {
    let found = recording.devices.iter().find(|device| device.device == wanted);
    found.ok_or_else(|| {
        let known: Vec<_> = recording.devices.iter().map(|one| one.device.to_string()).collect();
        WriteError::NoDevice { wanted, known: known.join(", ") }
    })
}
