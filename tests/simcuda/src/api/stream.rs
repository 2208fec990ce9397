//! Stream: streams, what they wait for, and functions of the host in them.

use crate::api::{outcome, settle};
use crate::code::{self, Code, Done};
use crate::door::{Here, Out, exports};
use crate::event::Mark;
use crate::stream::Stream;
use crate::thread;
use crate::work::{Callback, Data, HostFunction, Work};
use crate::world::{self, World};

exports! {
    Context(at) fn cuStreamCreate(stream: Out<u64>, flags: u32) {
        create(at, stream, flags, 0)
    }

    Context(at) fn cuStreamCreateWithPriority(stream: Out<u64>, flags: u32, priority: i32) {
        create(at, stream, flags, priority.clamp(-5, 0))
    }

    /// Does not wait: the stream ends when its work does.
    Context(_at) fn cuStreamDestroy_v2(stream: u64) {
        let mut world = world::lock();
        if !world.is_owned(stream) {
            return Err(code::INVALID_HANDLE);
        }
        world.forbid_capture(stream)?;
        world.close_stream(stream);
        Ok(())
    }

    Context(at) fn cuStreamQuery(stream: u64) {
        let mut world = world::lock();
        let id = world.stream(at, stream)?;
        world.forbid_capture(id)?;
        let idle = world.is_idle_with(id);
        outcome(&world, at)?;
        if idle { Ok(()) } else { Err(code::NOT_READY) }
    }

    Context(at) fn cuStreamSynchronize(stream: u64) {
        let mut world = world::lock();
        let id = world.stream(at, stream)?;
        world.forbid_capture(id)?;
        let points = world.points_with(id);
        settle(&mut world, at, &points)
    }

    Context(at) fn cuStreamWaitEvent(stream: u64, event: u64, flags: u32) {
        let mut world = world::lock();
        let id = world.stream(at, stream)?;
        if flags > 1 {
            return Err(code::INVALID_VALUE);
        }
        match world.event(event)?.mark.clone() {
            Mark::Never => Ok(()),
            Mark::Captured { capture, nodes } => world.join_capture(id, capture, &nodes),
            Mark::At(point) => {
                world.forbid_crossing(id)?;
                world.queue(id, Work::Nothing, vec![point]).map(|_| ())
            }
        }
    }

    Context(at) fn cuStreamGetCtx(stream: u64, context: Out<u64>) {
        context.set(of(at, stream, |stream| stream.context)?)
    }

    Context(at) fn cuStreamGetCtx_v2(stream: u64, context: Out<u64>, green: Out<u64>) {
        green.set_if_wanted(0);
        context.set(of(at, stream, |stream| stream.context)?)
    }

    Context(at) fn cuStreamGetDevice(stream: u64, device: Out<i32>) {
        device.set(of(at, stream, |stream| stream.device as i32)?)
    }

    Context(at) fn cuStreamGetId(stream: u64, id: Out<u64>) {
        id.set(of(at, stream, |stream| stream.number)?)
    }

    Context(at) fn cuStreamGetFlags(stream: u64, flags: Out<u32>) {
        flags.set(of(at, stream, |stream| stream.flags)?)
    }

    Context(at) fn cuStreamGetPriority(stream: u64, priority: Out<i32>) {
        priority.set(of(at, stream, |stream| stream.priority)?)
    }

    Context(at) fn cuStreamCopyAttributes(to: u64, from: u64) {
        of(at, to, |_| ())?;
        of(at, from, |_| ())
    }

    Context(at) fn cuStreamGetAttribute(stream: u64, _attribute: u32, value: Out<[u64; 8]>) {
        of(at, stream, |_| ())?;
        value.set([0; 8])
    }

    Context(at) fn cuStreamSetAttribute(stream: u64, _attribute: u32, _value: Out<u8>) {
        of(at, stream, |_| ())
    }

    Context(at) fn cuStreamAttachMemAsync(stream: u64, _address: u64, _bytes: u64, _flags: u32) {
        of(at, stream, |_| ())
    }

    Context(at) fn cuLaunchHostFunc(stream: u64, run: Option<HostFunction>, data: Data) {
        host(at, stream, run, data)
    }

    Context(at) fn cuLaunchHostFunc_v2(
        stream: u64, run: Option<HostFunction>, data: Data, _mode: u32,
    ) {
        host(at, stream, run, data)
    }

    Context(at) fn cuStreamAddCallback(
        stream: u64, run: Option<Callback>, data: Data, flags: u32,
    ) {
        let run = run.filter(|_| flags == 0).ok_or(code::INVALID_VALUE)?;
        let mut world = world::lock();
        let id = world.stream(at, stream)?;
        world.forbid_capture(id)?;
        world.enqueue(id, Work::Callback { run, stream, data }).map(|_| ())
    }

    Context(at) fn cuStreamBeginCapture(stream: u64) {
        let mut world = world::lock();
        let id = world.stream(at, stream)?;
        world.begin_capture(id, crate::capture::GLOBAL)
    }

    Context(at) fn cuStreamBeginCapture_v2(stream: u64, mode: u32) {
        let mut world = world::lock();
        let id = world.stream(at, stream)?;
        world.begin_capture(id, mode)
    }

    Context(at) fn cuStreamEndCapture(stream: u64, graph: Out<u64>) {
        graph.set(0)?;
        let mut world = world::lock();
        let id = world.stream(at, stream)?;
        graph.set(world.end_capture(id)?)
    }

    Context(at) fn cuStreamIsCapturing(stream: u64, status: Out<u32>) {
        let mut world = world::lock();
        let id = world.stream(at, stream)?;
        status.set(capture(&world, id)?.0)
    }

    Context(at) fn cuStreamGetCaptureInfo(stream: u64, status: Out<u32>, id: Out<u64>) {
        info(at, stream, status, id, [Out::none(); 3])
    }

    Context(at) fn cuStreamGetCaptureInfo_v2(
        stream: u64, status: Out<u32>, id: Out<u64>, graph: Out<u64>, nodes: Out<u64>,
        count: Out<u64>,
    ) {
        info(at, stream, status, id, [graph, nodes, count])
    }

    Context(at) fn cuStreamGetCaptureInfo_v3(
        stream: u64, status: Out<u32>, id: Out<u64>, graph: Out<u64>, nodes: Out<u64>,
        edges: Out<u64>, count: Out<u64>,
    ) {
        edges.set_if_wanted(0);
        info(at, stream, status, id, [graph, nodes, count])
    }

    Ready(_at) fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) {
        let wanted = mode.as_in().get()?;
        if wanted > crate::capture::RELAXED {
            return Err(code::INVALID_VALUE);
        }
        mode.set(thread::capture_mode(Some(wanted)))
    }
}

fn create(at: &Here, stream: Out<u64>, flags: u32, priority: i32) -> Done {
    stream.check()?;
    if flags > crate::stream::NON_BLOCKING {
        return Err(code::INVALID_VALUE);
    }
    stream.set(world::lock().make_stream(at.context, at.device, flags, priority, false))
}

fn of<T>(at: &Here, handle: u64, what: impl Fn(&Stream) -> T) -> Result<T, Code> {
    let mut world = world::lock();
    let id = world.stream(at, handle)?;
    world.streams.get(&id).map(what).ok_or(code::INVALID_HANDLE)
}

fn host(at: &Here, stream: u64, run: Option<HostFunction>, data: Data) -> Done {
    let run = run.ok_or(code::INVALID_VALUE)?;
    let mut world = world::lock();
    let id = world.stream(at, stream)?;
    world.enqueue(id, Work::Host { run, data }).map(|_| ())
}

/// 0 not capturing, 1 capturing, 2 capturing in vain; the capture, and its graph. Of the default
/// stream nothing can be said while a stream that waits for it captures.
fn capture(world: &World, stream: u64) -> Result<(u32, u64, u64), Code> {
    if world.is_implied(stream) {
        return Err(code::STREAM_CAPTURE_IMPLICIT);
    }
    let id = world.streams.get(&stream).and_then(|stream| stream.capture);
    let Some(id) = id else { return Ok((0, 0, 0)) };
    let capture = world.captures.live.get(&id).ok_or(code::UNKNOWN)?;
    Ok((1 + u32::from(capture.invalid), id, capture.graph))
}

fn info(at: &Here, stream: u64, status: Out<u32>, id: Out<u64>, rest: [Out<u64>; 3]) -> Done {
    let mut world = world::lock();
    let stream = world.stream(at, stream)?;
    let (now, capture, graph) = capture(&world, stream)?;
    status.set(now)?;
    if now != 0 {
        id.set_if_wanted(capture >> 4);
        rest[0].set_if_wanted(graph);
        rest[1].set_if_wanted(0);
        rest[2].set_if_wanted(0);
    }
    Ok(())
}
