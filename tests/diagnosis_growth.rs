//! Growth: for any history, the rows of a comparison add up to the difference of the live bytes.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::HashMap;

use blockyard::diagnosis::growth::compare;
use blockyard::diagnosis::owners::{By, census, peak};
use blockyard::trace::{DeviceTrace, Event, Kind, NO_ALLOCATION, Recording, StackId};
use proptest::prelude::*;

/// A history with addresses: births, frees of both kinds, frees of strangers and frees of what is gone.
fn history(moves: &[(u8, u16, u8)]) -> (Recording, DeviceTrace) {
    let mut recording = Recording::default();
    let tags: Vec<StackId> =
        (0..5).map(|tag| recording.stacks.tag(&format!("tag {tag}"))).collect();
    let mut trace = DeviceTrace::default();
    for &(what, bytes, which) in moves {
        let (allocations, old) = (trace.allocations, u32::from(which));
        let at = |allocation: u32| 0x1000 + u64::from(allocation) * 0x10_0000;
        let event = match what % 6 {
            0..=2 => {
                trace.allocations += 1;
                let stack = tags[usize::from(which) % tags.len()];
                let address = at(allocations);
                Event { allocation: allocations, stack, address, ..Event::new(Kind::Alloc) }
            }
            3 if old < allocations => {
                Event { allocation: old, address: at(old), ..Event::new(Kind::Free) }
            }
            4 if old < allocations => {
                Event { allocation: old, address: at(old), ..Event::new(Kind::FreeRequested) }
            }
            _ => {
                let address = 7 + u64::from(which);
                Event { allocation: NO_ALLOCATION, address, ..Event::new(Kind::FreeRequested) }
            }
        };
        trace.events.push(Event { bytes: u64::from(bytes), ..event });
    }
    (recording, trace)
}

/// Live bytes after each entry, counted as plainly as can be.
fn plainly(trace: &DeviceTrace) -> Vec<i128> {
    let strangers = trace.events.iter().filter(|event| event.allocation == NO_ALLOCATION);
    let mut older: HashMap<u64, i128> = HashMap::new();
    for event in strangers {
        older.entry(event.address).or_insert_with(|| event.bytes.into());
    }
    let mut born: HashMap<u32, i128> = HashMap::new();
    let mut live = Vec::new();
    for index in 0..=trace.events.len() {
        live.push(older.values().sum::<i128>() + born.values().sum::<i128>());
        let Some(event) = trace.events.get(index) else { break };
        match (event.kind, event.allocation) {
            (Kind::Alloc, allocation) => drop(born.insert(allocation, event.bytes.into())),
            (_, NO_ALLOCATION) => drop(older.remove(&event.address)),
            (_, allocation) => drop(born.remove(&allocation)),
        }
    }
    live
}

proptest! {
    #[test]
    fn rows_add_up_to_the_difference(
        moves in proptest::collection::vec((0u8..6, 0u16.., 0u8..40), 0..120),
        a in 0usize..121,
        b in 0usize..121,
    ) {
        let (recording, trace) = history(&moves);
        let (a, b) = (a.min(moves.len()), b.min(moves.len()));
        let live = plainly(&trace);
        for by in [By::Tag, By::Stack, By::Size] {
            let before = census(&recording, &trace, a, by);
            let after = census(&recording, &trace, b, by);
            prop_assert_eq!(i128::from(before.total.bytes), live[a]);
            prop_assert_eq!(i128::from(after.total.bytes), live[b]);
            let found = compare(&before, &after);
            let rows: i128 = found.rows.iter().map(|row| row.change()).sum();
            prop_assert_eq!(rows, live[b] - live[a]);
            prop_assert_eq!(found.growth(), live[b] - live[a]);
            let sizes: Vec<u128> =
                found.rows.iter().map(|row| row.change().unsigned_abs()).collect();
            prop_assert!(sizes.is_sorted_by(|x, y| x >= y), "by absolute growth");
        }
        let highest = live.iter().copied().max().unwrap_or(0);
        prop_assert_eq!(live[peak(&trace)], highest);
    }
}
