//! Messages: every format of an out-of-memory message, read and judged.
//!
//! `accepted.json` holds messages with the classes that are right, the first preferred; `own.json`
//! one of every other format, with figures and warnings that must come out.
#![allow(missing_docs, clippy::unwrap_used)]

use blockyard::diagnosis::message::{self, Reading};
use serde_json::Value;

fn cases(text: &str) -> Vec<Value> {
    let cases: Value = serde_json::from_str(text).unwrap();
    cases.as_array().unwrap().clone()
}

fn read(case: &Value) -> Reading {
    message::explain(case["text"].as_str().unwrap()).unwrap_or_else(|| panic!("{case}"))
}

#[test]
fn accepted_messages_get_their_preferred_class() {
    let cases = cases(include_str!("data/messages/accepted.json"));
    assert_eq!(cases.len(), 20);
    let mut wrong = Vec::new();
    for case in &cases {
        let reading = read(case);
        let class = reading.judgement.class().name();
        if case["class"][0] != class {
            wrong.push(format!("{}: {class}, not {}: {reading:#?}", case["id"], case["class"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_other_format_is_read() {
    let mut wrong = Vec::new();
    for case in &cases(include_str!("data/messages/own.json")) {
        let reading = read(case);
        let judgement = &reading.judgement;
        let mut bad = case["class"] != judgement.class().name();
        for (key, value) in case["evidence"].as_object().into_iter().flatten() {
            bad |= judgement.figure(key) != value.as_u64();
        }
        for words in case["warns"].as_array().into_iter().flatten() {
            let words = words.as_str().unwrap();
            bad |= !judgement.warnings.iter().any(|warning| warning.contains(words));
        }
        bad |= judgement.class().name() == "unknown" && judgement.warnings.is_empty();
        if bad {
            wrong.push(format!("{case}\n{reading:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// What must be read from the messages, beyond the class.
#[test]
fn what_the_notes_ask_for_is_said() {
    const GIB: f64 = (1u64 << 30) as f64;
    let cases = cases(include_str!("data/messages/accepted.json"));
    let judged = |id: &str| read(cases.iter().find(|case| case["id"] == id).unwrap()).judgement;
    let near = |id: &str, key: &str, gib: f64| {
        let value = judged(id).figure(key).unwrap() as f64 / GIB;
        assert!((value - gib).abs() < 0.02, "{id} {key}: {value} is not {gib}");
    };
    near("M01", "cached_free_bytes", 6.80);
    near("M03", "hidden_bytes", 5.06);
    near("M04", "hidden_bytes", 5.19);
    near("M10", "cached_free_bytes", 5.81);
    near("M15", "private_pool_bytes", 71.20);
    near("M18", "outside_bytes", 1.63);
    near("M19", "private_pool_bytes", 46.22);
    let classes = |id: &str| -> Vec<&'static str> {
        judged(id).findings.iter().map(|finding| finding.class.name()).collect()
    };
    assert_eq!(classes("M04"), ["hidden-consumer", "fragmentation"]);
    assert_eq!(classes("M18"), ["fragmentation", "hidden-consumer"]);
    assert_eq!(classes("M15"), ["private-pool", "not-exhausted"]);
    let warns = |id: &str, words: &str| {
        let warnings = judged(id).warnings;
        assert!(warnings.iter().any(|w| w.contains(words)), "{id}: {words}: {warnings:?}");
    };
    warns("M06", "1 MiB or less");
    warns("M12", "process 4242 is taken for this one");
    warns("M16", "cut");
    warns("M21", "cut");
    warns("M22", "raw byte");
    assert_eq!(judged("M22").figure("device"), Some(1));
    assert_eq!(judged("M30").figure("room_bytes"), Some(882_509_414));
    assert!(judged("M27").advice.iter().any(|advice| advice.contains("synchronise")));
}

/// Whatever is cut off or changed, nothing panics, and a cut message never gains certainty.
#[test]
fn cut_and_garbled_messages_are_read_without_a_guess() {
    for file in
        [include_str!("data/messages/accepted.json"), include_str!("data/messages/own.json")]
    {
        for case in &cases(file) {
            let text = case["text"].as_str().unwrap();
            for (place, _) in text.char_indices() {
                if let Some(reading) = message::explain(&text[..place]) {
                    let judgement = reading.judgement;
                    assert!(
                        judgement.class().name() != "unknown" || !judgement.warnings.is_empty(),
                        "{:?}",
                        &text[..place]
                    );
                }
                let mut other: Vec<char> = text.chars().collect();
                let place = text[..place].chars().count();
                other[place] = '\u{fffd}';
                let _ = message::explain(&other.into_iter().collect::<String>());
            }
        }
    }
}
