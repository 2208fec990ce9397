//! Fences: events of the driver, by stream and serial.
//!
//! Asked by the device. Never knows memory. Events are reused: one is free again as soon as the
//! fence that it stood for has passed. Fences of a stream pass in the order of their serials, so a
//! poll asks for the oldest, and only if that has passed searches for the newest that has.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::error::{CudaError, NOT_READY};
use super::gpu::{Gpu, insist};
use super::streams::{CudaStreamHandle, Streams};
use super::table::Handle;
use crate::vocab::{Serial, StreamId};

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;

/// An event of the driver.
#[derive(Debug)]
struct Event(Handle);

/// A stream's fences that have not passed, as far as anyone knows, oldest first.
#[derive(Debug, Default)]
struct Queue {
    recorded: Serial,
    passed: Serial,
    pending: VecDeque<(Serial, Event)>,
}

/// All fences of one device.
pub(super) struct Fences {
    gpu: Arc<Gpu>,
    streams: Arc<Streams>,
    queues: HashMap<StreamId, Queue>,
    idle: Vec<Event>,
}

/// What a fence call can come to but success.
#[derive(Debug)]
pub(super) enum Amiss {
    /// The caller's mistake.
    Misuse,
    /// The driver's error.
    Driver(CudaError),
}

impl From<CudaError> for Amiss {
    fn from(error: CudaError) -> Self {
        Self::Driver(error)
    }
}

impl Fences {
    pub(super) fn new(gpu: Arc<Gpu>, streams: Arc<Streams>) -> Self {
        Self { gpu, streams, queues: HashMap::new(), idle: Vec::new() }
    }

    /// Records a fence behind all work of the stream so far. Refused while the stream is captured:
    /// the event would become part of the graph.
    pub(super) fn record(&mut self, stream: StreamId, serial: Serial) -> Result<(), Amiss> {
        if serial <= self.queues.entry(stream).or_default().recorded {
            return Err(Amiss::Misuse);
        }
        let handle = self.handle(stream, "cuEventRecord")?;
        self.gpu.not_captured(&handle)?;
        let event = self.event()?;
        // SAFETY: both handles are valid: events live until `drop`, streams are kept in the registry.
        let code = unsafe { (self.gpu.driver().core.event_record)(event.0, handle.raw()) };
        if let Err(error) = self.gpu.check("cuEventRecord", code) {
            self.idle.push(event);
            return Err(error.into());
        }
        let queue = self.queues.entry(stream).or_default();
        queue.recorded = serial;
        queue.pending.push_back((serial, event));
        Ok(())
    }

    /// The newest fence up to `newest` that has passed.
    pub(super) fn poll(&mut self, stream: StreamId, newest: Serial) -> Result<Serial, Amiss> {
        let Some(queue) = self.queues.get_mut(&stream) else { return Ok(Serial(0)) };
        let asked = queue.pending.iter().take_while(|(serial, _)| *serial <= newest).count();
        let mut passed = 0;
        let is_past = |queue: &Queue, place: usize| has_passed(&self.gpu, &queue.pending[place].1);
        if asked > 0 && is_past(queue, 0)? {
            // The first that has not passed lies in passed..=unknown.
            passed = 1;
            let mut unknown = asked;
            let mut place = asked - 1;
            while passed < unknown {
                if is_past(queue, place)? {
                    passed = place + 1;
                } else {
                    unknown = place;
                }
                place = (passed + unknown) / 2;
            }
        }
        queue.pass(passed, &mut self.idle);
        Ok(queue.passed.min(newest))
    }

    /// Waits until a fence has passed.
    pub(super) fn wait(&mut self, stream: StreamId, serial: Serial) -> Result<Serial, Amiss> {
        let queue = self.queues.entry(stream).or_default();
        if serial > queue.recorded {
            return Err(Amiss::Misuse);
        }
        if serial > queue.passed {
            let place = queue.place_of(serial).ok_or(Amiss::Misuse)?;
            let event = &queue.pending[place].1;
            // SAFETY: the event lives until `drop` and was recorded.
            let code = unsafe { (self.gpu.driver().core.event_synchronize)(event.0) };
            self.gpu.check("cuEventSynchronize", code)?;
            queue.pass(place + 1, &mut self.idle);
        }
        Ok(queue.passed)
    }

    /// Holds `waiter`'s later work back until the fence has passed.
    pub(super) fn order(
        &mut self,
        waiter: StreamId,
        after: StreamId,
        serial: Serial,
    ) -> Result<(), Amiss> {
        let queue = self.queues.entry(after).or_default();
        if serial > queue.recorded {
            return Err(Amiss::Misuse);
        }
        if waiter == after || serial <= queue.passed {
            return Ok(());
        }
        let place = queue.place_of(serial).ok_or(Amiss::Misuse)?;
        let event = queue.pending[place].1.0;
        let handle = self.handle(waiter, "cuStreamWaitEvent")?;
        self.gpu.not_captured(&handle)?;
        // SAFETY: both handles are valid, as in `record`. The driver keeps what was recorded: the
        // event may be recorded again before the waiter gets there.
        let code = unsafe { (self.gpu.driver().core.stream_wait_event)(handle.raw(), event, 0) };
        Ok(self.gpu.check("cuStreamWaitEvent", code)?)
    }

    fn handle(&self, stream: StreamId, call: &'static str) -> Result<CudaStreamHandle, CudaError> {
        self.streams.get(stream).ok_or_else(|| self.gpu.unknown_stream(call))
    }

    fn event(&mut self) -> Result<Event, CudaError> {
        if let Some(event) = self.idle.pop() {
            return Ok(event);
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; destroyed in `drop`.
        let code = unsafe { (self.gpu.driver().core.event_create)(&mut raw, NO_TIMING) };
        self.gpu.check("cuEventCreate", code)?;
        Ok(Event(raw))
    }
}

fn has_passed(gpu: &Gpu, event: &Event) -> Result<bool, CudaError> {
    // SAFETY: the event lives until `drop`.
    match unsafe { (gpu.driver().core.event_query)(event.0) } {
        NOT_READY => Ok(false),
        code => gpu.check("cuEventQuery", code).map(|()| true),
    }
}

impl Queue {
    /// The first `count` pending fences have passed; their events are free.
    fn pass(&mut self, count: usize, idle: &mut Vec<Event>) {
        for (serial, event) in self.pending.drain(..count) {
            self.passed = serial;
            idle.push(event);
        }
    }

    fn place_of(&self, serial: Serial) -> Option<usize> {
        let place = self.pending.partition_point(|(other, _)| *other < serial);
        (place < self.pending.len()).then_some(place)
    }
}

// SAFETY: events are handles that every thread may use.
unsafe impl Send for Fences {}

impl Drop for Fences {
    fn drop(&mut self) {
        let Some(_scope) = self.gpu.last_scope() else { return };
        let pending = self.queues.drain().flat_map(|(_, queue)| queue.pending);
        for event in pending.map(|(_, event)| event).chain(self.idle.drain(..)) {
            insist(|| {
                // SAFETY: created in `event`; nobody else has it.
                let code = unsafe { (self.gpu.driver().core.event_destroy)(event.0) };
                self.gpu.check("cuEventDestroy_v2", code)
            });
        }
    }
}
