//! Snapshot: a recording with addresses as a snapshot in PyTorch's shape.

use std::borrow::Cow;

use blockyard::trace::snapshot::{Builder, Names, Snapshot};
use blockyard::trace::{DeviceTrace, Event, Kind, Recording};

use super::WriteError;

/// The snapshot at the recording's end, with its whole history. O(its size).
///
/// Fails if an allocation has no address; a text trace gets addresses by a replay. The caller may
/// say in [`Snapshot::blockyard`] under which policy.
pub fn recording_to_snapshot(recording: &Recording) -> Result<Snapshot, WriteError> {
    let mut builder = Builder::new(Names::of(recording));
    builder.settings_of(recording);
    for device in &recording.devices {
        for segment in &device.segments {
            builder.segment(device.device, segment);
        }
        builder.history(device.device, &with_places(device)?)?;
    }
    Ok(builder.finish())
}

/// The events, every free with the address and the size of the block it frees.
fn with_places(device: &DeviceTrace) -> Result<Cow<'_, [Event]>, WriteError> {
    let mut places = vec![(0, 0); device.allocations as usize];
    let mut events = Cow::Borrowed(&device.events[..]);
    for (index, event) in device.events.iter().enumerate() {
        let place = places.get_mut(event.allocation as usize);
        match (event.kind, place) {
            (Kind::Alloc, _) if event.address == 0 && event.bytes > 0 => {
                let counted = device.events[..index].iter().filter(|event| event.kind.counts());
                let event = counted.count() as u64;
                return Err(WriteError::NoAddress { device: device.device, event });
            }
            (Kind::Alloc, Some(place)) => *place = (event.address, event.bytes),
            (
                Kind::Free | Kind::FreeRequested | Kind::FreeCompleted,
                Some(&mut (address, bytes)),
            ) if event.address == 0 || event.bytes == 0 => {
                let event = &mut events.to_mut()[index];
                (event.address, event.bytes) = (address, bytes);
            }
            _ => {}
        }
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(address: u64) -> Recording {
        let alloc = Event { address, bytes: 100, allocation: 0, ..Event::new(Kind::Alloc) };
        let free = Event { allocation: 0, ..Event::new(Kind::Free) };
        let events = vec![Event::new(Kind::EmptyCache), alloc, free];
        let device = DeviceTrace { device: 3, events, allocations: 1, ..DeviceTrace::default() };
        Recording {
            settings: Some("max_split_size_mb:64".into()),
            settings_detail: vec![("max_split_size".into(), "67108864".into())],
            devices: vec![device],
            ..Recording::default()
        }
    }

    #[test]
    fn frees_get_the_place_of_their_block() {
        let snapshot = recording_to_snapshot(&recording(4096)).expect("a snapshot");
        let trace = &snapshot.device_traces[3];
        let told: Vec<_> = trace.iter().map(|e| (e.action, e.addr, e.size)).collect();
        let at = Some(4096);
        assert_eq!(
            told,
            [("alloc", at, 100), ("free_requested", at, 100), ("free_completed", at, 100)]
        );
        assert_eq!(snapshot.allocator_settings.0.len(), 2);
    }

    #[test]
    fn a_recording_without_addresses_is_refused() {
        let error = recording_to_snapshot(&recording(0)).expect_err("refused");
        assert_eq!(
            error.to_string(),
            "event 1 of device 3 has no address: a snapshot needs a replay under some policy"
        );
    }
}
