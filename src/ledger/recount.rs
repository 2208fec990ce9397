//! Recount: the current value of every statistic, re-derived from a view of the heap and nothing
//! else.
//!
//! **R1** the fold over changes equals this. Owns no state. Asked by audits and tests, never on a
//! hot path. Never knows how the heap came to be as it is, so it has no peaks and no totals.

use alloc::format;
use alloc::string::String;

use super::stats::{METRICS, Metric, Stats};
use crate::vocab::{BlockState, Class, HeapView, SegmentView};

/// What each side of the pools holds, by metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recount {
    held: [[u64; METRICS]; 2],
}

impl Recount {
    /// What one side holds, or both together.
    #[must_use]
    pub fn current(&self, metric: Metric, class: Option<Class>) -> u64 {
        let of = |class: Class| self.held[class as usize][metric as usize];
        class.map_or_else(|| Class::BOTH.into_iter().map(of).sum(), of)
    }

    fn add(&mut self, class: Class, metric: Metric, amount: u64) {
        self.held[class as usize][metric as usize] += amount;
    }

    fn add_segment(&mut self, segment: &SegmentView) {
        let class = segment.class;
        let mapped = segment.blocks.iter().filter(|block| block.state != BlockState::Unmapped);
        self.add(class, Metric::ReservedBytes, mapped.map(|block| block.bytes).sum());
        self.add(class, Metric::Segment, u64::from(!segment.expandable));
        let split = segment.blocks.len() > 1 && !segment.expandable;
        for block in &segment.blocks {
            let (metrics, requested): (&[(Metric, Metric)], u64) = match block.state {
                BlockState::Allocated => (&[ALLOCATION, ACTIVE], block.requested),
                BlockState::AwaitingFree => (&[ACTIVE], block.requested),
                BlockState::Free if split => (&[INACTIVE_SPLIT], 0),
                BlockState::Free | BlockState::Unmapped => (&[], 0),
            };
            for &(count, bytes) in metrics {
                self.add(class, count, 1);
                self.add(class, bytes, block.bytes);
            }
            self.add(class, Metric::RequestedBytes, requested);
        }
    }
}

const ALLOCATION: (Metric, Metric) = (Metric::Allocation, Metric::AllocatedBytes);
const ACTIVE: (Metric, Metric) = (Metric::Active, Metric::ActiveBytes);
const INACTIVE_SPLIT: (Metric, Metric) = (Metric::InactiveSplit, Metric::InactiveSplitBytes);

/// Counts everything in a view. O(blocks).
#[must_use]
pub fn recount(view: &HeapView) -> Recount {
    let mut recount = Recount::default();
    view.segments.iter().for_each(|segment| recount.add_segment(segment));
    recount
}

/// How many blocks handed out, and how many segments, stand at or above the split limit.
fn oversize(view: &HeapView, limit: u64) -> (u64, u64) {
    let segments = view.segments.iter();
    let blocks = segments.clone().flat_map(|segment| &segment.blocks);
    let allocations =
        blocks.filter(|block| block.state == BlockState::Allocated && block.bytes >= limit).count();
    let segments = segments.filter(|segment| !segment.expandable && segment.bytes >= limit).count();
    (allocations as u64, segments as u64)
}

impl Stats {
    /// The first key whose current value is not what the view holds (**R1**), with both values.
    /// O(blocks).
    #[must_use]
    pub fn disagreement(&self, view: &HeapView) -> Option<String> {
        let counted = recount(view);
        for metric in Metric::ALL {
            for class in Class::BOTH {
                let (fold, state) =
                    (self.gauge(metric, Some(class)).current, counted.current(metric, Some(class)));
                if fold != state {
                    let (key, side) = (metric.key(), class.name());
                    return Some(format!(
                        "{key}.{side}_pool.current: the fold says {fold}, the state {state}"
                    ));
                }
            }
        }
        let (allocations, segments) = oversize(view, self.max_split_size());
        let pairs = [
            ("oversize_allocations", self.oversize_allocations().current, allocations),
            ("oversize_segments", self.oversize_segments().current, segments),
        ];
        let wrong = pairs.into_iter().find(|(_, fold, state)| fold != state);
        wrong.map(|(key, fold, state)| {
            format!("{key}.current: the fold says {fold}, the state {state}")
        })
    }
}
