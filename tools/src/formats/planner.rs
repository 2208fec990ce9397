//! Planner: instances of static memory planners, `id,lower,upper,size`: buffers with half-open
//! lifetimes.
//!
//! Each buffer becomes an allocation at `lower` and a free at `upper`; at equal times frees come
//! first.

use blockyard::trace::{DeviceTrace, Event, Kind, Recording, StackId};

use super::error::{Wrong, quoted};
use super::text::{Lines, is_silent, number};

const COLUMNS: [&str; 4] = ["id", "lower", "upper", "size"];

/// Whether a first line is the header of such a file.
pub(crate) fn is_header(line: &[u8]) -> bool {
    COLUMNS.iter().all(|name| fields(line).any(|field| field == name.as_bytes()))
}

fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

struct Buffer {
    line: u32,
    lower: u64,
    upper: u64,
    size: u64,
    tag: StackId,
}

/// Reads an instance.
pub(crate) fn read(bytes: &[u8]) -> Result<Recording, Wrong> {
    let mut recording =
        Recording { format: "planner-csv".into(), has_pool_ids: true, ..Default::default() };
    let mut lines = Lines::new(bytes).filter(|(_, text)| !is_silent(text));
    let (line, header) = lines.next().unwrap_or((1, b""));
    let mut columns = [0; 4];
    for (column, name) in columns.iter_mut().zip(COLUMNS) {
        *column = fields(header)
            .position(|field| field == name.as_bytes())
            .ok_or_else(|| Wrong::line(line, quoted(header), "the header id,lower,upper,size"))?;
    }
    let mut buffers = Vec::new();
    for (line, text) in lines {
        buffers.push(buffer(line, text, columns, &mut recording)?);
    }
    let events = events(&buffers)?;
    let allocations = buffers.len() as u32;
    recording.devices = vec![DeviceTrace { events, allocations, ..Default::default() }];
    recording.streams = vec![0];
    recording.pools = vec![(0, 0)];
    Ok(recording)
}

fn buffer(
    line: u32,
    text: &[u8],
    columns: [usize; 4],
    recording: &mut Recording,
) -> Result<Buffer, Wrong> {
    let mut row = [&b""[..]; 4];
    for (slot, column) in row.iter_mut().zip(columns) {
        *slot = fields(text).nth(column).ok_or_else(|| {
            Wrong::line(line, format!("too few fields in {}", quoted(text)), "id,lower,upper,size")
        })?;
    }
    let [id, lower, upper, size] = row;
    let tag = std::str::from_utf8(id)
        .map_err(|_| Wrong::line(line, format!("id {} is not UTF-8", quoted(id)), "UTF-8 text"))?;
    let lower = number(lower, "lower", line)?;
    let upper = number(upper, "upper", line)?;
    if upper <= lower {
        let found = format!("upper {upper} is not after lower {lower}");
        return Err(Wrong::line(line, found, "a lifetime of at least one step"));
    }
    let size = number(size, "the size", line)?;
    Ok(Buffer { line, lower, upper, size, tag: recording.stacks.tag(tag) })
}

fn events(buffers: &[Buffer]) -> Result<Vec<Event>, Wrong> {
    if buffers.len() >= u32::MAX as usize / 2 {
        return Err(Wrong::new("more than 2,147,483,647 buffers", "fewer"));
    }
    let mut order: Vec<(u64, bool, u32)> = Vec::with_capacity(buffers.len() * 2);
    for (index, buffer) in buffers.iter().enumerate() {
        order.push((buffer.lower, true, index as u32));
        order.push((buffer.upper, false, index as u32));
    }
    order.sort_unstable();
    let mut numbers = vec![0; buffers.len()];
    let mut next = 0;
    let event = |(time_us, birth, index): (u64, bool, u32)| {
        let Buffer { line, size, tag, .. } = buffers[index as usize];
        let slot = &mut numbers[index as usize];
        if birth {
            *slot = next;
            next += 1;
        }
        let (kind, stack) = if birth { (Kind::Alloc, tag) } else { (Kind::Free, StackId(0)) };
        Event { bytes: size, allocation: *slot, stack, line, time_us, ..Event::new(kind) }
    };
    Ok(order.into_iter().map(event).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_one_time_frees_come_before_allocations() {
        let recording = read(b"id,lower,upper,size\nx,5,9,10\ny,0,5,20\n").unwrap();
        let events: Vec<_> = recording.devices[0]
            .events
            .iter()
            .map(|event| (event.time_us, event.kind, event.allocation, event.bytes))
            .collect();
        use Kind::{Alloc, Free};
        assert_eq!(
            events,
            [(0, Alloc, 0, 20), (5, Free, 0, 20), (5, Alloc, 1, 10), (9, Free, 1, 10)]
        );
        assert_eq!(recording.stacks.label(recording.devices[0].events[0].stack), "y");
    }
}
