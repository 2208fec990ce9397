//! Sequences: the same requests to several allocators: what each takes, and how long.
//!
//! The requests follow from a seed, so another program can run the same ones from files.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use blockyard::allocator::Config;
use blockyard::device::cuda::{CudaConfig, Gpu, Plain};
use blockyard::device::random::Random;
use blockyard::interop::CudaAllocator;
use blockyard::policy::presets;
use blockyard::vocab::{KIB, MIB};
use serde::Deserialize;

use crate::fail::Fail;

/// One request.
#[derive(Clone, Copy, Debug)]
enum Event {
    Alloc { id: u64, bytes: u64 },
    Free { id: u64 },
}

/// A list of requests that ends with nothing live.
struct Sequence {
    name: &'static str,
    events: Vec<Event>,
}

/// What one allocator came to on one sequence.
#[derive(Clone, Debug, Deserialize)]
pub struct Run {
    /// The sequence.
    pub sequence: String,
    /// Who ran it.
    pub allocator: String,
    /// Nanoseconds for each request, the first time and the second.
    pub nanos: [f64; 2],
    /// The most that was taken from the driver, in bytes, where it is known.
    pub reserved: Option<u64>,
    /// Why it did not end, if it did not.
    #[serde(default)]
    pub failure: Option<String>,
}

fn all(quick: bool) -> Vec<Sequence> {
    let rounds = if quick { 200 } else { 4000 };
    vec![
        Sequence { name: "one size, 1 MiB", events: replaced(64, rounds, |_| MIB) },
        Sequence {
            name: "512 B to 1 MiB",
            events: replaced(256, rounds, |random| spread(random, 9, 20)),
        },
        Sequence {
            name: "512 B to 64 MiB",
            events: replaced(48, rounds / 2, |random| spread(random, 9, 26)),
        },
        Sequence { name: "growing to 128 MiB", events: growing() },
    ]
}

/// As many live as `held`, replaced at random, then freed.
fn replaced(held: u64, rounds: u64, size: impl Fn(&mut Random) -> u64) -> Vec<Event> {
    let mut random = Random::new(1);
    let mut live: Vec<u64> = (0..held).collect();
    let mut events: Vec<Event> =
        live.iter().map(|&id| Event::Alloc { id, bytes: size(&mut random) }).collect();
    for id in held..held + rounds {
        let place = random.below(held) as usize;
        events.push(Event::Free { id: live[place] });
        events.push(Event::Alloc { id, bytes: size(&mut random) });
        live[place] = id;
    }
    events.extend(live.into_iter().map(|id| Event::Free { id }));
    events
}

/// Evenly over powers of two.
fn spread(random: &mut Random, from: u64, to: u64) -> u64 {
    let power = 1 << (from + random.below(to - from));
    power + random.below(power)
}

/// Each a little larger than the last, which is freed only then: a cache that is grown by copying.
fn growing() -> Vec<Event> {
    let sizes: Vec<u64> = (1..=64).map(|step| step * 2 * MIB + 100 * KIB).collect();
    let mut events = Vec::new();
    for (id, bytes) in (0..).zip(sizes) {
        events.push(Event::Alloc { id, bytes });
        if id > 0 {
            events.push(Event::Free { id: id - 1 });
        }
    }
    events.push(Event::Free { id: 63 });
    events
}

/// Writes the sequences as `a,<id>,<bytes>` and `f,<id>`, one file each.
pub fn write(folder: &Path, quick: bool) -> Result<(), Fail> {
    let said = |error: std::io::Error| Fail::BadInput(format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(said)?;
    for sequence in all(quick) {
        let mut text = String::new();
        for event in &sequence.events {
            // Writing to a text cannot fail.
            let _ = match event {
                Event::Alloc { id, bytes } => writeln!(text, "a,{id},{bytes}"),
                Event::Free { id } => writeln!(text, "f,{id}"),
            };
        }
        std::fs::write(folder.join(format!("{}.csv", sequence.name)), text).map_err(said)?;
    }
    Ok(())
}

/// What another allocator came to.
pub fn read_others(path: &Path) -> Result<Vec<Run>, Fail> {
    let said = |error: String| Fail::BadInput(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| said(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| said(error.to_string()))
}

/// Runs all sequences on all allocators, and puts the others' runs beside them.
pub fn run(gpu: &Arc<Gpu>, cap: u64, quick: bool, others: Vec<Run>) -> Vec<Run> {
    let mut runs = Vec::new();
    for sequence in all(quick) {
        crate::fail::say(format_args!("blockyard-gpu-check: sequence {}", sequence.name));
        runs.push(plain("cuMemAlloc", Ok(Plain::direct(gpu)), &sequence));
        if gpu.pools() {
            let pooled = Plain::pooled(gpu).map_err(|error| error.to_string());
            runs.push(plain("cuMemAllocAsync", pooled, &sequence));
        }
        for preset in ["pytorch", "pytorch-expandable", "blockyard", "blockyard-native"] {
            runs.push(cached(gpu, preset, cap, &sequence));
        }
        runs.extend(others.iter().filter(|run| run.sequence == sequence.name).cloned());
    }
    runs
}

fn plain(name: &str, driver: Result<Plain, String>, sequence: &Sequence) -> Run {
    let outcome = driver.and_then(|mut driver| {
        let mut pass = || {
            timed(sequence, |event| match event {
                Event::Alloc { id, bytes } => driver.alloc(id, bytes),
                Event::Free { id } => driver.free(id),
            })
        };
        let nanos = [pass(), pass()];
        both(nanos).map_err(|error| error.to_string())
    });
    finished(name, sequence, outcome.map(|nanos| (nanos, None)))
}

fn cached(gpu: &Gpu, preset: &str, cap: u64, sequence: &Sequence) -> Run {
    let outcome = presets::named(preset).ok_or("no such preset".to_string()).and_then(|policy| {
        let device = CudaConfig { cap: Some(cap), ..CudaConfig::default() };
        let allocator =
            CudaAllocator::open_with(gpu.ordinal(), device, Config::with_policy(policy))
                .map_err(|error| error.to_string())?;
        let stream = allocator.default_stream();
        let mut live = HashMap::new();
        let mut pass = || {
            timed(sequence, |event| {
                match event {
                    Event::Alloc { id, bytes } => drop(live.insert(id, stream.alloc(bytes)?)),
                    Event::Free { id } => drop(live.remove(&id)),
                }
                Ok::<(), blockyard::allocator::AllocError>(())
            })
        };
        let nanos = [pass(), pass()];
        let nanos = both(nanos).map_err(|error| error.to_string())?;
        Ok((nanos, Some(allocator.max_memory_reserved())))
    });
    finished(&format!("blockyard, preset {preset}"), sequence, outcome)
}

fn both<E>([first, second]: [Result<f64, E>; 2]) -> Result<[f64; 2], E> {
    Ok([first?, second?])
}

fn timed<E>(
    sequence: &Sequence,
    mut perform: impl FnMut(Event) -> Result<(), E>,
) -> Result<f64, E> {
    let begun = Instant::now();
    for &event in &sequence.events {
        perform(event)?;
    }
    Ok(begun.elapsed().as_nanos() as f64 / sequence.events.len() as f64)
}

fn finished(
    allocator: &str,
    sequence: &Sequence,
    outcome: Result<([f64; 2], Option<u64>), String>,
) -> Run {
    let failure = outcome.as_ref().err().map(|text| first_line(text));
    let (nanos, reserved) = outcome.unwrap_or_default();
    let (sequence, allocator) = (sequence.name.to_string(), allocator.to_string());
    Run { sequence, allocator, nanos, reserved, failure }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Event, all};

    #[test]
    fn sequences_end_with_nothing_live_and_are_the_same_each_time() {
        for (sequence, again) in all(true).iter().zip(all(true)) {
            let mut live = HashSet::new();
            for event in &sequence.events {
                let fresh = match event {
                    Event::Alloc { id, bytes } => *bytes > 0 && live.insert(*id),
                    Event::Free { id } => live.remove(id),
                };
                assert!(fresh, "{}: {event:?}", sequence.name);
            }
            assert!(live.is_empty(), "{}", sequence.name);
            assert_eq!(format!("{:?}", sequence.events), format!("{:?}", again.events));
        }
    }
}
