//! CUDA threads: threads on streams of their own, and kernels that judge what each finds in its memory.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "common/driver.rs"]
mod driver;

use blockyard::allocator::Config;
use blockyard::device::cuda::{CudaConfig, SegmentSource};
use blockyard::interop::{CudaAllocator, Trial, trial};
use blockyard::policy::presets;
use blockyard::vocab::MIB;
use driver::Rig;

fn tried(preset: &str, device: CudaConfig, seed: u64) {
    let Some(rig) = Rig::new() else { return };
    if let Some(control) = rig.control {
        control.jitter(seed, 20);
    }
    let config = Config::with_policy(presets::named(preset).unwrap());
    let all = CudaAllocator::open_with(0, device, config).unwrap();
    let plan = Trial { threads: 4, steps: 300, held: 12, largest: 2 * MIB, seed };
    let tally = trial(&all, plan).unwrap();
    println!("{preset}, seed {seed}: {tally:?}");
    assert!(tally.checked > 200 && tally.passed_on > 0 && tally.emptied > 0, "{tally:?}");
    assert_eq!(all.memory_allocated(), 0);
    all.empty_cache();
    assert_eq!(all.memory_reserved(), 0);
    drop(all);
    if let Some(control) = rig.control {
        control.jitter(0, 0);
    }
    rig.ends_clean();
}

fn capped(mib: u64) -> CudaConfig {
    CudaConfig { cap: Some(mib * MIB), ..CudaConfig::default() }
}

#[test]
fn pages() {
    tried("blockyard", capped(256), 1);
    tried("pytorch-expandable", capped(256), 2);
}

#[test]
fn segments() {
    tried("blockyard-native", capped(256), 3);
    tried("pytorch", capped(256), 4);
}

/// Too little for all: blocks are lent, caches given back, requests refused.
#[test]
fn short_of_memory() {
    tried("blockyard", capped(16), 5);
    tried("blockyard-native", capped(16), 6);
}

#[test]
fn the_drivers_pool() {
    let segments = SegmentSource::Pool { keep: 16 * MIB };
    tried("blockyard-native", CudaConfig { segments, ..capped(64) }, 7);
}
