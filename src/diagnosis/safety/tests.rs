//! Tests: of stream-safety: K13 in its variants.

use super::*;

const X: u32 = 0;
const Y: u32 = 1;

fn at(kind: Kind, allocation: u32, stream: u32) -> Event {
    let named = |event: Event| Event { allocation, stream: StreamId(stream), ..event };
    named(Event { address: 0x1000, bytes: 512, ..Event::new(kind) })
}

fn codes(events: &[Event]) -> Vec<&'static str> {
    let trace = DeviceTrace { events: events.to_vec(), allocations: 64, ..DeviceTrace::default() };
    check(&Recording::default(), &trace).iter().map(|finding| finding.code).collect()
}

use Kind::{Alloc, Free, FreeCompleted, FreeRequested, SegmentAlloc, SegmentFree, Use};

#[test]
fn k13_reuse_before_the_fence_is_a_race_and_after_it_is_not() {
    let early = [
        at(Alloc, X, 0),
        at(Use, X, 1),
        at(FreeRequested, X, 0),
        at(Alloc, Y, 0),
        at(FreeCompleted, X, 0),
    ];
    assert_eq!(codes(&early), ["reuse-race"]);
    let trace = DeviceTrace { events: early.to_vec(), allocations: 2, ..DeviceTrace::default() };
    let sites = &check(&Recording::default(), &trace)[0].sites;
    let places: Vec<_> = sites.iter().map(|site| (site.what, site.event)).collect();
    let expected =
        [("alloc", Some(0)), ("last use", Some(1)), ("free", Some(2)), ("reused", Some(3))];
    assert_eq!(places, expected, "both sites");

    let late = [
        at(Alloc, X, 0),
        at(Use, X, 1),
        at(FreeRequested, X, 0),
        at(FreeCompleted, X, 0),
        at(Alloc, Y, 0),
    ];
    assert!(codes(&late).is_empty());
    let unsaid = [at(Alloc, X, 0), at(Use, X, 1), at(Free, X, 0), at(Alloc, Y, 0)];
    assert_eq!(codes(&unsaid), ["reuse-race"], "no completion was seen");
    let own = [at(Alloc, X, 0), at(Free, X, 0), at(Alloc, Y, 0)];
    assert!(codes(&own).is_empty(), "a stream is in order with itself");
}

#[test]
fn memory_that_changes_streams_goes_through_the_driver() {
    assert_eq!(codes(&[at(Alloc, X, 0), at(Free, X, 0), at(Alloc, Y, 1)]), ["cross-stream-reuse"]);
    let driver = [
        at(Alloc, X, 0),
        at(Use, X, 1),
        at(Free, X, 0),
        at(SegmentFree, NO_ALLOCATION, 0),
        at(SegmentAlloc, NO_ALLOCATION, 1),
        at(Alloc, Y, 1),
    ];
    assert!(codes(&driver).is_empty());
    let early = [at(Alloc, X, 0), at(FreeRequested, X, 0), at(SegmentFree, NO_ALLOCATION, 0)];
    assert_eq!(codes(&early), ["released-early"]);
}

#[test]
fn a_use_after_the_free_is_a_missing_record_stream() {
    assert_eq!(codes(&[at(Alloc, X, 0), at(Free, X, 0), at(Use, X, 1)]), ["use-after-free"]);
    assert_eq!(codes(&[at(Use, NO_ALLOCATION, 1)]), ["use-of-unknown"]);
}

#[test]
fn a_place_that_nearly_always_records_is_asked_about() {
    let mut events = Vec::new();
    for number in 0..12 {
        let place =
            |kind, stream| Event { stack: StackId(1), address: 0, ..at(kind, number, stream) };
        events.push(place(Alloc, 0));
        if number != 7 {
            events.push(place(Use, 1));
        }
        events.push(place(Free, 0));
    }
    assert_eq!(codes(&events), ["record-stream-missing"]);
}
