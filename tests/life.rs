//! Life: the four stories of `docs/life-of-an-allocation.md`, played, so that the page stays true.
#![allow(missing_docs, clippy::unwrap_used)]

use blockyard::heap::Heap;
use blockyard::policy::presets;
use blockyard::vocab::{
    Address, Answer, BlockId, Change, Fault, Input, KIB, MIB, Output, PoolId, Rung, Serial,
    StreamId, Ticket, Want,
};

const BASE: Address = Address(1 << 40);

/// A heap and what it told.
struct Story {
    heap: Heap,
    told: Vec<Change>,
    next: u64,
}

impl Story {
    fn new() -> Self {
        Self { heap: Heap::new(presets::pytorch(), None), told: Vec::new(), next: 0 }
    }

    fn say(&mut self, input: Input) -> Output {
        self.told.clear();
        let output = self.heap.apply(input, &mut self.told);
        self.heap.audit().unwrap();
        output
    }

    fn ask(&mut self, bytes: u64, stream: u32) -> Output {
        self.next += 1;
        let (ticket, stream) = (Ticket(self.next), StreamId(stream));
        self.say(Input::Alloc { ticket, bytes, stream, pool: PoolId::DEFAULT })
    }

    fn answer(&mut self, answer: Answer) -> Output {
        self.say(Input::Answer { ticket: Ticket(self.next), answer })
    }

    /// A request that the driver serves with a segment there.
    fn grown(&mut self, bytes: u64, stream: u32, base: Address) -> BlockId {
        assert!(matches!(want(&self.ask(bytes, stream)), Want::Reserve { .. }));
        served(&self.answer(Answer::Granted { base })).0
    }
}

fn want(output: &Output) -> Want {
    let Output::Want { want, .. } = output else { panic!("{output:?}") };
    *want
}

fn served(output: &Output) -> (BlockId, Address) {
    let Output::Served { block, address, .. } = *output else { panic!("{output:?}") };
    (block, address)
}

#[test]
fn served_from_the_cache() {
    let mut story = Story::new();
    story.grown(8 * KIB, 0, BASE);
    let hole = served(&story.ask(64 * KIB, 0)).0;
    served(&story.ask(2 * KIB, 0));
    story.say(Input::Free { block: hole });
    assert_eq!(served(&story.ask(3000, 0)).1, BASE.plus(8 * KIB));
    assert!(matches!(
        story.told[..],
        [
            Change::InactiveSplit { blocks: 0, bytes: -3072, .. },
            Change::Allocated { bytes: 3072, requested: 3000, .. }
        ]
    ));
}

#[test]
fn not_in_the_cache() {
    let mut story = Story::new();
    let wanted = want(&story.ask(3 * MIB, 0));
    assert_eq!(wanted, Want::Reserve { bytes: 20 * MIB });
    assert_eq!(served(&story.answer(Answer::Granted { base: BASE })).1, BASE);
    let view = story.heap.view();
    let sizes: Vec<u64> = view.segments[0].blocks.iter().map(|block| block.bytes / MIB).collect();
    assert_eq!(sizes, [3, 17]);
    assert!(matches!(story.told[0], Change::SegmentAllocated { .. }));
}

#[test]
fn freed_while_another_stream_still_uses_it() {
    let mut story = Story::new();
    let block = story.grown(12 * MIB, 0, BASE);
    story.say(Input::Use { block, stream: StreamId(0) });
    story.say(Input::Use { block, stream: StreamId(1) });
    let fence = Want::Fence { stream: StreamId(1), serial: Serial(1) };
    assert_eq!(want(&story.say(Input::Free { block })), fence);
    assert!(matches!(story.told[..], [Change::FreeRequested { .. }]));
    assert_eq!(story.answer(Answer::Fenced), Output::Quiet);

    let poll = Want::Poll { stream: StreamId(1), newest: Serial(1) };
    assert_eq!(want(&story.ask(12 * MIB, 0)), poll);
    let again = served(&story.answer(Answer::Passed { through: Serial(1) }));
    assert_eq!(again.1, BASE);
    assert!(matches!(story.told[0], Change::FreeCompleted { .. }));
}

#[test]
fn the_device_is_full() {
    let mut story = Story::new();
    let elsewhere = BASE.plus(40 * MIB);
    story.grown(34 * MIB, 0, BASE);
    let idle = story.grown(20 * MIB, 1, elsewhere);
    story.say(Input::Free { block: idle });

    assert_eq!(want(&story.ask(12 * MIB, 0)), Want::Reserve { bytes: 12 * MIB });
    let refusal = Answer::Refused(Fault::OutOfMemory);
    let release = Want::Release { base: elsewhere, bytes: 20 * MIB };
    assert_eq!(want(&story.answer(refusal)), release);
    assert!(matches!(story.told[..], [Change::Synchronized]));
    assert_eq!(want(&story.answer(Answer::Released)), Want::Reserve { bytes: 12 * MIB });
    assert!(matches!(story.told[..], [Change::SegmentFreed { .. }, Change::Retried]));

    // Refused once more, it fails, and the report tells the table of the page.
    let Output::Failed { report, .. } = story.answer(refusal) else { panic!("served") };
    let tried = |(rung, outcome): &(Rung, _)| format!("{}: {outcome}", rung.name());
    let tried: Vec<String> = report.rungs.iter().map(tried).collect();
    assert_eq!(
        tried,
        [
            "poll: nothing",
            "search: nothing",
            "collect: closed",
            "grow: the device is out of memory",
            "evict-some: closed",
            "grow: closed",
            "wait: nothing",
            "evict-all: 20.00 MiB released",
            "regrow: the device is out of memory",
        ]
    );
}
