//! Replay: a recording's requests, through the engine, under any policy and on any device.
//!
//! Two drivers. *Simulated*: the device model answers. *Recorded*: the recording answers, and every address and
//! every released group is compared with it.
//!
//! | file | what |
//! |---|---|
//! | `player` | the replay under way, event by event |
//! | `runs` | driver entries between requests: what they were, where the recording does not say |
//! | `told` | recordings that say everything: nothing is guessed |
//! | `world` | the two drivers |

mod player;
mod runs;
mod told;
mod world;

use std::collections::HashMap;

use super::warm::Warm;
use crate::device::FencePolicy;
use crate::policy::Policy;
use crate::trace::{DeviceTrace, Kind, NO_ALLOCATION};
use crate::vocab::{Fault, Observe, Report};

pub use player::Player;

/// Who answers the engine's wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The device model, with this capacity in bytes (`None`: unlimited).
    Simulated {
        /// The device's memory.
        capacity: Option<u64>,
    },
    /// The recording.
    Recorded,
}

/// How to replay.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The policy.
    pub policy: Policy,
    /// The driver.
    pub driver: Driver,
    /// Go on after a failed request; later events of it are ignored.
    pub continue_on_oom: bool,
    /// When recorded fences pass on the simulated device, for text traces.
    pub fences: FencePolicy,
}

impl Setup {
    /// This policy on a simulated device, stopping at the first failure.
    #[must_use]
    pub const fn simulated(policy: Policy, capacity: Option<u64>) -> Self {
        Self {
            policy,
            driver: Driver::Simulated { capacity },
            continue_on_oom: false,
            fences: FencePolicy::Immediate,
        }
    }

    /// This policy against the recording's own driver.
    #[must_use]
    pub const fn recorded(policy: Policy) -> Self {
        Self {
            policy,
            driver: Driver::Recorded,
            continue_on_oom: true,
            fences: FencePolicy::Scripted,
        }
    }
}

/// Whoever wants to see a replay as it goes.
pub trait Watch: Observe {
    /// Event number `index` begins.
    fn begin(&mut self, index: u32) {
        let _ = index;
    }
}

impl Watch for () {}

/// Why a recording cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// The layout before the recording could not be rebuilt.
    Layout(String),
    /// The device failed for another reason than memory.
    Device(Fault),
}

impl core::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Layout(text) => {
                write!(f, "the state before the recording cannot be rebuilt: {text}")
            }
            Self::Device(fault) => write!(f, "the device failed: {fault}"),
        }
    }
}

impl core::error::Error for ReplayError {}

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The event, counted from 0.
    pub event: u32,
    /// The line of a text file, from 1; else 0.
    pub line: u32,
    /// Which allocation it would have been; [`NO_ALLOCATION`] for a failure that was recorded as such.
    pub allocation: u32,
    /// Why.
    pub report: Box<Report>,
}

/// How a replay against the recorded driver compares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exact {
    /// `alloc` entries compared.
    pub checked: u64,
    /// Those that landed at their recorded address.
    pub matched: u64,
    /// `alloc` entries in the recording.
    pub allocs: u64,
    /// The first disagreement of any kind.
    pub first_mismatch: Option<ExactMismatch>,
}

impl Exact {
    /// Everything was checked and nothing disagreed.
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.allocs > 0
            && self.checked == self.allocs
            && self.matched == self.allocs
            && self.first_mismatch.is_none()
    }
}

/// A disagreement with the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactMismatch {
    /// The event, counted from 0.
    pub event: u32,
    /// What the recording has.
    pub expected: String,
    /// What the engine did.
    pub got: String,
}

/// The device's memory as an out-of-memory entry tells it: reserved then, and free on the device then.
#[must_use]
pub fn known_capacity(trace: &DeviceTrace) -> Option<u64> {
    let position = trace.events.iter().position(|event| event.kind == Kind::Oom)?;
    let mut reserved: i128 = trace.segments.iter().map(|segment| i128::from(segment.bytes)).sum();
    for event in trace.events[position..].iter() {
        match event.kind {
            Kind::SegmentAlloc | Kind::SegmentMap => reserved -= i128::from(event.bytes),
            Kind::SegmentFree | Kind::SegmentUnmap => reserved += i128::from(event.bytes),
            _ => {}
        }
    }
    u64::try_from(reserved).ok()?.checked_add(trace.events[position].address)
}

/// The largest sum of client sizes live at one time in the trace itself: the lower bound of any allocator.
/// Failures and fences are ignored.
#[must_use]
pub fn live_peak(trace: &DeviceTrace, warm: &Warm) -> u64 {
    peak(trace, warm, false)
}

/// As [`live_peak`], and a recorded request that failed counts where it was made: no device below this serves
/// every request.
#[must_use]
pub fn demand_peak(trace: &DeviceTrace, warm: &Warm) -> u64 {
    peak(trace, warm, true)
}

fn peak(trace: &DeviceTrace, warm: &Warm, with_failed: bool) -> u64 {
    let mut sizes = vec![0u64; trace.allocations as usize];
    let mut before: HashMap<u64, u64> = HashMap::new();
    for block in warm.segments.iter().flat_map(|segment| &segment.live) {
        before.insert(block.address, block.requested);
    }
    let mut live: u128 = before.values().copied().map(u128::from).sum();
    let mut peak = live;
    for event in &trace.events {
        match event.kind {
            Kind::Alloc => {
                sizes[event.allocation as usize] = event.bytes;
                live += u128::from(event.bytes);
                peak = peak.max(live);
            }
            Kind::Oom if with_failed => peak = peak.max(live + u128::from(event.bytes)),
            Kind::Free | Kind::FreeRequested => {
                live -= u128::from(match event.allocation {
                    NO_ALLOCATION => before.remove(&event.address).unwrap_or(0),
                    allocation => core::mem::take(&mut sizes[allocation as usize]),
                });
            }
            _ => {}
        }
    }
    u64::try_from(peak).unwrap_or(u64::MAX)
}
