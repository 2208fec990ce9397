//! Policy: what to do, as data and pure functions with no state.
//!
//! Asked by the heap. Never sees a list, a block or a device: an opinion must not have a list.
//! One engine runs every [`Policy`]; PyTorch's behaviour is a preset of it, not a second engine.

pub mod diagnose;
pub mod evict;
pub mod fit;
pub mod grow;
pub mod ladder;
pub mod presets;
pub mod settings;
pub mod size;

use crate::vocab::{MIB, Order};

pub use ladder::Ladder;
pub use settings::{Effective, SettingsError};

/// How memory is obtained from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Whole segments (`cuMemAlloc`).
    Segments,
    /// Address ranges with pages mapped as needed (expandable segments). Page sizes in bytes.
    Pages {
        /// Page size of the small side of a pool.
        small: u64,
        /// Page size of the large side of a pool.
        large: u64,
    },
}

/// How the limit is checked before growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitCheck {
    /// By the segment that would be asked for, even when only some pages are mapped (PyTorch's rule).
    Segment,
    /// By the bytes that would really be taken from the driver.
    Exact,
}

/// Everything that decides. All sizes are bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// What the policy is called in results.
    pub name: alloc::string::String,
    /// Steps between powers of two, by log2 of the size from 1 MiB (entry 0, all smaller sizes) to 32 GiB;
    /// 0 is off (`roundup_power2_divisions`).
    pub divisions: [u32; size::DIVISION_ENTRIES],
    /// One division means "the next power of two"; PyTorch ignores it.
    pub one_division_counts: bool,
    /// Rounded sizes up to this one belong to the small side.
    pub small_limit: u64,
    /// The segment that the small side asks for.
    pub small_segment: u64,
    /// The segment for large requests below `large_direct` (`large_segment_size_mb`).
    pub large_segment: u64,
    /// Requests from here on get a segment of their own size.
    pub large_direct: u64,
    /// Own-size segments are rounded up to this.
    pub segment_granule: u64,
    /// Blocks from this size on are never split and never given to smaller requests; `u64::MAX`: no limit
    /// (`max_split_size_mb`).
    pub max_split: u64,
    /// How much larger than the request an unsplittable block may be (`max_non_split_rounding_mb`).
    pub max_non_split_rounding: u64,
    /// The tail of a large block must be larger than this to be split off; smaller tails stay with the block.
    pub large_remainder: u64,
    /// Where memory comes from.
    pub backing: Backing,
    /// The tie rule among free blocks of equal size.
    pub order: Order,
    /// Among page-mapped candidates prefer those that can grow least.
    pub prefer_ungrowable: bool,
    /// Share of the limit above which idle segments are released by age; 0 is off
    /// (`garbage_collection_threshold`). Needs a limit.
    pub collect_threshold: f64,
    /// Share of the device that may be reserved; 1 is no limit (`per_process_memory_fraction`).
    pub memory_fraction: f64,
    /// How the limit is checked.
    pub limit_check: LimitCheck,
    /// The way from a request to a block, or to out-of-memory.
    pub ladder: Ladder,
    /// Whether evicting everything includes private pools that are still in use.
    pub evict_private: bool,
    /// A request larger than the device or the limit fails at once, and the cache is kept.
    pub refuse_impossible: bool,
}

impl Policy {
    /// The most that may be reserved on a device of `total` bytes, if there is a limit (invariant **H2**).
    /// Source of the rule: PyTorch, floor(fraction x total).
    #[must_use]
    pub fn limit(&self, total: Option<u64>) -> Option<u64> {
        match total {
            Some(total) if self.memory_fraction < 1.0 => {
                Some((self.memory_fraction * total as f64) as u64)
            }
            _ => None,
        }
    }

    /// The largest request that is tried at all, in bytes.
    #[must_use]
    pub fn most(&self, total: Option<u64>) -> u64 {
        let cap = self.limit(total).into_iter().chain(total).min();
        cap.filter(|_| self.refuse_impossible).unwrap_or(u64::MAX).min(size::IMPOSSIBLE - 1)
    }

    /// Idle memory is released by age: PyTorch does so only when both a fraction and a threshold are set.
    #[must_use]
    pub fn collects(&self) -> bool {
        self.collect_threshold > 0.0 && self.memory_fraction < 1.0
    }

    /// Segments are page-mapped (expandable).
    #[must_use]
    pub const fn page_mapped(&self) -> bool {
        matches!(self.backing, Backing::Pages { .. })
    }

    /// A policy in which every number is tiny, so that rare paths are common. For tests.
    #[must_use]
    pub fn tiny() -> Self {
        let mut policy = presets::pytorch();
        policy.name = "tiny".into();
        policy.small_limit = 1024;
        policy.small_segment = 2048;
        policy.large_segment = 8192;
        policy.large_direct = 4096;
        policy.segment_granule = 2048;
        policy.large_remainder = 1024;
        policy.max_non_split_rounding = 8192;
        policy
    }
}

/// PyTorch's default large segment, in bytes.
pub const LARGE_SEGMENT: u64 = 20 * MIB;
