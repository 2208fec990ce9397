//! Steer: the control interface, `simcuda_*`, as functions of C.
//!
//! Found by name in the loaded library; [`crate::control`] does so for Rust. Numbers answer 0 or
//! [`NONE`] where there is nothing to say.

use crate::config::{Config, Strangers};
use crate::door::{COST, In, Out, VIRTUAL};
use crate::module::Host;
use crate::work::HostKernel;
use crate::world::{self, Guard, Primary};
use crate::{api, report};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

/// No such thing.
pub const NONE: u64 = u64::MAX;

/// Nothing may panic into C.
fn guarded<T>(otherwise: T, body: impl FnOnce() -> Option<T>) -> T {
    catch_unwind(AssertUnwindSafe(body)).ok().flatten().unwrap_or(otherwise)
}

/// The version of this interface.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_version() -> u64 {
    1
}

/// Ends all contexts, frees all memory, forgets counts, faults and costs, reads the environment's
/// configuration again. Work on its way is waited for. Handles of before are of no use.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_reset() {
    guarded((), || {
        report::prepare();
        let mut world = world::lock();
        world.paused = false;
        let contexts: Vec<u64> = world.contexts.keys().copied().collect();
        for context in contexts {
            let _ = world::destroy_context(&mut world, context);
        }
        world.forget_all();
        for entry in api::entries() {
            entry.calls.store(0, Ordering::Relaxed);
            entry.refused.store(0, Ordering::Relaxed);
            entry.cost.store(0, Ordering::Relaxed);
            entry.plan.clear();
        }
        COST.store(0, Ordering::Relaxed);
        Some(())
    });
}

/// How often an entry point was called, over all its versions.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_calls(name: In<u8>) -> u64 {
    guarded(NONE, || {
        let name = name.text().ok()?;
        let counts = report::entries_named(&name).map(|e| e.calls.load(Ordering::Relaxed));
        counts.reduce(|all, count| all + count)
    })
}

/// How often an entry point answered anything but success.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_refused(name: In<u8>) -> u64 {
    guarded(NONE, || {
        let name = name.text().ok()?;
        let counts = report::entries_named(&name).map(|e| e.refused.load(Ordering::Relaxed));
        counts.reduce(|all, count| all + count)
    })
}

/// The `nth` call of an entry point from now (1 is the next) fails with `error`, and if `forever`
/// all after it. How many entry points were meant.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_fail(name: In<u8>, nth: u64, error: i32, forever: i32) -> u64 {
    guarded(0, || Some(report::fail(&name.text().ok()?, nth, error, forever != 0) as u64))
}

/// No more planned faults.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_clear_faults() {
    guarded((), || {
        api::entries().for_each(|entry| entry.plan.clear());
        Some(())
    });
}

/// What each call of an entry point costs, in nanoseconds. How many entry points were meant.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_cost(name: In<u8>, nanos: u64) -> u64 {
    guarded(0, || Some(report::cost(&name.text().ok()?, nanos) as u64))
}

/// Whether costs only add up (1), or also pass as time (0).
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_cost_mode(only_add: i32) {
    VIRTUAL.store(only_add != 0, Ordering::Relaxed);
}

/// Nanoseconds that all calls cost so far.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_cost_total() -> u64 {
    COST.load(Ordering::Relaxed)
}

/// How many of a kind are alive: `allocations`, `streams` and so on, as in the report.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_alive(kind: In<u8>) -> u64 {
    guarded(NONE, || {
        let kind = kind.text().ok()?;
        let alive = world::lock().alive();
        alive.into_iter().find(|(name, _)| *name == kind).map(|(_, count)| count)
    })
}

/// The report as JSON; its length, written as far as there is room.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_report(text: Out<u8>, room: u64) -> u64 {
    guarded(0, || {
        let report = world::lock().alive_as_json();
        let _ = text.text(&report, room as usize);
        Some(report.len() as u64)
    })
}

/// How many violations the judge saw.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_violations() -> u64 {
    guarded(0, || Some(world::lock().judge.violations))
}

/// A violation in words; its length, written as far as there is room.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_violation(index: u64, text: Out<u8>, room: u64) -> u64 {
    guarded(NONE, || {
        let words = world::lock().judge.words.get(index as usize).cloned()?;
        let _ = text.text(&words, room as usize);
        Some(words.len() as u64)
    })
}

/// Memory of a device in use, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_used(device: u64) -> u64 {
    guarded(NONE, || Some(world::lock().memory.devices.get(device as usize)?.used))
}

/// The most memory of a device that ever was in use, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_peak(device: u64) -> u64 {
    guarded(NONE, || Some(world::lock().memory.devices.get(device as usize)?.peak))
}

/// Changes a setting; 0, or 1 if there is none of that name. What is in use stays as it is.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_set(name: In<u8>, value: u64) -> i32 {
    guarded(1, || {
        let (name, mut world) = (name.text().ok()?, world::lock());
        set(&mut world, &name, value).map(|()| 0)
    })
}

fn set(world: &mut Guard, name: &str, value: u64) -> Option<()> {
    let config = &mut world.config;
    match name {
        "pools" => config.pools = value != 0,
        "vmm" => config.vmm = value != 0,
        "context_bytes" => config.context_bytes = value,
        "op_ns" => config.op_nanos = value,
        "refuse_unknown_kernels" => {
            config.strangers = if value == 0 { Strangers::Skip } else { Strangers::Refuse };
        }
        "memory" => world.memory.devices.iter_mut().for_each(|device| device.total = value),
        "fresh_addresses" => world.memory.space.stay_fresh(value != 0),
        "charge" if value.is_power_of_two() => world.memory.charge = value,
        _ => return None,
    }
    Some(())
}

/// Workers pause before each piece of work, up to `most` microseconds, as the seed says; 0: not.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_jitter(seed: u64, most: u64) {
    guarded((), || {
        world::lock().config.jitter = (most > 0).then_some((seed, most));
        Some(())
    });
}

/// No stream begins another piece of work until `simcuda_resume`. Whatever waits then waits.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_pause() {
    guarded((), || {
        world::lock().paused = true;
        Some(())
    });
}

/// Streams go on.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_resume() {
    guarded((), || {
        let mut world = world::lock();
        world.paused = false;
        world.wake_all();
        Some(())
    });
}

/// Makes `run` the host build of a kernel with `count` arguments of these sizes; 0 if it could.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_register_kernel(
    name: In<u8>,
    run: Option<HostKernel>,
    count: u32,
    sizes: In<u32>,
) -> i32 {
    guarded(1, || {
        let arguments = sizes.list(count as usize).ok()?;
        let host = Host { run: run?, arguments };
        world::lock().modules.hosts.insert(name.text().ok()?, host);
        Some(0)
    })
}

/// How often a kernel ran.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_launches(name: In<u8>) -> u64 {
    guarded(0, || {
        let name = name.text().ok()?;
        world::lock().modules.launches.get(name.as_str()).copied()
    })
}

impl world::World {
    /// What no context owns goes too, and the configuration is read again.
    fn forget_all(&mut self) {
        let mappings = self.memory.vmm.mappings.iter();
        let mappings: Vec<(u64, u64)> = mappings.map(|(a, mapping)| (*a, mapping.bytes)).collect();
        for (address, bytes) in mappings {
            let _ = self.memory.unmap(address, bytes);
        }
        let handles = self.memory.vmm.physical.iter();
        let handles: Vec<(u64, u64)> =
            handles.map(|(h, physical)| (*h, physical.handles)).collect();
        for (handle, times) in handles {
            for _ in 0..times {
                let _ = self.memory.release(handle);
            }
        }
        for (address, bytes) in std::mem::take(&mut self.memory.vmm.reservations) {
            self.memory.space.give(address, bytes);
        }
        let regions: Vec<u64> = self.memory.regions.keys().copied().collect();
        regions.into_iter().for_each(|address| self.free(address));
        self.captures = crate::capture::Captures::default();
        self.judge = crate::judge::Judge::default();
        self.modules = crate::module::Modules::default();
        self.config = Config::read();
        self.memory.devices =
            vec![
                crate::memory::Capacity { total: self.config.memory, ..Default::default() };
                self.config.devices
            ];
        self.memory.space.stay_fresh(self.config.fresh);
        self.memory.vmm.granule = self.config.granule;
        self.memory.charge = self.config.charge;
        self.primaries = vec![Primary::default(); self.config.devices];
        self.pools = crate::pool::Pools::default();
        self.make_default_pools();
        self.ready = false;
    }
}
