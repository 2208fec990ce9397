//! Leaks: markers, inferred steps, workspaces, and K22.

use std::fmt::Write;

use super::{EXAMPLE, blockyard, code, errors, folder, golden, here, json, page};

const MIB: u64 = 1 << 20;

/// Training with optimizer state from the first step, a workspace, and `kept` bytes lost each step.
fn training(kept: u64, markers: bool) -> String {
    let mut text = format!("a,0,{},0,weights\n", 100 * MIB);
    let mut id = 1;
    for step in 0..10 {
        if markers {
            writeln!(text, "m,step {step}").unwrap();
        }
        let first = id;
        for layer in 0..5 {
            writeln!(text, "a,{id},{},0,f{layer}", (layer + 3) * MIB).unwrap();
            id += 1;
        }
        if step == 0 {
            writeln!(text, "a,{id},{},0,adam\na,{},8519680,0,linear", 200 * MIB, id + 1).unwrap();
            id += 2;
        }
        if kept > 0 {
            writeln!(text, "a,{id},{kept},0,losses").unwrap();
            id += 1;
        }
        (first..first + 5).rev().for_each(|id| writeln!(text, "f,{id}").unwrap());
    }
    if markers { text + "m,end\n" } else { text }
}

#[test]
fn a_leak_is_named_with_its_slope() {
    let folder = folder(&[("leak.csv", &training(3 * MIB, true))]);
    let output = blockyard(folder.path(), &["leaks", "leak.csv"]);
    assert_eq!(code(&output), 0, "{}", errors(&output));
    golden("leaks_constant.txt", &page(&output));
    let document = json(folder.path(), &["leaks", "leak.csv"]);
    assert_eq!(document["verdict"], "leak");
    let first = &document["survivors"][0];
    assert_eq!((&first["owner"], &first["class"]), (&"losses".into(), &"leak".into()));
    assert_eq!(first["slope_bytes"], 3 * MIB);
}

#[test]
fn weights_first_step_state_and_workspaces_are_no_leak() {
    let folder = folder(&[("calm.csv", &training(0, true))]);
    let document = json(folder.path(), &["leaks", "calm.csv"]);
    assert_eq!(document["verdict"], "no-leak");
    let class = |owner: &str| {
        let survivors = document["survivors"].as_array().unwrap();
        survivors.iter().find(|one| one["owner"] == owner).unwrap()["class"].clone()
    };
    assert_eq!(class("adam"), "first-step state");
    assert_eq!(class("weights"), "steady");
    assert_eq!(class("linear [library workspace]"), "library workspace", "K30");
}

#[test]
fn steps_without_markers_are_inferred_and_said_to_be() {
    let folder = folder(&[("leak.csv", &training(MIB / 2, false))]);
    let document = json(folder.path(), &["leaks", "leak.csv"]);
    assert_eq!(document["steps"]["from"], "period", "{document}");
    assert_eq!(document["steps"]["requests"], 6);
    assert_eq!(document["verdict"], "leak");
    let output = blockyard(folder.path(), &["leaks", "leak.csv"]);
    assert!(page(&output).contains("inferred (no markers)"), "{}", page(&output));
    let every = json(folder.path(), &["leaks", "leak.csv", "--every", "11"]);
    assert_eq!(every["steps"]["events"], 11);
}

#[test]
fn k22_the_residual_after_each_sleep() {
    let mib = |gib: f64| (gib * 1024.0 * MIB as f64).round() as u64;
    let steps = [4.11, 11.57, 25.0].map(mib);
    let text = format!(
        "a,1,{},0,static\nm,after sleep 0\na,2,{},0,refit\nm,after sleep 1\na,3,{},0,refit\nm,after sleep 2\n",
        steps[0],
        steps[1] - steps[0],
        steps[2] - steps[1]
    );
    let folder = folder(&[("sleep.csv", &text)]);
    let output = blockyard(folder.path(), &["leaks", "sleep.csv", "--marker", "after sleep"]);
    let page = page(&output);
    assert!(page.contains("residual grows +7.46 GiB, +13.43 GiB per cycle"), "{page}");
    assert!(page.contains("leak  refit"), "{page}");
}

#[test]
fn an_out_of_memory_in_the_first_step_has_no_steps() {
    let document = json(here(), &["leaks", EXAMPLE]);
    assert_eq!(document["verdict"], "unknown");
    assert_eq!(document["steps"]["from"], "none");
}

#[test]
fn what_cannot_be_done_is_said() {
    let folder = folder(&[("calm.csv", &training(0, true))]);
    for (arguments, said) in [
        (
            vec!["leaks", "calm.csv", "--marker", "epoch"],
            "expected one of its 11 markers, such as \"step 0\"",
        ),
        (vec!["leaks", "calm.csv", "--every", "0"], "0"),
        (vec!["leaks", "none.csv"], "none.csv"),
    ] {
        let output = blockyard(folder.path(), &arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(errors(&output).contains(said), "{arguments:?}: {}", errors(&output));
    }
}
