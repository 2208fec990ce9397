//! Tests: rings that begin in the middle of something.

use super::*;
use crate::vocab::{BlockView, CallStackId, Class, Frame, MIB, Mark, SegmentView, TagId};

const BASE: Address = Address(20 * MIB);

fn record(sequence: u64, what: What) -> Record {
    Record { sequence, time_us: 9, ticket: Ticket(0), bytes: 0, what }
}

fn allocated(ticket: u64) -> What {
    let ticket = Ticket(ticket);
    let (address, class) = (BASE, Class::Large);
    What::Changed(Change::Allocated {
        ticket,
        address,
        bytes: 512,
        requested: 500,
        class,
        oversize: false,
    })
}

fn completed(ticket: u64) -> What {
    let (ticket, address, class) = (Ticket(ticket), BASE, Class::Large);
    What::Changed(Change::FreeCompleted { ticket, address, bytes: 512, requested: 500, class })
}

fn segment(freed: bool) -> What {
    let (base, bytes, class, stream, pool) = (BASE, MIB, Class::Large, StreamId(2), PoolId(1));
    What::Changed(if freed {
        Change::SegmentFreed { base, bytes, class, stream, pool, oversize: false }
    } else {
        Change::SegmentAllocated { base, bytes, class, stream, pool, oversize: false }
    })
}

fn dump(whats: &[What]) -> Dump {
    let records = whats.iter().enumerate().map(|(at, &what)| record(at as u64 + 5, what));
    Dump { records: records.collect(), lost: 5, ..Dump::default() }
}

fn codes(recording: &Recording) -> Vec<&str> {
    recording.notices.iter().map(|notice| &*notice.code).collect()
}

#[test]
fn a_block_whose_request_is_lost_is_its_segments() {
    for freed in [true, false] {
        let mut dump = dump(&[allocated(7), completed(7), segment(true)]);
        if !freed {
            dump.records.truncate(1);
            let block = BlockView {
                address: BASE,
                bytes: MIB,
                requested: 500,
                state: BlockState::Allocated,
                ticket: Ticket(7),
            };
            dump.view.segments.push(SegmentView {
                base: BASE,
                bytes: MIB,
                stream: StreamId(2),
                pool: PoolId(1),
                class: Class::Large,
                expandable: false,
                order: 0,
                blocks: vec![block],
            });
            let origin = Origin { tag: TagId(4), stack: CallStackId(2) };
            dump.marks.push(Mark { ticket: Ticket(7), origin });
            dump.tags.insert(TagId(4), "late".into());
            let frame = Frame { name: "f".into(), file: "f.rs".into(), line: 3 };
            dump.stacks.insert(CallStackId(2), vec![frame]);
        }
        let recording = recording(&dump);
        assert_eq!(codes(&recording), ["overflow", "unknown-request"]);
        let trace = &recording.devices[0];
        let alloc = trace.events[0];
        assert_eq!((alloc.stream, alloc.pool, alloc.allocation), (StreamId(2), PoolId(1), 0));
        assert_eq!((alloc.address, alloc.bytes, alloc.time_us), (BASE.0, 500, 9));
        let stack = &recording.stacks.stacks[alloc.stack.0 as usize];
        assert_eq!((&*stack.tag, stack.frames.len()), if freed { ("", 0) } else { ("late", 1) });
        if freed {
            assert_eq!(trace.events[1].allocation, 0);
        } else {
            assert_eq!(trace.segments[0].blocks[0].stack, alloc.stack);
        }
        assert_eq!((recording.streams.len(), recording.pools.len()), (3, 2));
    }
}

#[test]
fn a_free_from_before_has_its_clients_size_and_no_number() {
    let (ticket, address, class) = (Ticket(3), BASE, Class::Large);
    let requested = Change::FreeRequested { ticket, address, bytes: 512, class, oversize: false };
    let recording = recording(&dump(&[What::Changed(requested), completed(3)]));
    let events = &recording.devices[0].events;
    assert!(events.iter().all(|event| event.allocation == NO_ALLOCATION && event.bytes == 500));
    assert_eq!(recording.devices[0].allocations, 0);
}

#[test]
fn a_failure_says_what_was_free_then_and_names_the_request_that_fits_it() {
    let ask = |ticket, bytes, stream| {
        let (stream, pool, stack) = (StreamId(stream), PoolId(0), CallStackId::NONE);
        let what = What::Asked { stream, pool, tag: TagId(ticket as u32), stack };
        Record { ticket: Ticket(ticket), bytes, ..record(0, what) }
    };
    let ran_out = Change::RanOut { bytes: 1024, stream: StreamId(0), pool: PoolId(0) };
    let mut dump = dump(&[segment(false), segment(true)]);
    let asked = [ask(1, 900, 0), ask(2, 4000, 0), ask(3, 900, 1)];
    dump.records.splice(1..1, asked);
    dump.records.insert(4, record(0, What::Changed(ran_out)));
    dump.tags = (1..4).map(|tag| (TagId(tag), format!("request {tag}"))).collect();
    let unknown = recording(&dump);
    assert_eq!(codes(&unknown), ["overflow", "unknown-capacity"]);
    dump.device_bytes = Some(3 * MIB);
    let recording = recording(&dump);
    assert_eq!(codes(&recording), ["overflow"]);
    // The segment that came before the first whole step is part of what was there.
    let oom = recording.devices[0].events[0];
    assert_eq!((oom.kind, oom.bytes, oom.address), (Kind::Oom, 1024, 2 * MIB));
    assert_eq!(recording.stacks.label(oom.stack), "request 1");
}
