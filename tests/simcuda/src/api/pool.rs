//! Pool: memory in the order of streams, and the pools it comes from.

use crate::api::settle;
use crate::code::{self, Code, Done};
use crate::door::{Here, In, Out, exports};
use crate::pool::Pool;
use crate::work::Work;
use crate::world::{self, Guard};

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Properties {
    kind: u32,
    handles: u32,
    location_kind: u32,
    location: i32,
    windows: u64,
    most: u64,
    usage: u16,
    reserved: [u8; 54],
}

exports! {
    Context(at) fn cuMemAllocAsync(address: Out<u64>, bytes: u64, stream: u64) {
        let pool = supported()?.pools.current[at.device];
        allocate(at, address, bytes, pool, stream)
    }

    Context(at) fn cuMemAllocFromPoolAsync(
        address: Out<u64>, bytes: u64, pool: u64, stream: u64,
    ) {
        allocate(at, address, bytes, pool, stream)
    }

    Context(at) fn cuMemFreeAsync(address: u64, stream: u64) {
        let mut world = supported()?;
        let id = world.stream(at, stream)?;
        let region = world.memory.regions.get(&address).ok_or(code::INVALID_VALUE)?;
        let captures = world.streams.get(&id).is_some_and(|stream| stream.capture.is_some());
        if region.doomed || captures != (region.graph != 0) {
            return Err(code::INVALID_VALUE);
        }
        if captures {
            // The graph's memory stays for the next replay.
            return world.enqueue(id, Work::Nothing).map(|_| ());
        }
        world.enqueue(id, Work::Free { address })?;
        if let Some(region) = world.memory.regions.get_mut(&address) {
            region.doomed = true;
        }
        Ok(())
    }

    Sound(_at) fn cuDeviceGetDefaultMemPool(pool: Out<u64>, device: i32) {
        let world = supported()?;
        pool.set(world.pools.defaults[world.device(device)?])
    }

    Sound(_at) fn cuDeviceGetMemPool(pool: Out<u64>, device: i32) {
        let world = supported()?;
        pool.set(world.pools.current[world.device(device)?])
    }

    Sound(_at) fn cuDeviceSetMemPool(device: i32, pool: u64) {
        let mut world = supported()?;
        let device = world.device(device)?;
        if world.pools.get(pool)?.device != device {
            return Err(code::INVALID_VALUE);
        }
        world.pools.current[device] = pool;
        Ok(())
    }

    Sound(_at) fn cuMemPoolCreate(pool: Out<u64>, how: In<Properties>) {
        pool.check()?;
        let (how, mut world) = (how.get()?, supported()?);
        if how.kind != 1 || how.location_kind != 1 {
            return Err(code::INVALID_VALUE);
        }
        if how.handles != 0 {
            return Err(code::NOT_SUPPORTED);
        }
        let device = world.device(how.location)?;
        pool.set(world.make_pool(device, how.most, false))
    }

    Sound(_at) fn cuMemPoolDestroy(pool: u64) {
        let mut world = supported()?;
        let known = world.pools.get(pool)?.clone();
        if known.default {
            return Err(code::INVALID_VALUE);
        }
        world.trim_pool(pool, 0);
        world.pools.pools.remove(&pool);
        if world.pools.current[known.device] == pool {
            world.pools.current[known.device] = world.pools.defaults[known.device];
        }
        Ok(())
    }

    Sound(_at) fn cuMemPoolTrimTo(pool: u64, keep: u64) {
        let mut world = supported()?;
        world.pools.get(pool)?;
        world.trim_pool(pool, keep);
        Ok(())
    }

    Sound(_at) fn cuMemPoolGetAttribute(pool: u64, attribute: u32, value: Out<u64>) {
        let world = supported()?;
        let pool = world.pools.get(pool)?;
        match attribute {
            1..=3 => value.cast::<i32>().set(pool.reuse[attribute as usize - 1]),
            4 => value.set(pool.threshold),
            5 => value.set(pool.reserved),
            6 => value.set(pool.reserved_high),
            7 => value.set(pool.used),
            8 => value.set(pool.used_high),
            _ => Err(code::INVALID_VALUE),
        }
    }

    Sound(_at) fn cuMemPoolSetAttribute(pool: u64, attribute: u32, value: In<u64>) {
        let mut world = supported()?;
        let pool = world.pools.get_mut(pool)?;
        set(pool, attribute, value)
    }

    Sound(_at) fn cuMemPoolSetAccess(pool: u64, _rights: Out<u8>, _count: u64) {
        supported()?.pools.get(pool).map(|_| ())
    }

    Sound(_at) fn cuMemPoolGetAccess(flags: Out<u32>, pool: u64, _location: Out<u8>) {
        supported()?.pools.get(pool)?;
        flags.set(3)
    }
}

fn supported() -> Result<Guard, Code> {
    let world = world::lock();
    if world.config.pools { Ok(world) } else { Err(code::NOT_SUPPORTED) }
}

fn set(pool: &mut Pool, attribute: u32, value: In<u64>) -> Done {
    match attribute {
        1..=3 => pool.reuse[attribute as usize - 1] = value.cast::<i32>().get()?,
        4 => pool.threshold = value.get()?,
        // High-water marks may be set to zero only.
        6 if value.get()? == 0 => pool.reserved_high = pool.reserved,
        8 if value.get()? == 0 => pool.used_high = pool.used,
        _ => return Err(code::INVALID_VALUE),
    }
    Ok(())
}

/// If the device is full, frees on their way in the stream are waited for: their memory comes
/// before this in the stream's order.
fn allocate(at: &Here, address: Out<u64>, bytes: u64, pool: u64, stream: u64) -> Done {
    address.check()?;
    let mut world = supported()?;
    let id = world.stream(at, stream)?;
    if bytes == 0 {
        return Err(code::INVALID_VALUE);
    }
    if world.streams.get(&id).is_some_and(|stream| stream.capture.is_some()) {
        return address.set(capture(&mut world, at, id, bytes, pool)?);
    }
    let made = match world.allocate_from(pool, bytes, at.context) {
        Err(code::OUT_OF_MEMORY) if world.streams.get(&id).is_some_and(|s| s.pending_frees > 0) => {
            let points = world.points(|stream| stream.pending_frees > 0);
            let points: Vec<_> = points.into_iter().filter(|point| point.stream == id).collect();
            settle(&mut world, at, &points)?;
            world.allocate_from(pool, bytes, at.context)
        }
        made => made,
    };
    address.set(made?)
}

/// In a capture: memory that belongs to the graph.
fn capture(world: &mut Guard, at: &Here, id: u64, bytes: u64, pool: u64) -> Result<u64, Code> {
    world.enqueue(id, Work::Nothing)?;
    let made = world.allocate_from(pool, bytes, at.context)?;
    let capture = world.streams.get(&id).and_then(|stream| stream.capture);
    let capture = capture.and_then(|capture| world.captures.live.get(&capture));
    let graph = capture.map_or(0, |capture| capture.graph);
    if let Some(region) = world.memory.regions.get_mut(&made) {
        region.graph = graph;
    }
    if let Some(owned) = world.captures.memory.get_mut(&graph) {
        owned.addresses.push(made);
    }
    Ok(made)
}
