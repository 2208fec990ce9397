//! Worker: one thread for each stream that ever had work; it does the stream's work in order.
//!
//! Checks addresses when the work's turn comes, under the lock; then performs it without the lock.
//! Memory that running work touches is not taken away: whoever wants to waits for it. Threads are
//! detached, and end with their stream or with the process.

use crate::code;
use crate::memory::Touch;
use crate::random::Random;
use crate::stream::Queued;
use crate::work::Work;
use crate::world::{self, Guard, World};
use parking_lot::Condvar;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Starts the worker of a stream. If the host has no thread for it, the process cannot go on.
pub fn start(stream: u64, bell: Arc<Condvar>) {
    let thread = std::thread::Builder::new().name(format!("simcuda {stream:x}"));
    if thread.spawn(move || run(stream, &bell)).is_err() {
        eprintln!("simcuda: the host has no thread for another stream");
        std::process::abort();
    }
}

enum Next {
    Work(Queued),
    Wait,
    End,
}

fn run(id: u64, bell: &Condvar) {
    let mut world = world::lock();
    let mut random = Random::new(world.config.jitter.map_or(0, |(seed, _)| seed) ^ id);
    loop {
        match next(&mut world, id) {
            Next::Wait => bell.wait(&mut world),
            Next::End => {
                world.streams.remove(&id);
                world.wake_all();
                return;
            }
            Next::Work(queued) => turn(&mut world, id, queued, &mut random),
        }
    }
}

fn next(world: &mut World, id: u64) -> Next {
    let Some(stream) = world.streams.get(&id) else { return Next::End };
    let Some(first) = stream.queue.front() else {
        return if stream.closing { Next::End } else { Next::Wait };
    };
    if world.paused || !first.after.iter().all(|point| world.is_done(*point)) {
        return Next::Wait;
    }
    if let Work::Free { address } = first.work
        && let Some(bytes) = world.memory.regions.get(&address).map(|region| region.bytes)
        && world.streams.values().any(|stream| stream.runs_on(address, bytes))
    {
        tell(world, id, address);
        return Next::Wait;
    }
    let stream = world.streams.get_mut(&id);
    stream.and_then(|stream| stream.queue.pop_front()).map_or(Next::Wait, Next::Work)
}

/// Says once that memory is freed in one stream while another works on it.
fn tell(world: &mut World, id: u64, address: u64) {
    let first = world.streams.get_mut(&id).and_then(|stream| stream.queue.front_mut());
    if let Some(first) = first.filter(|first| !first.told) {
        first.told = true;
        world.judge.say(format!("a stream frees {address:#x} under the work of another"));
    }
}

/// One piece of work, from its check to its end.
fn turn(world: &mut Guard, id: u64, queued: Queued, random: &mut Random) {
    let Queued { mut work, touches, .. } = queued;
    let (context, device) = world.streams.get(&id).map_or((0, 0), |s| (s.context, s.device));
    let broken = world.contexts.get(&context).and_then(|context| context.broken);
    let bad = touches.iter().find(|touch| !is_permitted(world, &work, touch, (context, device)));
    if let (None, Some(touch)) = (broken, bad) {
        let name = work.name();
        let (verb, bytes) = (if touch.write { "writes" } else { "reads" }, touch.bytes);
        let why = format!(
            "a {name} {verb} {bytes} bytes at {:#x}, which is not mapped for it",
            touch.address
        );
        world.fail(context, code::ILLEGAL_ADDRESS, &why);
    }
    let status = world.contexts.get(&context).and_then(|context| context.broken);
    let status = status.map_or(0, |code| code.0);
    let runs = match work {
        // Memory goes in the same hold of the lock in which nobody was found to work on it.
        Work::Free { .. } => false,
        Work::Callback { .. } => true,
        _ => status == 0,
    };
    if runs {
        perform(world, id, &mut work, touches, (status, random));
    }
    finish(world, id, &work);
}

/// Whether work of a context may touch this. A kernel needs access to a peer's memory, a copy does
/// not; an argument of a kernel may point right behind memory, because it need not be used.
fn is_permitted(
    world: &World,
    work: &Work,
    touch: &Touch,
    (context, device): (u64, usize),
) -> bool {
    if !matches!(work, Work::Kernel(_)) {
        return world.memory.permits(touch, device);
    }
    let Some((_, region)) = world.memory.region(touch.address) else {
        let behind = touch.address.checked_sub(1).and_then(|last| world.memory.region(last));
        return behind.is_some() && touch.bytes <= 1 || world.memory.permits(touch, device);
    };
    let known = world.contexts.get(&context);
    let peer = || known.is_some_and(|context| context.peers.contains(&region.device));
    (region.device == device || region.managed || peer()) && world.memory.permits(touch, device)
}

fn perform(
    world: &mut Guard,
    id: u64,
    work: &mut Work,
    touches: Vec<Touch>,
    (status, random): (i32, &mut Random),
) {
    if let Some(stream) = world.streams.get_mut(&id) {
        stream.running = Some(touches);
    }
    let (jitter, nanos) = (world.config.jitter, world.config.op_nanos);
    parking_lot::MutexGuard::unlocked(world, || {
        dawdle(jitter, nanos, random);
        work.perform(status);
    });
}

/// Lets time pass, as much as the seed and the configuration say.
fn dawdle(jitter: Option<(u64, u64)>, nanos: u64, random: &mut Random) {
    if let Some((_, most)) = jitter {
        match random.below(4) {
            0 => {}
            1 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(random.below(most + 1))),
        }
    }
    if nanos > 0 {
        std::thread::sleep(Duration::from_nanos(nanos));
    }
}

fn finish(world: &mut World, id: u64, work: &Work) {
    match *work {
        Work::Record { event, number } => world.recorded(event, number, Instant::now()),
        Work::Free { address } => world.free_from_pool(address),
        Work::Kernel(ref launch) => world.modules.ran(launch),
        _ => {}
    }
    if let Some(stream) = world.streams.get_mut(&id) {
        stream.running = None;
        stream.completed += 1;
        stream.pending_frees -= u64::from(matches!(work, Work::Free { .. }));
    }
    world.wake_all();
}
