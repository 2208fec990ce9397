//! Api: the driver's entry points, by subject.
//!
//! Each checks its pointers, asks the world under its lock, and answers; the door does the rest.
//! Names, argument orders and numbers are CUDA's.
#![allow(non_snake_case, non_upper_case_globals, clippy::too_many_arguments)]

mod context;
mod copy;
mod device;
mod event;
mod fill;
mod graph;
mod launch;
mod memory;
mod misc;
mod module;
mod occupancy;
mod pointer;
mod pool;
mod primary;
mod refused;
mod stream;
mod vmm;

use crate::code::Done;
use crate::door::{Entry, Here};
use crate::stream::Point;
use crate::world::{self, Guard, World};

/// Every entry point.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    let all = [
        context::entries::ALL,
        copy::entries::ALL,
        device::entries::ALL,
        event::entries::ALL,
        fill::entries::ALL,
        graph::entries::ALL,
        launch::entries::ALL,
        memory::entries::ALL,
        misc::entries::ALL,
        module::entries::ALL,
        occupancy::entries::ALL,
        pointer::entries::ALL,
        pool::entries::ALL,
        primary::entries::ALL,
        refused::entries::ALL,
        stream::entries::ALL,
        vmm::entries::ALL,
    ];
    all.into_iter().flatten().copied()
}

/// Waits for work; then pools give back what they need not keep.
fn settle(world: &mut Guard, here: &Here, points: &[Point]) -> Done {
    world::wait(world, |world| points.iter().all(|point| world.is_done(*point)));
    world.trim_pools(here.device, false);
    outcome(world, here)
}

/// Whether the context is sound still.
fn outcome(world: &World, here: &Here) -> Done {
    let broken = world.contexts.get(&here.context).and_then(|context| context.broken);
    broken.map_or(Ok(()), Err)
}

/// Waits until no work queued so far is left on the device, and none runs on the range.
fn settle_range(world: &mut Guard, here: &Here, address: u64, bytes: u64) -> Done {
    let points = world.points(|stream| stream.device == here.device);
    settle(world, here, &points)?;
    world::wait(world, |world| {
        !world.streams.values().any(|stream| stream.runs_on(address, bytes))
    });
    outcome(world, here)
}
