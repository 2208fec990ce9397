//! Laws: what holds on every device, as checks that any device can be put through (invariants
//! **D1** to **D3**, and **D5**).
//!
//! Asked by tests, and by whoever writes a new device. Never knows which device it has: all it
//! learns, it learns through the contract, so a device that lies about one thing is caught by
//! another.
//!
//! A device that refuses calls at random is put through the same laws: each call is tried a few
//! times, and what a refusal must leave untouched is looked at each time.

use super::contract::{Device, NOT_SUPPORTED, fits, may_block};
use super::random::Random;
use crate::vocab::{Address, Answer, Fault, MIB, Serial, StreamId, Want};

/// A device under test, with work that the laws can hold unfinished.
pub trait Subject: Device {
    /// Queues work on `stream` that uses the stretch and stays unfinished. False: this device has
    /// no work that stays so (on the host all work is done at once), and what needs it is not
    /// checked.
    fn busy(&mut self, stream: StreamId, base: Address, bytes: u64) -> bool {
        let _ = (stream, base, bytes);
        false
    }

    /// Finishes the work that [`Subject::busy`] queued on `stream`.
    fn idle(&mut self, stream: StreamId) {
        let _ = stream;
    }
}

impl Subject for super::host::HostDevice {}

impl Subject for super::sim::SimDevice {
    fn busy(&mut self, stream: StreamId, base: Address, bytes: u64) -> bool {
        if self.moves_by_itself() {
            return false;
        }
        self.launch(stream, base, bytes, 1);
        true
    }

    fn idle(&mut self, stream: StreamId) {
        self.finish(stream);
    }
}

/// One law: its name and its check on a fresh device.
pub type Law = (&'static str, fn(&mut Bench<'_>) -> Result<(), String>);

/// All laws. Each gets a device of its own.
pub const LAWS: [Law; 8] = [
    ("D1: segments are aligned and disjoint", segments_are_aligned_and_disjoint),
    ("D1: address ranges are disjoint from segments", ranges_are_disjoint_from_segments),
    ("a refusal leaves nothing behind", a_refusal_leaves_nothing_behind),
    ("pages come and go with their bytes", pages_come_and_go_with_their_bytes),
    ("D2: fences pass in order, none before it is recorded", fences_pass_in_order),
    ("D2: a fence passes only after earlier work", a_fence_passes_only_after_earlier_work),
    ("D3: a fence and a poll do not wait", a_fence_and_a_poll_do_not_wait),
    ("D5: an ordered stream waits for the fence", an_ordered_stream_waits_for_the_fence),
];

/// Puts fresh devices through all laws.
///
/// # Errors
/// The first law that was broken, and how.
pub fn check_laws(make: impl Fn() -> Box<dyn Subject>) -> Result<(), String> {
    for (name, law) in LAWS {
        let mut device = make();
        law(&mut Bench { device: device.as_mut() }).map_err(|how| format!("{name}: {how}"))?;
    }
    Ok(())
}

/// How often a refused call is tried before a refusal is believed.
const TRIES: usize = 16;

/// The most that a call which does not wait may cost by the cost model, in nanoseconds.
const NO_WAIT_NANOS: u64 = 4_000;

/// A device, each of whose answers is looked at.
pub struct Bench<'a> {
    device: &'a mut dyn Subject,
}

impl Bench<'_> {
    /// Performs a want and checks what holds for every answer.
    fn once(&mut self, want: Want) -> Result<Answer, String> {
        let (free, calls, nanos) = (self.device.free(), self.device.calls(), self.device.nanos());
        let answer = self.device.perform(want);
        if !fits(&want, &answer) {
            return Err(format!("{want:?} was answered {answer:?}"));
        }
        let mut expected = calls;
        expected.count(&want, &answer);
        if self.device.calls() != expected {
            return Err(format!("{want:?} was not counted as one call: {:?}", self.device.calls()));
        }
        if matches!(answer, Answer::Refused(_)) && self.device.free() != free {
            let now = self.device.free();
            return Err(format!("{want:?} was refused, yet free went from {free:?} to {now:?}"));
        }
        if self.device.free() > self.device.total() {
            return Err("more is free than there is".to_string());
        }
        let spent = self.device.nanos().checked_sub(nanos).ok_or("time went backwards")?;
        if !may_block(&want) && spent > NO_WAIT_NANOS {
            return Err(format!("{want:?} must not wait, but took {spent} ns"));
        }
        Ok(answer)
    }

    /// Performs a want, again and again while it is refused.
    fn ask(&mut self, want: Want) -> Result<Answer, String> {
        let mut answer = self.once(want)?;
        for _ in 1..TRIES {
            if !matches!(answer, Answer::Refused(_)) {
                break;
            }
            answer = self.once(want)?;
        }
        Ok(answer)
    }

    /// Performs a want that must succeed.
    fn must(&mut self, want: Want) -> Result<Answer, String> {
        match self.ask(want)? {
            Answer::Refused(fault) => Err(format!("{want:?} was refused: {fault}")),
            answer => Ok(answer),
        }
    }

    /// A segment or range, or `None` if there is no memory for it.
    fn grant(&mut self, want: Want) -> Result<Option<Address>, String> {
        match self.ask(want)? {
            Answer::Granted { base } => Ok(Some(base)),
            _ => Ok(None),
        }
    }

    fn through(&mut self, want: Want) -> Result<Serial, String> {
        match self.must(want)? {
            Answer::Passed { through } => Ok(through),
            other => Err(format!("{want:?} was answered {other:?}")),
        }
    }

    fn poll(&mut self, stream: StreamId, newest: u64) -> Result<u64, String> {
        Ok(self.through(Want::Poll { stream, newest: Serial(newest) })?.0)
    }

    fn fence(&mut self, stream: StreamId, serial: u64) -> Result<(), String> {
        self.must(Want::Fence { stream, serial: Serial(serial) }).map(|_| ())
    }

    fn wait(&mut self, stream: StreamId, serial: u64) -> Result<u64, String> {
        Ok(self.through(Want::Wait { stream, serial: Serial(serial) })?.0)
    }
}

/// What is granted: base, and bytes as asked for; each takes whole multiples of the granularity.
struct Granted {
    granularity: u64,
    live: Vec<(Address, u64)>,
}

impl Granted {
    const fn new(granularity: u64) -> Self {
        Self { granularity, live: Vec::new() }
    }

    /// Checks a new grant against all that live.
    fn add(&mut self, base: Address, bytes: u64) -> Result<(), String> {
        if !base.0.is_multiple_of(self.granularity) || base.0 == 0 {
            return Err(format!("{base} is not aligned to {}", self.granularity));
        }
        let Some(end) = base.0.checked_add(bytes) else {
            return Err(format!("{bytes} bytes at {base} leave the address space"));
        };
        let over = |(other, size): &&(Address, u64)| {
            base.0 < other.0 + size.next_multiple_of(self.granularity)
                && other.0 < end.next_multiple_of(self.granularity)
        };
        if let Some((other, size)) = self.live.iter().find(over) {
            return Err(format!("{bytes} bytes at {base} overlap {size} bytes at {other}"));
        }
        self.live.push((base, bytes));
        Ok(())
    }

    fn pick(&mut self, random: &mut Random) -> Option<(Address, u64)> {
        let index = random.below(self.live.len() as u64) as usize;
        (!self.live.is_empty()).then(|| self.live.swap_remove(index))
    }
}

fn segments_are_aligned_and_disjoint(bench: &mut Bench<'_>) -> Result<(), String> {
    let (mut random, mut grants) = (Random::new(1), 0);
    let mut granted = Granted::new(bench.device.granularity());
    let free = bench.device.free();
    for _ in 0..400 {
        if granted.live.len() < 24 && random.chance(600_000) {
            let bytes = 1 + random.below(10 * MIB);
            if let Some(base) = bench.grant(Want::Reserve { bytes })? {
                granted.add(base, bytes)?;
                grants += 1;
            }
        } else if let Some((base, bytes)) = granted.pick(&mut random) {
            bench.must(Want::Release { base, bytes })?;
        }
    }
    while let Some((base, bytes)) = granted.pick(&mut random) {
        bench.must(Want::Release { base, bytes })?;
    }
    if grants == 0 {
        return Err("no segment was ever granted".to_string());
    }
    same_free(bench, free, "after every segment was released")
}

fn ranges_are_disjoint_from_segments(bench: &mut Bench<'_>) -> Result<(), String> {
    let (page, free) = (bench.device.granularity(), bench.device.free());
    if !bench.device.page_mapping() {
        return no_page_mapping(bench, page);
    }
    let (mut random, mut granted) = (Random::new(2), Granted::new(page));
    let mut releases = Vec::new();
    for _ in 0..32 {
        let bytes = (1 + random.below(4)) * page;
        if let Some(base) = bench.grant(Want::Reserve { bytes })? {
            granted.add(base, bytes)?;
            releases.push(Want::Release { base, bytes });
        }
        let bytes = bytes * 8;
        if let Some(base) = bench.grant(Want::ReserveRange { bytes, page })? {
            granted.add(base, bytes)?;
            releases.push(Want::ReleaseRange { base, bytes });
        }
    }
    for release in releases {
        bench.must(release)?;
    }
    same_free(bench, free, "after every range was released")
}

/// A device that cannot map pages says so in every answer.
fn no_page_mapping(bench: &mut Bench<'_>, page: u64) -> Result<(), String> {
    let expected = Answer::Refused(Fault::Driver(NOT_SUPPORTED));
    for want in [
        Want::ReserveRange { bytes: page, page },
        Want::Map { base: Address(page), bytes: page, page },
    ] {
        let answer = bench.once(want)?;
        if answer != expected {
            return Err(format!("{want:?} is not supported, yet was answered {answer:?}"));
        }
    }
    Ok(())
}

fn a_refusal_leaves_nothing_behind(bench: &mut Bench<'_>) -> Result<(), String> {
    let Some(free) = bench.device.free() else { return Ok(()) };
    let bytes = (free / 6).next_multiple_of(bench.device.granularity());
    let mut counts = Vec::new();
    for _ in 0..3 {
        let mut bases = Vec::new();
        while let Some(base) = bench.grant(Want::Reserve { bytes })? {
            bases.push(base);
            if bases.len() > 6 {
                return Err(format!("{} bytes were granted of {free}", 7 * bytes));
            }
        }
        counts.push(bases.len());
        for base in bases {
            bench.must(Want::Release { base, bytes })?;
        }
        same_free(bench, Some(free), "after the segments of a full device were released")?;
        if bench.grant(Want::Reserve { bytes: free.saturating_add(1) })?.is_some() {
            return Err("more was granted than was free".to_string());
        }
    }
    if counts[0] == 0 || counts.iter().any(|count| *count != counts[0]) {
        return Err(format!("a device filled three times held {counts:?} segments"));
    }
    Ok(())
}

fn pages_come_and_go_with_their_bytes(bench: &mut Bench<'_>) -> Result<(), String> {
    if !bench.device.page_mapping() {
        return Ok(());
    }
    let (page, stream) = (bench.device.granularity(), StreamId(0));
    let free = bench.device.free();
    let pages = free.map_or(8, |free| free / page);
    let bytes = (pages + 2) * page;
    let Some(base) = bench.grant(Want::ReserveRange { bytes, page })? else {
        return Err("address space beyond the capacity was refused".to_string());
    };
    same_free(bench, free, "after address space was reserved")?;
    let less = |n: u64| free.map(|free| free - n * page);
    if free.is_some() {
        let answer = bench.ask(Want::Map { base, bytes, page })?;
        if answer == Answer::Mapped {
            return Err("more pages were mapped than there is memory".to_string());
        }
    }
    bench.must(Want::Map { base: base.plus(page), bytes: 3 * page, page })?;
    same_free(bench, less(3), "after three pages were mapped")?;
    let middle = Want::Unmap { base: base.plus(2 * page), bytes: page, page, stream };
    bench.must(middle)?;
    same_free(bench, less(2), "after the middle page was unmapped")?;
    bench.must(Want::Map { base: base.plus(2 * page), bytes: page, page })?;
    bench.must(Want::Unmap { base: base.plus(page), bytes: 3 * page, page, stream })?;
    bench.must(Want::ReleaseRange { base, bytes })?;
    same_free(bench, free, "after the range was released")
}

fn fences_pass_in_order(bench: &mut Bench<'_>) -> Result<(), String> {
    let streams = [StreamId(0), StreamId(7)];
    let (mut random, mut newest, mut passed) = (Random::new(3), [0_u64; 2], [0_u64; 2]);
    for _ in 0..300 {
        let index = random.below(2) as usize;
        let stream = streams[index];
        let through = match random.below(3) {
            0 => {
                newest[index] += 1 + random.below(3);
                bench.fence(stream, newest[index])?;
                continue;
            }
            1 => bench.poll(stream, newest[index])?,
            _ if newest[index] == 0 => continue,
            _ => {
                let serial = newest[index];
                let through = bench.wait(stream, serial)?;
                if through < serial {
                    return Err(format!("waited for fence {serial}, but {through} had passed"));
                }
                through
            }
        };
        if through > newest[index] {
            return Err(format!("fence {through} passed, {} was recorded last", newest[index]));
        }
        if through < passed[index] {
            return Err(format!("fence {} had passed, then only {through}", passed[index]));
        }
        passed[index] = through;
    }
    Ok(())
}

fn a_fence_passes_only_after_earlier_work(bench: &mut Bench<'_>) -> Result<(), String> {
    let (busy, calm) = (StreamId(1), StreamId(2));
    let bytes = bench.device.granularity();
    let Some(base) = bench.grant(Want::Reserve { bytes })? else {
        return Err("no memory for one granule".to_string());
    };
    bench.fence(busy, 1)?;
    bench.wait(busy, 1)?;
    if bench.device.busy(busy, base, bytes) {
        bench.fence(busy, 2)?;
        bench.fence(calm, 1)?;
        let through = bench.poll(busy, 2)?;
        if through != 1 {
            return Err(format!("fence {through} had passed with work before fence 2 unfinished"));
        }
        bench.wait(calm, 1)?;
        if bench.poll(busy, 2)? != 1 {
            return Err("a wait for one stream passed another stream's fence".to_string());
        }
        bench.device.idle(busy);
    }
    bench.fence(busy, 3)?;
    if bench.wait(busy, 3)? != 3 || bench.poll(busy, 3)? != 3 {
        return Err("a fence that was waited for has not passed".to_string());
    }
    bench.must(Want::Release { base, bytes }).map(|_| ())
}

fn a_fence_and_a_poll_do_not_wait(bench: &mut Bench<'_>) -> Result<(), String> {
    let (stream, bytes) = (StreamId(3), bench.device.granularity());
    let Some(base) = bench.grant(Want::Reserve { bytes })? else {
        return Err("no memory for one granule".to_string());
    };
    let held = bench.device.busy(stream, base, bytes);
    for serial in 1..=4 {
        bench.fence(stream, serial)?;
        if bench.poll(stream, serial)? != 0 && held {
            return Err("a poll waited".to_string());
        }
    }
    bench.device.idle(stream);
    bench.must(Want::Release { base, bytes }).map(|_| ())
}

fn an_ordered_stream_waits_for_the_fence(bench: &mut Bench<'_>) -> Result<(), String> {
    let (first, second, bytes) = (StreamId(5), StreamId(6), bench.device.granularity());
    let Some(base) = bench.grant(Want::Reserve { bytes })? else {
        return Err("no memory for one granule".to_string());
    };
    let held = bench.device.busy(first, base, bytes);
    bench.fence(first, 1)?;
    bench.must(Want::Order { waiter: second, after: first, serial: Serial(1) })?;
    bench.fence(second, 1)?;
    if held && bench.poll(second, 1)? != 0 {
        return Err("a stream went on before the fence that it was ordered behind".to_string());
    }
    bench.device.idle(first);
    if bench.wait(second, 1)? != 1 {
        return Err("a stream that was ordered behind a fence never went on".to_string());
    }
    bench.must(Want::Release { base, bytes }).map(|_| ())
}

fn same_free(bench: &Bench<'_>, expected: Option<u64>, when: &str) -> Result<(), String> {
    let free = bench.device.free();
    if free == expected {
        return Ok(());
    }
    Err(format!("{when}, {free:?} bytes were free, not {expected:?}"))
}
