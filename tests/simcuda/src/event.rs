//! Event: marks in streams, with the moment at which work got there.
//!
//! Asked by the entry points and by the worker that reaches a mark.

use crate::code::{self, Code};
use crate::stream::Point;
use crate::world::World;
use std::time::Instant;

/// No moments are kept.
pub const DISABLE_TIMING: u32 = 2;

/// Where an event was recorded last.
#[derive(Clone, Debug)]
pub enum Mark {
    Never,
    At(Point),
    /// In a capture, behind these nodes.
    Captured {
        capture: u64,
        nodes: Vec<usize>,
    },
}

/// An event.
#[derive(Clone, Debug)]
pub struct Event {
    pub context: u64,
    pub flags: u32,
    pub mark: Mark,
    /// Counts records; a worker's moment counts only if it is of the last one.
    pub number: u64,
    pub reached: Option<Instant>,
}

impl World {
    pub fn event(&self, handle: u64) -> Result<&Event, Code> {
        self.events.get(&handle).ok_or(code::INVALID_HANDLE)
    }

    pub fn event_mut(&mut self, handle: u64) -> Result<&mut Event, Code> {
        self.events.get_mut(&handle).ok_or(code::INVALID_HANDLE)
    }

    /// Whether all work before the event's mark is done.
    pub fn has_passed(&self, event: &Event) -> bool {
        match event.mark {
            Mark::At(point) => self.is_done(point),
            _ => true,
        }
    }

    /// A worker got to the mark.
    pub fn recorded(&mut self, event: u64, number: u64, now: Instant) {
        if let Some(event) = self.events.get_mut(&event).filter(|event| event.number == number) {
            event.reached = Some(now);
        }
    }
}
