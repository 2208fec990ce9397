//! Fill: memory set to a value of one, two or four bytes.

use crate::api::settle;
use crate::code::{self, Done};
use crate::door::{Here, exports};
use crate::work::{Shape, Work};
use crate::world;

exports! {
    Context(at) fn cuMemsetD8_v2(to: u64, value: u8, count: u64) {
        fill(at, to, value.into(), line(1, count)?, None)
    }

    Context(at) fn cuMemsetD16_v2(to: u64, value: u16, count: u64) {
        fill(at, to, value.into(), line(2, count)?, None)
    }

    Context(at) fn cuMemsetD32_v2(to: u64, value: u32, count: u64) {
        fill(at, to, value, line(4, count)?, None)
    }

    Context(at) fn cuMemsetD8Async(to: u64, value: u8, count: u64, stream: u64) {
        fill(at, to, value.into(), line(1, count)?, Some(stream))
    }

    Context(at) fn cuMemsetD16Async(to: u64, value: u16, count: u64, stream: u64) {
        fill(at, to, value.into(), line(2, count)?, Some(stream))
    }

    Context(at) fn cuMemsetD32Async(to: u64, value: u32, count: u64, stream: u64) {
        fill(at, to, value, line(4, count)?, Some(stream))
    }

    Context(at) fn cuMemsetD2D8_v2(to: u64, pitch: u64, value: u8, width: u64, height: u64) {
        fill(at, to, value.into(), rows(1, pitch, width, height)?, None)
    }

    Context(at) fn cuMemsetD2D16_v2(to: u64, pitch: u64, value: u16, width: u64, height: u64) {
        fill(at, to, value.into(), rows(2, pitch, width, height)?, None)
    }

    Context(at) fn cuMemsetD2D32_v2(to: u64, pitch: u64, value: u32, width: u64, height: u64) {
        fill(at, to, value, rows(4, pitch, width, height)?, None)
    }

    Context(at) fn cuMemsetD2D8Async(
        to: u64, pitch: u64, value: u8, width: u64, height: u64, stream: u64,
    ) {
        fill(at, to, value.into(), rows(1, pitch, width, height)?, Some(stream))
    }

    Context(at) fn cuMemsetD2D16Async(
        to: u64, pitch: u64, value: u16, width: u64, height: u64, stream: u64,
    ) {
        fill(at, to, value.into(), rows(2, pitch, width, height)?, Some(stream))
    }

    Context(at) fn cuMemsetD2D32Async(
        to: u64, pitch: u64, value: u32, width: u64, height: u64, stream: u64,
    ) {
        fill(at, to, value, rows(4, pitch, width, height)?, Some(stream))
    }

    Context(at) fn cuStreamWriteValue32(stream: u64, to: u64, value: u32, _flags: u32) {
        fill(at, to, value, line(4, 1)?, Some(stream))
    }

    Context(at) fn cuStreamWriteValue32_v2(stream: u64, to: u64, value: u32, _flags: u32) {
        fill(at, to, value, line(4, 1)?, Some(stream))
    }
}

type Rows = (u64, Shape);

fn line(unit: u64, count: u64) -> Result<Rows, code::Code> {
    Ok((unit, Shape::line(count.checked_mul(unit).ok_or(code::INVALID_VALUE)?)))
}

fn rows(unit: u64, pitch: u64, width: u64, height: u64) -> Result<Rows, code::Code> {
    let width = width.checked_mul(unit).ok_or(code::INVALID_VALUE)?;
    if height > 1 && (pitch < width || !pitch.is_multiple_of(unit)) {
        return Err(code::INVALID_VALUE);
    }
    let apart = (pitch, pitch.saturating_mul(height));
    Ok((unit, Shape { width, height, depth: 1, to: apart, from: apart }))
}

/// On a stream, or on the default stream and waited for.
fn fill(at: &Here, to: u64, value: u32, (unit, shape): Rows, stream: Option<u64>) -> Done {
    if shape.bytes() == 0 {
        return Ok(());
    }
    let mut world = world::lock();
    if !world.memory.is_known(to) || !to.is_multiple_of(unit) {
        return Err(code::INVALID_VALUE);
    }
    let id = world.stream(at, stream.unwrap_or(0))?;
    let point = world.enqueue(id, Work::Fill { to, value, unit, shape })?;
    match (stream, point) {
        (None, Some(point)) => settle(&mut world, at, &[point]),
        _ => Ok(()),
    }
}
