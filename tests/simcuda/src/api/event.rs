//! Event: marks in streams, and the time between them.

use crate::api::{outcome, settle};
use crate::code::{self, Done};
use crate::door::{Here, Out, exports};
use crate::event::{DISABLE_TIMING, Event, Mark};
use crate::work::Work;
use crate::world;

/// Blocking waits, no timing, interprocess.
const FLAGS: u32 = 7;
const INTERPROCESS: u32 = 4;

exports! {
    Context(at) fn cuEventCreate(event: Out<u64>, flags: u32) {
        event.check()?;
        if flags > FLAGS {
            return Err(code::INVALID_VALUE);
        }
        if flags & INTERPROCESS != 0 {
            let timed = flags & DISABLE_TIMING == 0;
            return Err(if timed { code::INVALID_VALUE } else { code::NOT_SUPPORTED });
        }
        let mut world = world::lock();
        let handle = world.handle();
        let (context, mark) = (at.context, Mark::Never);
        world.events.insert(handle, Event { context, flags, mark, number: 0, reached: None });
        event.set(handle)
    }

    Context(_at) fn cuEventDestroy_v2(event: u64) {
        world::lock().events.remove(&event).map(|_| ()).ok_or(code::INVALID_HANDLE)
    }

    Context(at) fn cuEventRecord(event: u64, stream: u64) {
        record(at, event, stream)
    }

    Context(at) fn cuEventRecordWithFlags(event: u64, stream: u64, flags: u32) {
        // 1 is an external record, which would be a node of its own in a graph.
        match flags {
            0 => record(at, event, stream),
            1 => Err(code::NOT_SUPPORTED),
            _ => Err(code::INVALID_VALUE),
        }
    }

    Unsafe(at) fn cuEventQuery(event: u64) {
        let mut world = world::lock();
        let known = world.event(event)?.clone();
        world.forbid_captured(&known.mark)?;
        outcome(&world, at)?;
        if world.has_passed(&known) { Ok(()) } else { Err(code::NOT_READY) }
    }

    Context(at) fn cuEventSynchronize(event: u64) {
        let mut world = world::lock();
        let mark = world.event(event)?.mark.clone();
        world.forbid_captured(&mark)?;
        match mark {
            Mark::At(point) => settle(&mut world, at, &[point]),
            _ => Ok(()),
        }
    }

    Context(_at) fn cuEventElapsedTime(millis: Out<f32>, start: u64, end: u64) {
        elapsed(millis, start, end)
    }

    Context(_at) fn cuEventElapsedTime_v2(millis: Out<f32>, start: u64, end: u64) {
        elapsed(millis, start, end)
    }
}

fn record(at: &Here, event: u64, stream: u64) -> Done {
    let mut world = world::lock();
    let id = world.stream(at, stream)?;
    let number = world.event(event)?.number + 1;
    let mark = match world.captured_mark(id)? {
        Some(mark) => mark,
        None => Mark::At(world.queue(id, Work::Record { event, number }, Vec::new())?),
    };
    let known = world.event_mut(event)?;
    known.mark = mark;
    known.number = number;
    known.reached = None;
    Ok(())
}

fn elapsed(millis: Out<f32>, start: u64, end: u64) -> Done {
    millis.check()?;
    let world = world::lock();
    let (start, end) = (world.event(start)?, world.event(end)?);
    for event in [start, end] {
        if event.flags & DISABLE_TIMING != 0 || !matches!(event.mark, Mark::At(_)) {
            return Err(code::INVALID_HANDLE);
        }
    }
    let (from, to) = start.reached.zip(end.reached).ok_or(code::NOT_READY)?;
    let forward = to.saturating_duration_since(from).as_secs_f64();
    let back = from.saturating_duration_since(to).as_secs_f64();
    millis.set(((forward - back) * 1e3) as f32)
}
