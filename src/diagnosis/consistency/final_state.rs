//! Final: the end of the consistency check: the final state against the history, missing stacks, and what the
//! reader had to say.

use super::{BEFORE, Pass, Severity, before};
use crate::trace::Kind;
use crate::vocab::BlockState;

impl Pass<'_> {
    /// What the history leaves must be what the final state shows.
    pub(super) fn final_state(&mut self) {
        let mut end = 0;
        for segment in &self.trace.segments {
            if segment.address < end {
                self.log.add(Severity::Error, "layout", None, |_| {
                    let text =
                        format!("the final segment at {:#x} overlaps another", segment.address);
                    (text, Vec::new())
                });
            }
            end = segment.address.saturating_add(segment.bytes);
        }
        if self.trace.events.is_empty() {
            return;
        }
        for block in self.trace.segments.iter().flat_map(|segment| &segment.blocks) {
            let range = (block.address, block.address.saturating_add(block.bytes.max(1)));
            let held = self.live.hit(range.0, range.1);
            match (block.state, held) {
                (BlockState::Allocated, None) if block.requested > 0 => {
                    let last = self.freed.get(&block.address).copied();
                    self.log.add(Severity::Error, "final-state", last, |log| {
                        let text = format!(
                            "the block at {:#x} lives in the final state, and the history gave it back",
                            block.address
                        );
                        (text, last.map(|last| log.site("free", last, None)).into_iter().collect())
                    });
                }
                (BlockState::Free | BlockState::AwaitingFree, Some((address, birth))) => {
                    let entry = (birth != BEFORE).then_some(birth);
                    self.log.add(Severity::Error, "dropped-free", entry, |log| {
                        let text = format!(
                            "the block at {address:#x} was never given back in the history, and is free in \
                             the final state: its free is missing"
                        );
                        let site = entry.map(|entry| log.site("alloc", entry, None));
                        (text, vec![site.unwrap_or_else(before)])
                    });
                }
                _ => {}
            }
        }
        self.final_memory();
    }

    fn final_memory(&mut self) {
        let Some(memory) = &self.memory else { return };
        let total: u128 = self.trace.segments.iter().map(|segment| u128::from(segment.bytes)).sum();
        let held = memory.bytes();
        if total != held && !self.trace.segments.is_empty() {
            self.log.add(Severity::Error, "final-memory", None, |_| {
                let text = format!(
                    "the history leaves {held} bytes reserved, the final state shows {total}: segment \
                     entries are missing"
                );
                (text, Vec::new())
            });
        }
    }

    pub(super) fn frames(&mut self) {
        let allocs = self.trace.events.iter().filter(|event| event.kind == Kind::Alloc);
        let (mut with, mut without) = (0u64, 0u64);
        for event in allocs {
            if event.stack.0 == 0 { without += 1 } else { with += 1 }
        }
        if with > 0 && without > 0 {
            self.log.add(Severity::Note, "dropped-frames", None, |_| {
                let all = with + without;
                (format!("{without} of {all} allocations have no stack and no tag"), Vec::new())
            });
        }
    }

    /// What the reader said, unless this pass says it better.
    pub(super) fn notices(&mut self) {
        for notice in &self.log.recording.notices {
            let (severity, code) = match &*notice.code {
                "unknown-free" | "overlap" => continue,
                "overflow" => (Severity::Warning, "overflow"),
                "cut-short" => (Severity::Warning, "cut-short"),
                "uneven-segment" => (Severity::Warning, "uneven-segment"),
                "no-history" => (Severity::Note, "no-history"),
                "no-pool-ids" => (Severity::Note, "no-pool-ids"),
                "skipped-actions" => (Severity::Note, "skipped-actions"),
                "history-began-mid-run" => (Severity::Note, "history-began-mid-run"),
                _ => (Severity::Note, "reader"),
            };
            self.log.add(severity, code, None, |_| (notice.text.clone(), Vec::new()));
        }
    }
}
