//! Watch: what a program wants to know of its allocator, and what that takes outside the lock.
//!
//! Owns the hooks, the recorder's clock, the depth of call stacks, the thresholds and the names of
//! streams. Asked by the shell before it takes the lock and after it has let go. Never knows the
//! heap.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Config;
use super::alarm::Alarms;
use super::clock::Clock;
use super::failure::Writers;
use super::sync::{Arc, Slow};
use super::tags;
use crate::vocab::{CallStackId, Origin, StreamId};

pub(crate) struct Watch {
    /// Whether a request has anything to do for us: one load and a predictable branch. Orders nothing.
    busy: AtomicBool,
    stacks: bool,
    pub clock: Arc<Clock>,
    #[cfg(feature = "stacks")]
    stack_depth: usize,
    pub device_index: u32,
    /// The driver's handles of streams.
    pub streams: Slow<HashMap<u64, StreamId>>,
    pub alarms: Alarms,
    pub writers: Writers,
}

impl Watch {
    pub(crate) fn new(config: &Config) -> Self {
        let clock = Clock::new(config.clock_every);
        #[cfg(feature = "stacks")]
        let stacks = config.stack_depth > 0;
        #[cfg(not(feature = "stacks"))]
        let stacks = false;
        Self {
            busy: AtomicBool::new((config.record > 0 && clock.runs()) || stacks),
            stacks,
            clock: Arc::new(clock),
            #[cfg(feature = "stacks")]
            stack_depth: config.stack_depth,
            device_index: config.device_index,
            streams: Slow::new(HashMap::from([(0, StreamId(0))])),
            alarms: Alarms::default(),
            writers: Writers::default(),
        }
    }

    /// The driver's handle of a stream; none of the default stream.
    pub(crate) fn handle_of(&self, stream: StreamId) -> Option<u64> {
        let streams = self.streams.lock();
        let found = streams.iter().find(|named| *named.1 == stream && *named.0 != 0);
        found.map(|named| *named.0)
    }

    /// Who makes the present request. Called before the lock is taken.
    #[inline]
    pub(crate) fn origin(&self) -> Origin {
        let stack = if self.busy.load(Ordering::Relaxed) { self.look() } else { CallStackId::NONE };
        Origin { tag: tags::current(), stack }
    }

    /// Whether the recorder wants the time.
    pub(crate) fn look_for_recorder(&self, records: bool) {
        let busy = (records && self.clock.runs()) || self.stacks;
        self.busy.store(busy, Ordering::Relaxed);
    }

    #[inline(never)]
    fn look(&self) -> CallStackId {
        self.clock.tick();
        #[cfg(feature = "stacks")]
        if self.stack_depth > 0 {
            return super::stacks::capture(self.stack_depth);
        }
        CallStackId::NONE
    }
}
