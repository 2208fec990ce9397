//! Capacity: the smallest device on which a recording completes under a policy, by bisection.
//!
//! What is guaranteed: the capacity that is returned completed, and the one a tolerance below it either was seen
//! to fail or lies below the live peak. Whether a device suffices need not be monotone in its size (a smaller one
//! empties its cache earlier, which can happen to help), so a still smaller one may complete too.

use crate::diagnosis::search::{Measured, Subject};
use crate::lab::ReplayError;
use crate::policy::Policy;
use crate::vocab::MIB;

/// How finely to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fineness {
    /// Capacities tried are multiples of this many bytes, and answers differ from failures by at least it.
    pub step: u64,
    /// Answers within one part in this many of a failure are good enough.
    pub parts: u64,
}

impl Default for Fineness {
    /// The driver's granule, and 0.1 %.
    fn default() -> Self {
        Self { step: 2 * MIB, parts: 1000 }
    }
}

/// The smallest capacity that was found. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinCapacity {
    /// The device's memory.
    pub bytes: u64,
    /// The largest capacity below it that was seen to fail; 0 if none was tried.
    pub fails_at: u64,
    /// The replay on that device.
    pub measured: Measured,
    /// Replays that it took.
    pub replays: u32,
}

/// The smallest device on which the recording completes. `None`: not on any that was tried, up to the largest
/// one that could matter. O(log(1/tolerance)) replays.
///
/// # Errors
/// Where the recording cannot be replayed.
pub fn min_capacity(
    subject: &Subject<'_>,
    policy: &Policy,
    fineness: Fineness,
) -> Result<Option<MinCapacity>, ReplayError> {
    let free = subject.measure(policy, None, None)?;
    min_capacity_below(subject, policy, fineness, free.peak_reserved)
}

/// As [`min_capacity`], where the peak of the reserved bytes on an unlimited device is known.
///
/// # Errors
/// Where the recording cannot be replayed.
pub fn min_capacity_below(
    subject: &Subject<'_>,
    policy: &Policy,
    fineness: Fineness,
    peak_reserved: u64,
) -> Result<Option<MinCapacity>, ReplayError> {
    let mut bisection = Bisection { subject, policy, fineness, replays: 1 };
    let Some((mut high, mut best)) = bisection.ceiling(peak_reserved)? else { return Ok(None) };
    let Some(least) = subject.live_peak.checked_next_multiple_of(fineness.step) else {
        return Ok(None);
    };
    let least = least.max(fineness.step);
    let (mut low, mut fails_at) = (least - fineness.step, 0);
    if high > least {
        // Often nothing more than what is live is needed, or only a little more.
        match bisection.completes(least)? {
            Some(measured) => (high, best) = (least, measured),
            None => (low, fails_at) = (least, least),
        }
    }
    while high - low > bisection.tolerance(high) {
        let middle = bisection.between(low, high);
        match bisection.completes(middle)? {
            Some(measured) => (high, best) = (middle, measured),
            None => (low, fails_at) = (middle, middle),
        }
    }
    Ok(Some(MinCapacity { bytes: high, fails_at, measured: best, replays: bisection.replays }))
}

struct Bisection<'a, 's> {
    subject: &'a Subject<'s>,
    policy: &'a Policy,
    fineness: Fineness,
    replays: u32,
}

/// How often a ceiling that fails is raised.
const RAISES: u32 = 12;

impl Bisection<'_, '_> {
    fn completes(&mut self, capacity: u64) -> Result<Option<Measured>, ReplayError> {
        self.replays += 1;
        let measured = self.subject.measure(self.policy, Some(capacity), None)?;
        Ok(measured.completes.then_some(measured))
    }

    /// A capacity that completes: the unlimited peak, or more where a limit takes a share of the device.
    fn ceiling(&mut self, peak_reserved: u64) -> Result<Option<(u64, Measured)>, ReplayError> {
        let at_least = peak_reserved.max(self.subject.live_peak).max(1);
        let step = self.fineness.step;
        let Some(mut capacity) = at_least.checked_next_multiple_of(step) else { return Ok(None) };
        for _ in 0..RAISES {
            if let Some(measured) = self.completes(capacity)? {
                return Ok(Some((capacity, measured)));
            }
            let more = capacity.saturating_add(capacity / 4);
            let Some(more) = more.checked_next_multiple_of(step) else { return Ok(None) };
            capacity = more;
        }
        Ok(None)
    }

    fn tolerance(&self, high: u64) -> u64 {
        (high / self.fineness.parts.max(1)).max(self.fineness.step)
    }

    fn between(&self, low: u64, high: u64) -> u64 {
        let step = self.fineness.step;
        let middle = (low + (high - low) / 2) / step * step;
        middle.clamp(low + step, high - step)
    }
}
