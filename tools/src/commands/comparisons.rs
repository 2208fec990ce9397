//! Comparisons: pictures of several replays: policies over one trace, devices of one recording.

use blockyard::ledger::Metric;
use blockyard::vocab::{BlockState, HeapView, Human};

use super::pictures::Subject;
use crate::charts::Chart;
use crate::charts::model::{CompareData, DeviceUse, FleetData, Run, Sample};
use crate::fail::Fail;
use crate::session::{Outcome, capacity};
use crate::table::count;

/// Reserved bytes over the events under each policy.
pub(super) fn compare(subjects: &[Subject<'_>]) -> Result<Chart, Fail> {
    let Some(first) = subjects.first() else {
        return Err(Fail::BadInput("a comparison needs a policy".to_string()));
    };
    let outcomes: Vec<Outcome> =
        subjects.iter().map(|subject| subject.replay(None, true)).collect::<Result<_, _>>()?;
    let mut caption = first.caption("Reserved memory by policy", &outcomes[0], "");
    caption.subtitle = format!("{}, {}", name(first), plural(outcomes.len(), "policy", "policies"));
    caption.verdict = verdict(&outcomes);
    caption.alarm = outcomes.iter().any(|outcome| outcome.failure.is_some());
    let live = |sample: &Sample| (sample.event, sample.requested);
    let longest = outcomes.iter().max_by_key(|outcome| outcome.curve.len());
    Ok(Chart::Compare(CompareData {
        caption,
        live: longest.map(|outcome| outcome.curve.iter().map(live).collect()).unwrap_or_default(),
        capacity_bytes: capacity(first.trace, first.options.capacity).0,
        runs: outcomes.iter().map(run).collect(),
    }))
}

fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn name(subject: &Subject<'_>) -> String {
    subject.file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn run(outcome: &Outcome) -> Run {
    let counters = outcome.stats.counters();
    Run {
        name: outcome.effective.policy.name.clone(),
        note: format!("{} driver calls", count(counters.device_alloc + counters.device_free)),
        reserved: outcome.curve.iter().map(|sample| (sample.event, sample.reserved)).collect(),
        out_of_memory: outcome.failure.is_some(),
    }
}

fn verdict(outcomes: &[Outcome]) -> String {
    let say = |outcome: &Outcome| {
        let end = if outcome.failure.is_some() { "out of memory" } else { "completed" };
        let peak = Human(outcome.stats.peak(Metric::ReservedBytes));
        format!("{}: {end}, peak {peak}", outcome.effective.policy.name)
    };
    outcomes.iter().map(say).collect::<Vec<_>>().join("; ")
}

/// The devices of a recording side by side.
pub(super) fn fleet(subject: &Subject<'_>) -> Result<Chart, Fail> {
    let mut devices = Vec::new();
    let mut caption = None;
    for trace in &subject.recording.devices {
        let one = Subject { trace, ..*subject };
        let (outcome, _) = one.at(None)?;
        devices.push(device_use(&format!("device {}", trace.device), &outcome));
        caption.get_or_insert_with(|| one.caption("Devices", &outcome, "side by side"));
    }
    let mut caption = caption.unwrap_or_default();
    caption.subtitle = format!("{}, policy {}", name(subject), subject.effective.policy.name);
    let failed = devices.iter().filter(|device| device.failed).count();
    caption.alarm = failed > 0;
    caption.verdict = format!(
        "{} at their out-of-memory or peak; {failed} ran out of memory",
        plural(devices.len(), "device", "devices")
    );
    Ok(Chart::Fleet(FleetData { caption, devices }))
}

fn device_use(name: &str, outcome: &Outcome) -> DeviceUse {
    let sum = |view: &HeapView, wanted: BlockState| -> u64 {
        let blocks = view.segments.iter().flat_map(|segment| &segment.blocks);
        blocks.filter(|block| block.state == wanted).map(|block| block.bytes).sum()
    };
    DeviceUse {
        name: name.to_string(),
        allocated_bytes: sum(&outcome.view, BlockState::Allocated),
        awaiting_bytes: sum(&outcome.view, BlockState::AwaitingFree),
        free_bytes: sum(&outcome.view, BlockState::Free),
        capacity_bytes: outcome.capacity.unwrap_or(0),
        failed: outcome.failure.is_some(),
    }
}
