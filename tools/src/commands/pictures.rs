//! Pictures: from a replay to the data of a chart.

use std::collections::BTreeMap;
use std::path::Path;

use blockyard::lab::Failure;
use blockyard::ledger::Metric;
use blockyard::policy::Effective;
use blockyard::trace::{DeviceTrace, Kind, NO_ALLOCATION, Recording, StackId};
use blockyard::vocab::{BlockState, HeapView, Human, PoolId, SegmentView, StreamId, Ticket};

use super::{comparisons, named};
use crate::charts::model::{
    AddressTimeData, Caption, FailedRequest, FragmentationData, HistogramData, MapData, Peak,
    TimelineData,
};
use crate::charts::{self, Chart, ChartError};
use crate::cli::View;
use crate::fail::Fail;
use crate::free_curve;
use crate::moment::When;
use crate::session::{self, Options, Outcome, capacity};
use crate::table::count;
use crate::watchers::Lives;

/// What a picture is of.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub file: &'a Path,
    pub recording: &'a Recording,
    pub trace: &'a DeviceTrace,
    pub effective: &'a Effective,
    pub options: &'a Options,
}

/// Draws a view and writes it.
pub(super) fn draw(
    subject: &Subject<'_>,
    view: View,
    when: Option<&When>,
    path: &Path,
) -> Result<(), Fail> {
    let chart = match view {
        View::Map => map(subject, when)?,
        View::Histogram => histogram(subject, when)?,
        View::Timeline => timeline(subject)?,
        View::AddressTime => address_time(subject)?,
        View::Fragmentation => fragmentation(subject)?,
        View::Compare => comparisons::compare(std::slice::from_ref(subject))?,
        View::Fleet => comparisons::fleet(subject)?,
    };
    write(&chart, path)
}

/// Writes a chart.
pub(super) fn write(chart: &Chart, path: &Path) -> Result<(), Fail> {
    charts::render(chart, path).map_err(|error| match error {
        ChartError::Draw(text) => Fail::Internal(text),
        other => Fail::BadInput(other.to_string()),
    })
}

impl Subject<'_> {
    pub(super) fn replay(&self, stop: Option<When>, curve: bool) -> Result<Outcome, Fail> {
        let options = Options { stop, curve, ..self.options.clone() };
        let policy = self.effective.clone();
        Ok(session::replay(self.recording, self.trace, policy, &options, ())?.0)
    }

    /// The replay stopped at a moment; without one at the first failure, else at the peak.
    pub(super) fn at(&self, when: Option<&When>) -> Result<(Outcome, When), Fail> {
        if self.trace.events.iter().all(|event| !event.kind.counts()) {
            return match when {
                None | Some(When::Peak | When::End) => Ok((self.replay(None, false)?, When::End)),
                Some(other) => Err(Fail::BadInput(format!(
                    "{}: no events in it, only a state: there is no moment {other}",
                    named(self.file)
                ))),
            };
        }
        if let Some(when) = when.filter(|when| **when != When::Peak) {
            return Ok((self.replay(Some(when.clone()), false)?, when.clone()));
        }
        let whole = self.replay(None, false)?;
        if when.is_none() && whole.ooms > 0 {
            return Ok((self.replay(Some(When::Oom), false)?, When::Oom));
        }
        Ok((self.replay(Some(When::Event(whole.peak_event)), false)?, When::Peak))
    }

    pub(super) fn caption(&self, what: &str, outcome: &Outcome, moment: &str) -> Caption {
        let whole = named(self.file);
        let name = Path::new(&whole)
            .file_name()
            .map_or_else(|| named(self.file), |name| name.to_string_lossy().into_owned());
        let device = if self.recording.devices.len() > 1 {
            format!(", device {}", self.trace.device)
        } else {
            String::new()
        };
        let capacity = match capacity(self.trace, self.options.capacity).0 {
            Some(bytes) => format!(", capacity {}", Human(bytes)),
            None => String::new(),
        };
        let driver = if outcome.recorded { "as recorded" } else { "simulated device" };
        Caption {
            title: format!("{what} {moment}").trim_end().to_string(),
            subtitle: format!(
                "{name}{device}, policy {}, {driver}{capacity}",
                self.effective.policy.name
            ),
            verdict: verdict(outcome, moment.is_empty()),
            alarm: outcome.failure.is_some(),
        }
    }

    fn pool_names(&self) -> BTreeMap<PoolId, String> {
        let private = self.recording.pools.iter().enumerate().skip(1);
        private
            .map(|(id, &(a, b))| (PoolId(id as u32), format!("private pool ({a}, {b})")))
            .collect()
    }

    fn stream_names(&self) -> BTreeMap<StreamId, String> {
        let named = self.recording.streams.iter().enumerate();
        named
            .filter(|&(id, &raw)| id as u64 != raw)
            .map(|(id, &raw)| (StreamId(id as u32), format!("stream {id} ({raw:#x})")))
            .collect()
    }

    /// Whose each live block of a view is.
    fn owners(&self, view: &HeapView) -> BTreeMap<Ticket, String> {
        let stacks = stacks_of(self.trace);
        let live = view.segments.iter().flat_map(|segment| &segment.blocks);
        live.filter(|block| matches!(block.state, BlockState::Allocated | BlockState::AwaitingFree))
            .filter_map(|block| {
                let stack = stacks.get(block.ticket.0 as usize)?;
                let label = self.recording.stacks.label(*stack);
                (!label.is_empty()).then_some((block.ticket, label))
            })
            .collect()
    }

    fn markers(&self) -> Vec<(u64, String)> {
        let mut event = 0;
        let mut markers = Vec::new();
        for entry in &self.trace.events {
            if entry.kind == Kind::Marker
                && let Some(text) = self.recording.markers.get(entry.stack.0 as usize)
            {
                markers.push((event, text.clone()));
            }
            event += u64::from(entry.kind.counts());
        }
        markers
    }
}

/// The call stack of each allocation of a trace.
pub(super) fn stacks_of(trace: &DeviceTrace) -> Vec<StackId> {
    let mut stacks = vec![StackId(0); trace.allocations as usize];
    for event in trace.events.iter().filter(|event| event.kind == Kind::Alloc) {
        if event.allocation != NO_ALLOCATION {
            stacks[event.allocation as usize] = event.stack;
        }
    }
    stacks
}

/// One sentence on how it went.
fn verdict(outcome: &Outcome, whole: bool) -> String {
    match &outcome.failure {
        Some(Failure { event, report, .. }) => format!(
            "out of memory at event {}: {} requested; {}: {}",
            count(u64::from(*event)),
            Human(report.requested_bytes),
            report.verdict.name(),
            report.sentence()
        ),
        None if whole => {
            let allocated = outcome.stats.peak(Metric::AllocatedBytes);
            let reserved = outcome.stats.peak(Metric::ReservedBytes);
            format!(
                "peak allocated {}, peak reserved {}; no request failed",
                Human(allocated),
                Human(reserved)
            )
        }
        None => {
            let stats = &outcome.stats;
            format!(
                "{} allocated, {} reserved; no request failed",
                Human(stats.allocated_bytes()),
                Human(stats.reserved_bytes())
            )
        }
    }
}

fn ooms(outcome: &Outcome) -> Vec<u64> {
    outcome.failure.iter().map(|failure| u64::from(failure.event)).collect()
}

fn map(subject: &Subject<'_>, when: Option<&When>) -> Result<Chart, Fail> {
    let (outcome, when) = subject.at(when)?;
    let request =
        outcome.failure.as_ref().filter(|_| when == When::Oom).map(|failure| FailedRequest {
            bytes: failure.report.rounded_bytes,
            stream: failure.report.stream,
            pool: failure.report.pool,
            class: failure.report.class,
            largest_free_bytes: failure.report.largest_free_bytes,
        });
    let moment = moment_words(&when, &outcome);
    Ok(Chart::Map(MapData {
        caption: subject.caption("Memory map", &outcome, &moment),
        pool_names: subject.pool_names(),
        stream_names: subject.stream_names(),
        request,
        capacity_bytes: capacity(subject.trace, subject.options.capacity).0,
        owners: subject.owners(&outcome.view),
        view: mapped(outcome.view),
    }))
}

/// Page-mapped segments as their mapped ranges: address space without memory is not to be seen on a map of memory.
fn mapped(view: HeapView) -> HeapView {
    let mut segments = Vec::new();
    for segment in view.segments {
        if !segment.expandable {
            segments.push(segment);
            continue;
        }
        for run in segment.blocks.split(|block| block.state == BlockState::Unmapped) {
            let Some(first) = run.first() else { continue };
            let bytes = run.iter().map(|block| block.bytes).sum();
            let (base, blocks) = (first.address, run.to_vec());
            segments.push(SegmentView { base, bytes, blocks, ..segment });
        }
    }
    HeapView { segments }
}

fn moment_words(when: &When, outcome: &Outcome) -> String {
    match when {
        When::Peak => {
            format!("at the peak (event {})", count(u64::from(outcome.events.saturating_sub(1))))
        }
        other => other.to_string(),
    }
}

fn histogram(subject: &Subject<'_>, when: Option<&When>) -> Result<Chart, Fail> {
    let (outcome, when) = subject.at(when)?;
    let sizes = |wanted: BlockState| {
        let blocks = outcome.view.segments.iter().flat_map(|segment| &segment.blocks);
        blocks.filter(|block| block.state == wanted).map(|block| block.bytes).collect()
    };
    Ok(Chart::Histogram(HistogramData {
        caption: subject.caption("Block sizes", &outcome, &moment_words(&when, &outcome)),
        free: sizes(BlockState::Free),
        live: sizes(BlockState::Allocated),
        request_bytes: outcome.failure.as_ref().map(|failure| failure.report.rounded_bytes),
    }))
}

fn timeline(subject: &Subject<'_>) -> Result<Chart, Fail> {
    let outcome = subject.replay(None, true)?;
    let peak = |bytes, event| Some(Peak { event: u64::from(event), bytes });
    let stats = &outcome.stats;
    Ok(Chart::Timeline(TimelineData {
        caption: subject.caption("Memory over time", &outcome, ""),
        capacity_bytes: capacity(subject.trace, subject.options.capacity).0,
        peak_allocated: peak(stats.peak(Metric::AllocatedBytes), outcome.peak_event),
        peak_reserved: peak(stats.peak(Metric::ReservedBytes), outcome.peak_reserved_event),
        ooms: ooms(&outcome),
        markers: subject.markers(),
        samples: outcome.curve,
    }))
}

fn address_time(subject: &Subject<'_>) -> Result<Chart, Fail> {
    let policy = subject.effective.clone();
    let (outcome, mut lives) = session::replay(
        subject.recording,
        subject.trace,
        policy,
        subject.options,
        Lives::default(),
    )?;
    let end_event = u64::from(outcome.events);
    lives.close(end_event);
    Ok(Chart::AddressTime(AddressTimeData {
        caption: subject.caption("Addresses over time", &outcome, ""),
        blocks: lives.blocks,
        segments: lives.segments,
        end_event,
        ooms: ooms(&outcome),
    }))
}

fn fragmentation(subject: &Subject<'_>) -> Result<Chart, Fail> {
    let outcome = subject.replay(None, false)?;
    let samples = free_curve::collect(
        subject.recording,
        subject.trace,
        &subject.effective.policy,
        subject.options,
        outcome.events,
    )?;
    Ok(Chart::Fragmentation(FragmentationData {
        caption: subject.caption("Free memory over time", &outcome, ""),
        samples,
        ooms: ooms(&outcome),
        markers: subject.markers(),
    }))
}
