//! Streams: the same requests on one stream, to see what keeping a cache for each of several costs.

use crate::trace::{DeviceTrace, Kind};
use crate::vocab::StreamId;

/// Whether requests come from more than one stream.
pub(crate) fn uses_streams(trace: &DeviceTrace) -> bool {
    let mut asks = trace.events.iter().filter(|event| event.kind == Kind::Alloc);
    let first = asks.next().map(|event| event.stream);
    asks.any(|event| Some(event.stream) != first)
}

/// The same requests on one stream.
pub(crate) fn on_one_stream(trace: &DeviceTrace) -> DeviceTrace {
    let mut one = trace.clone();
    one.events.iter_mut().for_each(|event| event.stream = StreamId(0));
    one.segments.iter_mut().for_each(|segment| segment.stream = StreamId(0));
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Event;

    #[test]
    fn streams_are_seen_and_merged() {
        let event = |stream| Event { stream: StreamId(stream), ..Event::new(Kind::Alloc) };
        let trace = DeviceTrace { events: vec![event(3), event(3)], ..DeviceTrace::default() };
        assert!(!uses_streams(&trace));
        let trace = DeviceTrace { events: vec![event(3), event(4)], ..trace };
        assert!(uses_streams(&trace));
        assert!(!uses_streams(&on_one_stream(&trace)));
    }
}
