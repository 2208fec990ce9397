//! Device: the simulated devices and what they can do.

use crate::code;
use crate::config::Config;
use crate::door::{In, Out, exports};
use crate::world;

exports! {
    Free(_at) fn cuInit(_flags: u32) {
        let mut world = world::lock();
        if world.config.devices == 0 {
            return Err(code::NO_DEVICE);
        }
        world.ready = true;
        Ok(())
    }

    Free(_at) fn cuDriverGetVersion(version: Out<i32>) {
        version.set(world::lock().config.driver_version)
    }

    Ready(_at) fn cuDeviceGet(device: Out<i32>, ordinal: i32) {
        world::lock().device(ordinal)?;
        device.set(ordinal)
    }

    Ready(_at) fn cuDeviceGetCount(count: Out<i32>) {
        count.set(world::lock().config.devices as i32)
    }

    Ready(_at) fn cuDeviceGetName(name: Out<u8>, room: i32, device: i32) {
        let world = world::lock();
        world.device(device)?;
        name.text(&world.config.name, usize::try_from(room).unwrap_or(0))
    }

    Ready(_at) fn cuDeviceTotalMem_v2(bytes: Out<u64>, device: i32) {
        let world = world::lock();
        let device = world.device(device)?;
        bytes.set(world.memory.devices[device].total)
    }

    Ready(_at) fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) {
        let world = world::lock();
        let device = world.device(device)?;
        value.set(self::attribute(&world.config, attribute, device as i32))
    }

    Ready(_at) fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: i32) {
        world::lock().device(device)?;
        uuid.set(self::uuid(device))
    }

    Ready(_at) fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: i32) {
        world::lock().device(device)?;
        uuid.set(self::uuid(device))
    }

    Ready(_at) fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) {
        let world = world::lock();
        world.device(device)?;
        major.set(world.config.capability.0)?;
        minor.set(world.config.capability.1)
    }

    Ready(_at) fn cuDeviceGetPCIBusId(text: Out<u8>, room: i32, device: i32) {
        world::lock().device(device)?;
        text.text(&bus(device), usize::try_from(room).unwrap_or(0))
    }

    Ready(_at) fn cuDeviceGetByPCIBusId(device: Out<i32>, text: In<u8>) {
        let (text, world) = (text.text()?.to_ascii_uppercase(), world::lock());
        let found = (0..world.config.devices as i32).find(|device| bus(*device).ends_with(&text));
        device.set(found.ok_or(code::INVALID_DEVICE)?)
    }

    Ready(_at) fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) {
        let world = world::lock();
        world.device(device)?;
        world.device(peer)?;
        can.set(i32::from(device != peer))
    }

    Ready(_at) fn cuDeviceGetP2PAttribute(value: Out<i32>, attribute: i32, from: i32, to: i32) {
        let world = world::lock();
        world.device(from)?;
        world.device(to)?;
        // Access and native atomics are there, nothing else is; a device is no peer of itself.
        if from == to {
            return Err(code::INVALID_DEVICE);
        }
        value.set(i32::from(matches!(attribute, 2 | 3)))
    }

    Ready(_at) fn cuDeviceGetExecAffinitySupport(supported: Out<i32>, _kind: i32, device: i32) {
        world::lock().device(device)?;
        supported.set(0)
    }
}

fn uuid(device: i32) -> [u8; 16] {
    let mut uuid = *b"simulated GPU \0\0";
    uuid[14..].copy_from_slice(&(device as u16).to_be_bytes());
    uuid
}

fn bus(device: i32) -> String {
    format!("00000000:{:02X}:00.0", device + 1)
}

/// The number of an attribute, and 0 for what the simulation has no notion of.
fn attribute(config: &Config, attribute: i32, device: i32) -> i32 {
    let (major, minor) = config.capability;
    match attribute {
        // Threads, blocks and grids.
        1..=3 => 1024,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65_535,
        8 => 48 << 10,
        9 => 64 << 10,
        10 => 32,
        11 => i32::MAX,
        12 | 82 => 64 << 10,
        13 => 1_410_000,
        14 => 512,
        16 => config.processors,
        39 => 2048,
        81 => 164 << 10,
        97 => 163 << 10,
        106 => 32,
        111 => 1024,
        // Memory.
        30 => 512,
        36 => 1_593_000,
        37 => 5120,
        38 => 40 << 20,
        51 => 32,
        // What it can do: overlap copies, map host memory, run kernels at once, one address space,
        // priorities, caches, managed memory, host registration, cooperative launches.
        15 | 19 | 31 | 41 | 78 | 79 | 80 | 83 | 89 | 90 | 91 | 92 | 93 | 95 | 99 => 1,
        40 => 2,
        33 => device + 1,
        34 | 50 => 0,
        75 => major,
        76 => minor,
        87 => 2,
        102 => i32::from(config.vmm),
        115 => i32::from(config.pools),
        120 => i32::from(major >= 9),
        _ => 0,
    }
}
