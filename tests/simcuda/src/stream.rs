//! Stream: queues of work, each with a worker, and what waits for what.
//!
//! A piece of work has a position in its stream, and a list of positions in other streams that
//! must be done before it: events, and the legacy default stream's habit of waiting for all
//! blocking streams and being waited for, come to such lists when the work is queued. Never knows
//! what the work does.

use crate::code::{self, Code};
use crate::door::Here;
use crate::memory::Touch;
use crate::thread;
use crate::work::Work;
use crate::world::World;
use parking_lot::Condvar;
use std::collections::VecDeque;
use std::sync::Arc;

/// Whatever does not wait for the legacy default stream.
pub const NON_BLOCKING: u32 = 1;

/// Work up to a position of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub stream: u64,
    pub position: u64,
}

/// Work in a queue.
pub struct Queued {
    pub work: Work,
    pub touches: Vec<Touch>,
    pub after: Vec<Point>,
    /// Somebody was told that it takes memory away from under running work.
    pub told: bool,
}

/// A stream.
pub struct Stream {
    pub context: u64,
    pub device: usize,
    pub flags: u32,
    pub priority: i32,
    /// The legacy default stream of its context.
    pub null: bool,
    pub number: u64,
    pub queue: VecDeque<Queued>,
    pub submitted: u64,
    pub completed: u64,
    /// What the work that runs now touches.
    pub running: Option<Vec<Touch>>,
    /// Destroyed; it ends once its queue is empty.
    pub closing: bool,
    /// Rings for the worker; `None`: it has not been needed yet.
    pub bell: Option<Arc<Condvar>>,
    pub capture: Option<u64>,
    /// Stream-ordered frees that it has yet to come to.
    pub pending_frees: u64,
}

impl Stream {
    pub fn is_blocking(&self) -> bool {
        !self.null && self.flags & NON_BLOCKING == 0
    }

    pub fn is_idle(&self) -> bool {
        self.completed == self.submitted
    }

    /// Whether running work touches the range.
    pub fn runs_on(&self, address: u64, bytes: u64) -> bool {
        let overlaps = |touch: &Touch| touch.overlaps(address, bytes);
        self.running.as_ref().is_some_and(|touches| touches.iter().any(overlaps))
    }

    /// Whether queued work touches the range.
    pub fn waits_on(&self, address: u64, bytes: u64) -> bool {
        let overlaps = |touch: &Touch| touch.overlaps(address, bytes);
        self.queue.iter().any(|queued| queued.touches.iter().any(overlaps))
    }
}

impl World {
    pub fn make_stream(
        &mut self,
        context: u64,
        device: usize,
        flags: u32,
        priority: i32,
        null: bool,
    ) -> u64 {
        let id = self.handle();
        let stream = Stream {
            context,
            device,
            flags,
            priority,
            null,
            number: id >> 4,
            queue: VecDeque::new(),
            submitted: 0,
            completed: 0,
            running: None,
            closing: false,
            bell: None,
            capture: None,
            pending_frees: 0,
        };
        self.streams.insert(id, stream);
        id
    }

    /// The stream that a handle means in a context.
    pub fn stream(&mut self, here: &Here, handle: u64) -> Result<u64, Code> {
        match handle {
            0 | 1 => self.contexts.get(&here.context).map(|context| context.null),
            2 => Some(self.thread_stream(here)),
            _ => Some(handle).filter(|id| self.streams.get(id).is_some_and(|s| !s.closing)),
        }
        .ok_or(code::INVALID_HANDLE)
    }

    fn thread_stream(&mut self, here: &Here) -> u64 {
        let key = (thread::number(), here.context);
        if let Some(stream) = self.threads.get(&key) {
            return *stream;
        }
        let stream = self.make_stream(here.context, here.device, 0, 0, false);
        self.threads.insert(key, stream);
        stream
    }

    /// Whether a program made it and must destroy it.
    pub fn is_owned(&self, stream: u64) -> bool {
        let known = self.streams.get(&stream);
        let made = known.is_some_and(|stream| !stream.null && !stream.closing);
        made && !self.threads.values().any(|of| *of == stream)
    }

    /// No new work; it is gone when its queue is.
    pub fn close_stream(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.closing = true;
        match &stream.bell {
            Some(bell) => {
                bell.notify_all();
            }
            None => {
                self.streams.remove(&id);
            }
        }
    }

    /// Whether all these streams have nothing to do.
    pub fn is_idle(&self, which: impl Fn(&Stream) -> bool) -> bool {
        self.streams.values().filter(|stream| which(stream)).all(Stream::is_idle)
    }

    /// Where the streams stand now.
    pub fn points(&self, which: impl Fn(&Stream) -> bool) -> Vec<Point> {
        let chosen = self.streams.iter().filter(|(_, stream)| which(stream) && !stream.is_idle());
        chosen.map(|(id, stream)| Point { stream: *id, position: stream.submitted }).collect()
    }

    /// Whether work up to there is done. A stream that is gone has done everything.
    pub fn is_done(&self, point: Point) -> bool {
        self.streams.get(&point.stream).is_none_or(|stream| stream.completed >= point.position)
    }

    /// Where a stream stands now, and for the default stream all that it stands for.
    pub fn points_with(&self, id: u64) -> Vec<Point> {
        let Some(stream) = self.streams.get(&id) else { return Vec::new() };
        let own = Point { stream: id, position: stream.submitted };
        let context = stream.context;
        let mut points = match stream.null {
            true => self.points(|other| other.context == context && other.is_blocking()),
            false => Vec::new(),
        };
        points.push(own);
        points
    }

    /// Whether a stream has nothing to do, and whatever it stands for neither.
    pub fn is_idle_with(&self, id: u64) -> bool {
        self.points_with(id).iter().all(|point| self.is_done(*point))
    }

    /// Queues work behind everything that it must wait for.
    pub fn queue(&mut self, id: u64, work: Work, mut after: Vec<Point>) -> Result<Point, Code> {
        let stream = self.streams.get(&id).ok_or(code::INVALID_HANDLE)?;
        let context = stream.context;
        if stream.null {
            after.extend(self.points(|other| other.context == context && other.is_blocking()));
        } else if stream.is_blocking() {
            after.extend(self.points(|other| other.context == context && other.null));
        }
        let space = &self.memory.space;
        let touches = work.touches(|address| space.contains(address));
        let bell = self.bell(id);
        let stream = self.streams.get_mut(&id).ok_or(code::INVALID_HANDLE)?;
        stream.pending_frees += u64::from(matches!(work, Work::Free { .. }));
        stream.queue.push_back(Queued { work, touches, after, told: false });
        stream.submitted += 1;
        bell.notify_all();
        Ok(Point { stream: id, position: stream.submitted })
    }

    /// The stream's bell; its worker starts with the first work.
    fn bell(&mut self, id: u64) -> Arc<Condvar> {
        let Some(stream) = self.streams.get_mut(&id) else { return Arc::default() };
        if let Some(bell) = &stream.bell {
            return Arc::clone(bell);
        }
        let bell = Arc::new(Condvar::new());
        stream.bell = Some(Arc::clone(&bell));
        crate::worker::start(id, Arc::clone(&bell));
        bell
    }

    /// Something is done: whoever waits for it may look again.
    pub fn wake_all(&self) {
        let waiting = self.streams.values().filter(|stream| !stream.queue.is_empty());
        for bell in waiting.filter_map(|stream| stream.bell.as_ref()) {
            bell.notify_all();
        }
        crate::world::done().notify_all();
    }
}
