//! Costs: what the driver's calls take on this device, by size.

use std::sync::Arc;

use blockyard::device::cuda::{Gpu, PageCosts, SegmentCosts, page_costs, segment_costs};
use blockyard::vocab::MIB;

/// What one size costs; `Err`: why it was not measured.
pub struct Row {
    /// In MiB.
    pub mib: u64,
    /// Pages; `None`: the device has none.
    pub pages: Option<Result<PageCosts, String>>,
    /// Segments.
    pub segments: Result<SegmentCosts, String>,
}

/// Measures the grid of sizes.
pub fn grid(gpu: &Arc<Gpu>, cap: u64, quick: bool) -> Vec<Row> {
    let rounds = if quick { 3 } else { 31 };
    let sizes = [2, 32, 256, 1024].into_iter().filter(|mib| mib * MIB <= cap);
    sizes.map(|mib| row(gpu, mib, rounds)).collect()
}

fn row(gpu: &Arc<Gpu>, mib: u64, rounds: usize) -> Row {
    crate::fail::say(format_args!("blockyard-gpu-check: costs of {mib} MiB"));
    let bytes = mib * MIB;
    let pages = gpu
        .page_mapping()
        .then(|| page_costs(gpu, bytes, rounds).map_err(|error| error.to_string()));
    let segments = segment_costs(gpu, bytes, rounds).map_err(|error| error.to_string());
    Row { mib, pages, segments }
}
