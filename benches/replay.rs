//! Replay: a million events of a made-up training run through the player, all statistics on.

use std::time::Duration;

use blockyard::lab::rng::Rng;
use blockyard::lab::{Player, Setup};
use blockyard::policy::presets;
use blockyard::trace::{DeviceTrace, Event, Kind, Recording};
use blockyard_benches::table::Table;
use blockyard_benches::work::log_uniform;
use criterion::Criterion;

const EVENTS: usize = 1_000_000;

fn main() {
    let mut criterion = Criterion::default()
        .configure_from_args()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(3));
    let table = Table::default();
    let recording = training(EVENTS);
    for name in presets::NAMES {
        let Some(policy) = presets::named(name) else { continue };
        criterion.bench_function(&format!("replay/{name}"), |bencher| {
            bencher.iter_custom(|count| {
                let play = |events| {
                    (0..events / EVENTS as u64).for_each(|_| play(&recording, policy.clone()));
                };
                table.time("replay", name, count * EVENTS as u64, play)
            });
        });
        if let Some(nanos) = table.nanos("replay", name) {
            println!("replay, {name}: {nanos:.1} ns an event, {:.1} million events/s", 1e3 / nanos);
        }
    }
}

fn play(recording: &Recording, policy: blockyard::policy::Policy) {
    let trace = &recording.devices[0];
    let mut player = Player::new(recording, trace, Setup::simulated(policy, None), ())
        .expect("the recording begins with nothing allocated");
    player.run(usize::MAX).expect("the device has no other faults");
    assert_eq!(player.failures().0, 0, "there is no limit");
    std::hint::black_box(player.stats());
}

/// Steps of a training run: activations that come forward and go backward, each with short-lived scratch.
fn training(events: usize) -> Recording {
    let mut rng = Rng::new(7);
    let layers: Vec<u64> = (0..200).map(|_| log_uniform(&mut rng, 32 << 20)).collect();
    let mut trace = DeviceTrace { events: Vec::with_capacity(events), ..DeviceTrace::default() };
    while trace.events.len() < events {
        let longer = rng.between(4, 8);
        let mut live = Vec::new();
        for bytes in &layers {
            live.push(alloc(&mut trace, bytes * longer / 8 + 1));
            let scratch = alloc(&mut trace, bytes / 2 + 1);
            free(&mut trace, scratch);
        }
        for (bytes, block) in layers.iter().zip(live).rev() {
            let gradient = alloc(&mut trace, bytes * longer / 8 + 1);
            free(&mut trace, block);
            free(&mut trace, gradient);
        }
    }
    trace.events.truncate(events);
    Recording { has_pool_ids: true, devices: vec![trace], ..Recording::default() }
}

fn alloc(trace: &mut DeviceTrace, bytes: u64) -> u32 {
    let allocation = trace.allocations;
    trace.allocations += 1;
    trace.events.push(Event { bytes, allocation, ..Event::new(Kind::Alloc) });
    allocation
}

fn free(trace: &mut DeviceTrace, allocation: u32) {
    trace.events.push(Event { allocation, ..Event::new(Kind::Free) });
}
