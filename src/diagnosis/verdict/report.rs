//! Verdict of a report: the engine's own figures of a failed request as findings and evidence.
//!
//! The first finding is the policy's verdict; whatever else holds memory that could have served is
//! said behind it, the larger first. Asked by `explain`.

use crate::diagnosis::verdict::{Class, Figure, Finding, Judgement};
use crate::vocab::{Human, Report, Verdict};

/// What the report says.
#[must_use]
pub fn judge(report: &Report) -> Judgement {
    let mut judgement = Judgement { evidence: evidence(report), ..Judgement::default() };
    let primary = report.verdict;
    let others = others(report, primary);
    judgement.findings.push(Finding::new(
        primary.into(),
        bytes_of(report, primary),
        report.sentence(),
    ));
    judgement.findings.extend(others);
    judgement
}

fn device_room(report: &Report) -> u64 {
    report.device_bytes.unwrap_or(0).saturating_sub(report.reserved_bytes)
}

fn bytes_of(report: &Report, verdict: Verdict) -> u64 {
    match verdict {
        Verdict::ImpossibleSize => report.rounded_bytes,
        Verdict::Capacity => report.short_bytes(),
        Verdict::Fragmentation => report.own_free_bytes,
        Verdict::AwaitingFree => report.awaiting_free_bytes,
        Verdict::OtherStream => report.other_stream_free_bytes,
        Verdict::OtherPool => report.other_class_free_bytes,
        Verdict::PrivatePool => report.other_pool_free_bytes.max(report.withheld_bytes),
        Verdict::Capture => report.capture_held_bytes,
        Verdict::Limit => device_room(report),
        Verdict::Granularity => {
            let room = report.room_bytes().unwrap_or(0);
            let unsplit = report.allocated_bytes.saturating_sub(report.live_bytes);
            if room < report.rounded_bytes {
                unsplit
            } else {
                report.driver_bytes.saturating_sub(room)
            }
        }
        Verdict::HiddenConsumer => report.room_bytes().unwrap_or(0),
    }
}

/// Other holders of free memory that would have mattered to this request.
fn others(report: &Report, primary: Verdict) -> Vec<Finding> {
    let matters = |bytes: u64| bytes > 0 && bytes >= report.rounded_bytes / 8;
    let none_would_do = matches!(primary, Verdict::Capacity | Verdict::ImpossibleSize);
    let rows = [
        (
            Verdict::Fragmentation,
            Class::Fragmentation,
            "free in the request's own pool, side and stream, in pieces too small",
        ),
        (Verdict::AwaitingFree, Class::AwaitingFree, "freed, but a stream may still use them"),
        (Verdict::OtherStream, Class::OtherStream, "free, but cached for other streams"),
        (Verdict::OtherPool, Class::OtherPool, "free, but on the other side of the pool"),
        (Verdict::PrivatePool, Class::PrivatePool, "free, but in other pools"),
    ];
    let mut findings: Vec<Finding> = rows
        .into_iter()
        .filter(|row| row.0 != primary && !none_would_do)
        .map(|(verdict, class, words)| (bytes_of(report, verdict), class, words))
        .filter(|&(bytes, ..)| matters(bytes))
        .map(|(bytes, class, words)| {
            Finding::new(class, bytes, format!("{} are {words}", Human(bytes)))
        })
        .collect();
    let behind_limit = device_room(report);
    if report.limit_bytes.is_some() && primary != Verdict::Limit && matters(behind_limit) {
        let sentence = format!("{} of the device lie behind the limit", Human(behind_limit));
        findings.push(Finding::new(Class::Limit, behind_limit, sentence));
    }
    findings.sort_by_key(|finding| core::cmp::Reverse(finding.bytes));
    findings
}

fn evidence(report: &Report) -> Vec<Figure> {
    let rows = [
        Figure::of("requested_bytes", report.requested_bytes, "what the client asked for"),
        Figure::of("rounded_bytes", report.rounded_bytes, "the block it needs"),
        Figure::of("driver_bytes", report.driver_bytes, "the segment or the pages for it"),
        Figure::maybe("device_bytes", report.device_bytes, "all of its memory"),
        Figure::maybe("limit_bytes", report.limit_bytes, "the most that may be reserved"),
        Figure::maybe("driver_free_bytes", report.room_bytes(), "what the driver could still give"),
        Figure::of("reserved_bytes", report.reserved_bytes, "obtained from the driver"),
        Figure::of("allocated_bytes", report.allocated_bytes, "live blocks"),
        Figure::of("live_bytes", report.live_bytes, "what clients asked for of those"),
        Figure::of("cached_free_bytes", report.cached_free_bytes(), "free inside what is reserved"),
        Figure::of(
            "releasable_bytes",
            report.releasable_bytes,
            "of those, in whole segments or pages",
        ),
        Figure::of("pinned_free_bytes", report.pinned_free_bytes, "of those, beside a live block"),
        Figure::of(
            "awaiting_free_bytes",
            report.awaiting_free_bytes,
            "freed, a stream may still use them",
        ),
        Figure::of(
            "own_free_bytes",
            report.own_free_bytes,
            "free in the request's pool, side and stream",
        ),
        Figure::of(
            "other_stream_free_bytes",
            report.other_stream_free_bytes,
            "free, cached for other streams",
        ),
        Figure::of(
            "other_class_free_bytes",
            report.other_class_free_bytes,
            "free on the other side of the pool",
        ),
        Figure::of("other_pool_free_bytes", report.other_pool_free_bytes, "free in other pools"),
        Figure::of(
            "private_pool_bytes",
            report.withheld_bytes,
            "idle in private pools, not given back",
        ),
        Figure::of(
            "largest_free_bytes",
            report.largest_free_bytes,
            "the largest piece the request could use",
        ),
        Figure::of(
            "largest_free_anywhere_bytes",
            report.largest_free_anywhere_bytes,
            "the largest piece anywhere",
        ),
        Figure::maybe("page_bytes", report.page_bytes, "the page of mapped segments"),
        Figure::of("short_bytes", report.short_bytes(), "more than there is, however arranged"),
    ];
    rows.into_iter().filter(|row| row.value.is_some()).collect()
}
