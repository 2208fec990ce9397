//! Summary: statistics as the tables people read.
//!
//! Owns two texts: the one of `torch.cuda.memory_summary`, and a table of where each pool's memory
//! is, which PyTorch does not have. Asked by reports and the command line. Never knows a figure
//! that it was not given.
//!
//! ```text
//! |        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
//! |      23 columns       |     12     |     12     |     12     |     12     |
//! ```

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::stats::{Gauge, Metric, Stats};
use crate::vocab::{Class, PoolUsage};

/// Columns between the outer bars of the first table.
const WIDTH: usize = 75;
/// Columns of a label, without the spaces around it.
const LABEL: usize = 21;

/// How numbers of one kind are shortened: a number of at least `limit` steps is shown in the next
/// unit.
struct Scale {
    step: u64,
    limit: u64,
    units: &'static [&'static str],
}

const BYTES: Scale =
    Scale { step: 1024, limit: 768 * 1024, units: &["B", "KiB", "MiB", "GiB", "TiB", "PiB"] };
const COUNT: Scale = Scale { step: 1000, limit: 750 * 1000, units: &["", "K", "M", "G"] };

impl Scale {
    /// Which unit suits `value`.
    fn unit(&self, mut value: u64) -> usize {
        let mut unit = 0;
        while value >= self.limit && unit + 1 < self.units.len() {
            value /= self.step;
            unit += 1;
        }
        unit
    }

    /// `value` in this unit: the number to the right, the unit to the left, in `width` columns.
    fn show(&self, value: u64, unit: usize, width: usize) -> String {
        let number = value / self.step.pow(unit as u32);
        format!(" {number:>0$} {1:<3} ", width - 6, self.units[unit])
    }
}

const MEMORY: [(&str, Metric, &Scale); 9] = [
    ("Allocated memory", Metric::AllocatedBytes, &BYTES),
    ("Active memory", Metric::ActiveBytes, &BYTES),
    ("Requested memory", Metric::RequestedBytes, &BYTES),
    ("GPU reserved memory", Metric::ReservedBytes, &BYTES),
    ("Non-releasable memory", Metric::InactiveSplitBytes, &BYTES),
    ("Allocations", Metric::Allocation, &COUNT),
    ("Active allocs", Metric::Active, &COUNT),
    ("GPU reserved segments", Metric::Segment, &COUNT),
    ("Non-releasable allocs", Metric::InactiveSplit, &COUNT),
];

/// The text of `torch.cuda.memory_summary`: a table of 75 columns. Abbreviated, it leaves out the
/// sides of the pools.
#[must_use]
pub fn memory_summary(stats: &Stats, device: u32, abbreviated: bool) -> String {
    let mut table = Table::new(WIDTH);
    table.rule('=');
    let title = format!("PyTorch CUDA memory summary, device ID {device}");
    table.row(&[format!("{title:^WIDTH$}")]);
    table.rule('-');
    let counters = stats.counters();
    let ooms = format!("CUDA OOMs: {}", counters.ooms);
    let retries = format!("cudaMalloc retries: {}", counters.alloc_retries);
    table.row(&[format!("{ooms:^36}"), format!("{retries:^38}")]);
    table.rule('=');
    table.row(&headings("Metric", &["Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed"], 12));
    for (label, metric, scale) in MEMORY {
        table.rule('-');
        let all = stats.gauge(metric, None);
        let units = values(all).map(|value| scale.unit(value));
        table.row(&gauge_row(&format!("{label:<LABEL$}"), all, scale, units));
        for class in [Class::Large, Class::Small] {
            if !abbreviated {
                let label = format!("from {} pool", class.name());
                let side = stats.gauge(metric, Some(class));
                table.row(&gauge_row(&format!("{label:>LABEL$}"), side, scale, units));
            }
        }
    }
    for (label, gauge) in [
        ("Oversize allocations", stats.oversize_allocations()),
        ("Oversize GPU segments", stats.oversize_segments()),
    ] {
        table.rule('-');
        let units = values(gauge).map(|value| COUNT.unit(value));
        table.row(&gauge_row(&format!("{label:<LABEL$}"), gauge, &COUNT, units));
    }
    table.rule('=');
    table.text
}

fn values(gauge: Gauge) -> [u64; 4] {
    [gauge.current, gauge.peak, gauge.allocated, gauge.freed]
}

/// A label and four values, each in the unit of the row for both sides, so that the sides can be
/// added by eye.
fn gauge_row(label: &str, gauge: Gauge, scale: &Scale, units: [usize; 4]) -> Vec<String> {
    let cells = values(gauge).into_iter().zip(units);
    let cells = cells.map(|(value, unit)| scale.show(value, unit, 12));
    core::iter::once(format!(" {label} ")).chain(cells).collect()
}

/// Where the memory of each pool is: one row a pool and stream, and their sum when there are
/// several.
#[must_use]
pub fn pool_summary(rows: &[(String, PoolUsage)]) -> String {
    const HEADINGS: [&str; 7] = [
        "Reserved",
        "Allocated",
        "Releasable",
        "Pinned free",
        "Awaiting",
        "Largest free",
        "Rounding",
    ];
    let longest = rows.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let label_width = longest.max(LABEL);
    let mut table = Table::new(label_width + 2 + HEADINGS.len() * 15);
    table.rule('=');
    let mut first = headings("Pool", &HEADINGS, 14);
    first[0] = format!("{:^1$}", "Pool", label_width + 2);
    table.row(&first);
    table.rule('-');
    let row = |label: &str, usage: &PoolUsage| {
        let cells = figures(usage).map(|value| BYTES.show(value, BYTES.unit(value), 14));
        let label = format!(" {label:<label_width$} ");
        core::iter::once(label).chain(cells).collect::<Vec<_>>()
    };
    for (label, usage) in rows {
        table.row(&row(label, usage));
    }
    if rows.len() > 1 {
        table.rule('-');
        table.row(&row("all", &total(rows)));
    }
    table.rule('=');
    table.text
}

fn figures(usage: &PoolUsage) -> [u64; 7] {
    [
        usage.reserved_bytes,
        usage.allocated_bytes,
        usage.releasable_bytes,
        usage.pinned_free_bytes,
        usage.awaiting_free_bytes,
        usage.largest_free_bytes,
        usage.rounding_bytes,
    ]
}

fn total(rows: &[(String, PoolUsage)]) -> PoolUsage {
    rows.iter().fold(PoolUsage::default(), |sum, (_, usage)| PoolUsage {
        reserved_bytes: sum.reserved_bytes + usage.reserved_bytes,
        allocated_bytes: sum.allocated_bytes + usage.allocated_bytes,
        releasable_bytes: sum.releasable_bytes + usage.releasable_bytes,
        pinned_free_bytes: sum.pinned_free_bytes + usage.pinned_free_bytes,
        awaiting_free_bytes: sum.awaiting_free_bytes + usage.awaiting_free_bytes,
        largest_free_bytes: sum.largest_free_bytes.max(usage.largest_free_bytes),
        rounding_bytes: sum.rounding_bytes + usage.rounding_bytes,
    })
}

fn headings(first: &str, others: &[&str], width: usize) -> Vec<String> {
    let others = others.iter().map(|heading| format!("{heading:^width$}"));
    core::iter::once(format!("{first:^0$}", LABEL + 2)).chain(others).collect()
}

/// Lines between bars.
struct Table {
    text: String,
    width: usize,
}

impl Table {
    const fn new(width: usize) -> Self {
        Self { text: String::new(), width }
    }

    fn line(&mut self, inside: &str) {
        self.text.push('|');
        self.text.push_str(inside);
        self.text.push_str("|\n");
    }

    fn rule(&mut self, with: char) {
        let rule = with.to_string().repeat(self.width);
        self.line(&rule);
    }

    fn row(&mut self, cells: &[String]) {
        let row = cells.join("|");
        self.line(&row);
    }
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
