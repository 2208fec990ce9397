//! World: who answers the engine's wants in a replay: the device model, or the recording.

use crate::device::{Device, RecordedDevice, SimDevice};
use crate::vocab::{Answer, Serial, StreamId, Want};

/// Who answers.
pub(super) enum World {
    Simulated(Box<SimDevice>),
    Recorded(Box<RecordedDevice>),
}

impl World {
    pub(super) fn perform(&mut self, want: Want) -> Answer {
        match self {
            Self::Simulated(device) => device.perform(want),
            Self::Recorded(device) => device.perform(want),
        }
    }

    pub(super) fn pass(&mut self, stream: StreamId, serial: Serial) {
        match self {
            Self::Simulated(device) => device.pass(stream, serial),
            Self::Recorded(device) => device.pass(stream, serial),
        }
    }
}
