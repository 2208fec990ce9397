//! Shrunk: policy pytorch on a device of 12582912000 bytes: the last request fails: fragmentation.
#![allow(missing_docs, clippy::unwrap_used)]

use blockyard::lab::{Player, Setup};
use blockyard::ledger::Metric;
use blockyard::policy::settings::policy_from;

const TRACE: &str = r#"# policy pytorch on a device of 12582912000 bytes: the last request fails: fragmentation
# rows: a,<id>,<bytes>,<stream>[,<tag>] | f,<id> | r,<id>,<stream> | e | m,<text>
a,0,10737418240,0
a,1,1073741824,0
f,1
a,2,268435456,0
a,3,1073741824,0
"#;

#[test]
fn it_still_fails() {
    let recording = blockyard_tools::formats::read_bytes("trace", TRACE.as_bytes()).unwrap();
    let policy = policy_from("pytorch", None).unwrap().policy;
    let setup = Setup::simulated(policy, Some(12582912000));
    let mut player = Player::new(&recording, &recording.devices[0], setup, ()).unwrap();
    while player.run(usize::MAX).unwrap() {}
    let verdict = player.failures().1.map(|failure| failure.report.verdict.name());
    let reserved = player.stats().peak(Metric::ReservedBytes);
    assert!(verdict == Some("fragmentation"), "{verdict:?}, {reserved} bytes reserved");
}
