//! Copy: bytes between host and devices, in lines, rows and slices.
//!
//! Pageable memory behaves as with a driver: a copy from it has read it when the call returns, and
//! a copy to it has written it. Only pinned memory is read and written later.

use crate::api::settle;
use crate::code::{self, Code, Done};
use crate::door::{Here, In, exports};
use crate::work::{Shape, Source, Work, stage};
use crate::world;

/// Where an address is said to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Host,
    Device,
    /// The address says it.
    Either,
}

use Side::{Device, Either, Host};

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Flat {
    from_x: u64,
    from_y: u64,
    from_kind: u32,
    from_host: u64,
    from_device: u64,
    from_array: u64,
    from_pitch: u64,
    to_x: u64,
    to_y: u64,
    to_kind: u32,
    to_host: u64,
    to_device: u64,
    to_array: u64,
    to_pitch: u64,
    width: u64,
    height: u64,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Solid {
    from_x: u64,
    from_y: u64,
    from_z: u64,
    from_level: u64,
    from_kind: u32,
    from_host: u64,
    from_device: u64,
    from_array: u64,
    from_reserved: u64,
    from_pitch: u64,
    from_height: u64,
    to_x: u64,
    to_y: u64,
    to_z: u64,
    to_level: u64,
    to_kind: u32,
    to_host: u64,
    to_device: u64,
    to_array: u64,
    to_reserved: u64,
    to_pitch: u64,
    to_height: u64,
    width: u64,
    height: u64,
    depth: u64,
}

exports! {
    Context(at) fn cuMemcpyHtoD_v2(to: u64, from: u64, bytes: u64) {
        copy(at, (to, Device), (from, Host), Shape::line(bytes), None)
    }

    Context(at) fn cuMemcpyDtoH_v2(to: u64, from: u64, bytes: u64) {
        copy(at, (to, Host), (from, Device), Shape::line(bytes), None)
    }

    Context(at) fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: u64) {
        copy(at, (to, Device), (from, Device), Shape::line(bytes), None)
    }

    Context(at) fn cuMemcpy(to: u64, from: u64, bytes: u64) {
        copy(at, (to, Either), (from, Either), Shape::line(bytes), None)
    }

    Context(at) fn cuMemcpyPeer(to: u64, _there: u64, from: u64, _here: u64, bytes: u64) {
        copy(at, (to, Device), (from, Device), Shape::line(bytes), None)
    }

    Context(at) fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: u64, stream: u64) {
        copy(at, (to, Device), (from, Host), Shape::line(bytes), Some(stream))
    }

    Context(at) fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: u64, stream: u64) {
        copy(at, (to, Host), (from, Device), Shape::line(bytes), Some(stream))
    }

    Context(at) fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: u64, stream: u64) {
        copy(at, (to, Device), (from, Device), Shape::line(bytes), Some(stream))
    }

    Context(at) fn cuMemcpyAsync(to: u64, from: u64, bytes: u64, stream: u64) {
        copy(at, (to, Either), (from, Either), Shape::line(bytes), Some(stream))
    }

    Context(at) fn cuMemcpyPeerAsync(
        to: u64, _there: u64, from: u64, _here: u64, bytes: u64, stream: u64,
    ) {
        copy(at, (to, Device), (from, Device), Shape::line(bytes), Some(stream))
    }

    Context(at) fn cuMemcpy2D_v2(what: In<Flat>) {
        flat(at, what.get()?, None)
    }

    Context(at) fn cuMemcpy2DUnaligned_v2(what: In<Flat>) {
        flat(at, what.get()?, None)
    }

    Context(at) fn cuMemcpy2DAsync_v2(what: In<Flat>, stream: u64) {
        flat(at, what.get()?, Some(stream))
    }

    Context(at) fn cuMemcpy3D_v2(what: In<Solid>) {
        solid(at, what.get()?, None)
    }

    Context(at) fn cuMemcpy3DAsync_v2(what: In<Solid>, stream: u64) {
        solid(at, what.get()?, Some(stream))
    }
}

/// Address and side of `CUmemorytype`: 1 host, 2 device, 3 array, 4 unified.
fn side(kind: u32, host: u64, device: u64) -> Result<(u64, Side), Code> {
    match kind {
        1 => Ok((host, Host)),
        2 => Ok((device, Device)),
        3 => Err(code::NOT_SUPPORTED),
        4 => Ok((device, Either)),
        _ => Err(code::INVALID_VALUE),
    }
}

/// An address and so many times such steps further.
fn place<const N: usize>(base: u64, steps: [(u64, u64); N]) -> Result<u64, Code> {
    let further =
        |place: u64, (count, step): (u64, u64)| place.checked_add(count.checked_mul(step)?);
    steps.into_iter().try_fold(base, further).ok_or(code::INVALID_VALUE)
}

fn flat(at: &Here, what: Flat, stream: Option<u64>) -> Done {
    let (to, to_side) = side(what.to_kind, what.to_host, what.to_device)?;
    let (from, from_side) = side(what.from_kind, what.from_host, what.from_device)?;
    let pitch = |pitch: u64| if pitch == 0 { what.width } else { pitch };
    let (to_pitch, from_pitch) = (pitch(what.to_pitch), pitch(what.from_pitch));
    if to_pitch < what.width || from_pitch < what.width {
        return Err(code::INVALID_VALUE);
    }
    let to = place(to, [(what.to_x, 1), (what.to_y, to_pitch)])?;
    let from = place(from, [(what.from_x, 1), (what.from_y, from_pitch)])?;
    let shape = Shape {
        width: what.width,
        height: what.height,
        depth: 1,
        to: (to_pitch, 0),
        from: (from_pitch, 0),
    };
    copy(at, (to, to_side), (from, from_side), shape, stream)
}

fn solid(at: &Here, what: Solid, stream: Option<u64>) -> Done {
    let (to, to_side) = side(what.to_kind, what.to_host, what.to_device)?;
    let (from, from_side) = side(what.from_kind, what.from_host, what.from_device)?;
    let or = |value: u64, otherwise: u64| if value == 0 { otherwise } else { value };
    let to_row = or(what.to_pitch, what.width);
    let from_row = or(what.from_pitch, what.width);
    let to_slice = to_row.saturating_mul(or(what.to_height, what.height));
    let from_slice = from_row.saturating_mul(or(what.from_height, what.height));
    if to_row < what.width || from_row < what.width {
        return Err(code::INVALID_VALUE);
    }
    let to = place(to, [(what.to_x, 1), (what.to_y, to_row), (what.to_z, to_slice)])?;
    let starts = [(what.from_x, 1), (what.from_y, from_row), (what.from_z, from_slice)];
    let from = place(from, starts)?;
    let shape = Shape {
        width: what.width,
        height: what.height,
        depth: what.depth,
        to: (to_row, to_slice),
        from: (from_row, from_slice),
    };
    copy(at, (to, to_side), (from, from_side), shape, stream)
}

/// On a stream, or on the default stream and waited for.
fn copy(
    at: &Here,
    (to, to_side): (u64, Side),
    (from, from_side): (u64, Side),
    shape: Shape,
    stream: Option<u64>,
) -> Done {
    if shape.bytes() == 0 {
        return Ok(());
    }
    let mut world = world::lock();
    let id = world.stream(at, stream.unwrap_or(0))?;
    let (to_known, from_known) = (world.memory.is_known(to), world.memory.is_known(from));
    let stranger = |side, known: bool| side == Device && !known;
    if stranger(to_side, to_known) || stranger(from_side, from_known) || to == 0 || from == 0 {
        return Err(code::INVALID_VALUE);
    }
    let captures = world.streams.get(&id).is_some_and(|stream| stream.capture.is_some());
    let mut source = Source::Address(from);
    if !from_known && !captures && stream.is_some() {
        drop(world);
        source = stage(from, shape);
        world = world::lock();
    }
    let point = world.enqueue(id, Work::Copy { to, from: source, shape })?;
    match point {
        Some(point) if stream.is_none() || !to_known => settle(&mut world, at, &[point]),
        _ => Ok(()),
    }
}
