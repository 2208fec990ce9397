//! Check: K13 in every format that can tell, contradictions, and genuine recordings that are clean.

use super::{EXAMPLE, blockyard, code, errors, folder, golden, here, json, page};

const HEAD: &str = "{\"blockyard_trace\":1}\n{\"k\":\"stack\",\"i\":1,\"tag\":\"attention\"}\n{\"k\":\"stack\",\"i\":2,\"tag\":\"mlp\"}\n";
const X: &str = r#"{"k":"alloc","id":0,"bytes":4096,"addr":1048576,"stack":1}"#;
const USE: &str = r#"{"k":"use","id":0,"stream":1}"#;
const ASKED: &str = r#"{"k":"free_requested","id":0,"addr":1048576,"bytes":4096}"#;
const DONE: &str = r#"{"k":"free_completed","id":0,"addr":1048576,"bytes":4096}"#;
const Y: &str = r#"{"k":"alloc","id":1,"bytes":1024,"addr":1048576,"stack":2}"#;

fn trace(lines: &[&str]) -> String {
    format!("{HEAD}{}\n{{\"k\":\"end\",\"events\":{}}}\n", lines.join("\n"), lines.len())
}

#[test]
fn k13_reuse_before_the_fence() {
    let folder = folder(&[
        ("race.trace", &trace(&[X, USE, ASKED, Y, DONE])),
        ("clean.trace", &trace(&[X, USE, ASKED, DONE, Y])),
        ("late.trace", &trace(&[X, ASKED, DONE, USE])),
    ]);
    let race = blockyard(folder.path(), &["check", "race.trace"]);
    assert_eq!(code(&race), 4, "{}", page(&race));
    golden("check_race.txt", &page(&race));
    assert_eq!(errors(&race).trim(), "blockyard: race.trace: 1 error");
    let clean = blockyard(folder.path(), &["check", "clean.trace"]);
    assert_eq!(code(&clean), 0, "{}", page(&clean));
    let document = json(folder.path(), &["check", "race.trace"]);
    assert_eq!(document["devices"][0]["consistent"], true);
    assert_eq!(document["devices"][0]["safe"], false);
    let finding = &document["devices"][0]["findings"][0];
    assert_eq!((&finding["code"], &finding["event"]), (&"reuse-race".into(), &3.into()));
    let late = json(folder.path(), &["check", "late.trace"]);
    assert_eq!(late["devices"][0]["findings"][0]["code"], "use-after-free");
}

#[test]
fn a_snapshot_shows_the_race_by_its_completions() {
    let entry = |action: &str, addr: u64, size: u64| {
        format!(
            "{{\"action\":\"{action}\",\"addr\":{addr},\"size\":{size},\"stream\":0,\"frames\":[],\"time_us\":1}}"
        )
    };
    let snapshot = |order: [&str; 4]| {
        let rest: Vec<String> = order.iter().map(|action| entry(action, 4096, 512)).collect();
        let entries = [entry("segment_alloc", 4096, 1 << 21), rest.join(",")].join(",");
        format!("{{\"segments\":[],\"device_traces\":[[{entries}]]}}")
    };
    let folder = folder(&[
        ("race.json", &snapshot(["alloc", "free_requested", "alloc", "free_completed"])),
        ("clean.json", &snapshot(["alloc", "free_requested", "free_completed", "alloc"])),
    ]);
    let race = json(folder.path(), &["check", "race.json"]);
    let findings = race["devices"][0]["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding["code"] == "reuse-race"), "{race}");
    assert_eq!(code(&blockyard(folder.path(), &["check", "clean.json"])), 0);
}

#[test]
fn contradictions_name_the_first_event() {
    let folder = folder(&[
        ("free.csv", "a,1,512,0\nf,1\nf,1\n"),
        ("high.csv", "a,1,512,0\na,2,512,0\nf,1\n"),
    ]);
    let output = blockyard(folder.path(), &["check", "free.csv"]);
    assert_eq!(code(&output), 4);
    assert!(page(&output).contains("trace inconsistent, first at event 2"), "{}", page(&output));
    assert!(page(&output).contains("(line 3)"), "{}", page(&output));
    assert_eq!(code(&blockyard(folder.path(), &["check", "high.csv"])), 0);
    let above = ["check", "high.csv", "--capacity", "1000"];
    assert_eq!(code(&blockyard(folder.path(), &above)), 4, "a curve above the card");
    assert_eq!(json(folder.path(), &above)["devices"][0]["findings"][0]["event"], 1);
}

#[test]
fn warnings_fail_only_when_strict() {
    let cut = trace(&[X]).replace("{\"k\":\"end\",\"events\":1}\n", "");
    let folder = folder(&[("cut.trace", &cut)]);
    assert_eq!(code(&blockyard(folder.path(), &["check", "cut.trace"])), 0);
    assert_eq!(code(&blockyard(folder.path(), &["check", "cut.trace", "--strict"])), 4);
}

#[test]
fn a_genuine_snapshot_is_clean() {
    let document = json(here(), &["check", EXAMPLE, "--strict"]);
    assert_eq!((&document["errors"], &document["warnings"]), (&0.into(), &0.into()), "{document}");
    assert_eq!(code(&blockyard(here(), &["check", EXAMPLE, "--strict"])), 0);
}

#[test]
fn what_is_no_recording_is_said() {
    let folder = folder(&[("bad.csv", "what?\n")]);
    for (file, said) in [("bad.csv", "bad.csv"), ("none.csv", "none.csv")] {
        let output = blockyard(folder.path(), &["check", file]);
        assert_eq!(code(&output), 2);
        assert!(errors(&output).contains(said), "{}", errors(&output));
    }
}

/// Numbers of blocks that never came are no allocations.
#[test]
fn allocations_are_counted_where_they_were_made() {
    let strange = r#"{"k":"free","id":7}"#;
    let folder = folder(&[("strange.trace", &trace(&[X, strange, Y]))]);
    let document = json(folder.path(), &["check", "strange.trace"]);
    assert_eq!(document["devices"][0]["allocations"], 2, "{document}");
}
