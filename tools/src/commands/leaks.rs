//! Leaks: what survives the steps of a run, whose it is, and whether it grows.

use blockyard::diagnosis::growth::steps::{Ask, How};
use blockyard::diagnosis::growth::{
    self,
    leaks::{Leaks as Found, Survivor},
};
use blockyard::vocab::Human;
use serde_json::{Value, json};

use super::diff::by;
use super::diff_text::{clipped, figures, owners, signed, verdict};
use super::{busiest, named, print, print_json, read, replay_json, show_notices, warn};
use crate::cli::Leaks;
use crate::fail::Fail;
use crate::table::{count, lines};

pub(super) fn run(arguments: &Leaks) -> Result<(), Fail> {
    let recording = read(&arguments.file)?;
    show_notices(&arguments.common, &arguments.file, &recording);
    let trace = busiest(&arguments.file, &recording, arguments.device)?;
    if recording.devices.len() > 1 && arguments.device.is_none() {
        let which = format!("this is device {}; --device chooses another", trace.device);
        warn(&arguments.common, &which);
    }
    let ask = match (&arguments.marker, arguments.every) {
        (Some(text), _) => Ask::Marker(text.clone()),
        (None, Some(number)) => Ask::Every(number),
        (None, None) => Ask::Anything,
    };
    let found = growth::leaks::leaks(&recording, trace, &ask, by(arguments.by))
        .map_err(|error| Fail::BadInput(format!("{}: {error}", named(&arguments.file))))?;
    if let (Ask::Marker(text), true) = (&ask, found.steps.bounds.is_empty()) {
        return Err(Fail::BadInput(format!(
            "{}: no marker begins with {text:?}{}",
            named(&arguments.file),
            some_markers(&recording.markers)
        )));
    }
    if arguments.common.json {
        let mut document = document(&found);
        document["file"] = named(&arguments.file).into();
        document["format"] = recording.format.clone().into();
        document["device"] = trace.device.into();
        document["notices"] = replay_json::notices(&recording);
        return print_json(&document);
    }
    let head = format!("{}: {}\n{}\n", named(&arguments.file), recording.format, verdict(&found));
    let text = format!("{head}\n{}\n{}", figures(&found), survivors(&found, arguments.top));
    print(format!("{}\n", text.trim_end()).as_bytes())
}

fn some_markers(markers: &[String]) -> String {
    if markers.is_empty() {
        return "; there are no markers in it".to_string();
    }
    let some: Vec<String> = markers.iter().take(5).map(|text| format!("{text:?}")).collect();
    format!(", expected one of its {} markers, such as {}", markers.len(), some.join(", "))
}

fn survivors(found: &Found, top: usize) -> String {
    let head = ["a step", "live", "blocks", "confidence", "what", "owner"];
    let mut table = vec![head.map(String::from).to_vec()];
    for survivor in found.survivors.iter().take(top) {
        let grows = survivor.trend.pattern.grows();
        table.push(vec![
            if grows { signed(survivor.trend.slope as i128) } else { "-".to_string() },
            Human(survivor.held.bytes).to_string(),
            count(survivor.held.blocks),
            if grows { format!("{:.2}", survivor.trend.confidence) } else { "-".to_string() },
            survivor.class.word().to_string(),
            clipped(&survivor.owner),
        ]);
    }
    let when = if found.live.is_empty() { "at the end" } else { "at the last boundary" };
    let mut text = format!("what lives {when}\n{}\n", lines(&table).join("\n"));
    let rest = found.survivors.get(top..).unwrap_or_default();
    if !rest.is_empty() {
        let bytes = rest.iter().map(|survivor| survivor.held.bytes).sum();
        text += &format!("{}: {}\n", owners(rest.len(), "more "), Human(bytes));
    }
    text
}

/// The leak diagnosis as JSON, for `leaks` and `diff`.
pub(super) fn document(found: &Found) -> Value {
    json!({
        "verdict": found.verdict.word(),
        "text": verdict(found),
        "steps": how(&found.steps.how),
        "boundaries": found.steps.bounds.len(),
        "live_bytes": found.live,
        "increments_bytes": found.increments().iter()
            .map(|&bytes| i64::try_from(bytes).unwrap_or(i64::MAX)).collect::<Vec<_>>(),
        "reserved_bytes": found.reserved,
        "reserved_from": if found.reserved_recorded { "recording" } else { "replay" },
        "new_sizes": found.new_sizes,
        "pattern": found.trend.pattern.word(),
        "slope_bytes": rounded(found.trend.slope),
        "residual_bytes": rounded(found.trend.residual),
        "confidence": hundredths(found.trend.confidence),
        "survivors": found.survivors.iter().map(survivor).collect::<Vec<_>>(),
    })
}

fn how(how: &How) -> Value {
    match how {
        How::Markers(text) => json!({ "from": "markers", "marker": text }),
        How::Every(number) => json!({ "from": "every", "events": number }),
        How::Period { requests, agreement, what } => json!({
            "from": "period",
            "requests": requests,
            "agreement": hundredths(*agreement),
            "what": what,
        }),
        How::Layers { requests } => json!({ "from": "none", "layers": requests }),
        How::Unknown => json!({ "from": "none" }),
    }
}

fn survivor(survivor: &Survivor) -> Value {
    json!({
        "owner": survivor.owner,
        "class": survivor.class.word(),
        "bytes": survivor.held.bytes,
        "blocks": survivor.held.blocks,
        "first_bytes": survivor.first_bytes,
        "pattern": survivor.trend.pattern.word(),
        "slope_bytes": rounded(survivor.trend.slope),
        "residual_bytes": rounded(survivor.trend.residual),
        "confidence": hundredths(survivor.trend.confidence),
    })
}

fn rounded(bytes: f64) -> i64 {
    bytes.round() as i64
}

fn hundredths(share: f64) -> f64 {
    (share * 100.0).round() / 100.0
}
