//! Events: driver calls and failed requests, told to whoever subscribes to `tracing`.
//!
//! Emitted with no lock held. Target `blockyard`; driver calls that move memory at level debug,
//! failures at level warn. Never knows a subscriber.

use crate::vocab::{Answer, Report, Want};

/// One driver call and its answer; calls that move no memory are not told.
pub(crate) fn driver_call(device: u32, want: Want, answer: &std::thread::Result<Answer>) {
    let (call, bytes) = match want {
        Want::Reserve { bytes } => ("reserve", bytes),
        Want::Release { bytes, .. } => ("release", bytes),
        Want::Map { bytes, .. } => ("map", bytes),
        Want::Unmap { bytes, .. } => ("unmap", bytes),
        _ => return,
    };
    let address = match (want, answer) {
        (_, Ok(Answer::Granted { base })) => base.0,
        (Want::Release { base, .. } | Want::Map { base, .. } | Want::Unmap { base, .. }, _) => {
            base.0
        }
        _ => 0,
    };
    match answer {
        Ok(Answer::Refused(fault)) => {
            tracing::debug!(target: "blockyard", device, call, address, bytes, refused = %fault);
        }
        Ok(_) => tracing::debug!(target: "blockyard", device, call, address, bytes),
        Err(_) => tracing::warn!(target: "blockyard", device, call, address, bytes, "panicked"),
    }
}

/// A request that failed, in figures.
pub(crate) fn out_of_memory(device: u32, report: &Report) {
    tracing::warn!(
        target: "blockyard",
        device,
        verdict = report.verdict.name(),
        requested_bytes = report.requested_bytes,
        reserved_bytes = report.reserved_bytes,
        allocated_bytes = report.allocated_bytes,
        pinned_free_bytes = report.pinned_free_bytes,
        largest_free_bytes = report.largest_free_bytes,
        limit_bytes = report.limit_bytes,
        device_bytes = report.device_bytes,
        "out of memory",
    );
}
