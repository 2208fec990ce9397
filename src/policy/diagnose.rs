//! Diagnose: from the numbers of a failed request to the cause, in one word.
//!
//! Order of tests: what could never fit; what the driver refused against its own books; whether all
//! free bytes together would do (then the cause is where they are: what a capture keeps, if that
//! would do, else the larger figure first); whether what clients asked for would fit (then it is
//! what rounding adds); else the limit or the device.

use crate::vocab::{Fault, LARGEST_SEGMENT, Report, RungOutcome, Verdict};

/// The cause. Reads every field of the report but `verdict`.
#[must_use]
pub fn verdict(report: &Report) -> Verdict {
    let cap = report.limit_bytes.into_iter().chain(report.device_bytes).min();
    if report.rounded_bytes > LARGEST_SEGMENT || cap.is_some_and(|cap| report.rounded_bytes > cap) {
        return Verdict::ImpossibleSize;
    }
    let no_addresses = RungOutcome::Refused(Fault::OutOfAddresses);
    if report.rungs.iter().any(|&(_, outcome)| outcome == no_addresses) {
        return Verdict::Limit;
    }
    let refused =
        report.rungs.iter().any(|(_, outcome)| matches!(outcome, RungOutcome::Refused(_)));
    let Some(room) = report.room_bytes() else {
        return if refused { Verdict::HiddenConsumer } else { Verdict::Capacity };
    };
    if refused && room >= report.driver_bytes {
        return Verdict::HiddenConsumer;
    }
    if room >= report.rounded_bytes {
        return Verdict::Granularity;
    }
    let free = report.cached_free_bytes() + report.awaiting_free_bytes;
    if room + free >= report.rounded_bytes {
        return where_the_free_bytes_are(report);
    }
    if report.short_bytes() == 0 {
        return Verdict::Granularity;
    }
    let wanted = report.live_bytes.saturating_add(report.requested_bytes);
    if report.limit_bytes.is_some() && report.device_bytes.is_some_and(|device| wanted <= device) {
        Verdict::Limit
    } else {
        Verdict::Capacity
    }
}

/// A capture, if what it keeps from going back would do; private pools, if what they withhold would
/// do; else the holder of most of the free bytes. A range elsewhere that would have served the
/// request outright counts before any sum of fragments.
fn where_the_free_bytes_are(report: &Report) -> Verdict {
    let room = report.room_bytes().unwrap_or(0);
    let held = report.capture_held_bytes;
    if held > 0 && room + held >= report.driver_bytes {
        return Verdict::Capture;
    }
    if report.withheld_bytes > 0 && room + report.withheld_bytes >= report.rounded_bytes {
        return Verdict::PrivatePool;
    }
    let holders = [
        (report.own_free_bytes, Verdict::Fragmentation),
        (report.awaiting_free_bytes, Verdict::AwaitingFree),
        (report.other_stream_free_bytes, Verdict::OtherStream),
        (report.other_class_free_bytes, Verdict::OtherPool),
        (report.other_pool_free_bytes, Verdict::PrivatePool),
    ];
    let fits_elsewhere = report.largest_free_anywhere_bytes >= report.rounded_bytes;
    let skipped = usize::from(fits_elsewhere);
    let mut best = holders[skipped];
    for holder in &holders[skipped + 1..] {
        if holder.0 > best.0 {
            best = *holder;
        }
    }
    best.1
}
