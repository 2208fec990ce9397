//! Fuzzing: the heap in doubt: against the twin, and against nonsense.
//!
//! Owns the duel of heap and twin over a list of operations ([`Duel`]), the policies that are tried
//! ([`policies`]) and the body of the fuzz target ([`heap_inputs`]). Asked by tests and fuzz
//! targets. Never knows where its operations come from.

use super::rng::Rng;
use super::twin::{Twin, first_difference};
use crate::device::{Device, FencePolicy, SimConfig, SimDevice, fits};
use crate::heap::Heap;
use crate::ledger::Stats;
use crate::policy::{Backing, Policy, presets};
use crate::vocab::{
    Address, Answer, BlockId, Fault, Input, KIB, MIB, Output, PoolId, StreamId, Target, Ticket,
    Want,
};

/// One thing a client does. Blocks are named by their place among those that live, oldest first,
/// modulo their number; with none alive nothing happens. Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A request: bytes, stream, pool.
    Alloc(u64, u32, u32),
    /// A free.
    Free(u32),
    /// A stream uses a block: block, stream.
    Use(u32, u32),
    /// The cache is emptied.
    Trim,
    /// One pool's cache is emptied.
    TrimPool(u32),
    /// A private pool has no users left.
    Retire(u32),
}

/// The newest block, in an [`Op`].
pub const NEWEST: u32 = u32::MAX;

/// The device of a duel. Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arena {
    /// Its memory.
    pub capacity: u64,
    /// Its granule.
    pub granule: u64,
    /// Fences pass when they are polled, or else only when they are waited for.
    pub immediate: bool,
}

/// Heap and twin side by side.
pub struct Duel {
    heap: Heap,
    stats: Stats,
    device: SimDevice,
    twin: Twin,
    live: Vec<(Ticket, BlockId)>,
    next: u64,
}

impl Duel {
    /// Both empty.
    #[must_use]
    pub fn new(policy: &Policy, arena: Arena) -> Self {
        let Arena { capacity, granule, immediate } = arena;
        let fences = if immediate { FencePolicy::Immediate } else { FencePolicy::OnlyWhenWaited };
        let config =
            SimConfig { granularity: granule, fences, ..SimConfig::with_capacity(capacity) };
        let twin = Twin::new(policy.clone(), Some(capacity), immediate);
        Self {
            heap: Heap::new(policy.clone(), Some(capacity)),
            stats: Stats::new(policy.max_split),
            device: SimDevice::new(config),
            twin: twin.on_device(Some(capacity), granule, capacity),
            live: Vec::new(),
            next: 0,
        }
    }

    /// The heap.
    #[must_use]
    pub const fn heap(&self) -> &Heap {
        &self.heap
    }

    /// Lets both do one thing.
    ///
    /// # Errors
    /// Says how they differ, or which invariant of the heap does not hold.
    pub fn step(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Alloc(bytes, stream, pool) => self.alloc(bytes, StreamId(stream), PoolId(pool))?,
            Op::Free(nth) => {
                if let Some(place) = self.place(nth) {
                    let (ticket, block) = self.live.remove(place);
                    expect_quiet(&self.pump(Input::Free { block }))?;
                    self.twin.free(ticket);
                }
            }
            Op::Use(nth, stream) => {
                if let Some(place) = self.place(nth) {
                    let (ticket, block) = self.live[place];
                    let stream = StreamId(stream);
                    expect_quiet(&self.pump(Input::Use { block, stream }))?;
                    self.twin.use_on(ticket, stream);
                }
            }
            Op::Trim => {
                let released = self.trim(Target::All)?;
                same("bytes trimmed", released, self.twin.trim())?;
            }
            Op::TrimPool(pool) => {
                let pool = PoolId(pool);
                let released = self.trim(Target::Pool(pool))?;
                same("bytes trimmed from a pool", released, self.twin.trim_pool(pool))?;
            }
            Op::Retire(pool) => {
                self.pump(Input::Retire { pool: PoolId(pool) });
                self.twin.retire(PoolId(pool));
            }
        }
        self.compare()
    }

    fn place(&self, nth: u32) -> Option<usize> {
        let count = self.live.len();
        if nth == NEWEST { count.checked_sub(1) } else { (nth as usize).checked_rem(count) }
    }

    fn pump(&mut self, mut input: Input) -> Output {
        loop {
            match self.heap.apply(input, &mut self.stats) {
                Output::Want { ticket, want } => {
                    input = Input::Answer { ticket, answer: self.device.perform(want) };
                }
                output => return output,
            }
        }
    }

    fn alloc(&mut self, bytes: u64, stream: StreamId, pool: PoolId) -> Result<(), String> {
        self.next += 1;
        let ticket = Ticket(self.next);
        let expected = self.twin.alloc(ticket, bytes, stream, pool);
        let got = match self.pump(Input::Alloc { ticket, bytes, stream, pool }) {
            Output::Served { block, address, .. } => {
                self.live.push((ticket, block));
                Some(address)
            }
            Output::Failed { .. } => None,
            Output::Quiet if bytes == 0 => Some(Address(0)),
            other => return Err(format!("an allocation ended with {other:?}")),
        };
        same("address", got, expected)
    }

    fn trim(&mut self, target: Target) -> Result<u64, String> {
        self.next += 1;
        match self.pump(Input::Trim { ticket: Ticket(self.next), target }) {
            Output::Trimmed { released, .. } => Ok(released),
            other => Err(format!("a trim ended with {other:?}")),
        }
    }

    fn compare(&self) -> Result<(), String> {
        self.heap.audit().map_err(|violation| violation.to_string())?;
        let (view, twin) = (self.heap.view(), self.twin.view());
        if let Some(text) = self.stats.disagreement(&view) {
            return Err(text);
        }
        let (stats, figures) = (&self.stats, self.twin.figures());
        let counters = stats.counters();
        same("allocated", stats.allocated_bytes(), figures.allocated)?;
        same("active", stats.active_bytes(), figures.active)?;
        same("requested", stats.requested_bytes(), figures.requested)?;
        same("reserved", stats.reserved_bytes(), figures.reserved)?;
        same("device allocs", counters.device_alloc, figures.device_allocs)?;
        same("device frees", counters.device_free, figures.device_frees)?;
        same("retries", counters.alloc_retries, figures.retries)?;
        same("ooms", counters.ooms, figures.ooms)?;
        same("pages mapped", counters.pages_mapped, figures.pages_mapped)?;
        same("pages unmapped", counters.pages_unmapped, figures.pages_unmapped)?;
        first_difference(&view, &twin).map_or(Ok(()), |text| Err(format!("layout: {text}")))
    }
}

fn same<T: PartialEq + core::fmt::Debug>(what: &str, heap: T, twin: T) -> Result<(), String> {
    if heap == twin {
        return Ok(());
    }
    Err(format!("{what}: the heap says {heap:?}, the twin {twin:?}"))
}

fn expect_quiet(output: &Output) -> Result<(), String> {
    match output {
        Output::Quiet => Ok(()),
        other => Err(format!("expected quiet, got {other:?}")),
    }
}

/// Every policy that heap and twin are compared under, each with the unit that its sizes are made
/// of, in bytes. With the small unit every number is tiny, so that rare paths are common.
#[must_use]
pub fn policies() -> Vec<(&'static str, Policy, u64)> {
    let mut all = Vec::new();
    for (names, base, unit) in [(NAMES, presets::pytorch(), MIB), (TINY_NAMES, Policy::tiny(), KIB)]
    {
        let ours = Policy {
            ladder: presets::blockyard().ladder,
            evict_private: true,
            refuse_impossible: true,
            one_division_counts: true,
            limit_check: presets::blockyard().limit_check,
            ..base.clone()
        };
        let pages = |large| Backing::Pages { small: base.small_segment, large };
        let mut divisions = base.divisions;
        divisions.iter_mut().zip([8, 4, 2, 1].into_iter().cycle()).for_each(|(d, n)| *d = n);
        let variants = [
            base.clone(),
            Policy { max_split: 25 * unit, max_non_split_rounding: 4 * unit, ..base.clone() },
            Policy { divisions, memory_fraction: 0.8, ..base.clone() },
            Policy {
                memory_fraction: 0.9,
                collect_threshold: 0.5,
                max_split: 12 * unit,
                ..base.clone()
            },
            Policy { large_segment: 32 * unit, large_direct: 32 * unit, ..base.clone() },
            Policy {
                backing: pages(base.large_segment),
                memory_fraction: 0.9,
                collect_threshold: 0.6,
                ..base.clone()
            },
            Policy { max_split: 30 * unit, ..ours.clone() },
            Policy { memory_fraction: 0.9, collect_threshold: 0.5, ..ours.clone() },
            Policy { backing: pages(base.small_segment), memory_fraction: 0.95, ..ours },
        ];
        all.extend(names.into_iter().zip(variants).map(|(name, policy)| (name, policy, unit)));
    }
    all
}

const NAMES: [&str; 9] = [
    "pytorch",
    "split",
    "rounding",
    "collect",
    "segment",
    "expandable",
    "native",
    "native-collect",
    "blockyard",
];
const TINY_NAMES: [&str; 9] = [
    "tiny",
    "tiny-split",
    "tiny-rounding",
    "tiny-collect",
    "tiny-segment",
    "tiny-expandable",
    "tiny-native",
    "tiny-native-collect",
    "tiny-blockyard",
];

/// The body of the fuzz target: bytes as operations of a duel, or as inputs and answers that may
/// make no sense.
///
/// # Panics
/// Where heap and twin differ, or an invariant does not hold.
pub fn heap_inputs(bytes: &[u8]) {
    let Some((&[first, second], rest)) = bytes.split_first_chunk::<2>() else { return };
    let all = policies();
    let (_, policy, unit) = &all[first as usize % all.len()];
    let capacity = (16 + u64::from(second & 63)) * unit * 2;
    let arena = Arena { capacity, granule: 2 * unit, immediate: second & 64 == 0 };
    if second & 128 == 0 {
        let mut duel = Duel::new(policy, arena);
        for op in rest.chunks_exact(3).map(|chunk| op(chunk, *unit)) {
            duel.step(op).unwrap_or_else(|text| panic!("{op:?}: {text}"));
        }
    } else {
        nonsense(policy, arena, rest, *unit);
    }
}

fn op(chunk: &[u8], unit: u64) -> Op {
    let (kind, a, b) = (chunk[0], chunk[1], chunk[2]);
    let (stream, pool) = (u32::from(b & 3), u32::from(b >> 2 & 1) * u32::from(b >> 3 & 1));
    match kind % 16 {
        0..=6 => Op::Alloc(u64::from(a) * unit / 8 + u64::from(b >> 5), stream, pool),
        7..=11 => Op::Free(u32::from(a)),
        12 | 13 => Op::Use(u32::from(a), stream),
        14 => Op::Trim,
        _ if a < 128 => Op::TrimPool(u32::from(b & 1)),
        _ => Op::Retire(1),
    }
}

/// Inputs in any order, answers that are true, refused, or to another question.
fn nonsense(policy: &Policy, arena: Arena, bytes: &[u8], unit: u64) {
    let config = SimConfig {
        granularity: arena.granule,
        judge: false,
        ..SimConfig::with_capacity(arena.capacity)
    };
    let mut device = SimDevice::new(config);
    let mut heap = Heap::new(policy.clone(), Some(arena.capacity));
    let mut stats = Stats::new(policy.max_split);
    let (mut blocks, mut wants): (Vec<BlockId>, Vec<(Ticket, Want)>) = (Vec::new(), Vec::new());
    let mut parked: Vec<Ticket> = Vec::new();
    let mut rng = Rng::new(0);
    for (number, chunk) in (1..).zip(bytes.chunks_exact(3)) {
        let (kind, a, b) = (chunk[0], u32::from(chunk[1]), chunk[2]);
        let (ticket, stream) = (Ticket(number), StreamId(u32::from(b & 3)));
        let block = blocks.get(a as usize).copied().unwrap_or(BlockId { index: a, generation: 0 });
        let input = match kind % 16 {
            0..=3 => Input::Alloc {
                ticket,
                bytes: (u64::from(a) * unit / 8).max(u64::from(b == 255) * u64::MAX),
                stream,
                pool: PoolId(u32::from(b >> 6 & 1)),
            },
            4 | 5 => Input::Free { block },
            6 => Input::Use { block, stream },
            7 => Input::Trim { ticket, target: Target::All },
            8 => Input::Retire { pool: PoolId(a & 1) },
            9 => Input::Retry { ticket: parked.pop().unwrap_or(ticket) },
            10 => Input::Answer { ticket, answer: Answer::Mapped },
            _ if wants.is_empty() => continue,
            what => {
                let (ticket, want) = wants.swap_remove(a as usize % wants.len());
                let answer = match what {
                    11 => Answer::Refused(Fault::OutOfMemory),
                    12 if b < 64 => Answer::Refused(Fault::Driver(7)),
                    12 if b < 96 => wrong(&want, &mut rng),
                    _ => device.perform(want),
                };
                Input::Answer { ticket, answer }
            }
        };
        match heap.apply(input, &mut stats) {
            Output::Served { block, .. } => blocks.push(block),
            Output::Want { ticket, want } => wants.push((ticket, want)),
            Output::Park { ticket } => parked.push(ticket),
            _ => {}
        }
        heap.audit().unwrap_or_else(|violation| panic!("{input:?}: {violation}"));
    }
}

/// An answer to another question.
fn wrong(want: &Want, rng: &mut Rng) -> Answer {
    let all = [Answer::Mapped, Answer::Unmapped, Answer::Released, Answer::Fenced];
    let unfit: Vec<Answer> = all.into_iter().filter(|answer| !fits(want, answer)).collect();
    rng.pick(&unfit).copied().unwrap_or(Answer::Refused(Fault::WrongAnswer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_find_no_difference() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let bytes: Vec<u8> = (0..450).map(|_| rng.bits() as u8).collect();
            heap_inputs(&bytes);
        }
    }

    /// A duel whose twin has another policy must end in a difference.
    #[test]
    fn a_duel_of_unequals_is_noticed() {
        let arena = Arena { capacity: 64 * KIB, granule: 2 * KIB, immediate: true };
        let mut duel = Duel::new(&Policy::tiny(), arena);
        duel.twin = Twin::new(Policy { small_limit: 512, ..Policy::tiny() }, Some(64 * KIB), true);
        assert!((0..8).any(|_| duel.step(Op::Alloc(1000, 0, 0)).is_err()));
    }
}
