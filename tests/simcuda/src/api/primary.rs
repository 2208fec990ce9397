//! Primary: the primary context of each device.

use crate::code;
use crate::door::{Out, exports};
use crate::world::{self, Guard};

exports! {
    Ready(_at) fn cuDevicePrimaryCtxRetain(context: Out<u64>, device: i32) {
        context.check()?;
        let mut world = world::lock();
        let device = world.device(device)?;
        if world.primaries[device].context == 0 {
            let flags = world.primaries[device].flags;
            world.primaries[device].context = world.make_context(device, true, flags)?;
        }
        world.primaries[device].users += 1;
        context.set(world.primaries[device].context)
    }

    Ready(_at) fn cuDevicePrimaryCtxRelease_v2(device: i32) {
        let mut world = world::lock();
        let device = world.device(device)?;
        if world.primaries[device].users == 0 {
            return Err(code::INVALID_CONTEXT);
        }
        world.primaries[device].users -= 1;
        if world.primaries[device].users == 0 {
            end(&mut world, device)?;
        }
        Ok(())
    }

    /// Ends the context whoever still uses it; those must retain it again.
    Ready(_at) fn cuDevicePrimaryCtxReset_v2(device: i32) {
        let mut world = world::lock();
        let device = world.device(device)?;
        if world.primaries[device].context != 0 {
            end(&mut world, device)?;
        }
        Ok(())
    }

    Ready(_at) fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) {
        let mut world = world::lock();
        let device = world.device(device)?;
        world.primaries[device].flags = flags;
        Ok(())
    }

    Ready(_at) fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) {
        let world = world::lock();
        let primary = world.primaries[world.device(device)?];
        flags.set_if_wanted(primary.flags);
        active.set_if_wanted(i32::from(primary.context != 0));
        Ok(())
    }
}

/// Ends a device's primary context. A thread that has it current finds it destroyed.
fn end(world: &mut Guard, device: usize) -> crate::code::Done {
    let context = world.primaries[device].context;
    world::destroy_context(world, context)?;
    world.primaries[device].context = 0;
    world.primaries[device].users = 0;
    Ok(())
}
