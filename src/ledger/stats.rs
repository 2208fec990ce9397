//! Stats: PyTorch's memory statistics as a fold over changes.
//!
//! **R1** the fold equals a recount of the state ([`mod@super::recount`]). **R2** a peak is never below
//! its current value, and totals never fall.
//!
//! Owns every figure of `torch.cuda.memory_stats()`, spelled as there, and the pages mapped and
//! unmapped. Asked by results, charts and reports, after every event if they wish. Never knows
//! where a block lies.
//!
//! Every figure counts what came and what went, for each side of a pool; what is held, and the sums
//! over both sides, follow from these. Peaks do not (see the Note "Ceilings").

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::vocab::{Change, Class, Observe};

/// A figure that PyTorch keeps for the small side, the large side and both together.
///
/// Figures that move together never have neighbouring numbers: else the compiler joins their loads,
/// and a wide load of two narrow stores waits for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Metric {
    /// Blocks handed out and not given back.
    Allocation = 0,
    /// Blocks handed out whose memory cannot be reused yet.
    Active = 2,
    /// Bytes of the blocks in [`Metric::Allocation`].
    AllocatedBytes = 4,
    /// Bytes of the blocks in [`Metric::Active`].
    ActiveBytes = 6,
    /// What the clients of the blocks in [`Metric::Active`] asked for.
    RequestedBytes = 8,
    /// Free blocks in split segments that are not page-mapped.
    InactiveSplit = 1,
    /// Bytes of the blocks in [`Metric::InactiveSplit`].
    InactiveSplitBytes = 5,
    /// Segments that are not page-mapped.
    Segment = 3,
    /// Bytes obtained from the driver: segments and mapped pages.
    ReservedBytes = 7,
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

/// What moves when a block is handed out.
const BLOCK_METRICS: [Metric; 5] = [
    Metric::Allocation,
    Metric::Active,
    Metric::AllocatedBytes,
    Metric::ActiveBytes,
    Metric::RequestedBytes,
];
/// What moves when a free block of a split segment comes or goes.
const SPLIT_METRICS: [Metric; 2] = [Metric::InactiveSplit, Metric::InactiveSplitBytes];
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

/// One side of the pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Side {
    /// What came (by [`Metric::entry`]) and what went (by metric), ever.
    flow: [[i64; METRICS]; 2],
    /// `flow` when the totals were reset.
    flow_at_reset: [[i64; METRICS]; 2],
    /// While both sides hold no more than this, no peak is passed (see the Note "Ceilings").
    ceiling: [i64; METRICS],
}

/// The row of [`Side::flow`] for what came.
const IN: usize = 0;
/// The row of [`Side::flow`] for what went.
const OUT: usize = 1;

impl Side {
    /// What this side holds now.
    #[inline(always)]
    const fn held(&self, metric: Metric) -> i64 {
        self.flow[IN][metric.entry()] - self.flow[OUT][metric as usize]
    }

    /// Negative if this side holds more than the metric's ceiling.
    #[inline(always)]
    const fn room(&self, metric: Metric) -> i64 {
        self.ceiling[metric as usize] - self.held(metric)
    }
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
    /// Requests served with a block of another stream (`num_borrows`).
    pub borrows: u64,
    /// Streams ordered behind a fence of another for that (`num_waits_inserted`).
    pub waits_inserted: u64,
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

    /// What both sides hold now. O(1), four loads.
    #[inline]
    #[must_use]
    pub const fn current(&self, metric: Metric) -> u64 {
        (self.sides[0].held(metric) + self.sides[1].held(metric)) as u64
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
                let Side { flow, flow_at_reset, .. } = &self.sides[index];
                gauge.current += self.sides[index].held(metric) as u64;
                let entry = metric.entry();
                gauge.allocated += (flow[IN][entry] - flow_at_reset[IN][entry]) as u64;
                gauge.freed += (flow[OUT][lane] - flow_at_reset[OUT][lane]) as u64;
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
        self.raise_peaks(&Metric::ALL);
        for gauge in [&mut self.oversize_allocations, &mut self.oversize_segments] {
            gauge.peak = gauge.current;
        }
    }

    /// Makes every total and counter zero (`reset_accumulated_memory_stats`).
    pub fn reset_accumulated(&mut self) {
        for side in &mut self.sides {
            side.flow_at_reset = side.flow;
        }
        self.counters = Counters::default();
        self.oversize_allocations.reset_accumulated();
        self.oversize_segments.reset_accumulated();
    }

    /// Every key of `torch.cuda.memory_stats()` with its value, sorted by key; ours are
    /// `num_borrows`, `num_waits_inserted`, `num_pages_mapped` and `num_pages_unmapped`. No split
    /// limit is -1, as PyTorch shows it.
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
            ("num_borrows", counters.borrows),
            ("num_device_alloc", counters.device_alloc),
            ("num_device_free", counters.device_free),
            ("num_ooms", counters.ooms),
            ("num_pages_mapped", counters.pages_mapped),
            ("num_pages_unmapped", counters.pages_unmapped),
            ("num_sync_all_streams", counters.sync_all_streams),
            ("num_waits_inserted", counters.waits_inserted),
        ] {
            rows.push((key.to_string(), value as i64));
        }
        rows.sort_unstable();
        rows
    }

    /// Raises every peak that has been passed, and sets the ceilings anew.
    #[cold]
    #[inline(never)]
    fn raise_block_peaks(&mut self) {
        self.raise_peaks(&BLOCK_METRICS);
    }

    /// The same for free blocks of split segments.
    #[cold]
    #[inline(never)]
    fn raise_split_peaks(&mut self) {
        self.raise_peaks(&SPLIT_METRICS);
    }

    #[inline(always)]
    fn raise_peaks(&mut self, metrics: &[Metric]) {
        for &metric in metrics {
            let lane = metric as usize;
            let [small, large] = [self.sides[0].held(metric), self.sides[1].held(metric)];
            for (row, held) in [small, large, small + large].into_iter().enumerate() {
                self.peaks[row][lane] = self.peaks[row][lane].max(held);
            }
            let room = self.peaks[BOTH][lane] - (small + large);
            let small_ceiling = self.peaks[0][lane].min(small + room / 2);
            let left = room - (small_ceiling - small);
            self.sides[0].ceiling[lane] = small_ceiling;
            self.sides[1].ceiling[lane] = self.peaks[1][lane].min(large + left);
        }
    }

    /// **R2** for what just left.
    #[inline(always)]
    fn check_held(&self, class: Class, metric: Metric) {
        let held = self.sides[class as usize].held(metric);
        debug_assert!(held >= 0, "R2: more left than had come");
    }

    #[inline(always)]
    fn block_out(&mut self, class: Class, bytes: u64, requested: u64) {
        let side = &mut self.sides[class as usize];
        side.flow[IN][ALLOCATION] += 1;
        side.flow[IN][ALLOCATED_BYTES] += bytes as i64;
        side.flow[IN][REQUESTED_BYTES] += requested as i64;
        let room = side.room(Metric::Allocation)
            | side.room(Metric::Active)
            | side.room(Metric::AllocatedBytes)
            | side.room(Metric::ActiveBytes)
            | side.room(Metric::RequestedBytes);
        if room < 0 {
            self.raise_block_peaks();
        }
    }

    #[inline(always)]
    fn block_back(&mut self, class: Class, bytes: u64) {
        let side = &mut self.sides[class as usize];
        side.flow[OUT][ALLOCATION] += 1;
        side.flow[OUT][ALLOCATED_BYTES] += bytes as i64;
        self.check_held(class, Metric::AllocatedBytes);
    }

    #[inline(always)]
    fn block_reusable(&mut self, class: Class, bytes: u64, requested: u64) {
        let side = &mut self.sides[class as usize];
        side.flow[OUT][ACTIVE] += 1;
        side.flow[OUT][ACTIVE_BYTES] += bytes as i64;
        side.flow[OUT][REQUESTED_BYTES] += requested as i64;
        self.check_held(class, Metric::ActiveBytes);
        self.check_held(class, Metric::RequestedBytes);
    }

    #[inline(always)]
    fn inactive_split(&mut self, class: Class, blocks: i64, bytes: i64) {
        let side = &mut self.sides[class as usize];
        side.flow[usize::from(blocks < 0)][INACTIVE_SPLIT] += blocks.abs();
        side.flow[usize::from(bytes < 0)][INACTIVE_SPLIT_BYTES] += bytes.abs();
        if side.room(Metric::InactiveSplit) | side.room(Metric::InactiveSplitBytes) < 0 {
            self.raise_split_peaks();
        }
        self.check_held(class, Metric::InactiveSplitBytes);
    }

    fn enter(&mut self, metric: Metric, class: Class, amount: u64) {
        self.sides[class as usize].flow[IN][metric as usize] += amount as i64;
        self.raise_peaks(&[metric]);
    }

    fn leave(&mut self, metric: Metric, class: Class, amount: u64) {
        self.sides[class as usize].flow[OUT][metric as usize] += amount as i64;
        self.check_held(class, metric);
    }

    #[cold]
    #[inline(never)]
    fn oversize_out(&mut self) {
        self.oversize_allocations.enter(1);
    }

    #[cold]
    #[inline(never)]
    fn oversize_back(&mut self) {
        self.oversize_allocations.leave(1);
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
            Change::Borrowed { waited, .. } => {
                self.counters.borrows += 1;
                self.counters.waits_inserted += u64::from(waited);
            }
            Change::Synchronized => self.counters.sync_all_streams += 1,
            Change::Allocated { .. }
            | Change::FreeRequested { .. }
            | Change::FreeCompleted { .. }
            | Change::InactiveSplit { .. } => {}
        }
    }
}

impl Observe for Stats {
    #[inline(always)]
    fn observe(&mut self, change: Change) {
        match change {
            Change::Allocated { bytes, requested, class, oversize, .. } => {
                self.block_out(class, bytes, requested);
                if oversize {
                    self.oversize_out();
                }
            }
            Change::FreeRequested { bytes, class, oversize, .. } => {
                self.block_back(class, bytes);
                if oversize {
                    self.oversize_back();
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

// Note [Ceilings]
// An alloc and a free are the hottest changes there are, so they write as little as they can: what
// came and what went. Peaks cannot be derived from these, since the sides peak at different
// moments. Comparing every held figure with its peak, for a side and for both together, would cost
// more than the rest of the fold; so each side has a ceiling, no higher than its own peak, and the
// two ceilings together are no higher than the peak of both. Below its ceiling a side can pass no
// peak, whatever the other one does below its own. One sign bit says whether any ceiling was
// passed; only then are the peaks looked at, and what room is left under them is shared out anew.

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
