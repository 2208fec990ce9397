//! Memory: allocation of device, managed and host memory.

use crate::api::settle_range;
use crate::code::{self, Code, Done};
use crate::door::{Here, Out, exports};
use crate::memory::{Host, Region};
use crate::world::{self, World};

/// Flags of `cuMemHostAlloc` and `cuMemHostRegister` that are known.
const HOST_FLAGS: u32 = 15;

exports! {
    Unsafe(at) fn cuMemAlloc_v2(address: Out<u64>, bytes: u64) {
        address.check()?;
        address.set(allocate(&mut world::lock(), at, bytes, false)?)
    }

    Unsafe(at) fn cuMemAllocManaged(address: Out<u64>, bytes: u64, flags: u32) {
        address.check()?;
        if !matches!(flags, 1 | 2) {
            return Err(code::INVALID_VALUE);
        }
        address.set(allocate(&mut world::lock(), at, bytes, true)?)
    }

    Unsafe(at) fn cuMemAllocPitch_v2(
        address: Out<u64>, pitch: Out<u64>, width: u64, height: u64, unit: u32,
    ) {
        address.check()?;
        pitch.check()?;
        if !matches!(unit, 4 | 8 | 16) || width == 0 || height == 0 {
            return Err(code::INVALID_VALUE);
        }
        let row = crate::space::round_up(width, 512).ok_or(code::OUT_OF_MEMORY)?;
        let bytes = row.checked_mul(height).ok_or(code::OUT_OF_MEMORY)?;
        address.set(allocate(&mut world::lock(), at, bytes, false)?)?;
        pitch.set(row)
    }

    /// Waits for the device, as drivers do.
    Unsafe(at) fn cuMemFree_v2(address: u64) {
        if address == 0 {
            return Ok(());
        }
        let mut world = world::lock();
        let bytes = freeable(&world, address)?;
        settle_range(&mut world, at, address, bytes)?;
        freeable(&world, address)?;
        world.free(address);
        world.trim_pools(at.device, false);
        Ok(())
    }

    Context(at) fn cuMemGetInfo_v2(free: Out<u64>, total: Out<u64>) {
        let world = world::lock();
        let capacity = world.memory.devices[at.device];
        free.set_if_wanted(capacity.total - capacity.used.min(capacity.total));
        total.set_if_wanted(capacity.total);
        Ok(())
    }

    Unsafe(at) fn cuMemHostAlloc(pointer: Out<u64>, bytes: u64, flags: u32) {
        allocate_host(at, pointer, bytes, flags)
    }

    Unsafe(at) fn cuMemAllocHost_v2(pointer: Out<u64>, bytes: u64) {
        allocate_host(at, pointer, bytes, 0)
    }

    Unsafe(at) fn cuMemFreeHost(pointer: u64) {
        if pointer == 0 {
            return Ok(());
        }
        let mut world = world::lock();
        let host = known_host(&world, pointer, true)?;
        settle_range(&mut world, at, pointer, host.bytes)?;
        world.memory.displace_host(pointer).map(|_| ()).ok_or(code::INVALID_VALUE)
    }

    Unsafe(at) fn cuMemHostRegister_v2(pointer: u64, bytes: u64, flags: u32) {
        let mut world = world::lock();
        if pointer == 0 || bytes == 0 || flags > HOST_FLAGS {
            return Err(code::INVALID_VALUE);
        }
        let last = pointer.checked_add(bytes - 1).ok_or(code::INVALID_VALUE)?;
        let inside = world.memory.hosts.range(pointer..=last).next().is_some();
        if inside || world.memory.is_known(pointer) {
            return Err(code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        let number = world.memory.number();
        let host = Host { bytes, flags, ours: false, context: at.context, number };
        world.memory.hosts.insert(pointer, host);
        Ok(())
    }

    Unsafe(at) fn cuMemHostUnregister(pointer: u64) {
        let mut world = world::lock();
        let host = known_host(&world, pointer, false)
            .map_err(|_| code::HOST_MEMORY_NOT_REGISTERED)?;
        settle_range(&mut world, at, pointer, host.bytes)?;
        let gone = world.memory.displace_host(pointer).map(|_| ());
        gone.ok_or(code::HOST_MEMORY_NOT_REGISTERED)
    }

    Context(_at) fn cuMemHostGetDevicePointer_v2(device: Out<u64>, pointer: u64, flags: u32) {
        if flags != 0 || world::lock().memory.host(pointer).is_none() {
            return Err(code::INVALID_VALUE);
        }
        device.set(pointer)
    }

    Context(_at) fn cuMemHostGetFlags(flags: Out<u32>, pointer: u64) {
        let world = world::lock();
        let (_, host) = world.memory.host(pointer).ok_or(code::INVALID_VALUE)?;
        flags.set(host.flags)
    }

    Context(_at) fn cuMemGetAddressRange_v2(base: Out<u64>, bytes: Out<u64>, address: u64) {
        let world = world::lock();
        let (start, size) = range(&world, address).ok_or(code::NOT_FOUND)?;
        base.set_if_wanted(start);
        bytes.set_if_wanted(size);
        Ok(())
    }

    Context(_at) fn cuMemAdvise(address: u64, bytes: u64, _advice: u32, _device: i32) {
        managed(address, bytes)
    }

    Context(_at) fn cuMemAdvise_v2(address: u64, bytes: u64, _advice: u32, _location: u64) {
        managed(address, bytes)
    }

    Context(_at) fn cuMemPrefetchAsync(address: u64, bytes: u64, _device: i32, _stream: u64) {
        managed(address, bytes)
    }

    Context(_at) fn cuMemPrefetchAsync_v2(
        address: u64, bytes: u64, _location: u64, _flags: u32, _stream: u64,
    ) {
        managed(address, bytes)
    }
}

fn allocate(world: &mut World, at: &Here, bytes: u64, managed: bool) -> Result<u64, Code> {
    if bytes == 0 {
        return Err(code::INVALID_VALUE);
    }
    let charged = world.memory.charged(bytes)?;
    world.charge_pressed(at.device, charged)?;
    let number = world.memory.number();
    let region = Region {
        bytes,
        charged,
        device: at.device,
        context: at.context,
        pool: 0,
        managed,
        number,
        graph: 0,
        doomed: false,
    };
    world.memory.place(region).inspect_err(|_| world.memory.discharge(at.device, charged))
}

/// The bytes at the beginning of an allocation that may be freed.
fn freeable(world: &World, address: u64) -> Result<u64, Code> {
    let region = world.memory.regions.get(&address).filter(|region| !region.doomed);
    region.map(|region| region.bytes).ok_or(code::INVALID_VALUE)
}

/// The range around an address: an allocation, pinned memory or a mapping.
fn range(world: &World, address: u64) -> Option<(u64, u64)> {
    let memory = &world.memory;
    let region = memory.region(address).map(|(base, region)| (base, region.bytes));
    let host = || memory.host(address).map(|(base, host)| (base, host.bytes));
    let mapping = || memory.vmm.mapping(address).map(|(base, mapping)| (base, mapping.bytes));
    region.or_else(mapping).or_else(host)
}

/// Advice is taken for managed memory, and changes nothing.
fn managed(address: u64, bytes: u64) -> Done {
    let world = world::lock();
    let region = world.memory.region(address).filter(|(_, region)| region.managed);
    let fits = region.is_some_and(|(base, region)| bytes <= region.bytes - (address - base));
    if fits && bytes > 0 { Ok(()) } else { Err(code::INVALID_VALUE) }
}

fn known_host(world: &World, pointer: u64, ours: bool) -> Result<Host, Code> {
    let host = world.memory.hosts.get(&pointer).filter(|host| host.ours == ours);
    host.cloned().ok_or(code::INVALID_VALUE)
}

fn allocate_host(at: &Here, pointer: Out<u64>, bytes: u64, flags: u32) -> Done {
    pointer.check()?;
    if bytes == 0 || flags > HOST_FLAGS {
        return Err(code::INVALID_VALUE);
    }
    let mut world = world::lock();
    let number = world.memory.number();
    let host = Host { bytes, flags, ours: true, context: at.context, number };
    pointer.set(world.memory.place_host(host)?)
}
