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
    /// Take a block that is cached for another stream, behind that stream's fence.
    Borrow,
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
    /// Ask the driver for the smallest segment that serves the request, where its class's would be
    /// larger.
    GrowLeast,
    /// Serve a small request from the large side of the pool.
    BorrowClass,
}

impl Rung {
    /// Every rung.
    pub const ALL: [Self; 12] = [
        Self::Poll,
        Self::Search,
        Self::Collect,
        Self::Grow,
        Self::Borrow,
        Self::EvictSome,
        Self::Wait,
        Self::SearchAgain,
        Self::EvictAll,
        Self::Regrow,
        Self::GrowLeast,
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
            Self::Borrow => "borrow",
            Self::EvictSome => "evict-some",
            Self::Wait => "wait",
            Self::SearchAgain => "search-again",
            Self::EvictAll => "evict-all",
            Self::Regrow => "regrow",
            Self::GrowLeast => "grow-least",
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

/// The cause of an out-of-memory, in one word. The order of tests is documented at
/// `policy::diagnose`.
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
    /// The bytes alone would have fitted: whole pages or segments, or what rounding adds to live blocks, do not.
    Granularity,
    /// The driver refused although the books say that it has room: memory outside this allocator.
    HiddenConsumer,
    /// A graph is being captured: what is idle does not go back to the driver, and what was freed
    /// is not waited for, before that ends.
    Capture,
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
            Self::Capture => "capture",
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
    /// The driver's handle of that stream, where a program named it by one.
    pub stream_handle: Option<u64>,
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
    /// Handed out, all pools: blocks, with what rounding added and splitting left on them.
    pub allocated_bytes: u64,
    /// Of those, what clients asked for.
    pub live_bytes: u64,
    /// Given back but still in use by a stream, all pools.
    pub awaiting_free_bytes: u64,
    /// Free and returnable, all pools (after the ladder returned what it may).
    pub releasable_bytes: u64,
    /// Free but held by a live block in the same segment or page, all pools.
    pub pinned_free_bytes: u64,
    /// Of those, idle in private pools in use, which the policy does not return.
    pub withheld_bytes: u64,
    /// Idle or awaiting free, and kept so by a capture: it would be given back, or waited for, if
    /// none were under way.
    pub capture_held_bytes: u64,
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
    /// What may still be taken from the driver: the limit, or else the device, less what is
    /// reserved. `None`: neither is known.
    #[must_use]
    pub fn room_bytes(&self) -> Option<u64> {
        self.cap_bytes().map(|cap| cap.saturating_sub(self.reserved_bytes))
    }

    /// The most that may be reserved: the limit or the device, whichever is less. `None`: neither is known.
    #[must_use]
    pub fn cap_bytes(&self) -> Option<u64> {
        self.limit_bytes.into_iter().chain(self.device_bytes).min()
    }

    /// What is live and asked for beyond what there is, in client sizes: missing however blocks are arranged.
    #[must_use]
    pub fn short_bytes(&self) -> u64 {
        let wanted = self.live_bytes.saturating_add(self.requested_bytes);
        self.cap_bytes().map_or(0, |cap| wanted.saturating_sub(cap))
    }

    /// Free bytes inside what is reserved, of every kind.
    #[must_use]
    pub const fn cached_free_bytes(&self) -> u64 {
        self.releasable_bytes + self.pinned_free_bytes
    }

    fn lacks_addresses(&self) -> bool {
        let none = RungOutcome::Refused(super::protocol::Fault::OutOfAddresses);
        self.rungs.iter().any(|&(_, outcome)| outcome == none)
    }

    /// The verdict as one sentence with its numbers.
    #[must_use]
    pub fn sentence(&self) -> String {
        let wanted = Human(self.rounded_bytes);
        let driver = Human(self.driver_bytes);
        let room = Human(self.room_bytes().unwrap_or(0));
        match self.verdict {
            Verdict::ImpossibleSize => match self.room_bytes() {
                Some(room)
                    if self.rounded_bytes < 1 << 60
                        && self.rounded_bytes > room + self.reserved_bytes =>
                {
                    format!(
                        "{wanted} are more than the {} that the device and its limit could ever give",
                        Human(room + self.reserved_bytes)
                    )
                }
                _ if self.rounded_bytes < 1 << 60 => {
                    format!("{wanted} are more than 2 TiB, the largest segment there can be")
                }
                _ => format!("{wanted} is no size that a device has; an overflow in the caller?"),
            },
            Verdict::Capacity => format!(
                "{} are live, which leaves {} for {}, however the blocks are arranged",
                Human(self.live_bytes),
                Human(self.cap_bytes().unwrap_or(0).saturating_sub(self.live_bytes)),
                Human(self.requested_bytes)
            ),
            Verdict::Fragmentation => format!(
                "{} are free in the cache and {room} on the device, but no one place holds {wanted} \
                 (largest: {}); live blocks pin the rest",
                Human(self.cached_free_bytes()),
                Human(self.largest_free_bytes)
            ),
            Verdict::AwaitingFree => format!(
                "{} were freed, but work of other streams still uses them as far as is known, and \
                 waiting did not change that",
                Human(self.awaiting_free_bytes)
            ),
            Verdict::OtherStream => format!(
                "{} are free, but cached for other streams and pinned there by live blocks; the \
                 request's own stream has {}",
                Human(self.other_stream_free_bytes),
                Human(self.own_free_bytes)
            ),
            Verdict::OtherPool => format!(
                "{} are free on the other side of the pool (largest free: {}), where this {} request \
                 may not look",
                Human(self.other_class_free_bytes),
                Human(self.largest_free_anywhere_bytes),
                self.class.name()
            ),
            Verdict::PrivatePool if self.withheld_bytes > 0 => format!(
                "{} are idle in private pools in use, from which this policy takes nothing back; with \
                 the {room} on the device they would do",
                Human(self.withheld_bytes)
            ),
            Verdict::PrivatePool => format!(
                "{} are free in other pools, pinned there by live blocks; pools do not lend",
                Human(self.other_pool_free_bytes)
            ),
            Verdict::Limit if self.lacks_addresses() => {
                "no address range is left: every pool and stream of a page-mapped policy reserves its own; use fewer \
                 streams, or whole segments"
                    .to_string()
            }
            Verdict::Limit => format!(
                "the limit of {} leaves {room}; the device would still have {}",
                Human(self.limit_bytes.unwrap_or(0)),
                Human(self.device_bytes.unwrap_or(0).saturating_sub(self.reserved_bytes))
            ),
            Verdict::Granularity if self.room_bytes().unwrap_or(0) < self.rounded_bytes => format!(
                "{} are live in blocks of {}: without what rounding and remainders that are not split off add to \
                 them, {} would fit",
                Human(self.live_bytes),
                Human(self.allocated_bytes),
                Human(self.requested_bytes)
            ),
            Verdict::Granularity => format!(
                "{room} on the device would hold {wanted}, but it takes {driver} at once{}",
                self.page_bytes
                    .map_or_else(String::new, |page| format!(", in pages of {}", Human(page)))
            ),
            Verdict::Capture => format!(
                "{} are idle or freed, but a graph is being captured: until that ends nothing goes back \
                 to the driver and no stream is waited for; make room before it begins",
                Human(self.capture_held_bytes)
            ),
            Verdict::HiddenConsumer if self.room_bytes().is_none() => {
                format!("the driver refused {driver}, and how much it has is not known here")
            }
            Verdict::HiddenConsumer => format!(
                "by these books the device has {room} left, yet it refused {driver}: something outside \
                 this allocator holds its memory"
            ),
        }
    }

    /// The figures as rows: name, bytes, what they are. Rows that repeat another or say nothing are
    /// left out.
    fn rows(&self) -> Vec<(&'static str, Option<u64>, &'static str)> {
        let elsewhere =
            self.other_stream_free_bytes + self.other_class_free_bytes + self.other_pool_free_bytes;
        let rows = [
            (true, "requested", Some(self.requested_bytes), "what the client asked for"),
            (
                self.rounded_bytes != self.requested_bytes,
                "rounded",
                Some(self.rounded_bytes),
                "the block it needs",
            ),
            (
                self.driver_bytes != self.rounded_bytes,
                "asked of driver",
                Some(self.driver_bytes),
                "the segment or the pages for it",
            ),
            (true, "device", self.device_bytes, "all of its memory"),
            (
                self.limit_bytes.is_some(),
                "limit",
                self.limit_bytes,
                "the most that may be reserved",
            ),
            (true, "reserved", Some(self.reserved_bytes), "obtained from the driver"),
            (true, "  allocated", Some(self.allocated_bytes), "live blocks"),
            (
                self.live_bytes != self.allocated_bytes,
                "    asked for",
                Some(self.live_bytes),
                "what clients asked for of those",
            ),
            (
                true,
                "  awaiting free",
                Some(self.awaiting_free_bytes),
                "freed, still used by a stream",
            ),
            (true, "  idle", Some(self.releasable_bytes), "free, in whole segments or pages"),
            (
                true,
                "  pinned free",
                Some(self.pinned_free_bytes),
                "free, held by a live block beside it",
            ),
            (true, "room", self.room_bytes(), "what may still be taken from the driver"),
            (
                true,
                "largest free",
                Some(self.largest_free_bytes),
                "for this pool, class and stream",
            ),
            (
                self.largest_free_anywhere_bytes > self.largest_free_bytes,
                "  anywhere",
                Some(self.largest_free_anywhere_bytes),
                "whatever its pool, class or stream",
            ),
            (elsewhere > 0, "free elsewhere", Some(elsewhere), "other streams, classes and pools"),
        ];
        rows.into_iter().filter(|row| row.0).map(|row| (row.1, row.2, row.3)).collect()
    }
}

/// One screen: the cause first, then the figures, then what was tried.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "out of memory: {} requested on stream {}{}, pool {}, {} side",
            Human(self.requested_bytes),
            self.stream.0,
            self.stream_handle.map_or_else(String::new, |handle| format!(" (handle {handle:#x})")),
            self.pool.0,
            self.class.name()
        )?;
        wrapped(f, &format!("cause: {}: {}", self.verdict.name(), self.sentence()))?;
        for (name, bytes, note) in self.rows() {
            let value = bytes.map_or_else(|| "unknown".to_string(), |b| Human(b).to_string());
            write!(f, "\n  {name:<16} {value:>12}   {note}")?;
        }
        let tried = self.rungs.iter().filter(|(_, outcome)| *outcome != RungOutcome::Closed);
        f.write_str("\n  tried")?;
        if self.rungs.is_empty() {
            return f.write_str(": nothing, for nothing could help");
        }
        for (rung, outcome) in tried {
            write!(f, "\n    {:<14} {outcome}", rung.name())?;
        }
        Ok(())
    }
}

/// Words in lines of at most 96 columns, indented by two; a figure stays with its unit.
fn wrapped(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let mut column = 0;
    let mut words = text.split(' ').peekable();
    while let Some(word) = words.next() {
        let unit = words.next_if(|next| next.starts_with(['K', 'M', 'G', 'T', 'P', 'E', 'B']));
        let word = unit.map_or_else(|| word.to_string(), |unit| format!("{word} {unit}"));
        let width = word.chars().count();
        if column == 0 {
            write!(f, "  {word}")?;
            column = width + 2;
        } else if column + 1 + width > 96 {
            write!(f, "\n    {word}")?;
            column = width + 4;
        } else {
            write!(f, " {word}")?;
            column += width + 1;
        }
    }
    Ok(())
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
