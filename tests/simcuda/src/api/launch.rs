//! Launch: kernels queued in streams, their arguments copied at once.

use crate::code::{self, Code, Done};
use crate::door::{Here, In, exports};
use crate::module::Function;
use crate::work::{Launch, Work};
use crate::world;

type Three = (u32, u32, u32);

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: u64,
    attributes: u64,
    count: u32,
}

exports! {
    Context(at) fn cuLaunchKernel(
        function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: u64, arguments: In<In<u8>>, extra: In<u64>,
    ) {
        launch(at, function, ((gx, gy, gz), (bx, by, bz), shared), stream, arguments, extra)
    }

    Context(at) fn cuLaunchCooperativeKernel(
        function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: u64, arguments: In<In<u8>>,
    ) {
        let how = ((gx, gy, gz), (bx, by, bz), shared);
        launch(at, function, how, stream, arguments, In::none())
    }

    Context(at) fn cuLaunchKernelEx(
        how: In<Config>, function: u64, arguments: In<In<u8>>, extra: In<u64>,
    ) {
        let how = how.get()?;
        let three = |list: [u32; 3]| (list[0], list[1], list[2]);
        let shape = (three(how.grid), three(how.block), how.shared);
        launch(at, function, shape, how.stream, arguments, extra)
    }
}

fn launch(
    at: &Here,
    function: u64,
    (grid, block, shared): (Three, Three, u32),
    stream: u64,
    arguments: In<In<u8>>,
    extra: In<u64>,
) -> Done {
    let mut world = world::lock();
    let known = world.modules.functions.get(&function).ok_or(code::INVALID_HANDLE)?.clone();
    let id = world.stream(at, stream)?;
    let product = |(x, y, z): Three| u64::from(x) * u64::from(y) * u64::from(z);
    let limits = grid.1 > 65_535 || grid.2 > 65_535 || block.2 > 64 || shared > 163 << 10;
    if product(grid) == 0 || product(block) == 0 || product(block) > 1024 || limits {
        return Err(code::INVALID_VALUE);
    }
    let arguments = gather(&known, arguments, extra)?;
    let run = known.host.as_ref().map(|host| host.run);
    let launch = Launch { name: known.name, run, arguments, grid, block, shared };
    world.enqueue(id, Work::Kernel(launch)).map(|_| ())
}

/// Copies of the arguments: from a list of their places, or from one buffer. Of kernels without a
/// host build neither number nor sizes are known, nor needed.
fn gather(
    function: &Function,
    places: In<In<u8>>,
    extra: In<u64>,
) -> Result<Vec<(Vec<u64>, u64)>, Code> {
    let Some(host) = &function.host else { return Ok(Vec::new()) };
    let sizes = host.arguments.iter().map(|size| u64::from(*size));
    if !places.is_null() {
        let of = |(place, size): (usize, u64)| read(places.at(place)?, 0, size);
        return sizes.enumerate().map(of).collect();
    }
    if host.arguments.is_empty() {
        return Ok(Vec::new());
    }
    let (buffer, room) = unpack(extra)?;
    let mut offset = 0_u64;
    let packed = sizes.map(|size| {
        let start = offset.next_multiple_of(size.clamp(1, 8).next_power_of_two());
        offset = start + size;
        if offset > room { Err(code::INVALID_VALUE) } else { read(buffer, start, size) }
    });
    packed.collect()
}

fn read(from: In<u8>, offset: u64, size: u64) -> Result<(Vec<u64>, u64), Code> {
    let mut words = vec![0_u64; size.div_ceil(8).max(1) as usize];
    for place in 0..size {
        let byte = u64::from(from.at((offset + place) as usize)?);
        words[place as usize / 8] |= byte << (8 * (place % 8));
    }
    Ok((words, size))
}

/// Pairs of a key and a pointer: 1 is the buffer, 2 its size, 0 the end.
fn unpack(extra: In<u64>) -> Result<(In<u8>, u64), Code> {
    let (mut buffer, mut room) = (In::none(), 0);
    for place in (0..8).step_by(2) {
        match extra.at(place)? {
            0 => break,
            1 => buffer = In::at_address(extra.at(place + 1)?),
            2 => room = In::<u64>::at_address(extra.at(place + 1)?).get()?,
            _ => return Err(code::INVALID_VALUE),
        }
    }
    Ok((buffer, room))
}
