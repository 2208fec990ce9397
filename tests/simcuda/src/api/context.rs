//! Context: contexts, and which is current in a thread.

use crate::code::{self, Code, Done};
use crate::door::{Here, Out, exports};
use crate::world::{self, World};
use crate::{api, thread};

exports! {
    Ready(_at) fn cuCtxCreate_v2(context: Out<u64>, flags: u32, device: i32) {
        create(context, flags, device)
    }

    Ready(_at) fn cuCtxCreate_v3(
        context: Out<u64>, _affinity: Out<u8>, count: i32, flags: u32, device: i32,
    ) {
        if count > 0 { Err(code::NOT_SUPPORTED) } else { create(context, flags, device) }
    }

    Ready(_at) fn cuCtxCreate_v4(context: Out<u64>, _how: Out<u8>, flags: u32, device: i32) {
        create(context, flags, device)
    }

    Ready(_at) fn cuCtxDestroy_v2(context: u64) {
        let mut world = world::lock();
        if world.contexts.get(&context).is_none_or(|context| context.primary) {
            return Err(code::INVALID_CONTEXT);
        }
        world::destroy_context(&mut world, context)?;
        if thread::context() == context {
            thread::pop_context();
        }
        Ok(())
    }

    Ready(_at) fn cuCtxPushCurrent_v2(context: u64) {
        known(&world::lock(), context)?;
        thread::push_context(context);
        Ok(())
    }

    Ready(_at) fn cuCtxPopCurrent_v2(context: Out<u64>) {
        let popped = thread::pop_context().ok_or(code::INVALID_CONTEXT)?;
        context.set_if_wanted(popped);
        Ok(())
    }

    Ready(_at) fn cuCtxSetCurrent(context: u64) {
        if context != 0 {
            known(&world::lock(), context)?;
        }
        thread::set_context(context);
        Ok(())
    }

    Ready(_at) fn cuCtxGetCurrent(context: Out<u64>) {
        context.set(thread::context())
    }

    Ready(_at) fn cuCtxGetDevice(device: Out<i32>) {
        let world = world::lock();
        device.set(known(&world, thread::context())? as i32)
    }

    Ready(_at) fn cuCtxGetDevice_v2(device: Out<i32>, context: u64) {
        let context = if context == 0 { thread::context() } else { context };
        device.set(known(&world::lock(), context)? as i32)
    }

    Context(at) fn cuCtxSynchronize() {
        synchronize(at)
    }

    Ready(_at) fn cuCtxSynchronize_v2(context: u64) {
        if context == 0 {
            return synchronize(&world::lock().here()?);
        }
        let device = known(&world::lock(), context)?;
        synchronize(&Here { context, device })
    }

    Ready(_at) fn cuCtxGetApiVersion(context: u64, version: Out<u32>) {
        let context = if context == 0 { thread::context() } else { context };
        known(&world::lock(), context)?;
        version.set(3020)
    }

    Ready(_at) fn cuCtxGetId(context: u64, id: Out<u64>) {
        let context = if context == 0 { thread::context() } else { context };
        known(&world::lock(), context)?;
        id.set(context >> 4)
    }

    Context(at) fn cuCtxGetFlags(flags: Out<u32>) {
        flags.set(world::lock().contexts.get(&at.context).map_or(0, |context| context.flags))
    }

    Context(at) fn cuCtxSetFlags(flags: u32) {
        if let Some(context) = world::lock().contexts.get_mut(&at.context) {
            context.flags = flags;
        }
        Ok(())
    }

    Context(at) fn cuCtxGetLimit(value: Out<u64>, limit: u32) {
        let usual = match limit {
            0 => 1024,
            1 => 1 << 20,
            2 => 8 << 20,
            3 => 2,
            4 => 2048,
            5 => 128,
            6 => 0,
            _ => return Err(code::UNSUPPORTED_LIMIT),
        };
        let world = world::lock();
        let set = world.contexts.get(&at.context).and_then(|context| context.limits.get(&limit));
        value.set(set.copied().unwrap_or(usual))
    }

    Context(at) fn cuCtxSetLimit(limit: u32, value: u64) {
        if limit > 6 {
            return Err(code::UNSUPPORTED_LIMIT);
        }
        if let Some(context) = world::lock().contexts.get_mut(&at.context) {
            context.limits.insert(limit, value);
        }
        Ok(())
    }

    Context(_at) fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    }

    Context(_at) fn cuCtxGetCacheConfig(config: Out<u32>) {
        config.set(0)
    }

    Context(_at) fn cuCtxSetCacheConfig(_config: u32) {
        Ok(())
    }

    Context(_at) fn cuCtxGetSharedMemConfig(config: Out<u32>) {
        config.set(1)
    }

    Context(_at) fn cuCtxSetSharedMemConfig(_config: u32) {
        Ok(())
    }

    Context(_at) fn cuCtxResetPersistingL2Cache() {
        Ok(())
    }

    Context(at) fn cuCtxEnablePeerAccess(peer: u64, flags: u32) {
        let mut world = world::lock();
        let device = known(&world, peer)?;
        if flags != 0 || device == at.device {
            return Err(code::INVALID_VALUE);
        }
        let Some(context) = world.contexts.get_mut(&at.context) else { return Ok(()) };
        if context.peers.contains(&device) {
            return Err(code::PEER_ACCESS_ALREADY_ENABLED);
        }
        context.peers.push(device);
        Ok(())
    }

    Context(at) fn cuCtxDisablePeerAccess(peer: u64) {
        let mut world = world::lock();
        let device = known(&world, peer)?;
        let Some(context) = world.contexts.get_mut(&at.context) else { return Ok(()) };
        if !context.peers.contains(&device) {
            return Err(code::PEER_ACCESS_NOT_ENABLED);
        }
        context.peers.retain(|of| *of != device);
        Ok(())
    }
}

fn create(context: Out<u64>, flags: u32, device: i32) -> Done {
    context.check()?;
    let mut world = world::lock();
    let device = world.device(device)?;
    let made = world.make_context(device, false, flags)?;
    thread::push_context(made);
    context.set(made)
}

/// The context's device, if it is one and sound enough to be spoken of.
fn known(world: &World, context: u64) -> Result<usize, Code> {
    world.contexts.get(&context).map(|context| context.device).ok_or(code::INVALID_CONTEXT)
}

fn synchronize(at: &Here) -> Done {
    let mut world = world::lock();
    world.forbid_captures(at.context)?;
    let points = world.points(|stream| stream.context == at.context);
    api::settle(&mut world, at, &points)
}
