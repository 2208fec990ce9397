//! Replay: recordings built in code, through the player, on the simulated device with its judge on.
#![allow(missing_docs, clippy::unwrap_used)]

use blockyard::lab::{Player, Setup};
use blockyard::policy::presets;
use blockyard::trace::{DeviceTrace, Event, Kind, Recording};
use blockyard::vocab::MIB;

/// Entries as (kind, allocation, MiB).
fn recording(entries: &[(Kind, u32, u64)]) -> Recording {
    let events = entries.iter().map(|&(kind, allocation, mib)| {
        let address = (u64::from(allocation) + 1) << 40;
        Event { allocation, bytes: mib * MIB, address, ..Event::new(kind) }
    });
    let trace = DeviceTrace { events: events.collect(), allocations: 8, ..DeviceTrace::default() };
    Recording { devices: vec![trace], has_pool_ids: true, ..Recording::default() }
}

/// A free that the recording completes later holds its memory until then.
#[test]
fn frees_complete_when_the_recording_says() {
    let story = [
        (Kind::Alloc, 0, 60),
        (Kind::FreeRequested, 0, 60),
        (Kind::Alloc, 1, 40),
        (Kind::FreeCompleted, 0, 60),
        (Kind::Alloc, 2, 60),
    ];
    let recording = recording(&story);
    for name in presets::NAMES {
        let setup = Setup::simulated(presets::named(name).unwrap(), Some(100 * MIB));
        let mut player = Player::new(&recording, &recording.devices[0], setup, ()).unwrap();
        player.run(3).unwrap();
        assert_eq!(player.stats().active_bytes(), 100 * MIB, "{name}");
        player.run(9).unwrap();
        assert_eq!(player.failures().0, 0, "{name}");
        assert_eq!(player.stats().allocated_bytes(), 100 * MIB);
        player.heap().audit().unwrap();
    }
}
