//! VMM: addresses, physical memory and mappings, each in calls of its own.

use crate::code;
use crate::door::{In, Out, exports};
use crate::world::{self, World};

/// `CUmemLocation`; type 1 is a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    kind: u32,
    id: i32,
}

/// `CUmemAllocationProp`; type 1 is pinned.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Properties {
    kind: u32,
    handles: u32,
    location: Location,
    windows: u64,
    flags: u64,
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Access {
    location: Location,
    flags: u32,
}

exports! {
    Sound(_at) fn cuMemAddressReserve(
        address: Out<u64>, bytes: u64, align: u64, hint: u64, flags: u64,
    ) {
        address.check()?;
        let mut world = supported()?;
        if flags != 0 {
            return Err(code::INVALID_VALUE);
        }
        address.set(world.memory.reserve(bytes, align, hint)?)
    }

    Sound(_at) fn cuMemAddressFree(address: u64, bytes: u64) {
        supported()?.memory.unreserve(address, bytes)
    }

    Sound(_at) fn cuMemCreate(handle: Out<u64>, bytes: u64, how: In<Properties>, flags: u64) {
        handle.check()?;
        let (how, mut world) = (how.get()?, supported()?);
        let device = device(&world, how.location)?;
        if flags != 0 || how.kind != 1 {
            return Err(code::INVALID_VALUE);
        }
        // Nothing here can be shared with another process but by file descriptors, announced only.
        if how.handles & !1 != 0 {
            return Err(code::NOT_SUPPORTED);
        }
        let made = world.memory.create(bytes, device, (how.kind, how.handles));
        let made = match made {
            Err(code::OUT_OF_MEMORY) => {
                world.trim_pools(device, true);
                world.memory.create(bytes, device, (how.kind, how.handles))
            }
            made => made,
        };
        handle.set(made?)
    }

    Sound(_at) fn cuMemRelease(handle: u64) {
        supported()?.memory.release(handle)
    }

    Sound(_at) fn cuMemMap(address: u64, bytes: u64, offset: u64, handle: u64, flags: u64) {
        let mut world = supported()?;
        if flags != 0 {
            return Err(code::INVALID_VALUE);
        }
        world.memory.map(address, bytes, offset, handle)
    }

    /// Refused, and held against the program, while work that touches the range is on its way.
    Sound(_at) fn cuMemUnmap(address: u64, bytes: u64) {
        let mut world = supported()?;
        if !world.memory.is_mapped(address, bytes) {
            return Err(code::INVALID_VALUE);
        }
        let streams = world.streams.values();
        let busy = |stream: &&crate::stream::Stream| {
            stream.runs_on(address, bytes) || stream.waits_on(address, bytes)
        };
        if streams.filter(busy).count() > 0 {
            world.judge.say(format!("{address:#x} is unmapped under work"));
            return Err(code::ILLEGAL_STATE);
        }
        world.memory.unmap(address, bytes)
    }

    Sound(_at) fn cuMemSetAccess(address: u64, bytes: u64, rights: In<Access>, count: u64) {
        let mut world = supported()?;
        let mut list = Vec::new();
        for right in rights.list(usize::try_from(count).unwrap_or(0))? {
            if !matches!(right.flags, 0 | 1 | 3) {
                return Err(code::INVALID_VALUE);
            }
            list.push((device(&world, right.location)?, right.flags));
        }
        if list.is_empty() {
            return Err(code::INVALID_VALUE);
        }
        world.memory.set_access(address, bytes, &list)
    }

    Sound(_at) fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, address: u64) {
        let world = supported()?;
        let device = device(&world, location.get()?)?;
        let (_, mapping) = world.memory.vmm.mapping(address).ok_or(code::INVALID_VALUE)?;
        let right = mapping.rights.iter().find(|(of, _)| *of == device);
        flags.set(right.map_or(0, |(_, flags)| (*flags).into()))
    }

    Sound(_at) fn cuMemGetAllocationGranularity(
        bytes: Out<u64>, how: In<Properties>, _option: u32,
    ) {
        let world = supported()?;
        device(&world, how.get()?.location)?;
        bytes.set(world.config.granule)
    }

    Sound(_at) fn cuMemGetAllocationPropertiesFromHandle(how: Out<Properties>, handle: u64) {
        let world = supported()?;
        let physical = world.memory.vmm.physical.get(&handle).ok_or(code::INVALID_VALUE)?;
        let location = Location { kind: 1, id: physical.device as i32 };
        let (kind, handles) = physical.kind;
        how.set(Properties { kind, handles, location, windows: 0, flags: 0 })
    }

    Sound(_at) fn cuMemRetainAllocationHandle(handle: Out<u64>, address: u64) {
        handle.check()?;
        handle.set(supported()?.memory.retain(address)?)
    }
}

fn supported() -> Result<world::Guard, code::Code> {
    let world = world::lock();
    if world.config.vmm { Ok(world) } else { Err(code::NOT_SUPPORTED) }
}

fn device(world: &World, location: Location) -> Result<usize, code::Code> {
    if location.kind != 1 {
        return Err(code::INVALID_VALUE);
    }
    world.device(location.id)
}
