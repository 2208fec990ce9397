//! Record: the events so far, as a recording.
//!
//! Owns which allocation lives at which address. Asked by `observe`, with plain numbers. Never knows CUDA.

use std::collections::HashMap;
use std::time::SystemTime;

use blockyard::trace::{DeviceTrace, Event, Kind, Recording};
use blockyard::vocab::StreamId;

/// A live block.
#[derive(Clone, Copy)]
struct Live {
    place: usize,
    allocation: u32,
    bytes: u64,
    stream: StreamId,
}

/// Everything recorded of this process.
pub(crate) struct Record {
    recording: Recording,
    streams: HashMap<u64, StreamId>,
    live: HashMap<u64, Live>,
    mapped: HashMap<u64, (usize, u64)>,
}

/// What is known of a call.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// Its name.
    pub(crate) name: &'static str,
    pub(crate) device: u32,
    pub(crate) stream: u64,
}

impl Record {
    pub(crate) fn new() -> Self {
        let recording = Recording {
            format: "blockyard-preload".to_owned(),
            streams: vec![0],
            pools: vec![(0, 0)],
            ..Recording::default()
        };
        let streams = HashMap::from([(0, StreamId(0))]);
        Self { recording, streams, live: HashMap::new(), mapped: HashMap::new() }
    }

    /// A recording needs a device to be one.
    pub(crate) fn recording(&mut self) -> &Recording {
        self.device(0);
        &self.recording
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.recording.devices.iter().all(|device| device.events.is_empty())
    }

    fn device(&mut self, device: u32) -> usize {
        let devices = &mut self.recording.devices;
        devices.iter().position(|known| known.device == device).unwrap_or_else(|| {
            devices.push(DeviceTrace { device, ..DeviceTrace::default() });
            devices.len() - 1
        })
    }

    fn stream(&mut self, handle: u64) -> StreamId {
        let next = StreamId(self.recording.streams.len() as u32);
        *self.streams.entry(handle).or_insert_with(|| {
            self.recording.streams.push(handle);
            next
        })
    }

    fn push(&mut self, place: usize, event: Event) {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let time_us = time.map_or(0, |time| time.as_micros() as u64);
        self.recording.devices[place].events.push(Event { time_us, ..event });
    }

    /// A block was handed out.
    pub(crate) fn allocated(&mut self, call: Call, address: u64, bytes: u64) {
        let (place, stream) = (self.device(call.device), self.stream(call.stream));
        // An address that is live still was freed where this library does not see it.
        if self.live.contains_key(&address) {
            self.recording.notice("unseen-free", "blocks were freed by calls that are not seen");
            self.freed(address, None);
        }
        let allocation = self.recording.devices[place].allocations;
        self.recording.devices[place].allocations += 1;
        let stack = self.recording.stacks.tag(call.name);
        let event = Event { address, bytes, allocation, stream, stack, ..Event::new(Kind::Alloc) };
        self.push(place, event);
        self.live.insert(address, Live { place, allocation, bytes, stream });
    }

    /// A block goes back, in the order of this stream; none: whatever it was. Its size, if it is known.
    pub(crate) fn freed(&mut self, address: u64, stream: Option<u64>) -> Option<u64> {
        let Live { place, allocation, bytes, stream: own } = self.live.remove(&address)?;
        let of = Event { address, bytes, allocation, ..Event::new(Kind::Free) };
        if let Some(stream) = stream.map(|handle| self.stream(handle)).filter(|it| *it != own) {
            self.push(place, Event { kind: Kind::Use, stream, ..of });
        }
        self.push(place, Event { stream: own, ..of });
        Some(bytes)
    }

    /// A request failed for want of memory.
    pub(crate) fn refused(&mut self, call: Call, bytes: u64, device_free: u64) {
        let (place, stream) = (self.device(call.device), self.stream(call.stream));
        let stack = self.recording.stacks.tag(call.name);
        let event = Event { address: device_free, bytes, stream, stack, ..Event::new(Kind::Oom) };
        self.push(place, event);
    }

    /// Physical memory was mapped at addresses.
    pub(crate) fn mapped(&mut self, call: Call, address: u64, bytes: u64) {
        let place = self.device(call.device);
        self.push(place, Event { address, bytes, ..Event::new(Kind::SegmentMap) });
        self.mapped.insert(address, (place, bytes));
    }

    /// Addresses lose their memory.
    pub(crate) fn unmapped(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes);
        let mut inside: Vec<u64> =
            self.mapped.keys().copied().filter(|at| (address..end).contains(at)).collect();
        inside.sort_unstable();
        for address in inside {
            if let Some((place, bytes)) = self.mapped.remove(&address) {
                self.push(place, Event { address, bytes, ..Event::new(Kind::SegmentUnmap) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Call = Call { name: "cudaMalloc", device: 1, stream: 7 };

    fn kinds(record: &mut Record) -> Vec<Kind> {
        record.recording().devices[0].events.iter().map(|event| event.kind).collect()
    }

    #[test]
    fn a_free_on_another_stream_is_a_use_by_it() {
        let mut record = Record::new();
        record.allocated(CALL, 4096, 100);
        assert_eq!(record.freed(4096, Some(9)), Some(100));
        assert_eq!(record.freed(4096, None), None, "not twice");
        assert_eq!(kinds(&mut record), [Kind::Alloc, Kind::Use, Kind::Free]);
        assert_eq!(record.recording().streams, [0, 7, 9]);
        assert_eq!(record.recording().devices[0].device, 1);
    }

    #[test]
    fn an_address_that_comes_again_was_freed_unseen() {
        let mut record = Record::new();
        record.allocated(CALL, 4096, 100);
        record.allocated(CALL, 4096, 200);
        assert_eq!(kinds(&mut record), [Kind::Alloc, Kind::Free, Kind::Alloc]);
        assert_eq!(record.recording().notices[0].code, "unseen-free");
    }

    #[test]
    fn one_unmap_ends_all_mappings_in_its_range() {
        let mut record = Record::new();
        record.mapped(CALL, 4096, 4096);
        record.mapped(CALL, 8192, 4096);
        record.mapped(CALL, 12288, 4096);
        record.unmapped(4096, 8192);
        let unmaps = kinds(&mut record).into_iter().filter(|kind| *kind == Kind::SegmentUnmap);
        assert_eq!(unmaps.count(), 2);
    }
}
