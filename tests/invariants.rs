//! Invariants: each one that no test of a single file can show, tried through the public face only.
//!
//! A walk makes random requests of one heap over a simulated device and looks at the heap's view after each; the
//! laws are re-derived from that view here, without the heap's own audit, so that the two can doubt each other.
//! `docs/invariants.md` names the test of every invariant.
#![allow(missing_docs, clippy::unwrap_used)]

use blockyard::device::{Device, FencePolicy, SimConfig, SimDevice};
use blockyard::heap::Heap;
use blockyard::lab::rng::Rng;
use blockyard::ledger::Stats;
use blockyard::policy::{Backing, Policy, fit, presets, size};
use blockyard::vocab::{
    Address, Answer, BlockId, BlockState, BlockView, Change, Class, Fault, Input, Output, PoolId,
    Report, SegmentView, StreamId, Target, Ticket, UNIT, Verdict, Want,
};

const DEVICE: u64 = 64 * 1024;
const GRANULE: u64 = 2048;

/// A heap on a small device, pumped to the end after each input.
struct World {
    heap: Heap,
    device: SimDevice,
    stats: Stats,
    changes: Vec<Change>,
    next: u64,
    live: Vec<BlockId>,
}

impl World {
    fn new(policy: Policy, fences: FencePolicy) -> Self {
        let config = SimConfig { granularity: GRANULE, fences, ..SimConfig::with_capacity(DEVICE) };
        Self {
            stats: Stats::new(policy.max_split),
            heap: Heap::new(policy, Some(DEVICE)),
            device: SimDevice::new(config),
            changes: Vec::new(),
            next: 0,
            live: Vec::new(),
        }
    }

    fn apply(&mut self, mut input: Input) -> Output {
        loop {
            let mut sink = (&mut self.stats, &mut self.changes);
            match self.heap.apply(input, &mut sink) {
                Output::Want { ticket, want } => {
                    self.only_idle_memory_leaves(&want);
                    input = Input::Answer { ticket, answer: self.device.perform(want) };
                }
                output => return output,
            }
        }
    }

    /// V1, at every want: no block that is handed out or awaits its free lies in what goes back.
    fn only_idle_memory_leaves(&self, want: &Want) {
        let (Want::Release { base, bytes } | Want::Unmap { base, bytes, .. }) = *want else {
            return;
        };
        for segment in self.heap.view().segments {
            for block in segment.blocks.iter().filter(|block| is_held(block)) {
                let apart =
                    block.address.plus(block.bytes) <= base || base.plus(bytes) <= block.address;
                assert!(apart, "V1: {want:?} takes {block:?}");
            }
        }
    }

    fn alloc(&mut self, bytes: u64, stream: u32, pool: u32) -> Output {
        self.next += 1;
        let (ticket, stream, pool) = (Ticket(self.next), StreamId(stream), PoolId(pool));
        let output = self.apply(Input::Alloc { ticket, bytes, stream, pool });
        if let Output::Served { block, .. } = output {
            self.live.push(block);
        }
        output
    }

    fn block(&mut self, bytes: u64) -> (BlockId, Address) {
        match self.alloc(bytes, 0, 0) {
            Output::Served { block, address, .. } => (block, address),
            other => panic!("{bytes} bytes: {other:?}"),
        }
    }

    fn free(&mut self, block: BlockId) -> Output {
        self.live.retain(|&other| other != block);
        self.apply(Input::Free { block })
    }

    fn trim(&mut self) -> Output {
        self.next += 1;
        self.apply(Input::Trim { ticket: Ticket(self.next), target: Target::All })
    }

    /// One random thing that a client may do.
    fn step(&mut self, rng: &mut Rng) -> Output {
        match rng.weighted(&[8, 6, 2, 1]) {
            Some(0) => {
                let bytes = rng.magnitude(3 * DEVICE / 4);
                self.alloc(bytes, rng.below(2) as u32, u32::from(rng.chance(1, 8)))
            }
            Some(1) => match rng.pick(&self.live).copied() {
                Some(block) => self.free(block),
                None => Output::Quiet,
            },
            Some(2) => match rng.pick(&self.live).copied() {
                Some(block) => {
                    self.apply(Input::Use { block, stream: StreamId(rng.below(3) as u32) })
                }
                None => Output::Quiet,
            },
            _ => self.trim(),
        }
    }

    fn segments(&self) -> Vec<SegmentView> {
        self.heap.view().segments
    }
}

fn is_held(block: &BlockView) -> bool {
    matches!(block.state, BlockState::Allocated | BlockState::AwaitingFree)
}

/// Tiny policies of every kind: segments and pages, both ladders, a split limit, a fraction of the device.
fn policies() -> Vec<Policy> {
    let pages = Backing::Pages { small: GRANULE, large: GRANULE };
    let tiny = Policy::tiny();
    let ours = Policy {
        ladder: presets::blockyard().ladder,
        evict_private: true,
        borrow: true,
        ..tiny.clone()
    };
    vec![
        Policy { backing: pages, ..tiny.clone() },
        Policy { backing: pages, ..ours.clone() },
        Policy { max_split: 4096, max_non_split_rounding: 4096, ..tiny.clone() },
        Policy { memory_fraction: 0.5, collect_threshold: 0.5, ..ours.clone() },
        tiny,
        ours,
    ]
}

/// Random walks under every policy, with fences that pass at once and late; `look` sees the world after each step.
fn walk(mut look: impl FnMut(&World, &Output)) {
    for (number, policy) in policies().into_iter().enumerate() {
        for fences in [FencePolicy::Immediate, FencePolicy::OnlyWhenWaited] {
            let mut world = World::new(policy.clone(), fences);
            let mut rng = Rng::new(number as u64);
            for _ in 0..600 {
                let output = world.step(&mut rng);
                look(&world, &output);
            }
            assert!(world.stats.counters().ooms > 0, "a walk that never fails shows little");
        }
    }
}

#[test]
fn u1_blocks_are_whole_units_and_absurd_sizes_are_refused() {
    walk(|world, _| {
        for block in world.segments().iter().flat_map(|segment| &segment.blocks) {
            assert!(block.bytes > 0 && block.bytes.is_multiple_of(UNIT), "{block:?}");
            assert!(block.address.0.is_multiple_of(UNIT), "{block:?}");
        }
    });
    for bytes in [u64::MAX, u64::MAX - UNIT, 1 << 60] {
        let mut world = World::new(presets::pytorch(), FencePolicy::Immediate);
        match world.alloc(bytes, 0, 0) {
            Output::Failed { report, .. } => assert_eq!(report.verdict, Verdict::ImpossibleSize),
            other => panic!("{bytes} bytes: {other:?}"),
        }
    }
}

#[test]
fn s1_blocks_tile_their_segment_and_s2_segments_are_apart() {
    walk(|world, _| {
        let mut end = Address(0);
        for segment in world.segments() {
            assert!(segment.base >= end, "S2: {segment:?} begins before {end}");
            let mut at = segment.base;
            for block in &segment.blocks {
                assert_eq!(block.address, at, "S1");
                at = at.plus(block.bytes);
            }
            end = segment.base.plus(segment.bytes);
            assert_eq!(at, end, "S1: the last block ends with its segment");
        }
    });
}

/// B1 and B2: four neighbours freed in each of 24 orders become one block again, so both links of each were right.
#[test]
fn b1_b2_neighbours_freed_in_any_order_join() {
    for order in 0..24usize {
        let mut world = World::new(Policy::tiny(), FencePolicy::Immediate);
        let mut blocks: Vec<_> = (0..4).map(|_| world.block(UNIT).0).collect();
        assert_eq!(world.segments()[0].blocks.len(), 4);
        for places in [4, 3, 2, 1] {
            let pick = order / [1, 1, 2, 6][places - 1] % places;
            let block = blocks.remove(pick);
            world.free(block);
            world.heap.audit().unwrap();
        }
        let segments = world.segments();
        assert_eq!((segments.len(), segments[0].blocks.len()), (1, 1), "order {order}");
    }
    walk(|world, _| {
        for segment in world.segments() {
            for pair in segment.blocks.windows(2) {
                let both_free = pair.iter().all(|block| block.state == BlockState::Free);
                assert!(!both_free, "B2: {pair:?}");
            }
        }
    });
}

#[test]
fn b3_only_a_live_block_can_be_freed_or_used() {
    let mut world = World::new(Policy::tiny(), FencePolicy::OnlyWhenWaited);
    let refused = Output::Refused { fault: Fault::UnknownBlock };
    let (block, _) = world.block(UNIT);
    world.apply(Input::Use { block, stream: StreamId(1) });
    assert_eq!(world.free(block), Output::Quiet);
    let before = world.heap.view();
    for block in [block, BlockId::NONE] {
        assert_eq!(world.apply(Input::Free { block }), refused, "draining, or never there");
        assert_eq!(world.apply(Input::Use { block, stream: StreamId(2) }), refused);
    }
    assert_eq!(world.heap.view(), before, "what is refused changes nothing");
}

#[test]
fn b4_a_block_holds_what_was_asked_for() {
    walk(|world, _| {
        for block in world.segments().iter().flat_map(|segment| &segment.blocks) {
            let range = if is_held(block) { 1..=block.bytes } else { 0..=0 };
            assert!(range.contains(&block.requested), "{block:?}");
        }
    });
}

#[test]
fn e1_a_used_block_is_not_reused_before_its_fence_has_passed() {
    let mut world = World::new(Policy::tiny(), FencePolicy::OnlyWhenWaited);
    let (block, first) = world.block(UNIT);
    world.apply(Input::Use { block, stream: StreamId(1) });
    world.free(block);
    assert!(world.heap.has_pending_frees());
    let (_, second) = world.block(UNIT);
    assert_ne!(first, second, "the fence has not passed");
    world.trim();
    assert!(!world.heap.has_pending_frees(), "a trim waits for fences");
    assert_eq!(world.block(UNIT).1, first, "the lowest address is free again");
}

/// F1: a request is served at once exactly where the view shows a free block that its policy accepts.
#[test]
fn f1_what_is_free_is_found_and_nothing_else() {
    walk(|world, _| {
        let policy = world.heap.policy();
        for bytes in [1, UNIT, 3 * UNIT, 4096, 4097, 9000, DEVICE / 2] {
            for stream in [0, 1, 7].map(StreamId) {
                let rounded = size::round(policy, bytes);
                let class = size::class(policy, rounded);
                let ours = |segment: &&SegmentView| {
                    (segment.stream, segment.pool, segment.class)
                        == (stream, PoolId::DEFAULT, class)
                };
                let segments = world.segments();
                let blocks = segments.iter().filter(ours).flat_map(|segment| &segment.blocks);
                let free = blocks.filter(|block| block.state == BlockState::Free);
                let best = free.map(|block| block.bytes).filter(|&free| free >= rounded).min();
                let expected = best.is_some_and(|best| fit::accepts(policy, best, rounded));
                assert_eq!(world.heap.fits(bytes, stream, PoolId::DEFAULT), expected, "{bytes}");
            }
        }
    });
}

#[test]
fn t1_a_block_serves_no_more_than_it_holds_and_t2_tails_are_units() {
    let steps = [1u64, 2, 3, 16, 4096, 40_960, 200_000].map(|units| units * UNIT);
    let mut policies = policies();
    policies.extend(presets::NAMES.iter().map(|name| presets::named(name).unwrap()));
    for policy in &policies {
        for (block, request) in steps.iter().flat_map(|&b| steps.map(|r| (b, r))) {
            assert!(!fit::accepts(policy, block, request) || block >= request, "T1");
            for class in Class::BOTH {
                let splits = block >= request && fit::splits(policy, class, block, request);
                assert!(!splits || block - request >= UNIT, "T2: {block} for {request}");
            }
        }
    }
}

/// L1 and L2: a report lists each rung of the policy's ladder once, from the bottom up.
#[test]
fn l2_out_of_memory_is_said_only_after_every_rung() {
    let mut failures = 0;
    walk(|world, output| {
        if let Output::Failed { report, .. } = output {
            let climbed: Vec<_> = report.rungs.iter().map(|&(rung, _)| rung).collect();
            if report.verdict != Verdict::ImpossibleSize || !climbed.is_empty() {
                assert_eq!(climbed, world.heap.policy().ladder.rungs());
                failures += 1;
            }
        }
    });
    assert!(failures > 100, "only {failures} failures");
}

#[test]
fn v1_a_trim_takes_all_that_is_idle_and_nothing_else() {
    let mut rng = Rng::new(7);
    for policy in policies() {
        let mut world = World::new(policy, FencePolicy::Immediate);
        for _ in 0..200 {
            world.alloc(rng.magnitude(8192), 0, 0);
            if rng.chance(1, 2)
                && let Some(block) = rng.pick(&world.live).copied()
            {
                world.free(block);
            }
        }
        let held = world.live.clone();
        world.trim();
        assert!(held.iter().all(|&block| world.heap.live(block).is_some()));
        let idle: u64 = world.heap.usage().iter().map(|row| row.3.releasable_bytes).sum();
        assert_eq!(idle, 0, "{}", world.heap.policy().name);
        held.into_iter().for_each(|block| drop(world.free(block)));
        world.trim();
        assert_eq!((world.heap.reserved(), world.segments().len()), (0, 0));
    }
}

#[test]
fn h1_reserved_is_the_sum_of_its_parts_and_r1_the_fold_equals_a_recount() {
    walk(|world, _| {
        let parts: u64 = world
            .heap
            .usage()
            .iter()
            .map(|(.., book)| {
                book.allocated_bytes
                    + book.awaiting_free_bytes
                    + book.releasable_bytes
                    + book.pinned_free_bytes
            })
            .sum();
        assert_eq!(world.heap.reserved(), parts, "H1");
        assert_eq!(world.stats.disagreement(&world.heap.view()), None, "R1");
    });
}

/// A heap with room for one segment of 8 KiB, and two requests for one, neither answered yet.
fn two_requests_and_room_for_one() -> (Heap, Output, Output) {
    let policy = Policy { memory_fraction: 0.5, ..Policy::tiny() };
    let mut heap = Heap::new(policy, Some(24 * 1024));
    let [first, second] = [1, 2].map(|ticket| heap.apply(request(ticket), &mut ()));
    (heap, first, second)
}

const fn request(ticket: u64) -> Input {
    Input::Alloc { ticket: Ticket(ticket), bytes: 8000, stream: StreamId(0), pool: PoolId::DEFAULT }
}

const fn answer(answer: Answer) -> Input {
    Input::Answer { ticket: Ticket(1), answer }
}

#[test]
fn h2_bytes_in_flight_count_against_the_limit() {
    let (heap, first, second) = two_requests_and_room_for_one();
    assert!(matches!(first, Output::Want { want: Want::Reserve { bytes: 8192 }, .. }), "{first:?}");
    assert!(!matches!(second, Output::Want { want: Want::Reserve { .. }, .. }), "{second:?}");
    assert_eq!(heap.limit(), Some(12 * 1024));
    walk(|world, _| {
        let limit = world.heap.limit().filter(|_| !world.heap.policy().page_mapped());
        assert!(limit.is_none_or(|limit| world.heap.reserved() <= limit));
    });
}

#[test]
fn h3_a_want_takes_one_answer() {
    let (mut heap, ..) = two_requests_and_room_for_one();
    let granted = Answer::Granted { base: Address(GRANULE) };
    assert!(matches!(heap.apply(answer(granted), &mut ()), Output::Served { .. }));
    let before = heap.view();
    let again = heap.apply(answer(granted), &mut ());
    assert_eq!(again, Output::Refused { fault: Fault::UnknownTicket });
    assert_eq!(heap.view(), before);
}

#[test]
fn h4_the_same_inputs_give_the_same_outputs_and_changes() {
    let run = || {
        let mut said = Vec::new();
        let mut last = None;
        walk(|world, output| {
            said.push(output.clone());
            last = Some((world.heap.view(), world.changes.clone()));
        });
        (said, last)
    };
    assert_eq!(run(), run());
}

#[test]
fn h5_who_is_parked_waits_for_something_in_flight() {
    let (mut heap, _, second) = two_requests_and_room_for_one();
    assert_eq!(second, Output::Park { ticket: Ticket(2) });
    heap.audit().unwrap();
    let refusal = answer(Answer::Refused(Fault::OutOfMemory));
    while !matches!(heap.apply(refusal, &mut ()), Output::Failed { .. }) {
        heap.audit().unwrap();
        assert!(!heap.is_settled(), "the first request still climbs");
    }
    let again = heap.apply(Input::Retry { ticket: Ticket(2) }, &mut ());
    assert!(matches!(again, Output::Want { want: Want::Reserve { .. }, .. }), "{again:?}");
}

/// The report is about the moment of the failure: its figures are those of the state.
#[test]
fn h1_a_report_adds_up() {
    walk(|world, output| {
        if let Output::Failed { report, .. } = output {
            let Report { allocated_bytes, awaiting_free_bytes, reserved_bytes, .. } = **report;
            let cached = report.cached_free_bytes();
            assert_eq!(reserved_bytes, allocated_bytes + awaiting_free_bytes + cached);
            assert_eq!(reserved_bytes, world.heap.reserved());
        }
    });
}
