//! Metrics: the statistics as gauges and counters, for whichever exporter the program installs.
//!
//! Published after driver calls that moved memory, after failed requests, and when asked; never
//! under the lock, and never on the way of a request that the cache serves: between two driver
//! calls the gauges of live bytes stand still unless the program publishes. Every metric has the
//! label `device`. Never knows an exporter.

use super::CachingAllocator;
use super::shell::Shared;
use crate::ledger::stats::Counters;
use crate::ledger::{Metric, Stats};

/// Gauges: name, name of its peak, and which figure.
const GAUGES: [(&str, &str, Metric); 4] = [
    ("blockyard_allocated_bytes", "blockyard_allocated_bytes_peak", Metric::AllocatedBytes),
    ("blockyard_reserved_bytes", "blockyard_reserved_bytes_peak", Metric::ReservedBytes),
    ("blockyard_active_bytes", "blockyard_active_bytes_peak", Metric::ActiveBytes),
    ("blockyard_requested_bytes", "blockyard_requested_bytes_peak", Metric::RequestedBytes),
];

impl CachingAllocator {
    /// Publishes all metrics now, to the recorder that is installed with the `metrics` crate.
    pub fn publish_metrics(&self) {
        self.shared.publish_metrics();
    }
}

impl Shared {
    /// Called with no lock held.
    pub(super) fn publish_metrics(&self) {
        let (stats, counted) = {
            let books = &self.locked().books;
            (books.stats.clone(), books.counted())
        };
        publish(&stats, &counted, &self.watch.device_index.to_string());
    }
}

/// Counters never fall: those of the statistics may be reset, so they are not read here.
fn publish(stats: &Stats, counters: &Counters, device: &str) {
    let gauge = |name: &'static str, value: u64| {
        metrics::gauge!(name, "device" => device.to_owned()).set(value as f64);
    };
    for (name, peak, metric) in GAUGES {
        gauge(name, stats.current(metric));
        gauge(peak, stats.peak(metric));
    }
    gauge("blockyard_segments", stats.current(Metric::Segment));
    for (name, value) in [
        ("blockyard_ooms_total", counters.ooms),
        ("blockyard_alloc_retries_total", counters.alloc_retries),
        ("blockyard_device_allocs_total", counters.device_alloc),
        ("blockyard_device_frees_total", counters.device_free),
    ] {
        metrics::counter!(name, "device" => device.to_owned()).absolute(value);
    }
}
