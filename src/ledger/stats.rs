//! Stats: PyTorch's memory statistics as a fold over changes.
//!
//! **R1** the fold equals a recount of the state ([`super::recount`]). **R2** a peak is never below its
//! current value, and totals never fall.
//!
//! Owns every figure of `torch.cuda.memory_stats()`, spelled as there, and the pages mapped and unmapped.
//! Asked by results, charts and reports, after every event if they wish. Never knows where a block lies.
//!
//! Every figure counts what entered and what is held now, for each side of a pool; what left, and the sums over
//! both sides, follow from these (Note [Held and entered]).

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::vocab::{Change, Class, Observe};

/// A figure that PyTorch keeps for the small side, the large side and both together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Metric {
    /// Blocks handed out and not given back.
    Allocation = 0,
    /// Blocks handed out whose memory cannot be reused yet.
    Active = 1,
    /// Bytes of the blocks in [`Metric::Allocation`].
    AllocatedBytes = 2,
    /// Bytes of the blocks in [`Metric::Active`].
    ActiveBytes = 3,
    /// What the clients of the blocks in [`Metric::Active`] asked for.
    RequestedBytes = 4,
    /// Free blocks in split segments that are not page-mapped.
    InactiveSplit = 5,
    /// Bytes of the blocks in [`Metric::InactiveSplit`].
    InactiveSplitBytes = 6,
    /// Segments that are not page-mapped.
    Segment = 7,
    /// Bytes obtained from the driver: segments and mapped pages.
    ReservedBytes = 8,
}

impl Metric {
    /// Every metric.
    pub const ALL: [Self; METRICS] = [
        Self::Allocation,
        Self::Active,
        Self::AllocatedBytes,
        Self::ActiveBytes,
        Self::RequestedBytes,
        Self::InactiveSplit,
        Self::InactiveSplitBytes,
        Self::Segment,
        Self::ReservedBytes,
    ];

    /// The key's first part, as PyTorch spells it.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Allocation => "allocation",
            Self::Active => "active",
            Self::AllocatedBytes => "allocated_bytes",
            Self::ActiveBytes => "active_bytes",
            Self::RequestedBytes => "requested_bytes",
            Self::InactiveSplit => "inactive_split",
            Self::InactiveSplitBytes => "inactive_split_bytes",
            Self::Segment => "segment",
            Self::ReservedBytes => "reserved_bytes",
        }
    }

    /// Where what has entered is counted: a block is allocated and active at the same moment.
    const fn entry(self) -> usize {
        match self {
            Self::Active => Self::Allocation as usize,
            Self::ActiveBytes => Self::AllocatedBytes as usize,
            other => other as usize,
        }
    }
}

/// How many metrics there are.
pub const METRICS: usize = 9;

const ALLOCATION: usize = Metric::Allocation as usize;
const ACTIVE: usize = Metric::Active as usize;
const ALLOCATED_BYTES: usize = Metric::AllocatedBytes as usize;
const ACTIVE_BYTES: usize = Metric::ActiveBytes as usize;
const REQUESTED_BYTES: usize = Metric::RequestedBytes as usize;
const INACTIVE_SPLIT: usize = Metric::InactiveSplit as usize;
const INACTIVE_SPLIT_BYTES: usize = Metric::InactiveSplitBytes as usize;
/// The row of peaks for both sides together; rows 0 and 1 are the sides.
const BOTH: usize = 2;

/// One figure's four values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauge {
    /// Now.
    pub current: u64,
    /// The most since the last reset of peaks.
    pub peak: u64,
    /// What came since the last reset of totals.
    pub allocated: u64,
    /// What went since the last reset of totals.
    pub freed: u64,
}

impl Gauge {
    fn enter(&mut self, amount: u64) {
        self.current += amount;
        self.allocated += amount;
        self.peak = self.peak.max(self.current);
    }

    fn leave(&mut self, amount: u64) {
        debug_assert!(self.current >= amount, "R2: more left than had come");
        self.current = self.current.saturating_sub(amount);
        self.freed += amount;
    }

    fn reset_accumulated(&mut self) {
        (self.allocated, self.freed) = (0, 0);
    }
}

/// One side of the pools: what is held now, what has entered, and what was held when the totals were reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Side {
    held: [i64; METRICS],
    entered: [i64; METRICS],
    held_at_reset: [i64; METRICS],
}

/// Every statistic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    sides: [Side; 2],
    peaks: [[i64; METRICS]; 3],
    counters: Counters,
    /// Blocks handed out at or above the split limit, not given back.
    oversize_allocations: Gauge,
    /// Segments at or above the split limit.
    oversize_segments: Gauge,
    max_split_size: u64,
}

/// What only counts up, since the last reset of totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The driver was asked again after the whole cache was given back (`num_alloc_retries`).
    pub alloc_retries: u64,
    /// Requests that failed (`num_ooms`).
    pub ooms: u64,
    /// All pending frees were waited for (`num_sync_all_streams`).
    pub sync_all_streams: u64,
    /// Segments obtained and map operations (`num_device_alloc`).
    pub device_alloc: u64,
    /// Segments returned and unmap operations (`num_device_free`).
    pub device_free: u64,
    /// Pages mapped: single driver map calls.
    pub pages_mapped: u64,
    /// Pages unmapped: single driver unmap calls.
    pub pages_unmapped: u64,
}

impl Default for Stats {
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

impl Stats {
    /// Statistics of an empty heap under this split limit in bytes (`u64::MAX`: no limit).
    #[must_use]
    pub fn new(max_split_size: u64) -> Self {
        Self {
            sides: [Side::default(); 2],
            peaks: [[0; METRICS]; 3],
            counters: Counters::default(),
            oversize_allocations: Gauge::default(),
            oversize_segments: Gauge::default(),
            max_split_size,
        }
    }

    /// What both sides hold now. O(1), two loads.
    #[inline]
    #[must_use]
    pub const fn current(&self, metric: Metric) -> u64 {
        let lane = metric as usize;
        (self.sides[0].held[lane] + self.sides[1].held[lane]) as u64
    }

    /// The most that both sides have held at one moment, since the last reset of peaks. O(1).
    #[inline]
    #[must_use]
    pub const fn peak(&self, metric: Metric) -> u64 {
        self.peaks[BOTH][metric as usize] as u64
    }

    /// What has come to both sides since the last reset of totals. O(1).
    #[must_use]
    pub const fn allocated(&self, metric: Metric) -> u64 {
        self.gauge(metric, None).allocated
    }

    /// What has gone from both sides since the last reset of totals. O(1).
    #[must_use]
    pub const fn freed(&self, metric: Metric) -> u64 {
        self.gauge(metric, None).freed
    }

    /// Bytes handed out now (`memory_allocated`).
    #[inline]
    #[must_use]
    pub const fn allocated_bytes(&self) -> u64 {
        self.current(Metric::AllocatedBytes)
    }

    /// Bytes that cannot be reused now.
    #[inline]
    #[must_use]
    pub const fn active_bytes(&self) -> u64 {
        self.current(Metric::ActiveBytes)
    }

    /// Bytes that clients asked for and that cannot be reused now.
    #[inline]
    #[must_use]
    pub const fn requested_bytes(&self) -> u64 {
        self.current(Metric::RequestedBytes)
    }

    /// Bytes obtained from the driver now (`memory_reserved`).
    #[inline]
    #[must_use]
    pub const fn reserved_bytes(&self) -> u64 {
        self.current(Metric::ReservedBytes)
    }

    /// One figure's four values for one side, or for both together.
    #[must_use]
    pub const fn gauge(&self, metric: Metric, class: Option<Class>) -> Gauge {
        let (lane, row) = (metric as usize, row(class));
        let mut gauge =
            Gauge { current: 0, peak: self.peaks[row][lane] as u64, allocated: 0, freed: 0 };
        let mut index = 0;
        while index < 2 {
            if row == BOTH || row == index {
                let side = &self.sides[index];
                let (held, entered) = (side.held[lane], side.entered[metric.entry()]);
                gauge.current += held as u64;
                gauge.allocated += entered as u64;
                gauge.freed += (side.held_at_reset[lane] + entered - held) as u64;
            }
            index += 1;
        }
        gauge
    }

    /// What only counts up.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Blocks handed out at or above the split limit.
    #[must_use]
    pub const fn oversize_allocations(&self) -> Gauge {
        self.oversize_allocations
    }

    /// Segments at or above the split limit.
    #[must_use]
    pub const fn oversize_segments(&self) -> Gauge {
        self.oversize_segments
    }

    /// The split limit in bytes; `u64::MAX`: none.
    #[must_use]
    pub const fn max_split_size(&self) -> u64 {
        self.max_split_size
    }

    /// Makes every peak what is held now (`reset_peak_memory_stats`).
    pub fn reset_peak(&mut self) {
        self.peaks = [[i64::MIN; METRICS]; 3];
        self.raise_peaks();
        for gauge in [&mut self.oversize_allocations, &mut self.oversize_segments] {
            gauge.peak = gauge.current;
        }
    }

    /// Makes every total and counter zero (`reset_accumulated_memory_stats`).
    pub fn reset_accumulated(&mut self) {
        for side in &mut self.sides {
            side.entered = [0; METRICS];
            side.held_at_reset = side.held;
        }
        self.counters = Counters::default();
        self.oversize_allocations.reset_accumulated();
        self.oversize_segments.reset_accumulated();
    }

    /// Every key of `torch.cuda.memory_stats()` with its value, sorted by key; ours are `num_pages_mapped` and
    /// `num_pages_unmapped`. No split limit is -1, as PyTorch shows it.
    #[must_use]
    pub fn flat(&self) -> Vec<(String, i64)> {
        let mut rows = Vec::with_capacity(METRICS * 12 + 16);
        for metric in Metric::ALL {
            for (side, class) in SIDES {
                push(&mut rows, &format!("{}.{side}", metric.key()), self.gauge(metric, class));
            }
        }
        push(&mut rows, "oversize_allocations", self.oversize_allocations);
        push(&mut rows, "oversize_segments", self.oversize_segments);
        let counters = &self.counters;
        for (key, value) in [
            ("max_split_size", self.max_split_size),
            ("num_alloc_retries", counters.alloc_retries),
            ("num_device_alloc", counters.device_alloc),
            ("num_device_free", counters.device_free),
            ("num_ooms", counters.ooms),
            ("num_pages_mapped", counters.pages_mapped),
            ("num_pages_unmapped", counters.pages_unmapped),
            ("num_sync_all_streams", counters.sync_all_streams),
        ] {
            rows.push((key.to_string(), value as i64));
        }
        rows.sort_unstable();
        rows
    }

    /// Raises the peaks if any of the metrics `FROM..TO` now stands above its own: one branch, rarely taken.
    #[inline(always)]
    fn check_peaks<const FROM: usize, const TO: usize>(&mut self, class: Class) {
        let [small, large] = [&self.sides[0].held, &self.sides[1].held];
        let held = &self.sides[class as usize].held;
        let mut slack = 0;
        for lane in FROM..TO {
            slack |= self.peaks[class as usize][lane] - held[lane];
            slack |= self.peaks[BOTH][lane] - (small[lane] + large[lane]);
        }
        if slack < 0 {
            self.raise_peaks();
        }
    }

    #[cold]
    #[inline(never)]
    fn raise_peaks(&mut self) {
        for lane in 0..METRICS {
            let [small, large] = [self.sides[0].held[lane], self.sides[1].held[lane]];
            for (row, held) in [small, large, small + large].into_iter().enumerate() {
                self.peaks[row][lane] = self.peaks[row][lane].max(held);
            }
        }
    }

    /// **R2** for what just left.
    #[inline(always)]
    fn check_held(&self, class: Class, lane: usize) {
        debug_assert!(self.sides[class as usize].held[lane] >= 0, "R2: more left than had come");
    }

    #[inline]
    fn block_out(&mut self, class: Class, bytes: u64, requested: u64) {
        let (bytes, requested) = (bytes as i64, requested as i64);
        let side = &mut self.sides[class as usize];
        side.held[ALLOCATION] += 1;
        side.held[ACTIVE] += 1;
        side.held[ALLOCATED_BYTES] += bytes;
        side.held[ACTIVE_BYTES] += bytes;
        side.held[REQUESTED_BYTES] += requested;
        side.entered[ALLOCATION] += 1;
        side.entered[ALLOCATED_BYTES] += bytes;
        side.entered[REQUESTED_BYTES] += requested;
        self.check_peaks::<ALLOCATION, INACTIVE_SPLIT>(class);
    }

    #[inline]
    fn block_back(&mut self, class: Class, bytes: u64) {
        let side = &mut self.sides[class as usize];
        side.held[ALLOCATION] -= 1;
        side.held[ALLOCATED_BYTES] -= bytes as i64;
        self.check_held(class, ALLOCATED_BYTES);
    }

    #[inline]
    fn block_reusable(&mut self, class: Class, bytes: u64, requested: u64) {
        let side = &mut self.sides[class as usize];
        side.held[ACTIVE] -= 1;
        side.held[ACTIVE_BYTES] -= bytes as i64;
        side.held[REQUESTED_BYTES] -= requested as i64;
        self.check_held(class, ACTIVE_BYTES);
        self.check_held(class, REQUESTED_BYTES);
    }

    #[inline]
    fn inactive_split(&mut self, class: Class, blocks: i64, bytes: i64) {
        let side = &mut self.sides[class as usize];
        side.held[INACTIVE_SPLIT] += blocks;
        side.held[INACTIVE_SPLIT_BYTES] += bytes;
        side.entered[INACTIVE_SPLIT] += blocks.max(0);
        side.entered[INACTIVE_SPLIT_BYTES] += bytes.max(0);
        self.check_held(class, INACTIVE_SPLIT_BYTES);
        self.check_peaks::<INACTIVE_SPLIT, { INACTIVE_SPLIT_BYTES + 1 }>(class);
    }

    fn enter(&mut self, metric: Metric, class: Class, amount: u64) {
        let side = &mut self.sides[class as usize];
        side.held[metric as usize] += amount as i64;
        side.entered[metric as usize] += amount as i64;
        self.raise_peaks();
    }

    fn leave(&mut self, metric: Metric, class: Class, amount: u64) {
        self.sides[class as usize].held[metric as usize] -= amount as i64;
        self.check_held(class, metric as usize);
    }

    /// Everything but a block's own life.
    #[cold]
    #[inline(never)]
    fn observe_rare(&mut self, change: Change) {
        match change {
            Change::SegmentAllocated { bytes, class, oversize, .. } => {
                self.enter(Metric::Segment, class, 1);
                self.enter(Metric::ReservedBytes, class, bytes);
                self.oversize_segments.enter(u64::from(oversize));
                self.counters.device_alloc += 1;
            }
            Change::SegmentFreed { bytes, class, oversize, .. } => {
                self.leave(Metric::Segment, class, 1);
                self.leave(Metric::ReservedBytes, class, bytes);
                self.oversize_segments.leave(u64::from(oversize));
                self.counters.device_free += 1;
            }
            Change::Mapped { bytes, pages, class, .. } => {
                self.enter(Metric::ReservedBytes, class, bytes);
                self.counters.device_alloc += 1;
                self.counters.pages_mapped += pages;
            }
            Change::Unmapped { bytes, pages, class, .. } => {
                self.leave(Metric::ReservedBytes, class, bytes);
                self.counters.device_free += 1;
                self.counters.pages_unmapped += pages;
            }
            Change::Retried => self.counters.alloc_retries += 1,
            Change::RanOut { .. } => self.counters.ooms += 1,
            Change::Synchronized => self.counters.sync_all_streams += 1,
            Change::Allocated { .. } => self.oversize_allocations.enter(1),
            Change::FreeRequested { .. } => self.oversize_allocations.leave(1),
            Change::FreeCompleted { .. } | Change::InactiveSplit { .. } => {}
        }
    }
}

impl Observe for Stats {
    #[inline]
    fn observe(&mut self, change: Change) {
        match change {
            Change::Allocated { bytes, requested, class, oversize, .. } => {
                self.block_out(class, bytes, requested);
                if oversize {
                    self.observe_rare(change);
                }
            }
            Change::FreeRequested { bytes, class, oversize, .. } => {
                self.block_back(class, bytes);
                if oversize {
                    self.observe_rare(change);
                }
            }
            Change::FreeCompleted { bytes, requested, class, .. } => {
                self.block_reusable(class, bytes, requested);
            }
            Change::InactiveSplit { class, blocks, bytes } => {
                self.inactive_split(class, blocks, bytes);
            }
            rare => self.observe_rare(rare),
        }
    }
}

/// PyTorch's names of both sides together and of each.
const SIDES: [(&str, Option<Class>); 3] =
    [("all", None), ("large_pool", Some(Class::Large)), ("small_pool", Some(Class::Small))];

const fn row(class: Option<Class>) -> usize {
    match class {
        None => BOTH,
        Some(class) => class as usize,
    }
}

fn push(rows: &mut Vec<(String, i64)>, key: &str, gauge: Gauge) {
    for (name, value) in [
        ("current", gauge.current),
        ("peak", gauge.peak),
        ("allocated", gauge.allocated),
        ("freed", gauge.freed),
    ] {
        rows.push((format!("{key}.{name}"), value as i64));
    }
}

// Note [Held and entered]
// An alloc and a free are the hottest changes there are, so they write as little as they can: what left is what
// had been held at the last reset, plus what entered since, less what is held now; both sides together are the sum
// of the sides. Only peaks cannot be derived, since the sides peak at different moments. They are compared at
// every rise, all lanes at once: the sign bit of `peak - held`, or-ed over the lanes, says whether any was passed.

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
