//! Shrunk: policy pytorch on a device of 12582912000 bytes: the last request fails: fragmentation.
#![allow(missing_docs, clippy::unwrap_used)]

use blockyard::lab::{Player, Setup};
use blockyard::ledger::Metric;
use blockyard::policy::settings::policy_from;

const TRACE: &str = r#"# policy pytorch on a device of 12582912000 bytes: the last request fails: fragmentation
# rows: a,<id>,<bytes>,<stream>[,<tag>] | f,<id> | r,<id>,<stream> | e | m,<text>
a,0,5368709120,0
a,1,1107296256,0
f,1
a,2,805306368,0
a,3,1107296256,0
f,3
a,4,671088640,0
a,5,1115684864,0
f,5
a,6,570425344,0
a,7,1107296256,0
f,7
a,8,570425344,0
a,9,1115684864,0
f,9
a,10,570425344,0
a,11,1107296256,0
f,11
a,12,570425344,0
a,13,555745280,0
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
