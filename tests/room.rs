//! Room: `Heap::largest_possible` against the heap itself: what it names is served, and nothing
//! larger is.
//!
//! Random walks under every policy, with captures and limits that change. At rest, with no frees
//! pending, copies of the heap and its device are asked for the size, and for sizes above it.
#![allow(missing_docs, clippy::unwrap_used)]

use blockyard::device::{Device, SimConfig, SimDevice};
use blockyard::heap::Heap;
use blockyard::lab::fuzzing::policies;
use blockyard::lab::rng::Rng;
use blockyard::policy::size;
use blockyard::vocab::{BlockId, Input, Output, PoolId, StreamId, Target, Ticket};

#[derive(Clone)]
struct World {
    heap: Heap,
    device: SimDevice,
    live: Vec<BlockId>,
    next: u64,
}

impl World {
    fn apply(&mut self, mut input: Input) -> Output {
        loop {
            match self.heap.apply(input, &mut ()) {
                Output::Want { ticket, want } => {
                    input = Input::Answer { ticket, answer: self.device.perform(want) };
                }
                output => return output,
            }
        }
    }

    fn alloc(&mut self, bytes: u64, stream: StreamId, pool: PoolId) -> bool {
        self.next += 1;
        let input = Input::Alloc { ticket: Ticket(self.next), bytes, stream, pool };
        let output = self.apply(input);
        if let Output::Served { block, .. } = output {
            self.live.push(block);
        }
        matches!(output, Output::Served { .. })
    }

    fn step(&mut self, rng: &mut Rng, unit: u64, capacity: u64) {
        let (stream, pool) = (StreamId(rng.below(3) as u32), PoolId(u32::from(rng.chance(1, 5))));
        self.next += 1;
        let ticket = Ticket(self.next);
        match rng.weighted(&[10, 8, 1, 1, 1]).unwrap() {
            0 => {
                let most = *rng.pick(&[1, 12, 40]).unwrap();
                self.alloc(rng.between(1, most * unit), stream, pool);
            }
            1 if self.live.is_empty() => {}
            1 => {
                let place = rng.below(self.live.len() as u64) as usize;
                let block = self.live.swap_remove(place);
                self.apply(Input::Free { block });
            }
            2 => drop(self.apply(Input::Capture { ticket, begins: !self.heap.capturing() })),
            3 => {
                let policy = self.heap.policy();
                // See the head of `src/heap/room.rs`.
                let split = policy.max_split != u64::MAX && !policy.evict_private;
                let loose = split || policy.collect_threshold > 0.0;
                let least = if loose { self.heap.reserved() } else { 1 };
                let bytes = rng.chance(1, 2).then(|| rng.between(1, capacity).max(least));
                self.apply(Input::Limit { bytes });
            }
            _ => {
                let target = Target::AtLeast(rng.between(1, 8 * unit));
                self.apply(Input::Trim { ticket, target });
            }
        }
    }

    /// Whether a copy serves it.
    fn would_serve(&self, bytes: u64, stream: StreamId, pool: PoolId) -> bool {
        self.clone().alloc(bytes, stream, pool)
    }
}

#[test]
fn the_largest_possible_request_is_served_and_a_larger_one_is_not() {
    let seeds = std::env::var("BLOCKYARD_SEEDS").map_or(126, |text| text.parse().unwrap());
    let (mut grown, mut cached, mut none) = (0, 0, 0);
    for seed in 0..seeds {
        let mut rng = Rng::new(seed);
        let all = policies();
        let (name, policy, unit) = all[seed as usize % all.len()].clone();
        let capacity = rng.between(8, 60) * 2 * unit;
        let config = SimConfig { granularity: 2 * unit, ..SimConfig::with_capacity(capacity) };
        let heap = Heap::new(policy.clone(), Some(capacity));
        let mut world = World { heap, device: SimDevice::new(config), live: Vec::new(), next: 0 };
        for step in 0..120 {
            world.step(&mut rng, unit, capacity);
            world.heap.audit().unwrap();
            if step % 6 != 0 {
                continue;
            }
            for (stream, pool) in [(0, 0), (1, 0), (0, 1), (9, 0)] {
                let (stream, pool) = (StreamId(stream), PoolId(pool));
                let most = world.heap.largest_possible(stream, pool);
                let say = format!("{name}, seed {seed}, step {step}, {stream:?} {pool:?}: {most}");
                assert!(most == 0 || size::round(&policy, most) == most, "{say} is not rounded");
                assert!(most == 0 || world.would_serve(most, stream, pool), "{say} fails");
                // What was borrowed and freed is waited for before a request fails.
                if world.heap.has_pending_frees() {
                    continue;
                }
                for more in [1, 2 * unit, 4 * unit, rng.between(1, capacity)] {
                    let more = most + more;
                    assert!(!world.would_serve(more, stream, pool), "{say}, and {more} as well");
                }
                none += u64::from(most == 0);
                cached += u64::from(most > 0 && world.heap.fits(most, stream, pool));
                grown += u64::from(most > 0 && !world.heap.fits(most, stream, pool));
            }
        }
    }
    assert!(grown > seeds && cached > seeds && none > seeds / 10, "{grown} {cached} {none}");
}
