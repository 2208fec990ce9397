//! Report: why a request failed, as plain data. Its text is an interface: golden files hold it.
//! All sizes are bytes.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::units::{Class, PoolId, StreamId};

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
    /// Every rung.
    pub const ALL: [Self; 10] = [
        Self::Poll,
        Self::Search,
        Self::Collect,
        Self::Grow,
        Self::EvictSome,
        Self::Wait,
        Self::SearchAgain,
        Self::EvictAll,
        Self::Regrow,
        Self::BorrowClass,
    ];

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
    /// Of those, idle in private pools in use, which the policy does not return.
    pub withheld_bytes: u64,
    /// Free in the same pool and class, cached for other streams.
    pub other_stream_free_bytes: u64,
    /// Free in the other size class of the same pool.
    pub other_class_free_bytes: u64,
    /// Free in other pools' segments.
    pub other_pool_free_bytes: u64,
    /// Free in the request's own pool, class and stream.
    pub own_free_bytes: u64,
    /// The largest free range for this request's pool, class and stream.
    pub largest_free_bytes: u64,
    /// The largest free range anywhere, whatever its pool, class or stream.
    pub largest_free_anywhere_bytes: u64,
    /// The page size if the segments are page-mapped.
    pub page_bytes: Option<u64>,
    /// What each rung did, in the order in which they were climbed.
    pub rungs: Vec<(Rung, RungOutcome)>,
    /// The cause.
    pub verdict: Verdict,
}

impl Report {
    /// What may still be taken from the driver: the limit, or else the device, less what is reserved.
    /// `None`: neither is known.
    #[must_use]
    pub fn room_bytes(&self) -> Option<u64> {
        let cap = match (self.limit_bytes, self.device_bytes) {
            (Some(limit), Some(device)) => Some(limit.min(device)),
            (limit, device) => limit.or(device),
        };
        cap.map(|cap| cap.saturating_sub(self.reserved_bytes))
    }

    /// Free bytes inside what is reserved, of every kind.
    #[must_use]
    pub const fn cached_free_bytes(&self) -> u64 {
        self.releasable_bytes + self.pinned_free_bytes
    }

    /// The verdict as one sentence with its numbers.
    #[must_use]
    pub fn sentence(&self) -> String {
        let wanted = Human(self.rounded_bytes);
        let free = Human(self.cached_free_bytes());
        let room =
            self.room_bytes().map_or_else(|| "unknown".to_string(), |room| Human(room).to_string());
        let largest = Human(self.largest_free_bytes);
        match self.verdict {
            Verdict::ImpossibleSize => format!(
                "the request of {wanted} is larger than the device or its limit could ever hold"
            ),
            Verdict::Capacity => format!(
                "{} are live and {room} is left: {wanted} do not fit however the blocks are arranged",
                Human(self.allocated_bytes)
            ),
            Verdict::Fragmentation => format!(
                "{free} are free in the cache and {room} on the device, but no one range holds {wanted} \
                 (largest free: {largest}); live blocks pin the rest"
            ),
            Verdict::AwaitingFree => format!(
                "{} were freed but are still used by other streams' work",
                Human(self.awaiting_free_bytes)
            ),
            Verdict::OtherStream => format!(
                "{} are free, but cached for other streams; the request's own stream has {}",
                Human(self.other_stream_free_bytes),
                Human(self.own_free_bytes)
            ),
            Verdict::OtherPool => format!(
                "{} are free in the other size class of the pool (largest free: {}), where this {} request \
                 may not look",
                Human(self.other_class_free_bytes),
                Human(self.largest_free_anywhere_bytes),
                self.class.name()
            ),
            Verdict::PrivatePool => format!(
                "{} are free in other pools, which do not lend",
                Human(self.other_pool_free_bytes)
            ),
            Verdict::Limit => format!(
                "the limit of {} forbids what the device still has",
                Human(self.limit_bytes.unwrap_or(0))
            ),
            Verdict::Granularity => format!(
                "{room} is left, which would hold {wanted}, but the driver is asked in steps of {}",
                Human(self.page_bytes.unwrap_or(self.driver_bytes))
            ),
            Verdict::HiddenConsumer => format!(
                "by these books {room} is left, yet the driver refused {}: something outside this \
                 allocator holds device memory",
                Human(self.driver_bytes)
            ),
        }
    }
}

/// One screen: the figures, what each rung did, the verdict.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_unknown = |bytes: Option<u64>, none: &str| {
            bytes.map_or_else(|| none.to_string(), |bytes| Human(bytes).to_string())
        };
        writeln!(
            f,
            "out of memory: {} requested on stream {}, pool {}, {} side",
            Human(self.requested_bytes),
            self.stream.0,
            self.pool.0,
            self.class.name()
        )?;
        let rows: [(&str, String, &str); 14] = [
            ("requested", Human(self.requested_bytes).to_string(), "what the client asked for"),
            ("rounded", Human(self.rounded_bytes).to_string(), "the block it needs"),
            (
                "asked of driver",
                Human(self.driver_bytes).to_string(),
                "the segment or pages for it",
            ),
            ("device", or_unknown(self.device_bytes, "unknown"), "all of its memory"),
            ("limit", or_unknown(self.limit_bytes, "none"), "the most that may be reserved"),
            ("reserved", Human(self.reserved_bytes).to_string(), "obtained from the driver"),
            ("  allocated", Human(self.allocated_bytes).to_string(), "live blocks"),
            (
                "  awaiting free",
                Human(self.awaiting_free_bytes).to_string(),
                "freed, still used by a stream",
            ),
            (
                "  releasable",
                Human(self.releasable_bytes).to_string(),
                "free, could go back to the driver",
            ),
            (
                "  pinned free",
                Human(self.pinned_free_bytes).to_string(),
                "free, held by a live block beside it",
            ),
            ("room", or_unknown(self.room_bytes(), "unknown"), "what the driver may still give"),
            (
                "largest free",
                Human(self.largest_free_bytes).to_string(),
                "for this pool, class and stream",
            ),
            (
                "  anywhere",
                Human(self.largest_free_anywhere_bytes).to_string(),
                "whatever its pool or stream",
            ),
            (
                "free elsewhere",
                Human(
                    self.other_stream_free_bytes
                        + self.other_class_free_bytes
                        + self.other_pool_free_bytes,
                )
                .to_string(),
                "other streams, classes and pools",
            ),
        ];
        for (name, value, note) in rows {
            writeln!(f, "  {name:<16} {value:>12}   {note}")?;
        }
        f.write_str("  tried:")?;
        for (index, (rung, outcome)) in self.rungs.iter().enumerate() {
            write!(f, "{} {} ({outcome})", if index == 0 { "" } else { "," }, rung.name())?;
        }
        write!(f, "\n  verdict: {}: {}", self.verdict.name(), self.sentence())
    }
}

impl fmt::Display for RungOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::OverLimit(bytes) => write!(f, "{} over the limit", Human(*bytes)),
            Self::Refused(fault) => write!(f, "{fault}"),
            Self::Released(bytes) => write!(f, "{} released", Human(*bytes)),
            Self::Completed(bytes) => write!(f, "{} completed", Human(*bytes)),
            Self::Closed => f.write_str("closed"),
        }
    }
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
            return f.pad(&format!("{} B", self.0));
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        f.pad(&format!("{value:.2} {}", UNITS[unit]))
    }
}
