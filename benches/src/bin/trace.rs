//! Trace: allocation traces through the caching allocator on one thread, timed; or how often a request asks for
//! just what was freed last.
//!
//! `trace [--front] [--repeat K] FILE...`, each file lines of `a,ID,BYTES,STREAM`, `f,ID`, `r,ID,STREAM`, `e`
//! (empty the cache). Prints processor nanoseconds an operation: the median of the repeats.

use std::collections::HashMap;
use std::process::ExitCode;

use blockyard::allocator::{AllocError, BorrowedBuffer, CachingAllocator, DeviceBuffer, Stream};
use blockyard::policy::{Policy, presets, size};
use blockyard_benches::clock::Start;
use blockyard_benches::whole::allocator;

#[derive(Clone, Copy)]
enum Op {
    Alloc { slot: usize, bytes: u64, stream: usize },
    Free { slot: usize },
    Use { slot: usize, stream: usize },
    Empty,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (mut repeat, mut front, mut files) = (5, false, Vec::new());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--front" => front = true,
            "--repeat" => repeat = words.next().and_then(|k| k.parse().ok()).unwrap_or(repeat),
            _ => files.push(word),
        }
    }
    if files.is_empty() {
        eprintln!("trace [--front] [--repeat K] FILE...");
        return ExitCode::from(2);
    }
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else {
            eprintln!("{file}: cannot be read");
            return ExitCode::from(1);
        };
        let (ops, slots, streams) = parse(&text);
        let name = file.rsplit('/').next().unwrap_or(&file);
        if front {
            print_front(name, &ops, slots);
        } else {
            for (preset, policy) in
                [("blockyard", presets::blockyard()), ("pytorch", presets::pytorch())]
            {
                time(name, preset, &policy, &ops, slots, streams, repeat);
            }
        }
    }
    ExitCode::SUCCESS
}

fn parse(text: &str) -> (Vec<Op>, usize, usize) {
    let (mut ops, mut slot_of, mut vacant) = (Vec::new(), HashMap::new(), Vec::new());
    let (mut slots, mut streams) = (0, 1);
    for line in text.lines() {
        let mut fields = line.split(',');
        let kind = fields.next();
        let mut number = || fields.next().and_then(|field| field.parse::<u64>().ok());
        match (kind, number(), number(), number()) {
            (Some("a"), Some(id), Some(bytes), stream) => {
                let slot = vacant.pop().unwrap_or_else(|| {
                    slots += 1;
                    slots - 1
                });
                slot_of.insert(id, slot);
                let stream = stream.unwrap_or(0) as usize;
                streams = streams.max(stream + 1);
                ops.push(Op::Alloc { slot, bytes, stream });
            }
            (Some("f"), Some(id), ..) => {
                if let Some(slot) = slot_of.remove(&id) {
                    vacant.push(slot);
                    ops.push(Op::Free { slot });
                }
            }
            (Some("r"), Some(id), Some(stream), _) => {
                if let Some(&slot) = slot_of.get(&id) {
                    streams = streams.max(stream as usize + 1);
                    ops.push(Op::Use { slot, stream: stream as usize });
                }
            }
            (Some("e"), ..) => ops.push(Op::Empty),
            _ => {}
        }
    }
    (ops, slots, streams)
}

fn time(
    name: &str,
    preset: &str,
    policy: &Policy,
    ops: &[Op],
    slots: usize,
    streams: usize,
    repeat: usize,
) {
    let all = allocator(policy.clone(), 0);
    let streams: Vec<Stream> = (0..streams).map(|handle| all.stream(handle as u64)).collect();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..repeat {
        times[0].push(play::<DeviceBuffer>(ops, slots, &all, &streams));
        times[1].push(play::<BorrowedBuffer<'_>>(ops, slots, &all, &streams));
    }
    for (times, how) in times.iter_mut().zip(["counted", "borrowed"]) {
        times.sort_by(f64::total_cmp);
        let (median, least) = (times[times.len() / 2], times[0]);
        println!(
            "{{\"bench\":\"{name}\",\"preset\":\"{preset}\",\"buffers\":\"{how}\",\
             \"cpu_ns_per_op\":{median:.1},\"cpu_ns_per_op_min\":{least:.1},\"ops\":{}}}",
            ops.len()
        );
    }
}

/// A buffer of either kind.
trait Buffer<'a>: Sized {
    fn alloc(stream: &'a Stream, bytes: u64) -> Result<Self, AllocError>;
    fn used_on(&self, stream: &Stream);
}

impl<'a> Buffer<'a> for DeviceBuffer {
    fn alloc(stream: &'a Stream, bytes: u64) -> Result<Self, AllocError> {
        stream.alloc(bytes)
    }
    fn used_on(&self, stream: &Stream) {
        self.record_stream(stream);
    }
}

impl<'a> Buffer<'a> for BorrowedBuffer<'a> {
    fn alloc(stream: &'a Stream, bytes: u64) -> Result<Self, AllocError> {
        stream.alloc_borrowed(bytes)
    }
    fn used_on(&self, stream: &Stream) {
        self.record_stream(stream);
    }
}

/// Plays the trace from an empty cache. Nanoseconds an operation.
#[inline(never)]
fn play<'a, B: Buffer<'a>>(
    ops: &[Op],
    slots: usize,
    all: &CachingAllocator,
    streams: &'a [Stream],
) -> f64 {
    let mut live: Vec<Option<B>> = (0..slots).map(|_| None).collect();
    let start = Start::now();
    for op in ops {
        match *op {
            Op::Alloc { slot, bytes, stream } => {
                live[slot] = B::alloc(&streams[stream], bytes).ok();
            }
            Op::Free { slot } => live[slot] = None,
            Op::Use { slot, stream } => {
                if let Some(buffer) = &live[slot] {
                    buffer.used_on(&streams[stream]);
                }
            }
            Op::Empty => drop(all.empty_cache()),
        }
    }
    let nanos = start.nanos() / ops.len() as f64;
    live.clear();
    all.empty_cache();
    nanos
}

/// How many of the last frees a front would keep.
const DEPTHS: [usize; 3] = [1, 4, 16];

/// Prints how many requests ask for the rounded size and stream of one of the last frees, each free taken
/// at most once.
fn print_front(name: &str, ops: &[Op], slots: usize) {
    let policy = presets::blockyard();
    let mut owner = vec![(0, 0); slots];
    let (mut requests, mut hits) = (0u64, [0u64; DEPTHS.len()]);
    let mut fronts: [Vec<(u64, usize)>; DEPTHS.len()] = Default::default();
    for op in ops {
        match *op {
            Op::Alloc { slot, bytes, stream } => {
                requests += 1;
                let wanted = (size::round(&policy, bytes.max(1)), stream);
                owner[slot] = wanted;
                for (front, hits) in fronts.iter_mut().zip(&mut hits) {
                    if let Some(place) = front.iter().rposition(|kept| *kept == wanted) {
                        front.remove(place);
                        *hits += 1;
                    }
                }
            }
            Op::Free { slot } => {
                for (front, depth) in fronts.iter_mut().zip(DEPTHS) {
                    if front.len() == depth {
                        front.remove(0);
                    }
                    front.push(owner[slot]);
                }
            }
            Op::Use { .. } => {}
            Op::Empty => fronts.iter_mut().for_each(Vec::clear),
        }
    }
    let share = |hits: u64| 100.0 * hits as f64 / requests.max(1) as f64;
    println!(
        "| {name} | {requests} | {:.1} % | {:.1} % | {:.1} % |",
        share(hits[0]),
        share(hits[1]),
        share(hits[2])
    );
}
