//! Planner: lifetimes and sizes for offline memory planners, `id,lower,upper,size` with half-open
//! lifetimes.
//!
//! Time is the index of the event (markers do not count). A block lives until its memory is
//! reusable; one that is never freed lives to the end. Requests of zero bytes are left out: they
//! take no place.

use std::io::{self, Write};

use blockyard::trace::{DeviceTrace, Kind, NO_ALLOCATION};

/// The life of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The allocation's number.
    pub id: u32,
    /// The event that made it.
    pub lower: u64,
    /// The event that ended it.
    pub upper: u64,
    /// The client's size in bytes.
    pub size: u64,
}

/// The lives of all blocks, in order of birth. O(events).
#[must_use]
pub fn lifetimes(device: &DeviceTrace) -> Vec<Lifetime> {
    let mut lives: Vec<Lifetime> = Vec::new();
    let mut born = vec![None; device.allocations as usize];
    let counted = device.events.iter().filter(|event| event.kind.counts());
    let mut now = 0;
    for event in counted {
        let slot = match event.allocation {
            NO_ALLOCATION => None,
            id => born.get_mut(id as usize),
        };
        match (event.kind, slot) {
            (Kind::Alloc, Some(slot)) if event.bytes > 0 => {
                *slot = Some(lives.len());
                let (id, size) = (event.allocation, event.bytes);
                lives.push(Lifetime { id, lower: now, upper: u64::MAX, size });
            }
            (Kind::Free | Kind::FreeRequested | Kind::FreeCompleted, Some(&mut Some(life))) => {
                lives[life].upper = now;
            }
            _ => {}
        }
        now += 1;
    }
    for life in &mut lives {
        life.upper = life.upper.min(now);
    }
    lives
}

/// Writes the lives of one device's blocks.
pub fn write(device: &DeviceTrace, out: &mut impl Write) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    writeln!(out, "id,lower,upper,size")?;
    for Lifetime { id, lower, upper, size } in lifetimes(device) {
        writeln!(out, "{id},{lower},{upper},{size}")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard::trace::Event;

    fn event(kind: Kind, allocation: u32, bytes: u64) -> Event {
        Event { allocation, bytes, ..Event::new(kind) }
    }

    #[test]
    fn lives_are_half_open_and_end_when_memory_is_reusable() {
        let events = vec![
            event(Kind::Alloc, 0, 100),
            Event::new(Kind::Marker),
            event(Kind::Alloc, 1, 200),
            event(Kind::FreeRequested, 0, 100),
            event(Kind::Alloc, 2, 0),
            event(Kind::FreeCompleted, 0, 100),
            event(Kind::Alloc, 3, 300),
            event(Kind::Free, 3, 300),
            event(Kind::FreeCompleted, NO_ALLOCATION, 9),
        ];
        let device = DeviceTrace { events, allocations: 4, ..DeviceTrace::default() };
        let mut text = Vec::new();
        write(&device, &mut text).expect("written");
        let text = String::from_utf8(text).expect("text");
        assert_eq!(text, "id,lower,upper,size\n0,0,4,100\n1,1,8,200\n3,5,6,300\n");
    }
}
