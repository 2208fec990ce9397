//! Simulation: worlds of logical threads, streams and faults around one heap, with the judge on.
//!
//! Each thread holds at most one want; a seeded scheduler decides who goes on, and when answers
//! come in. After every input the heap is audited. What must hold: nobody waits for ever, nobody
//! runs out of memory while there is some, nothing is handed out twice or under unfinished work,
//! and in the end everything goes back. `BLOCKYARD_SEEDS` widens the campaign; `BLOCKYARD_SEED`
//! tells one world step by step.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;

use blockyard::device::{CallKind, Device, FencePolicy, Refusals, SimConfig, SimDevice};
use blockyard::heap::Heap;
use blockyard::lab::fuzzing::policies;
use blockyard::lab::rng::Rng;
use blockyard::ledger::Stats;
use blockyard::policy::Policy;
use blockyard::vocab::{
    Address, Answer, BlockId, Fault, Input, Output, PoolId, Rung, StreamId, Target, Ticket, Want,
};

/// Where a logical thread is.
#[derive(Clone, Copy, Debug)]
enum Thread {
    Idle,
    /// A want that was not performed.
    Holding(Ticket, Want),
    /// An answer that was not handed in.
    Answered(Ticket, Answer),
    /// Waits for an answer of another; the count of answers when it was parked.
    Parked(Ticket, u64),
}

/// What the runs of a campaign came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    served: u64,
    failed: u64,
    parked: u64,
    broken: u64,
    refuted: u64,
    unseed: u64,
    helped: [u64; Rung::ALL.len()],
}

#[derive(Clone, Copy)]
struct Block {
    id: BlockId,
    address: Address,
    bytes: u64,
    stream: StreamId,
}

struct World {
    seed: u64,
    heap: Heap,
    stats: Stats,
    device: SimDevice,
    threads: Vec<Thread>,
    rng: Rng,
    unit: u64,
    streams: u64,
    weights: [u32; 6],
    /// Blocks handed out, in the order of their addresses.
    live: BTreeMap<u64, Block>,
    /// Requests under way: stream, pool, bytes, and the frees before each began.
    requests: BTreeMap<Ticket, (StreamId, PoolId, u64, u64)>,
    answers: u64,
    frees: u64,
    next: u64,
    truthful: bool,
    /// Pending frees that were waited for are searched again: a failure is final.
    thorough: bool,
    /// Every input and output is printed.
    told: bool,
    tally: Tally,
}

impl World {
    fn new(seed: u64, threads: u64) -> Self {
        let mut rng = Rng::new(seed);
        let all = policies();
        let (_, policy, unit): (_, Policy, u64) = all[seed as usize % all.len()].clone();
        let fences = match rng.below(4) {
            0 => FencePolicy::Immediate,
            1 => FencePolicy::OnlyWhenWaited,
            _ => FencePolicy::AfterCalls(rng.between(1, 30)),
        };
        let faults = rng.below(3);
        let mut refusals = Refusals::default();
        if faults > 0 {
            let fault = if faults == 1 { Fault::OutOfMemory } else { Fault::Driver(7) };
            let kinds = [
                vec![CallKind::Fence],
                vec![CallKind::Reserve, CallKind::Map, CallKind::ReserveRange],
                vec![CallKind::Release, CallKind::Unmap, CallKind::ReleaseRange],
                vec![CallKind::Poll, CallKind::Wait, CallKind::Fence, CallKind::Map],
            ];
            let often = *rng.pick(&[20_000, 200_000, 600_000]).unwrap();
            refusals = refusals.and_random(seed, often, rng.pick(&kinds).unwrap(), fault);
        }
        let config = SimConfig {
            granularity: 2 * unit,
            fences,
            refusals,
            ..SimConfig::with_capacity(rng.between(12, 80) * 2 * unit)
        };
        let config = if rng.chance(1, 3) { config.hostile(seed) } else { config };
        let mut weight = |often: &[u32]| *rng.pick(often).unwrap();
        let weights = [
            weight(&[8, 16]),
            weight(&[2, 8]),
            weight(&[0, 6]),
            weight(&[0, 8]),
            weight(&[0, 1]),
            weight(&[1, 6]),
        ];
        Self {
            seed,
            stats: Stats::new(policy.max_split),
            thorough: policy.ladder.rungs().contains(&Rung::SearchAgain),
            heap: Heap::new(policy, config.capacity),
            device: SimDevice::new(config),
            threads: vec![Thread::Idle; threads as usize],
            unit,
            streams: rng.between(1, 5),
            weights,
            rng,
            live: BTreeMap::new(),
            requests: BTreeMap::new(),
            answers: 0,
            frees: 0,
            next: 0,
            truthful: faults == 0,
            told: false,
            tally: Tally::default(),
        }
    }

    fn can_go_on(&self, thread: Thread, quiet: bool) -> bool {
        match thread {
            Thread::Idle => !quiet,
            Thread::Parked(_, seen) => self.answers > seen,
            _ => true,
        }
    }

    /// Some thread goes on; false where none can. When quiet, nobody begins anything new.
    fn step(&mut self, quiet: bool) -> bool {
        let ready: Vec<usize> = (0..self.threads.len())
            .filter(|&number| self.can_go_on(self.threads[number], quiet))
            .collect();
        let Some(&number) = self.rng.pick(&ready) else { return false };
        match self.threads[number] {
            Thread::Idle => self.begin(number),
            Thread::Holding(ticket, want) => {
                let answer = self.device.perform(want);
                self.threads[number] = Thread::Answered(ticket, answer);
            }
            Thread::Answered(ticket, answer) => {
                self.answers += 1;
                self.apply(number, Input::Answer { ticket, answer });
            }
            Thread::Parked(ticket, _) => self.apply(number, Input::Retry { ticket }),
        }
        true
    }

    fn begin(&mut self, number: usize) {
        let stream = StreamId(self.rng.below(self.streams) as u32);
        let picked = self.rng.below(self.live.len().max(1) as u64) as usize;
        let block = self.live.values().nth(picked).copied();
        self.next += 1;
        let ticket = Ticket(self.next);
        match (self.rng.weighted(&self.weights).unwrap(), block) {
            (0, _) => {
                let bytes = match self.rng.below(3) {
                    0 => self.rng.between(1, self.unit),
                    1 => self.rng.between(1, 12 * self.unit),
                    _ => self.rng.between(1, 40 * self.unit),
                };
                let pool = PoolId(u32::from(self.rng.chance(1, 6)));
                self.requests.insert(ticket, (stream, pool, bytes, self.frees));
                self.apply(number, Input::Alloc { ticket, bytes, stream, pool });
            }
            (1, Some(block)) => self.free(number, block),
            (2, Some(block)) => {
                self.apply(number, Input::Use { block: block.id, stream });
                self.device.launch(stream, block.address, block.bytes, 2);
            }
            (3, Some(block)) => self.device.launch(block.stream, block.address, block.bytes, 3),
            (4, _) => self.apply(number, Input::Trim { ticket, target: Target::All }),
            _ => self.device.advance(stream, 2),
        }
    }

    fn free(&mut self, number: usize, block: Block) {
        self.live.remove(&block.address.0);
        self.frees += 1;
        self.apply(number, Input::Free { block: block.id });
    }

    fn apply(&mut self, number: usize, input: Input) {
        let output = self.heap.apply(input, &mut self.stats);
        let text = format!("{number}: {input:?} -> {output:?}");
        self.mix(&text);
        if self.told {
            println!("{text}");
        }
        self.threads[number] = match output {
            Output::Want { ticket, want } => Thread::Holding(ticket, want),
            Output::Park { ticket } => {
                self.tally.parked += 1;
                Thread::Parked(ticket, self.answers)
            }
            Output::Served { ticket, block, address } => {
                self.served(ticket, block, address);
                Thread::Idle
            }
            Output::Failed { ticket, .. } => {
                self.failed(ticket);
                Thread::Idle
            }
            Output::DriverFailed { ticket, .. } => {
                assert!(!self.truthful, "a driver that never fails has failed");
                self.requests.remove(&ticket);
                self.tally.broken += 1;
                Thread::Idle
            }
            Output::Trimmed { .. } | Output::Quiet => Thread::Idle,
            Output::Refused { fault } => panic!("seed {}: {input:?}: {fault}", self.seed),
        };
        self.heap.audit().unwrap_or_else(|text| panic!("seed {}: {input:?}: {text}", self.seed));
    }

    fn served(&mut self, ticket: Ticket, id: BlockId, address: Address) {
        let (stream, _, bytes, _) = self.requests.remove(&ticket).unwrap();
        self.device.handed_out(stream, address, bytes);
        let before = self.live.range(..=address.0).next_back();
        let after = self.live.range(address.0..).next();
        assert!(before.is_none_or(|(_, b)| b.address.0 + b.bytes <= address.0), "handed out twice");
        assert!(after.is_none_or(|(&next, _)| next >= address.0 + bytes), "handed out twice");
        self.live.insert(address.0, Block { id, address, bytes, stream });
        self.tally.served += 1;
    }

    /// A failure is refuted where, with everything at rest, the same request at once is served.
    fn failed(&mut self, ticket: Ticket) {
        let (stream, pool, bytes, frees) = self.requests.remove(&ticket).unwrap();
        self.tally.failed += 1;
        if !self.thorough || !self.truthful || frees != self.frees {
            return;
        }
        let (mut heap, mut device) = (self.heap.clone(), self.device.clone());
        (0..self.streams).for_each(|stream| device.finish(StreamId(stream as u32)));
        let mut input = Input::Alloc { ticket: Ticket(u64::MAX), bytes, stream, pool };
        let output = loop {
            match heap.apply(input, &mut ()) {
                Output::Want { ticket, want } => {
                    input = Input::Answer { ticket, answer: device.perform(want) };
                }
                output => break output,
            }
        };
        let fails = matches!(output, Output::Failed { .. });
        assert!(fails, "seed {}: {bytes} bytes failed, then ended with {output:?}", self.seed);
        self.tally.refuted += 1;
    }

    /// Everybody finishes; nobody may be left behind.
    fn settle(&mut self) {
        let mut steps = 0;
        while self.step(true) {
            steps += 1;
            assert!(steps < 200_000, "seed {}: nobody ever ends: {:?}", self.seed, self.threads);
        }
        let idle = self.threads.iter().all(|thread| matches!(thread, Thread::Idle));
        assert!(idle, "seed {}: stuck: {:?}", self.seed, self.threads);
        assert!(self.heap.is_settled() && self.requests.is_empty());
    }

    fn close(&mut self) {
        self.settle();
        while let Some((_, &block)) = self.live.first_key_value() {
            self.free(0, block);
            self.settle();
        }
        let pool = PoolId(1);
        self.heap.apply(Input::Retire { pool }, &mut self.stats);
        // A driver that refuses at random takes the memory back in the end.
        for _ in 0..5000 {
            self.next += 1;
            let ticket = Ticket(self.next);
            self.apply(0, Input::Trim { ticket, target: Target::All });
            self.settle();
            if self.heap.reserved() == 0 && !self.heap.has_pending_frees() {
                break;
            }
        }
        assert_eq!(self.heap.reserved(), 0, "seed {}", self.seed);
        assert_eq!(self.device.free(), self.device.total(), "seed {}", self.seed);
        assert_eq!(self.stats.disagreement(&self.heap.view()), None);
        for rung in Rung::ALL {
            self.tally.helped[rung as usize] = self.heap.times_helped(rung);
        }
    }

    fn mix(&mut self, text: &str) {
        for byte in text.bytes() {
            self.tally.unseed = (self.tally.unseed ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

fn threads_of(seed: u64) -> u64 {
    1 + seed % 6
}

fn run(seed: u64, threads: u64, steps: u64, told: bool) -> Tally {
    let mut world = World::new(seed, threads);
    world.told = told;
    for _ in 0..steps {
        assert!(world.step(false), "seed {seed}: stuck: {:?}", world.threads);
    }
    world.close();
    world.tally
}

#[test]
fn worlds_end_well() {
    if let Ok(seed) = std::env::var("BLOCKYARD_SEED") {
        let seed = seed.parse().unwrap();
        run(seed, threads_of(seed), 400, true);
        return;
    }
    let seeds = std::env::var("BLOCKYARD_SEEDS").map_or(900, |text| text.parse().unwrap());
    let mut sum = Tally::default();
    for seed in 0..seeds {
        let tally = run(seed, threads_of(seed), 400, false);
        sum.served += tally.served;
        sum.failed += tally.failed;
        sum.parked += tally.parked;
        sum.broken += tally.broken;
        sum.refuted += tally.refuted;
        sum.unseed ^= tally.unseed;
        sum.helped.iter_mut().zip(tally.helped).for_each(|(sum, more)| *sum += more);
    }
    println!("seeds 0..{seeds}, unseed {:#x}: {sum:?}", sum.unseed);
    assert!(sum.served > 0 && sum.failed > 0 && sum.broken > 0, "{sum:?}");
    assert!(sum.parked > seeds / 10, "requests hardly ever park: {sum:?}");
    assert!(sum.refuted > seeds / 10, "failures are hardly ever tried again: {sum:?}");
    for rung in Rung::ALL {
        assert!(sum.helped[rung as usize] > 0, "{rung:?} never helped: {sum:?}");
    }
}

#[test]
fn the_same_seed_has_the_same_unseed() {
    for seed in [1, 8, 16, 17] {
        let first = run(seed, 4, 400, false);
        assert_eq!(first, run(seed, 4, 400, false));
        assert_ne!(first.unseed, run(seed + 18, 4, 400, false).unseed);
    }
}
