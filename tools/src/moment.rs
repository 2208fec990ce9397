//! Moment: `oom`, `peak`, `end`, an event's number, or `marker:TEXT`, and which entry of a trace it is.

use std::str::FromStr;

use blockyard::trace::{DeviceTrace, Kind, Recording};

/// When to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// The first request that fails in the replay, or was recorded as failed.
    Oom,
    /// After the event with the most allocated bytes.
    Peak,
    /// After the last event.
    End,
    /// After this event, counted from 0.
    Event(u32),
    /// After the first marker whose text begins so.
    Marker(String),
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "oom" => Ok(Self::Oom),
            "peak" => Ok(Self::Peak),
            "end" => Ok(Self::End),
            _ => match text.strip_prefix("marker:") {
                Some(marker) => Ok(Self::Marker(marker.to_string())),
                None => text.parse().map(Self::Event).map_err(|_| {
                    format!("{text:?} is no moment, expected oom, peak, end, an event's number or marker:TEXT")
                }),
            },
        }
    }
}

impl std::fmt::Display for When {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Oom => f.write_str("at the out-of-memory"),
            Self::Peak => f.write_str("at the peak"),
            Self::End => f.write_str("at the end"),
            Self::Event(event) => write!(f, "after event {event}"),
            Self::Marker(text) => write!(f, "at marker {text:?}"),
        }
    }
}

/// How many entries of the trace to replay so that the replay stands right after event `event`.
#[must_use]
pub fn entries_through(trace: &DeviceTrace, event: u32) -> usize {
    let mut seen = 0;
    for (index, entry) in trace.events.iter().enumerate() {
        if entry.kind.counts() {
            if seen == event {
                return index + 1;
            }
            seen += 1;
        }
    }
    trace.events.len()
}

/// How many entries to replay so that the replay stands right after the first marker that begins so.
#[must_use]
pub fn entries_to_marker(recording: &Recording, trace: &DeviceTrace, text: &str) -> Option<usize> {
    let place = trace.events.iter().position(|event| {
        event.kind == Kind::Marker
            && recording.markers.get(event.stack.0 as usize).is_some_and(|m| m.starts_with(text))
    });
    place.map(|place| place + 1)
}
