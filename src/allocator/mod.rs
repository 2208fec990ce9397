//! Allocator: the core for programs with threads: one [`CachingAllocator`] a device, [`Stream`]s,
//! [`DeviceBuffer`]s.
//!
//! Owns the only lock, the pump that carries wants to the device, and what hangs on live blocks:
//! tags, hooks, the recorder. Asked by programs. Never knows a rule (that is `policy`) nor a file
//! format (that is `trace`).
//!
//! ```
//! use blockyard::allocator::{CachingAllocator, Config};
//! use blockyard::device::{SimConfig, SimDevice};
//! use blockyard::vocab::MIB;
//!
//! let device = SimDevice::new(SimConfig::with_capacity(64 * MIB));
//! let allocator = CachingAllocator::new(device, Config::default());
//! let stream = allocator.default_stream();
//! let buffer = stream.alloc(3 * MIB)?;
//! assert_eq!(allocator.memory_allocated(), 3 * MIB);
//! drop(buffer);
//! assert_eq!(allocator.memory_allocated(), 0);
//! assert!(allocator.empty_cache().released_bytes > 0);
//! # Ok::<(), blockyard::allocator::AllocError>(())
//! ```
//!
//! | file | what |
//! |---|---|
//! | `sync` | the one door to locks and atomics: the real ones, or loom's |
//! | `shell` | the core behind its lock |
//! | `pump` | wants to the device, answers back, no lock held (**C1**, **C2**) |
//! | `inbox` | frees that found the lock taken |
//! | `stream`, `buffer`, `pool`, `raw` | what programs hold |
//! | `tags`, `stacks`, `scopes`, `recorder`, `clock` | who, where, how much, what happened, when |
//! | `watch`, `hooks`, `alarm`, `failure`, `dump`, `metrics`, `events` | who wants to know |

mod alarm;
mod buffer;
mod clock;
mod dump;
mod error;
#[cfg(feature = "tracing")]
mod events;
mod failure;
mod hooks;
#[cfg(feature = "allocator-api2")]
mod host_heap;
mod inbox;
#[cfg(feature = "metrics")]
mod metrics;
mod pool;
mod pump;
mod raw;
mod recorder;
mod scopes;
mod shell;
pub mod stacks;
mod stream;
mod sync;
pub mod tags;
mod watch;

use crate::device::Device;
use crate::heap::Heap;
use crate::ledger::{Metric, Stats, memory_summary, pool_summary};
use crate::policy::{Policy, presets};
use crate::vocab::{Class, Fault, HeapView, Input, PoolId, PoolUsage, StreamId, Target};

pub use alarm::{Alarm, Pressure, Threshold};
pub use buffer::{BorrowedBuffer, DeviceBuffer};
pub use error::{AllocError, FreeError};
pub use failure::{FailureCause, FailureWriter};
pub use hooks::{BlockEvent, BlockHook, HookId, OutOfMemoryObserver};
#[cfg(feature = "allocator-api2")]
pub use host_heap::HostHeap;
pub use pool::{Capture, PoolScope, PrivatePool};
pub use scopes::ScopeStats;
pub use stream::Stream;

pub use crate::vocab::{Dump, Record, What};

use shell::Shared;
use sync::{Arc, Slow};
use watch::Watch;

/// How an allocator is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// The policy; [`presets::blockyard`] if nothing else is said.
    pub policy: Policy,
    /// How many records the recorder keeps; 0: none.
    pub record: usize,
    /// The recorder's clock is read once in so many records, rounded up to a power of two; 0:
    /// never.
    pub clock_every: u64,
    /// Call stacks of this many frames are captured for every request, the allocator's own frames
    /// included; 0: none. Costs microseconds a request; 32 is a good depth.
    #[cfg(feature = "stacks")]
    pub stack_depth: usize,
    /// The device's number in summaries.
    pub device_index: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            policy: presets::blockyard(),
            record: 0,
            clock_every: 64,
            #[cfg(feature = "stacks")]
            stack_depth: 0,
            device_index: 0,
        }
    }
}

impl Config {
    /// For page-locked host memory: [`presets::pinned`], nothing recorded.
    #[must_use]
    pub fn pinned() -> Self {
        Self::with_policy(presets::pinned())
    }

    /// This policy, nothing recorded.
    #[must_use]
    pub fn with_policy(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }
}

/// What emptying the cache came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emptied {
    /// Bytes given back to the driver; those until then, where it failed.
    pub released_bytes: u64,
    /// What the driver failed with, if it did: the rest is kept.
    pub fault: Option<Fault>,
    /// Where nothing was given back, why.
    pub why_nothing: Option<&'static str>,
}

/// The caching allocator of one device. All methods may be called from any thread.
pub struct CachingAllocator {
    shared: Arc<Shared>,
    next_pool: Slow<u32>,
}

impl CachingAllocator {
    /// An allocator for this device. A device that cannot map pages gets whole segments, whatever
    /// the policy says.
    #[must_use]
    pub fn new(device: impl Device + Send + 'static, config: Config) -> Self {
        let watch = Watch::new(&config);
        let mut policy = config.policy;
        if !device.page_mapping() {
            policy.backing = crate::policy::Backing::Segments;
        }
        let heap = Heap::new(policy, device.total());
        let shared = Shared::new(heap, config.record, watch, Box::new(device));
        Self { shared: Arc::new(shared), next_pool: Slow::new(0) }
    }

    /// The default stream: number 0.
    #[must_use]
    pub fn default_stream(&self) -> Stream {
        Stream { shared: Arc::clone(&self.shared), id: StreamId(0), handle: 0 }
    }

    /// The stream of a driver's handle; the same handle gives the same stream. Handle 0 is the
    /// default stream.
    #[must_use]
    pub fn stream(&self, handle: u64) -> Stream {
        let mut streams = self.shared.watch.streams.lock();
        let next = StreamId(streams.len() as u32);
        let id = *streams.entry(handle).or_insert(next);
        Stream { shared: Arc::clone(&self.shared), id, handle }
    }

    /// A new private pool.
    #[must_use]
    pub fn private_pool(&self) -> PrivatePool {
        let mut next = self.next_pool.lock();
        *next += 1;
        PrivatePool::new(Arc::clone(&self.shared), PoolId(*next))
    }

    /// Gives all idle memory back to the driver, after waiting for pending frees
    /// (`torch.cuda.empty_cache`). O(free blocks) beside the driver's calls; where nothing goes back O(blocks), to say
    /// why.
    pub fn empty_cache(&self) -> Emptied {
        let capturing = self.shared.locked().heap.capturing();
        let (released_bytes, fault) = self.shared.try_trim(Target::All);
        let why_nothing = match (released_bytes, fault) {
            (0, None) => Some(self.why_nothing(capturing)),
            (0, Some(_)) => Some("the driver failed: what it did not take back is kept"),
            _ => None,
        };
        Emptied { released_bytes, fault, why_nothing }
    }

    /// Why emptying the cache came to nothing.
    fn why_nothing(&self, capturing: bool) -> &'static str {
        if capturing {
            return "a capture is under way: nothing goes back to the driver before it ends";
        }
        let inner = self.shared.locked();
        let (mut idle, mut awaiting) = (0, 0);
        for (.., usage) in inner.heap.usage() {
            idle += usage.releasable_bytes;
            awaiting += usage.awaiting_free_bytes;
        }
        match (inner.heap.reserved(), inner.books.stats.allocated_bytes()) {
            (0, _) => "nothing is reserved",
            (reserved, allocated) if reserved == allocated => "every reserved byte is live",
            _ if idle > 0 => "what is idle is in private pools in use, which this policy keeps",
            _ if awaiting > 0 => "what was freed is still used by streams",
            _ => "live blocks pin what is free: they lie in the same segments or pages",
        }
    }

    /// Gives at least `bytes` of idle memory back, if there is as much, with few driver calls: whole
    /// segments, and of page-mapped memory no more pages than it takes, from the upper end of a
    /// free range. Returns the bytes: those until then, where the driver fails.
    pub fn release_at_least(&self, bytes: u64) -> u64 {
        self.shared.trim(Target::AtLeast(bytes))
    }

    /// Bytes that emptying the cache would give back now, not counting pending frees; none during a
    /// capture. O(blocks), under the lock.
    #[must_use]
    pub fn releasable_bytes(&self) -> u64 {
        let heap = &self.shared.locked().heap;
        if heap.capturing() {
            return 0;
        }
        let rows = heap.usage().into_iter().filter(|row| heap.gives(row.0));
        rows.map(|row| row.3.releasable_bytes).sum()
    }

    /// What the device has free and in all, in bytes (`torch.cuda.mem_get_info`); `None`: it does
    /// not know. Waits for a driver call that is under way.
    #[must_use]
    pub fn mem_get_info(&self) -> Option<(u64, u64)> {
        let device = self.shared.device.lock();
        device.free().zip(device.total())
    }

    /// The most that may be reserved, in bytes; `None`: no limit.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.shared.locked().heap.limit()
    }

    /// Sets the most that may be reserved. Memory above it is kept until it is idle and evicted.
    pub fn set_limit(&self, bytes: Option<u64>) {
        self.shared.apply(Input::Limit { bytes });
    }

    /// Sets the limit to a share of the device's memory (`set_per_process_memory_fraction`); 1 is
    /// no limit.
    ///
    /// # Errors
    /// A share outside 0 to 1, or a device whose memory is not known.
    pub fn set_memory_fraction(&self, fraction: f64) -> Result<(), FractionError> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(FractionError::OutOfRange);
        }
        let total = self.shared.total.ok_or(FractionError::UnknownDevice)?;
        self.set_limit((fraction < 1.0).then_some((fraction * total as f64) as u64));
        Ok(())
    }

    /// The largest request that would be served on this stream now, in bytes, without waiting for
    /// pending frees; from the pool of this thread's innermost pool scope, else the default pool.
    /// O(blocks), under the lock.
    ///
    /// Of a device that does not know its memory ([`Device::total`] is `None`), and without a limit,
    /// nobody can tell: it is then the largest that the device would be asked for, some 2 TiB.
    ///
    /// # Panics
    /// If the stream belongs to another allocator.
    #[must_use]
    pub fn largest_possible_allocation(&self, stream: &Stream) -> u64 {
        stream.assert_of(&self.shared);
        let pool = pool::scoped_pool(&self.shared);
        self.shared.locked().heap.largest_possible(stream.id(), pool)
    }

    /// `torch.cuda.memory_allocated`, in bytes.
    #[must_use]
    pub fn memory_allocated(&self) -> u64 {
        self.shared.locked().books.stats.allocated_bytes()
    }

    /// `torch.cuda.memory_reserved`, in bytes.
    #[must_use]
    pub fn memory_reserved(&self) -> u64 {
        self.shared.locked().books.stats.reserved_bytes()
    }

    /// `torch.cuda.max_memory_allocated`, in bytes.
    #[must_use]
    pub fn max_memory_allocated(&self) -> u64 {
        self.shared.locked().books.stats.peak(Metric::AllocatedBytes)
    }

    /// `torch.cuda.max_memory_reserved`, in bytes.
    #[must_use]
    pub fn max_memory_reserved(&self) -> u64 {
        self.shared.locked().books.stats.peak(Metric::ReservedBytes)
    }

    /// A copy of all statistics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.locked().books.stats.clone()
    }

    /// `torch.cuda.memory_stats`: PyTorch's keys, sorted, and ours.
    #[must_use]
    pub fn memory_stats(&self) -> Vec<(String, i64)> {
        self.stats().flat()
    }

    /// `torch.cuda.memory_summary`, and a table of where each pool's memory is. O(blocks), under the lock.
    #[must_use]
    pub fn memory_summary(&self) -> String {
        let rows: Vec<(String, PoolUsage)> = self.usage().into_iter().map(named).collect();
        let stats = self.stats();
        format!(
            "{}\n{}",
            memory_summary(&stats, self.shared.watch.device_index, false),
            pool_summary(&rows)
        )
    }

    /// Peaks begin at what is current (`reset_peak_memory_stats`).
    pub fn reset_peak_memory_stats(&self) {
        self.shared.locked().books.stats.reset_peak();
    }

    /// Totals and counts begin at zero (`reset_accumulated_memory_stats`). Published counters go on
    /// rising.
    pub fn reset_accumulated_memory_stats(&self) {
        self.shared.locked().books.reset_accumulated();
    }

    /// Opens a scope of statistics. Scopes belong to the allocator, not to a thread, as the counters
    /// that RMM's `statistics_resource_adaptor` pushes: they nest in the order of the calls, and an
    /// open one counts what every thread does. So two threads that both push and pop mix their
    /// figures: let one of them do it, or give each its tag.
    pub fn push_statistics(&self) {
        self.shared.locked().books.scopes.push();
    }

    /// Ends the innermost scope of statistics; `None`: none is open.
    pub fn pop_statistics(&self) -> Option<ScopeStats> {
        self.shared.locked().books.scopes.pop()
    }

    /// Where the memory of each side of each pool on each stream is. O(blocks), under the lock: other threads wait.
    #[must_use]
    pub fn usage(&self) -> Vec<(PoolId, Class, StreamId, PoolUsage)> {
        self.shared.locked().heap.usage()
    }

    /// The heap at this moment. O(blocks), under the lock: other threads wait.
    #[must_use]
    pub fn view(&self) -> HeapView {
        self.shared.locked().heap.view()
    }

    /// Re-derives every invariant from nothing, and every statistic unless memory is on its way in
    /// or out: the view does not say which. O(blocks log blocks); for tests.
    ///
    /// # Errors
    /// The first violation.
    pub fn audit(&self) -> Result<(), String> {
        let inner = self.shared.locked();
        inner.heap.audit().map_err(|violation| violation.to_string())?;
        if !inner.heap.is_settled() {
            return Ok(());
        }
        let differs = inner.books.stats.disagreement(&inner.heap.view());
        differs.map_or(Ok(()), |difference| Err(format!("R1: {difference}")))
    }
}

fn named(row: (PoolId, Class, StreamId, PoolUsage)) -> (String, PoolUsage) {
    let (pool, class, stream, usage) = row;
    let whose = if pool == PoolId::DEFAULT { String::new() } else { format!("pool {} ", pool.0) };
    (format!("{whose}{}, stream {}", class.name(), stream.0), usage)
}

impl std::fmt::Debug for CachingAllocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (allocated, reserved) = (self.memory_allocated(), self.memory_reserved());
        write!(f, "CachingAllocator({allocated} bytes allocated, {reserved} reserved)")
    }
}

/// A memory fraction that cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FractionError {
    /// It is not within 0 to 1.
    OutOfRange,
    /// A share of what? The device's memory is not known.
    UnknownDevice,
}

impl std::fmt::Display for FractionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::OutOfRange => "the fraction is outside 0 to 1",
            Self::UnknownDevice => {
                "the device's memory is not known: a fraction of it means nothing"
            }
        })
    }
}

impl std::error::Error for FractionError {}
