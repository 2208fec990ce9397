//! Trial: threads on streams of their own fill, pass on, check and drop buffers; a kernel judges.
//!
//! Asked by tests and by the check of a GPU. Memory that is handed out twice, or reused before the
//! work on it is done, or unmapped under it, shows as words that are not what their owner wrote.

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaStream, DriverError};

use super::allocator::CudaAllocator;
use super::buffer::CudaBuffer;
use super::pattern::{Patterns, Verdict};
use crate::allocator::{AllocError, PrivatePool};
use crate::device::cuda::CudaError;
use crate::device::random::Random;

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// How many threads, each with a stream.
    pub threads: u64,
    /// How many steps each takes.
    pub steps: u64,
    /// How many buffers each holds at most.
    pub held: usize,
    /// The largest buffer, in bytes.
    pub largest: u64,
    /// What each thread does follows from this; how they interleave does not.
    pub seed: u64,
}

/// What it came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Buffers handed out.
    pub served: u64,
    /// Requests for which there was no memory.
    pub ran_out: u64,
    /// Buffers checked.
    pub checked: u64,
    /// Buffers checked by another thread than had filled them.
    pub passed_on: u64,
    /// Times that all idle memory was given back.
    pub emptied: u64,
}

/// A buffer and what it is filled with.
struct Held {
    buffer: CudaBuffer<u8>,
    seed: u64,
    filled_by: u64,
}

/// Why a trial failed: in words, since somebody will read them.
fn said(what: &str) -> impl Fn(CudaError) -> String {
    move |error| format!("{what}: {error}")
}

fn driver(what: &str) -> impl Fn(DriverError) -> String {
    move |error| format!("{what}: {error:?}")
}

/// Runs a trial; all memory is the allocator's again afterwards.
///
/// # Errors
/// A buffer did not hold what was written, the driver failed, or the allocator's audit does.
pub fn trial(allocator: &CudaAllocator, trial: Trial) -> Result<Tally, String> {
    let patterns = Patterns::load(allocator).map_err(said("loading the kernels"))?;
    let passed = Mutex::default();
    let mut total = Tally::default();
    let done: Vec<Result<Tally, String>> = std::thread::scope(|scope| {
        let start = |number| {
            let (patterns, passed) = (&patterns, &passed);
            scope.spawn(move || Worker::new(allocator, patterns, passed, trial, number)?.run())
        };
        let threads: Vec<_> = (0..trial.threads).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    for tally in done {
        let tally = tally?;
        total.served += tally.served;
        total.ran_out += tally.ran_out;
        total.checked += tally.checked;
        total.passed_on += tally.passed_on;
        total.emptied += tally.emptied;
    }
    drop(passed);
    allocator.audit()?;
    Ok(total)
}

fn panicked(_: Box<dyn std::any::Any + Send>) -> Result<Tally, String> {
    Err("a thread of the trial panicked".to_string())
}

struct Worker<'a> {
    allocator: &'a CudaAllocator,
    patterns: &'a Patterns,
    passed: &'a Mutex<Vec<Held>>,
    trial: Trial,
    number: u64,
    stream: Arc<CudaStream>,
    pool: PrivatePool,
    verdict: Verdict,
    held: Vec<Held>,
    random: Random,
    tally: Tally,
}

impl<'a> Worker<'a> {
    fn new(
        allocator: &'a CudaAllocator,
        patterns: &'a Patterns,
        passed: &'a Mutex<Vec<Held>>,
        trial: Trial,
        number: u64,
    ) -> Result<Self, String> {
        let stream = allocator.context().new_stream().map_err(driver("a new stream"))?;
        let words = allocator.alloc(&stream, 2).map_err(|error| error.to_string())?;
        Ok(Self {
            allocator,
            patterns,
            passed,
            trial,
            number,
            pool: allocator.private_pool(),
            verdict: Verdict::new(&stream, words).map_err(driver("the verdict"))?,
            stream,
            held: Vec::new(),
            random: Random::new(trial.seed.wrapping_mul(trial.threads) + number),
            tally: Tally::default(),
        })
    }

    fn run(mut self) -> Result<Tally, String> {
        for step in 0..self.trial.steps {
            match self.random.below(100) {
                0..50 => self.fill()?,
                50..85 => self.check()?,
                85..97 => self.pass_on(),
                97..99 => self.judge(step)?,
                _ => {
                    self.allocator.empty_cache();
                    self.tally.emptied += 1;
                }
            }
        }
        while !self.held.is_empty() {
            self.check()?;
        }
        self.judge(self.trial.steps)?;
        Ok(self.tally)
    }

    fn fill(&mut self) -> Result<(), String> {
        if self.held.len() >= self.trial.held {
            return self.check();
        }
        let most = if self.random.chance(800_000) { 64 << 10 } else { self.trial.largest };
        let bytes = 1 + self.random.below(most);
        let _scope = self.random.chance(100_000).then(|| self.pool.scope());
        let mut buffer = match self.allocator.alloc(&self.stream, bytes as usize) {
            Ok(buffer) => buffer,
            Err(AllocError::OutOfMemory(_)) => {
                self.tally.ran_out += 1;
                return Ok(());
            }
            Err(error) => return Err(self.told(&error.to_string())),
        };
        self.tally.served += 1;
        let seed = self.random.next();
        self.patterns.fill(&self.stream, &mut buffer, seed).map_err(said("a fill"))?;
        self.held.push(Held { buffer, seed, filled_by: self.number });
        Ok(())
    }

    /// Checks one buffer and drops it.
    fn check(&mut self) -> Result<(), String> {
        if self.held.is_empty() {
            return Ok(());
        }
        let place = self.random.below(self.held.len() as u64) as usize;
        let held = self.held.swap_remove(place);
        self.patterns
            .verify(&self.stream, &held.buffer, held.seed, &mut self.verdict)
            .map_err(said("a check"))?;
        self.tally.checked += 1;
        self.tally.passed_on += u64::from(held.filled_by != self.number);
        Ok(())
    }

    /// Gives a buffer to whoever comes next, and takes one.
    fn pass_on(&mut self) {
        let mine = self.held.pop();
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        passed.extend(mine);
        if passed.len() > 2 {
            self.held.push(passed.swap_remove(0));
        }
    }

    /// Looks at what all checks so far have found.
    fn judge(&mut self, step: u64) -> Result<(), String> {
        let found = self.verdict.wait(&self.stream).map_err(driver("the verdict"))?;
        found.map_or(Ok(()), |wrong| {
            Err(self.told(&format!(
                "before step {step}, {} words were not what their owner wrote, the first of its \
                 buffer at {}",
                wrong.words, wrong.first
            )))
        })
    }

    /// What happened, to whom, and what the driver said last.
    fn told(&self, what: &str) -> String {
        let driver = self.allocator.gpu().last_error();
        let driver = driver.map(|error| format!(" (the driver: {error})")).unwrap_or_default();
        format!("seed {}, thread {}: {what}{driver}", self.trial.seed, self.number)
    }
}
