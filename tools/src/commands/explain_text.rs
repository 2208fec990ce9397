//! Explain's page for people: the verdict first, then the evidence, what pins the memory, and what to do.

use std::fmt::Write;

use blockyard::diagnosis::explain::owners::Owner;
use blockyard::diagnosis::message::Reading;
use blockyard::diagnosis::pinning::{Pinning, Place};
use blockyard::diagnosis::proof::{self, Allocator, Proof};
use blockyard::diagnosis::verdict::{Class, Judgement};
use blockyard::vocab::Human;

use super::explain::Explained;
use crate::table::{count, lines};

/// Columns of a page.
const WIDTH: usize = 100;
/// Owners that are listed.
const OWNERS: usize = 5;
/// Settings that are listed.
const FIXES: usize = 6;

pub(super) fn pasted(name: &str, reading: &Reading) -> String {
    let mut page = format!("{name}: {}\n", reading.dialect.name());
    page.push_str(&wrapped("  ", &format!("> {}", reading.quote)));
    page.push('\n');
    verdict(&mut page, &reading.judgement);
    evidence(&mut page, &reading.judgement);
    notes(&mut page, &reading.judgement);
    page
}

pub(super) fn recorded(explained: &Explained<'_>) -> String {
    let explanation = &explained.explanation;
    let recording = explained.subject.recording;
    let mut page = format!(
        "{}: {}, {} events\n",
        explained.name,
        recording.format,
        count(recording.event_count() as u64)
    );
    if let Some(failure) = &explanation.scene.failure {
        let line =
            if failure.line > 0 { format!(", line {}", failure.line) } else { String::new() };
        let policy = &explained.effective.policy.name;
        let _ = writeln!(
            page,
            "  {} requested at event {}{line} failed under {policy}",
            Human(failure.report.requested_bytes),
            count(u64::from(failure.event)),
        );
    }
    page.push('\n');
    verdict(&mut page, &explanation.judgement);
    evidence(&mut page, &explanation.judgement);
    if let Some(pinning) = &explanation.pinning {
        pins(&mut page, pinning, &explanation.pinned_by);
    }
    fixes(&mut page, explained);
    let nothing_pins = explanation.pinning.is_none() && explanation.scene.failure.is_some();
    if nothing_pins || !explained.conclusion.is_empty() {
        owners(&mut page, "largest owners of live memory", &explanation.owners);
    }
    notes(&mut page, &explanation.judgement);
    page
}

fn verdict(page: &mut String, judgement: &Judgement) {
    let class = judgement.class();
    page.push_str(&wrapped("", &format!("{}: {}", class.name(), stopped(judgement.verdict()))));
    for finding in judgement.findings.iter().skip(1) {
        let text = format!("also {}: {}", finding.class.name(), stopped(&finding.sentence));
        page.push_str(&wrapped("  ", &text));
    }
}

/// A sentence with its end.
fn stopped(sentence: &str) -> String {
    if sentence.ends_with(['.', '?', '!']) { sentence.to_string() } else { format!("{sentence}.") }
}

fn evidence(page: &mut String, judgement: &Judgement) {
    let said = judgement
        .evidence
        .iter()
        .filter(|f| f.value.is_some_and(|value| value > 0) || is_telling(f.key));
    let rows: Vec<Vec<String>> = said
        .map(|figure| {
            let value = figure.value.unwrap_or(0);
            let name = figure.key.trim_end_matches("_bytes").replace('_', " ");
            let value = if figure.key.ends_with("_bytes") {
                Human(value).to_string()
            } else {
                count(value)
            };
            vec![format!("  {name}"), value, figure.note.to_string()]
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    page.push_str("\nevidence\n");
    for line in lines(&rows) {
        let _ = writeln!(page, "{line}");
    }
}

/// Figures that tell something by being zero.
fn is_telling(key: &str) -> bool {
    matches!(key, "driver_free_bytes" | "largest_free_bytes" | "allocated_bytes" | "cache_flushes")
}

fn pins(page: &mut String, pinning: &Pinning, owners_of: &[Owner]) {
    let blocks = match pinning.pins.len() {
        1 => "1 live block".to_string(),
        several => format!("{} live blocks", count(several as u64)),
    };
    let several = pinning.pins.len() > 1;
    let held = Human(pinning.bytes());
    let (they, stand, hold) =
        if several { ("they", "stand", "hold") } else { ("it", "stands", "holds") };
    let text = match &pinning.place {
        Place::Run { segment, bytes, .. } => format!(
            "{blocks} with {held} {stand} in one run of {} in the segment at {segment:#x}: had {they} been elsewhere, \
             the request would have fitted there{}",
            Human(*bytes),
            smallest(pinning)
        ),
        Place::Returned { bases, bytes } => format!(
            "{blocks} with {held} {hold} {} with {}: had {they} been elsewhere, that would have gone back to the \
             driver and made room{}",
            segments(bases),
            Human(*bytes),
            smallest(pinning)
        ),
    };
    page.push_str("\nwhat pins it\n");
    page.push_str(&wrapped("  ", &text));
    list(page, owners_of);
}

const fn smallest(pinning: &Pinning) -> &'static str {
    if pinning.exact { " (no fewer bytes would do)" } else { "" }
}

fn segments(bases: &[u64]) -> String {
    match bases {
        [base] => format!("the segment at {base:#x}"),
        _ => format!("{} segments (the first at {:#x})", bases.len(), bases.first().unwrap_or(&0)),
    }
}

fn owners(page: &mut String, title: &str, owners: &[Owner]) {
    if !owners.is_empty() {
        let _ = writeln!(page, "\n{title}");
        list(page, owners);
    }
}

fn list(page: &mut String, owners: &[Owner]) {
    let rows: Vec<Vec<String>> = owners
        .iter()
        .take(OWNERS)
        .map(|owner| {
            let blocks = if owner.blocks == 1 { "block" } else { "blocks" };
            let workspace = if owner.is_workspace { " (library workspace)" } else { "" };
            vec![
                "   ".to_string(),
                Human(owner.bytes).to_string(),
                format!("{} {blocks}", count(owner.blocks)),
                age(owner),
                format!("{}{workspace}", owner.name),
            ]
        })
        .collect();
    for line in lines(&rows) {
        let _ = writeln!(page, "{line}");
    }
    if owners.len() > OWNERS {
        let rest: u64 = owners[OWNERS..].iter().map(|owner| owner.bytes).sum();
        let _ = writeln!(page, "    and {} more with {}", owners.len() - OWNERS, Human(rest));
    }
}

/// How old the blocks are, in events.
fn age(owner: &Owner) -> String {
    let of = |age: u32| count(age.into());
    match (owner.youngest, owner.oldest) {
        (Some(young), Some(old)) if young == old => format!("{} events old", of(old)),
        (Some(young), Some(old)) => format!("{} to {} events old", of(young), of(old)),
        (Some(young), None) => format!("{} events old and older", of(young)),
        _ => "from before".to_string(),
    }
}

fn fixes(page: &mut String, explained: &Explained<'_>) {
    if explained.proofs.is_empty() {
        return;
    }
    let explanation = &explained.explanation;
    page.push_str("\nwhat to do\n");
    if !explained.conclusion.is_empty() {
        page.push_str(&wrapped("  ", &format!("{}.", explained.conclusion)));
        page.push_str(&wrapped("  ", &format!("tried: {}", tried(explained.proofs.iter()))));
        return;
    }
    let scope = match (explanation.failed_at(), explanation.requests_after) {
        (None, _) => "each was replayed through the whole recording".to_string(),
        (Some(_), 0) => {
            "each was replayed; the recording ends at the failing request, so no more than that \
                         request is proved"
                .to_string()
        }
        (Some(_), more) => {
            format!(
                "each was replayed to the end of the recording, {} requests further",
                count(more.into())
            )
        }
    };
    page.push_str(&wrapped("  ", &format!("{scope}:")));
    let flushes = explanation.flushes_to_beat();
    let best = proof::best(&explained.proofs, flushes);
    for proof in best.iter().take(FIXES) {
        page.push_str(&wrapped("  ", &format!("- {}", sentence(explained, proof))));
    }
    let paste = best.iter().find(|proof| proof.candidate.allocator == Allocator::Same);
    if let Some(proof) = paste.filter(|_| explained.is_pytorch()) {
        let _ = writeln!(page, "  PYTORCH_CUDA_ALLOC_CONF={}", proof.candidate.text);
    }
    let failed = tried(explained.proofs.iter().filter(|proof| !proof.helps(flushes)));
    if !failed.is_empty() {
        page.push_str(&wrapped(
            "  ",
            &format!("{}: {failed}", if flushes.is_some() { "no better" } else { "not enough" }),
        ));
    }
}

/// Settings by family: `max_split_size_mb (20, 64), expandable_segments:True`.
fn tried<'a>(proofs: impl Iterator<Item = &'a Proof>) -> String {
    let mut families: Vec<(&str, Vec<&str>)> = Vec::new();
    for proof in proofs {
        let settings = proof.candidate.settings.as_str();
        match families.iter_mut().find(|(family, _)| *family == proof.candidate.family) {
            Some((_, values)) => values.push(settings),
            None => families.push((proof.candidate.family, vec![settings])),
        }
    }
    let said = families.into_iter().map(|(family, settings)| match &settings[..] {
        [alone] => (*alone).to_string(),
        several => {
            let value = |text: &&str| text.rsplit(':').next().unwrap_or_default().to_string();
            let mut values: Vec<String> = several.iter().map(value).collect();
            values.sort_by_key(|value| (value.len(), value.clone()));
            format!("{family} ({})", values.join(", "))
        }
    });
    said.collect::<Vec<_>>().join(", ")
}

fn sentence(explained: &Explained<'_>, proof: &Proof) -> String {
    let Ok(outcome) = &proof.outcome else { return String::new() };
    let explanation = &explained.explanation;
    let before = explained.effort_before.calls() as i64;
    let extra = outcome.effort_there.calls() as i64 - before;
    let with = match proof.candidate.allocator {
        Allocator::Same => format!("with {}", proof.candidate.text),
        Allocator::Blockyard => format!("with another allocator, {}", proof.candidate.text),
    };
    let what = if explanation.failed_at().is_some() {
        "the failing request is served".to_string()
    } else {
        format!(
            "the cache is given back {} times instead of {}",
            count(outcome.effort.flushes),
            count(explanation.scene.effort.flushes)
        )
    };
    let others = explained.proofs.iter().filter(|other| {
        other.helps(explanation.flushes_to_beat())
            && other.candidate.family == proof.candidate.family
            && other.candidate.settings != proof.candidate.settings
    });
    let others = tried(others);
    let also = if others.is_empty() { String::new() } else { format!(" (also {others})") };
    let until = if explanation.failed_at().is_some() { " until the failing event" } else { "" };
    format!(
        "{with}: {what}; peak {}; {extra:+} driver calls{until}{also}",
        Human(outcome.peak_reserved)
    )
}

fn notes(page: &mut String, judgement: &Judgement) {
    if !judgement.advice.is_empty() {
        page.push_str("\nnext\n");
    }
    for advice in &judgement.advice {
        page.push_str(&wrapped("  ", &format!("- {advice}")));
    }
    if !judgement.warnings.is_empty() {
        page.push_str("\nnotes\n");
    }
    for warning in &judgement.warnings {
        page.push_str(&wrapped("  ", &format!("- {warning}")));
    }
    if judgement.class() == Class::Unknown && judgement.warnings.is_empty() {
        page.push_str("\nnotes\n  - nothing in it decides between the causes\n");
    }
}

/// Words in lines, indented; later lines by two more. A figure stays with its unit.
fn wrapped(indent: &str, text: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    let mut words = text.split(' ').peekable();
    while let Some(word) = words.next() {
        let is_number = word.starts_with(|c: char| c.is_ascii_digit());
        let unit = words.next_if(|next| {
            let next = next.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
            is_number
                && matches!(next, "B" | "KiB" | "MiB" | "GiB" | "TiB" | "PiB" | "EiB" | "bytes")
        });
        let word = unit.map_or_else(|| word.to_string(), |unit| format!("{word} {unit}"));
        let width = word.chars().count();
        if column == 0 {
            out.push_str(indent);
            column = indent.len();
        } else if column + 1 + width > WIDTH {
            let _ = write!(out, "\n{indent}  ");
            column = indent.len() + 2;
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(&word);
        column += width;
    }
    out.push('\n');
    out
}
