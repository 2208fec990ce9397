//! Report: traces of calls, the environment's faults and costs, and what is alive.
//!
//! Asked by the door at the first call, by the control interface, and at the end of the process.

use crate::api;
use crate::door::{COST, Entry, VIRTUAL};
use crate::faults;
use crate::world::{self, World};
use std::env;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{LazyLock, Once};

static TRACE: LazyLock<Option<File>> = LazyLock::new(|| {
    let path = env::var("SIMCUDA_TRACE").ok().filter(|path| !matches!(path.as_str(), "" | "0"))?;
    let path = if path == "1" { "/dev/stderr" } else { &path };
    File::options().append(true).create(true).open(path).ok()
});

/// Writes a call down, if calls are traced.
pub fn trace(name: &str, answer: i32) {
    if let Some(mut file) = TRACE.as_ref() {
        let thread = crate::thread::number();
        let _ = file.write_all(format!("simcuda thread {thread} {name} -> {answer}\n").as_bytes());
    }
}

/// Takes in the environment's faults and costs, once.
pub fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for text in list("SIMCUDA_FAIL") {
            let planned = faults::parse(&text)
                .is_some_and(|(name, nth, code, forever)| fail(name, nth, code, forever) > 0);
            complain_unless(planned, "SIMCUDA_FAIL", &text);
        }
        for text in list("SIMCUDA_COST") {
            let set = text.split_once(':').and_then(|(name, nanos)| {
                let nanos = nanos.trim().parse().ok()?;
                Some(cost(name, nanos) > 0)
            });
            complain_unless(set == Some(true), "SIMCUDA_COST", &text);
        }
        let mode = env::var("SIMCUDA_COST_MODE");
        VIRTUAL.store(mode.as_deref() == Ok("virtual"), Ordering::Relaxed);
        if env::var("SIMCUDA_REPORT").is_ok_and(|wanted| wanted == "1") {
            // SAFETY: `at_exit` is a function of this library that takes nothing.
            let _ = unsafe { libc::atexit(at_exit) };
        }
    });
}

extern "C" fn at_exit() {
    eprintln!("{}", world::lock().alive_as_json());
}

fn list(name: &str) -> Vec<String> {
    let text = env::var(name).unwrap_or_default();
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(Into::into).collect()
}

fn complain_unless(understood: bool, name: &str, text: &str) {
    if !understood {
        eprintln!("simcuda: {text:?} in {name} is not understood");
    }
}

/// Entry points of that name, whichever version.
pub fn entries_named(name: &str) -> impl Iterator<Item = &'static Entry> {
    let name = name.trim().to_string();
    let exact = api::entries().any(|entry| entry.name == name);
    api::entries().filter(
        move |entry| {
            if exact { entry.name == name } else { base(entry.name) == name }
        },
    )
}

/// A name without its version.
pub fn base(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((base, version)) if version.parse::<u32>().is_ok() => base,
        _ => name,
    }
}

/// Plans faults; how many entry points were meant.
pub fn fail(name: &str, nth: u64, code: i32, forever: bool) -> usize {
    entries_named(name).map(|entry| entry.plan.add(nth, code, forever)).count()
}

/// Sets a cost; how many entry points were meant.
pub fn cost(name: &str, nanos: u64) -> usize {
    entries_named(name).map(|entry| entry.cost.store(nanos, Ordering::Relaxed)).count()
}

impl World {
    /// What is alive, by kind.
    pub fn alive(&self) -> Vec<(&'static str, u64)> {
        let vmm = &self.memory.vmm;
        let count = |wanted: &dyn Fn(&u64) -> bool| {
            self.streams.keys().filter(|id| wanted(id)).count() as u64
        };
        let bytes = self.memory.devices.iter().map(|device| device.used).sum();
        let hosts = self.memory.hosts.len() as u64;
        let pools = self.pools.pools.values().filter(|pool| !pool.default).count() as u64;
        let left = self.judge.left;
        vec![
            ("allocations", self.memory.regions.len() as u64),
            ("host", hosts),
            (
                "handles",
                vmm.physical.values().filter(|physical| physical.handles > 0).count() as u64,
            ),
            ("mappings", vmm.mappings.len() as u64),
            ("reservations", vmm.reservations.len() as u64),
            ("streams", count(&|id| self.is_owned(*id))),
            ("events", self.events.len() as u64),
            ("contexts", self.contexts.len() as u64),
            ("modules", self.modules.modules.len() as u64),
            ("pools", pools),
            ("graphs", (self.captures.graphs.len() + self.captures.ready.len()) as u64),
            ("bytes", bytes),
            ("left_allocations", left.allocations),
            ("left_host", left.hosts),
            ("left_streams", left.streams),
            ("left_events", left.events),
            ("violations", self.judge.violations),
            ("skipped_kernels", self.modules.skipped),
        ]
    }

    pub fn alive_as_json(&self) -> String {
        let counts = self.alive().into_iter().map(|(name, count)| format!("\"{name}\":{count}"));
        let counts: Vec<String> = counts.collect();
        let cost = COST.load(Ordering::Relaxed);
        format!("{{\"simcuda\":{{{},\"cost_ns\":{cost}}}}}", counts.join(","))
    }
}
