//! Model: what a chart is drawn from, as plain data. All sizes are bytes; events are counted from
//! 0.
//!
//! Built by whoever replays a recording or reads a snapshot. Never knows: pixels, or a replay.

use std::collections::BTreeMap;

use blockyard::vocab::{Address, Class, HeapView, PoolId, Report, StreamId, Ticket};

/// A picture, and what it shows.
#[derive(Clone, Debug)]
pub enum Chart {
    /// The segments and blocks at one moment.
    Map(MapData),
    /// Allocated, active and reserved bytes over the events.
    Timeline(TimelineData),
    /// Blocks as rectangles over events and addresses.
    AddressTime(AddressTimeData),
    /// How many bytes lie in blocks of which size.
    Histogram(HistogramData),
    /// Free memory that no one can use, over the events.
    Fragmentation(FragmentationData),
    /// What several policies reserve for the same trace.
    Compare(CompareData),
    /// Many devices beside each other.
    Fleet(FleetData),
    /// Several pictures, one below the other (devices, policies).
    Stack(Vec<Chart>),
}

/// The words above a picture.
#[derive(Clone, Debug, Default)]
pub struct Caption {
    /// What this is a picture of.
    pub title: String,
    /// File, device, policy, moment.
    pub subtitle: String,
    /// What is to be seen, in one sentence. Empty: nothing is said.
    pub verdict: String,
    /// The verdict tells of a failure.
    pub alarm: bool,
}

impl Caption {
    /// The words above a picture of a failure: its cause, and the cause in a sentence.
    #[must_use]
    pub fn of_failure(title: String, subtitle: String, report: &Report) -> Self {
        let verdict = format!("{}: {}", report.verdict.name(), report.sentence());
        Self { title, subtitle, verdict, alarm: true }
    }
}

/// The heap at one moment.
#[derive(Clone, Debug, Default)]
pub struct MapData {
    /// The words above.
    pub caption: Caption,
    /// The segments and blocks.
    pub view: HeapView,
    /// Names for pools; `default pool` and `private pool N` where none is given.
    pub pool_names: BTreeMap<PoolId, String>,
    /// Names for streams; `stream N` where none is given.
    pub stream_names: BTreeMap<StreamId, String>,
    /// The request that failed at this moment.
    pub request: Option<FailedRequest>,
    /// All memory of the device, or the limit: the most that may be reserved.
    pub capacity_bytes: Option<u64>,
    /// Whose a block is, for the blocks and the list of the largest owners.
    pub owners: BTreeMap<Ticket, String>,
}

/// A request that was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedRequest {
    /// The block it needs.
    pub bytes: u64,
    /// Its stream.
    pub stream: StreamId,
    /// Its pool.
    pub pool: PoolId,
    /// The side of the pool.
    pub class: Class,
    /// The largest free range that it may use.
    pub largest_free_bytes: u64,
}

impl From<&Report> for FailedRequest {
    fn from(report: &Report) -> Self {
        Self {
            bytes: report.rounded_bytes,
            stream: report.stream,
            pool: report.pool,
            class: report.class,
            largest_free_bytes: report.largest_free_bytes,
        }
    }
}

/// The course of the totals.
#[derive(Clone, Debug, Default)]
pub struct TimelineData {
    /// The words above.
    pub caption: Caption,
    /// The totals after each event, by event.
    pub samples: Vec<Sample>,
    /// The most that may be reserved.
    pub capacity_bytes: Option<u64>,
    /// Where most was allocated.
    pub peak_allocated: Option<Peak>,
    /// Where most was reserved.
    pub peak_reserved: Option<Peak>,
    /// Events at which a request failed, in order.
    pub ooms: Vec<u64>,
    /// Named moments, such as training steps, in order.
    pub markers: Vec<(u64, String)>,
}

/// The totals after one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The event.
    pub event: u64,
    /// Handed out, as block sizes.
    pub allocated: u64,
    /// Handed out or awaiting free.
    pub active: u64,
    /// Obtained from the driver.
    pub reserved: u64,
    /// Handed out, as client sizes.
    pub requested: u64,
}

/// The highest point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// When.
    pub event: u64,
    /// How much.
    pub bytes: u64,
}

/// Lives of blocks and segments.
#[derive(Clone, Debug, Default)]
pub struct AddressTimeData {
    /// The words above.
    pub caption: Caption,
    /// Blocks, in any order.
    pub blocks: Vec<BlockLife>,
    /// Segments, in any order.
    pub segments: Vec<SegmentLife>,
    /// The event after the last: blocks and segments that live this long were never freed.
    pub end_event: u64,
    /// Events at which a request failed, in order.
    pub ooms: Vec<u64>,
}

/// One block from `start_event` up to, not including, `end_event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLife {
    /// When it was handed out (or freed, if it awaits free).
    pub start_event: u64,
    /// When that ended.
    pub end_event: u64,
    /// Where it starts.
    pub address: Address,
    /// Its size.
    pub bytes: u64,
    /// Given back, but streams may still use it.
    pub awaiting_free: bool,
}

/// One segment from `birth` up to, not including, `death`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLife {
    /// Where it starts.
    pub base: Address,
    /// Its size.
    pub bytes: u64,
    /// The event at which the driver gave it.
    pub birth: u64,
    /// The event at which the driver took it back.
    pub death: u64,
}

/// Sizes of blocks.
#[derive(Clone, Debug, Default)]
pub struct HistogramData {
    /// The words above.
    pub caption: Caption,
    /// Sizes of the free blocks.
    pub free: Vec<u64>,
    /// Sizes of the live blocks.
    pub live: Vec<u64>,
    /// The request that failed.
    pub request_bytes: Option<u64>,
}

/// The course of the free memory.
#[derive(Clone, Debug, Default)]
pub struct FragmentationData {
    /// The words above.
    pub caption: Caption,
    /// Free memory after each event, by event.
    pub samples: Vec<FreeSample>,
    /// Events at which a request failed, in order.
    pub ooms: Vec<u64>,
    /// Named moments, such as training steps, in order.
    pub markers: Vec<(u64, String)>,
}

/// Free memory after one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeSample {
    /// The event.
    pub event: u64,
    /// Free in the cache.
    pub free: u64,
    /// Free, but held by a live block in the same segment or page.
    pub pinned_free: u64,
    /// The largest free block.
    pub largest_free: u64,
}

/// The same trace under several policies.
#[derive(Clone, Debug, Default)]
pub struct CompareData {
    /// The words above.
    pub caption: Caption,
    /// The policies.
    pub runs: Vec<Run>,
    /// Event and sum of the client sizes that are live: the lower bound. May be empty.
    pub live: Vec<(u64, u64)>,
    /// The most that may be reserved.
    pub capacity_bytes: Option<u64>,
}

/// One policy's run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The policy.
    pub name: String,
    /// What else is worth saying, such as `212 driver calls`. May be empty.
    pub note: String,
    /// Event and reserved bytes, by event.
    pub reserved: Vec<(u64, u64)>,
    /// The run stopped at its last event, for want of memory.
    pub out_of_memory: bool,
}

/// Devices or ranks at one moment.
#[derive(Clone, Debug, Default)]
pub struct FleetData {
    /// The words above.
    pub caption: Caption,
    /// The devices.
    pub devices: Vec<DeviceUse>,
}

/// Where one device's memory is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// Its name: device, rank, file.
    pub name: String,
    /// Handed out.
    pub allocated_bytes: u64,
    /// Given back, but streams may still use it.
    pub awaiting_bytes: u64,
    /// Free in the cache.
    pub free_bytes: u64,
    /// All memory of the device; 0: unknown.
    pub capacity_bytes: u64,
    /// A request failed there.
    pub failed: bool,
}

impl DeviceUse {
    /// Obtained from the driver.
    #[must_use]
    pub const fn reserved(&self) -> u64 {
        self.allocated_bytes + self.awaiting_bytes + self.free_bytes
    }
}
