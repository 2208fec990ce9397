//! Diff: totals, order, moments, steps and the exit code for a build server.

use super::{EXAMPLE, blockyard, code, errors, folder, golden, here, json, page};

const A: &str = "a,1,1000,0,w\na,2,500,0,x\nf,2\na,3,200,0,y\n";
const B: &str = "a,1,1000,0,w\na,2,700,0,x\na,3,300,0,z\n";

#[test]
fn two_traces_side_by_side() {
    let folder = folder(&[("a.csv", A), ("b.csv", B)]);
    let output = blockyard(folder.path(), &["diff", "a.csv", "b.csv", "--at", "end"]);
    assert_eq!(code(&output), 0, "{}", errors(&output));
    golden("diff_two.txt", &page(&output));
    let document = json(folder.path(), &["diff", "a.csv", "b.csv", "--at", "end"]);
    assert_eq!(document["growth_bytes"], 800);
    let rows = document["rows"].as_array().unwrap();
    let sum: i64 = rows.iter().map(|row| row["change_bytes"].as_i64().unwrap()).sum();
    assert_eq!(sum, 800);
    let states: Vec<_> = rows.iter().map(|row| row["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["appeared", "appeared", "vanished"]);
    let at_peak = json(folder.path(), &["diff", "a.csv", "b.csv", "--by", "size"]);
    assert_eq!(at_peak["before"]["live_bytes"], 1500, "traces are compared where they peak");
    let steps = json(folder.path(), &["diff", "a.csv", "b.csv", "--by", "stack"])["steps"].clone();
    assert!(steps.is_null());
}

#[test]
fn growth_beyond_what_is_allowed_fails() {
    let folder = folder(&[("a.csv", A), ("b.csv", B)]);
    let run = |most: &str| {
        blockyard(
            folder.path(),
            &["diff", "a.csv", "b.csv", "--at", "end", "--fail-on-growth", most],
        )
    };
    assert_eq!(code(&run("800")), 0);
    let failed = run("799");
    assert_eq!(code(&failed), 4);
    assert!(page(&failed).contains("+800 B"), "the page is printed all the same");
    assert!(errors(&failed).contains("grew by +800 B (800 bytes)"), "{}", errors(&failed));
}

#[test]
fn two_moments_of_one_recording() {
    let document = json(here(), &["diff", EXAMPLE, "--at", "100", "--to", "peak"]);
    let (before, after) = (&document["before"]["live_bytes"], &document["after"]["live_bytes"]);
    let growth = after.as_i64().unwrap() - before.as_i64().unwrap();
    assert_eq!(document["growth_bytes"], growth);
    assert_eq!(document["before"]["event"], 100);
    assert_eq!(json(here(), &["diff", EXAMPLE, "--at", "oom"])["after"]["event"], 10_071);
}

#[test]
fn a_run_across_its_steps() {
    let mut text = String::from("a,0,4096,0,weights\n");
    for step in 0..8 {
        text += &format!(
            "m,step {step}\na,{0},1000,0,batch\na,{1},64,0,log\nf,{0}\n",
            10 + 2 * step,
            11 + 2 * step
        );
    }
    let folder = folder(&[("run.csv", &(text + "m,end\n"))]);
    let document = json(folder.path(), &["diff", "run.csv"]);
    assert_eq!(document["growth_bytes"], 7 * 64);
    assert_eq!(document["steps"]["verdict"], "leak");
    assert_eq!(document["steps"]["pattern"], "constant-increment");
    let failed = blockyard(folder.path(), &["diff", "run.csv", "--fail-on-growth", "100"]);
    assert_eq!(code(&failed), 4);
}

#[test]
fn what_cannot_be_compared_is_said() {
    let folder = folder(&[("a.csv", A), ("bad.csv", "what?\n")]);
    for (arguments, said) in [
        (vec!["diff", "a.csv"], "no steps in it"),
        (vec!["diff", "a.csv", "--to", "end"], "--at says"),
        (vec!["diff", "a.csv", "--at", "9"], "no event 9, expected less than 4"),
        (vec!["diff", "a.csv", "--at", "oom"], "no out-of-memory is recorded"),
        (vec!["diff", "a.csv", "--at", "3", "--to", "0"], "later than the moment after event 0"),
        (vec!["diff", "a.csv", "--at", "marker:x"], "no marker begins with"),
        (vec!["diff", "a.csv", "bad.csv"], "bad.csv: "),
        (vec!["diff", "a.csv", "none.csv"], "none.csv"),
        (vec!["diff", "a.csv", "--at", "0", "--device", "7"], "no device 7"),
    ] {
        let output = blockyard(folder.path(), &arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(errors(&output).contains(said), "{arguments:?}: {}", errors(&output));
    }
}
