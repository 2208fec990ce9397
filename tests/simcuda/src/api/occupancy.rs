//! Occupancy: attributes of functions, and how many blocks would fit: plain, plausible numbers.

use crate::code::{self, Done};
use crate::door::{Out, exports};
use crate::world;

/// Threads that fit on a multiprocessor.
const THREADS: i32 = 2048;

exports! {
    Context(_at) fn cuFuncGetAttribute(value: Out<i32>, attribute: u32, function: u64) {
        get(value, attribute, function)
    }

    Context(_at) fn cuKernelGetAttribute(
        value: Out<i32>, attribute: u32, kernel: u64, _device: i32,
    ) {
        get(value, attribute, kernel)
    }

    Context(_at) fn cuFuncSetAttribute(function: u64, attribute: u32, value: i32) {
        set(function, attribute, value)
    }

    Context(_at) fn cuKernelSetAttribute(
        attribute: u32, value: i32, kernel: u64, _device: i32,
    ) {
        set(kernel, attribute, value)
    }

    Context(_at) fn cuFuncSetCacheConfig(function: u64, _config: u32) {
        known(function)
    }

    Context(_at) fn cuFuncSetSharedMemConfig(function: u64, _config: u32) {
        known(function)
    }

    Context(_at) fn cuFuncLoad(function: u64) {
        known(function)
    }

    Context(_at) fn cuFuncIsLoaded(state: Out<u32>, function: u64) {
        known(function)?;
        state.set(1)
    }

    Context(_at) fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<i32>, function: u64, threads: i32, _shared: u64,
    ) {
        active(blocks, function, threads)
    }

    Context(_at) fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<i32>, function: u64, threads: i32, _shared: u64, _flags: u32,
    ) {
        active(blocks, function, threads)
    }

    Context(_at) fn cuOccupancyMaxPotentialBlockSize(
        grid: Out<i32>, block: Out<i32>, function: u64, _sizes: u64, _shared: u64, most: i32,
    ) {
        potential(grid, block, function, most)
    }

    Context(_at) fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<i32>, block: Out<i32>, function: u64, _sizes: u64, _shared: u64, most: i32,
        _flags: u32,
    ) {
        potential(grid, block, function, most)
    }

    Context(_at) fn cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: Out<u64>, function: u64, blocks: i32, _threads: i32,
    ) {
        known(function)?;
        bytes.set((164 << 10) / u64::try_from(blocks.max(1)).unwrap_or(1))
    }
}

fn known(function: u64) -> Done {
    let known = world::lock().modules.functions.contains_key(&function);
    if known { Ok(()) } else { Err(code::INVALID_HANDLE) }
}

fn get(value: Out<i32>, attribute: u32, function: u64) -> Done {
    let world = world::lock();
    let known = world.modules.functions.get(&function).ok_or(code::INVALID_HANDLE)?;
    let (major, minor) = world.config.capability;
    let usual = match attribute {
        0 => 1024,
        4 => 32,
        5 | 6 => major * 10 + minor,
        8 => 48 << 10,
        9 => -1,
        1..=17 => 0,
        _ => return Err(code::INVALID_VALUE),
    };
    value.set(known.attributes.get(&attribute).copied().unwrap_or(usual))
}

/// Only some may be set: dynamic shared memory, the carve-out, and those of clusters.
fn set(function: u64, attribute: u32, value: i32) -> Done {
    let mut world = world::lock();
    let known = world.modules.functions.get_mut(&function).ok_or(code::INVALID_HANDLE)?;
    let too_much = attribute == 8 && !(0..=163 << 10).contains(&value);
    if !matches!(attribute, 8..=15) || too_much {
        return Err(code::INVALID_VALUE);
    }
    known.attributes.insert(attribute, value);
    Ok(())
}

fn active(blocks: Out<i32>, function: u64, threads: i32) -> Done {
    known(function)?;
    if !(1..=1024).contains(&threads) {
        return Err(code::INVALID_VALUE);
    }
    blocks.set((THREADS / threads).min(32))
}

fn potential(grid: Out<i32>, block: Out<i32>, function: u64, most: i32) -> Done {
    known(function)?;
    let threads = if most > 0 { most.min(1024) } else { 1024 };
    grid.set(world::lock().config.processors * (THREADS / threads))?;
    block.set(threads)
}
