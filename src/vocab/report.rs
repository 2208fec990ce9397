//! Report: why a request failed, as plain data. Its text is an interface: golden files hold it.
//! All sizes are bytes.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::units::{Class, PoolId, StreamId};
use super::view::PoolUsage;

/// One step of the way from a request to a block, or to out-of-memory. A policy orders the rungs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rung {
    /// Ask which pending frees have completed.
    Poll,
    /// Search the free lists of the request's pool and stream.
    Search,
    /// Release idle blocks by age, if a threshold of the limit is passed.
    Collect,
    /// Ask the driver for memory.
    Grow,
    /// Release just enough idle oversize blocks of the same stream.
    EvictSome,
    /// Wait for every pending free.
    Wait,
    /// Search the free lists once more, after frees were waited for.
    SearchAgain,
    /// Release every idle segment and page.
    EvictAll,
    /// Ask the driver once more after the cache was emptied; counts as a retry.
    Regrow,
    /// Serve a small request from the large side of the pool.
    BorrowClass,
}

impl Rung {
    /// The rung's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Search => "search",
            Self::Collect => "collect",
            Self::Grow => "grow",
            Self::EvictSome => "evict-some",
            Self::Wait => "wait",
            Self::SearchAgain => "search-again",
            Self::EvictAll => "evict-all",
            Self::Regrow => "regrow",
            Self::BorrowClass => "borrow-class",
        }
    }
}

/// What one rung did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RungOutcome {
    /// Looked and found nothing.
    Nothing,
    /// The limit forbade it: bytes that were over.
    OverLimit(u64),
    /// The driver refused.
    Refused(super::protocol::Fault),
    /// Gave this many bytes back to the driver.
    Released(u64),
    /// This many bytes of pending frees completed.
    Completed(u64),
    /// Not tried: the policy or the settings rule it out.
    Closed,
}

/// The cause of an out-of-memory, in one word. The order of tests is documented at `policy::diagnose`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Larger than the device or the limit could ever hold.
    ImpossibleSize,
    /// The memory that is live leaves too little, however it is arranged.
    Capacity,
    /// Enough is free in all, but no one range is large enough.
    Fragmentation,
    /// Pending frees hold the memory.
    AwaitingFree,
    /// Free memory is cached for another stream.
    OtherStream,
    /// Free memory is cached in the other size class of the pool.
    OtherPool,
    /// A private pool holds the free memory.
    PrivatePool,
    /// The limit (a fraction of the device) refused what the device still had.
    Limit,
    /// Whole pages were asked of the driver where the bytes alone would have fitted.
    Granularity,
    /// The driver refused although the books say that it has room: memory outside this allocator.
    HiddenConsumer,
}

impl Verdict {
    /// The name used in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ImpossibleSize => "impossible-size",
            Self::Capacity => "capacity",
            Self::Fragmentation => "fragmentation",
            Self::AwaitingFree => "awaiting-free",
            Self::OtherStream => "other-stream",
            Self::OtherPool => "other-pool",
            Self::PrivatePool => "private-pool",
            Self::Limit => "limit",
            Self::Granularity => "granularity",
            Self::HiddenConsumer => "hidden-consumer",
        }
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What the client asked for.
    pub requested_bytes: u64,
    /// The block size it needed.
    pub rounded_bytes: u64,
    /// What was asked of the driver for it.
    pub driver_bytes: u64,
    /// The request's stream.
    pub stream: StreamId,
    /// The request's pool.
    pub pool: PoolId,
    /// The request's side of the pool.
    pub class: Class,
    /// The device's memory, where known.
    pub device_bytes: Option<u64>,
    /// The most that may be reserved, where a limit is set.
    pub limit_bytes: Option<u64>,
    /// Obtained from the driver, all pools, when the request failed.
    pub reserved_bytes: u64,
    /// Handed out, all pools.
    pub allocated_bytes: u64,
    /// Given back but still in use by a stream, all pools.
    pub awaiting_free_bytes: u64,
    /// Free and returnable, all pools (after the ladder returned what it may).
    pub releasable_bytes: u64,
    /// Free but held by a live block in the same segment or page, all pools.
    pub pinned_free_bytes: u64,
    /// Free in private pools.
    pub private_free_bytes: u64,
    /// The largest free range for this request's pool, class and stream.
    pub largest_free_bytes: u64,
    /// The largest free range anywhere.
    pub largest_free_anywhere_bytes: u64,
    /// The books of the request's own pool, class and stream.
    pub own: PoolUsage,
    /// Whether the segments are page-mapped.
    pub page_mapped: bool,
    /// What each rung did, in the order in which they were climbed.
    pub rungs: Vec<(Rung, RungOutcome)>,
    /// The cause.
    pub verdict: Verdict,
}

/// The error a client sees: its own type, so that it is never mistaken for a driver failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Why.
    pub report: Box<Report>,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.fmt(f)
    }
}

impl core::error::Error for OutOfMemory {}

/// `bytes` as people read it: `0 B`, `512 B`, `1.50 KiB`, `20.00 MiB`, `1.36 GiB`, `2.00 TiB`.
#[derive(Clone, Copy, Debug)]
pub struct Human(pub u64);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return f.pad(&alloc::format!("{} B", self.0));
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        f.pad(&alloc::format!("{value:.2} {}", UNITS[unit]))
    }
}
