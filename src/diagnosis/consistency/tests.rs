//! Tests: of the consistency check, one contradiction each.

use super::*;
use crate::trace::{FinalBlock, FinalSegment, StackId};
use crate::vocab::{BlockState, Class, PoolId, StreamId};

const NONE: u32 = NO_ALLOCATION;

fn event(kind: Kind, allocation: u32, address: u64, bytes: u64) -> Event {
    Event { allocation, address, bytes, ..Event::new(kind) }
}

fn trace(events: &[Event]) -> DeviceTrace {
    let named = events.iter().filter(|event| event.allocation != NONE);
    let allocations = named.map(|event| event.allocation + 1).max().unwrap_or(0);
    DeviceTrace { events: events.to_vec(), allocations, ..DeviceTrace::default() }
}

fn codes(trace: &DeviceTrace, capacity: Option<u64>) -> Vec<&'static str> {
    let found = check(&Recording::default(), trace, capacity);
    found.iter().filter(|f| f.severity != Severity::Note).map(|f| f.code).collect()
}

fn of(events: &[Event]) -> Vec<&'static str> {
    codes(&trace(events), None)
}

fn block(address: u64, bytes: u64, state: BlockState) -> FinalBlock {
    FinalBlock { address, bytes, requested: bytes, state, stack: StackId(0) }
}

fn ending(events: &[Event], blocks: Vec<FinalBlock>) -> DeviceTrace {
    let segment = FinalSegment {
        address: 0x1000,
        bytes: 0x1000,
        stream: StreamId(0),
        pool: PoolId(0),
        class: Class::Small,
        expandable: false,
        stack: StackId(0),
        blocks,
    };
    DeviceTrace { segments: vec![segment], ..trace(events) }
}

use BlockState::{Allocated, Free as Unused};
use Kind::{Alloc, Free, FreeCompleted, FreeRequested, SegmentAlloc, SegmentFree};

#[test]
fn a_sound_life_is_clean() {
    let life = [
        event(SegmentAlloc, NONE, 0x1000, 0x1000),
        event(Alloc, 0, 0x1000, 512),
        event(FreeRequested, 0, 0x1000, 512),
        event(FreeCompleted, 0, 0x1000, 512),
        event(Alloc, 1, 0x1000, 1024),
        event(Free, 1, 0x1000, 1024),
        event(SegmentFree, NONE, 0x1000, 0x1000),
    ];
    assert!(of(&life).is_empty(), "{:?}", of(&life));
}

#[test]
fn each_contradiction_has_its_code_and_place() {
    let segment = event(SegmentAlloc, NONE, 0x1000, 0x1000);
    let alloc = event(Alloc, 0, 0x1000, 512);
    let free = event(Free, 0, 0x1000, 512);
    assert_eq!(of(&[event(Free, NONE, 0, 0)]), ["unknown-free"], "text traces");
    assert_eq!(of(&[segment, event(Free, NONE, 0x1200, 8)]), ["unknown-free"]);
    assert!(of(&[event(Free, NONE, 0x1200, 8), segment]).is_empty(), "from before");
    assert_eq!(of(&[alloc, free, free]), ["double-free"]);
    assert_eq!(of(&[alloc, free, Event { allocation: NONE, ..free }]), ["double-free"]);
    let hollow =
        [event(Alloc, 0, 0x1000, 0), event(Alloc, 1, 0x1000, 512), event(Free, 1, 0x1000, 512)];
    let last = event(Free, NONE, 0x1000, 0);
    assert!(of(&[&hollow[..], &[last]].concat()).is_empty(), "two blocks, one of no bytes");
    assert_eq!(of(&[&hollow[..], &[last, last]].concat()), ["double-free"]);
    assert_eq!(of(&[alloc, event(Alloc, 1, 0x1100, 512)]), ["overlap"]);
    assert_eq!(of(&[segment, event(Alloc, 0, 0x1f00, 512)]), ["outside-memory"]);
    assert_eq!(of(&[segment, segment]), ["segment-overlap"]);
    let released = event(SegmentFree, NONE, 0x1000, 0x1000);
    assert_eq!(of(&[segment, alloc, released])[0], "released-live");
    assert_eq!(of(&[segment, released, released]), ["unknown-segment"]);
    assert_eq!(codes(&trace(&[alloc]), Some(100)), ["above-capacity"]);
    let found = check(&Recording::default(), &trace(&[alloc, free, free]), None);
    assert_eq!(found[0].event, Some(2));
    assert_eq!(found[0].sites.len(), 3);
}

#[test]
fn the_final_state_must_agree() {
    let segment = event(SegmentAlloc, NONE, 0x1000, 0x1000);
    let alloc = event(Alloc, 0, 0x1000, 0x800);
    let free = event(Free, 0, 0x1000, 0x800);
    let live = vec![block(0x1000, 0x800, Allocated), block(0x1800, 0x800, Unused)];
    let gone = vec![block(0x1000, 0x1000, Unused)];
    assert!(codes(&ending(&[segment, alloc], live.clone()), None).is_empty());
    assert!(codes(&ending(&[segment, alloc, free], gone.clone()), None).is_empty());
    assert_eq!(codes(&ending(&[segment, alloc], gone), None), ["dropped-free"]);
    assert_eq!(codes(&ending(&[segment, alloc, free], live), None), ["final-state"]);
    let late = ending(&[event(SegmentAlloc, NONE, 0x9000, 0x1000)], Vec::new());
    assert_eq!(codes(&late, None), ["final-memory"]);
}

#[test]
fn a_curve_above_what_is_reserved_says_where() {
    let mut events = vec![event(SegmentAlloc, NONE, 0x1000, 0x1000)];
    for number in 0..3 {
        events.push(event(Alloc, number, 0x1000, 0x800));
    }
    let found = check(&Recording::default(), &trace(&events), None);
    let above = found.iter().find(|finding| finding.code == "live-above-reserved").unwrap();
    assert_eq!(above.event, Some(3));
}
