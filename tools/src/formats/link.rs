//! Link: which allocation each entry of an address trace belongs to.
//!
//! Traces of other programs name blocks by address; a replay needs one number for each allocation.
//! This pass gives them, dense from 0, and counts what does not fit. It never knows a file format.

use std::collections::{HashMap, HashSet};

use blockyard::trace::{Event, Kind, NO_ALLOCATION};

use super::error::Wrong;

/// What the pass found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Linked {
    /// How many allocations there are.
    pub allocations: u32,
    /// Frees of blocks that the trace never handed out.
    pub unknown_frees: u64,
    /// The first of them: the index of its event.
    pub first_unknown: usize,
    /// Allocations at an address that was still handed out.
    pub overlaps: u64,
    /// The first of them: the index of its event.
    pub first_overlap: usize,
}

struct Live {
    allocation: u32,
    /// The client gave it back.
    requested: bool,
}

#[derive(Default)]
struct Linker {
    live: HashMap<u64, Live>,
    /// Addresses of unknown blocks whose free was requested and counted.
    unknown: HashSet<u64>,
    linked: Linked,
}

/// Numbers the allocations of these events, which stand in the order in which they happened.
pub(crate) fn link(events: &mut [Event]) -> Result<Linked, Wrong> {
    let mut linker = Linker::default();
    for (index, event) in events.iter_mut().enumerate() {
        ends(event)?;
        match event.kind {
            Kind::Alloc => event.allocation = linker.born(event.address, index)?,
            Kind::FreeRequested => event.allocation = linker.requested(event.address, index),
            Kind::FreeCompleted => event.allocation = linker.gone(event.address, index),
            Kind::Free if event.address != 0 => {
                event.allocation = linker.gone(event.address, index);
            }
            _ => {}
        }
    }
    Ok(linker.linked)
}

/// What lies at an address ends within memory.
fn ends(event: &Event) -> Result<(), Wrong> {
    let ranged = !matches!(event.kind, Kind::Oom | Kind::Other);
    if ranged && event.address.checked_add(event.bytes).is_none() {
        let found = format!("{} bytes at {:#x}", event.bytes, event.address);
        return Err(Wrong::line(event.line, found, "a block that ends below 2^64"));
    }
    Ok(())
}

impl Linker {
    fn born(&mut self, address: u64, index: usize) -> Result<u32, Wrong> {
        let allocation = self.linked.allocations;
        if allocation == NO_ALLOCATION {
            return Err(Wrong::new("more than 4,294,967,294 allocations", "fewer"));
        }
        self.linked.allocations += 1;
        if address == 0 {
            return Ok(allocation); // a null pointer: never freed by address
        }
        let old = self.live.insert(address, Live { allocation, requested: false });
        if old.is_some_and(|old| !old.requested) {
            if self.linked.overlaps == 0 {
                self.linked.first_overlap = index;
            }
            self.linked.overlaps += 1;
        }
        Ok(allocation)
    }

    fn requested(&mut self, address: u64, index: usize) -> u32 {
        match self.live.get_mut(&address) {
            Some(live) => {
                live.requested = true;
                live.allocation
            }
            None => {
                self.count_unknown(index);
                self.unknown.insert(address);
                NO_ALLOCATION
            }
        }
    }

    fn gone(&mut self, address: u64, index: usize) -> u32 {
        if let Some(live) = self.live.remove(&address) {
            return live.allocation;
        }
        if !self.unknown.remove(&address) {
            self.count_unknown(index);
        }
        NO_ALLOCATION
    }

    fn count_unknown(&mut self, index: usize) {
        if self.linked.unknown_frees == 0 {
            self.linked.first_unknown = index;
        }
        self.linked.unknown_frees += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: Kind, address: u64) -> Event {
        Event { address, ..Event::new(kind) }
    }

    #[test]
    fn allocations_are_numbered_and_strangers_counted_once() {
        let mut events = [
            event(Kind::Alloc, 1),
            event(Kind::FreeRequested, 9),
            event(Kind::FreeCompleted, 9),
            event(Kind::FreeRequested, 1),
            event(Kind::FreeCompleted, 1),
            event(Kind::Alloc, 1),
            event(Kind::FreeCompleted, 8),
            event(Kind::Alloc, 1),
        ];
        let linked = link(&mut events).unwrap();
        let numbers: Vec<u32> = events.iter().map(|event| event.allocation).collect();
        let none = NO_ALLOCATION;
        assert_eq!(numbers, [0, none, none, 0, 0, 1, none, 2]);
        let expected = Linked {
            allocations: 3,
            unknown_frees: 2,
            first_unknown: 1,
            overlaps: 1,
            first_overlap: 7,
        };
        assert_eq!(linked, expected);
    }

    #[test]
    fn an_address_given_back_may_be_handed_out_without_a_completion() {
        let mut events =
            [event(Kind::Alloc, 1), event(Kind::FreeRequested, 1), event(Kind::Alloc, 1)];
        assert_eq!(link(&mut events).unwrap().overlaps, 0);
    }
}
