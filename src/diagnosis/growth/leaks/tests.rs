//! Tests: of the leak diagnosis, on small traces whose answer is known.

use super::*;
use crate::diagnosis::growth::steps::How;

/// Writes traces with markers `step N`.
#[derive(Default)]
struct Script {
    recording: Recording,
    trace: DeviceTrace,
}

impl Script {
    fn step(&mut self) {
        let number = self.recording.markers.len();
        self.recording.markers.push(format!("step {number}"));
        let stack = StackId(number as u32);
        self.trace.events.push(Event { stack, ..Event::new(Kind::Marker) });
    }

    fn alloc(&mut self, bytes: u64, tag: &str) -> u32 {
        let allocation = self.trace.allocations;
        self.trace.allocations += 1;
        let stack = self.recording.stacks.tag(tag);
        self.trace.events.push(Event { bytes, allocation, stack, ..Event::new(Kind::Alloc) });
        allocation
    }

    fn free(&mut self, allocation: u32) {
        self.trace.events.push(Event { allocation, ..Event::new(Kind::Free) });
    }

    fn leaks(&self) -> Leaks {
        leaks(&self.recording, &self.trace, &Ask::Anything, By::Tag).unwrap()
    }
}

const MIB: u64 = 1 << 20;

fn class(leaks: &Leaks, owner: &str) -> Class {
    leaks.survivors.iter().find(|survivor| survivor.owner == owner).unwrap().class
}

/// Training: weights, a batch each step, optimizer state in the first, a workspace, and `kept` bytes lost a step.
fn training(steps: u64, kept: u64) -> Script {
    let mut script = Script::default();
    script.alloc(100 * MIB, "weights");
    for step in 0..steps {
        script.step();
        let batch = script.alloc(30 * MIB, "batch");
        if step == 0 {
            script.alloc(200 * MIB, "adam");
            script.alloc(8_519_680, "linear");
        }
        if kept > 0 {
            script.alloc(kept, "losses");
        }
        script.free(batch);
    }
    script.step();
    script
}

#[test]
fn a_training_run_that_keeps_nothing_has_no_leak() {
    let leaks = training(8, 0).leaks();
    assert_eq!(leaks.verdict, Verdict::NoLeak);
    assert_eq!(class(&leaks, "weights"), Class::Steady);
    assert_eq!(class(&leaks, "adam"), Class::FirstStepState);
    assert_eq!(class(&leaks, "linear [library workspace]"), Class::LibraryWorkspace, "K30");
}

#[test]
fn a_list_of_losses_is_found_with_its_slope() {
    let leaks = training(8, 3 * MIB).leaks();
    assert_eq!(leaks.verdict, Verdict::Leak);
    let first = &leaks.survivors[0];
    assert_eq!((first.owner.as_str(), first.class), ("losses", Class::Leak));
    assert!((first.trend.slope - 3e6 * 1.048576).abs() < 1.0, "{:?}", first.trend);
    assert_eq!(first.trend.pattern, Pattern::ConstantIncrement);
    assert_eq!(leaks.increments()[2..].iter().max(), Some(&(3 * i128::from(MIB))));
}

#[test]
fn k30_a_workspace_is_one_without_steps_too() {
    let mut script = Script::default();
    script.alloc(8_519_680, "cublasCreate");
    let leaks = script.leaks();
    assert_eq!(leaks.steps.how, How::Unknown);
    assert_eq!(leaks.survivors[0].class, Class::LibraryWorkspace);
    let mut script = Script::default();
    for _ in 0..10 {
        script.step();
        script.alloc(8_519_680, "cublasCreate");
    }
    assert_eq!(script.leaks().verdict, Verdict::Leak, "a handle each step is a leak");
}

#[test]
fn k22_what_stays_after_each_sleep() {
    let mut script = Script::default();
    let mut total = 0;
    for residual in [4110 * MIB, 11570 * MIB, 25000 * MIB] {
        script.alloc(residual - total, "refit bucket");
        total = residual;
        script.step();
    }
    let leaks = script.leaks();
    assert_eq!(leaks.verdict, Verdict::Leak);
    assert_eq!(leaks.increments(), [7460, 13430].map(|mib| mib * i128::from(MIB)));
    assert_eq!(leaks.survivors[0].owner, "refit bucket");
}

#[test]
fn new_sizes_grow_the_cache_and_are_no_leak() {
    let mut script = Script::default();
    script.alloc(MIB, "weights");
    for step in 0..12 {
        script.step();
        let expert = script.alloc((20 + 7 * step) * MIB, "expert");
        script.free(expert);
    }
    script.step();
    let leaks = script.leaks();
    assert_eq!(leaks.verdict, Verdict::NewSizeGrowth, "{:?}", leaks.reserved);
    assert!(leaks.new_sizes[..12].iter().all(|&count| count == 1), "{:?}", leaks.new_sizes);
}

#[test]
fn tags_that_name_the_step_are_no_leak_of_their_own() {
    let mut script = Script::default();
    let mut last = None;
    for step in 0..10 {
        script.step();
        let next = script.alloc(MIB, &format!("batch {step}"));
        if let Some(last) = last.replace(next) {
            script.free(last);
        }
    }
    script.step();
    assert_ne!(script.leaks().verdict, Verdict::Leak);
}

#[test]
fn a_slow_owner_under_a_noisy_total_is_a_leak() {
    let mut script = Script::default();
    let mut noise = None;
    for step in 0..40u64 {
        script.step();
        let next = script.alloc((1 + step * 7919 % 23) * MIB, "noise");
        if let Some(noise) = noise.replace(next) {
            script.free(noise);
        }
        script.alloc(64 << 10, "slow");
    }
    script.step();
    let leaks = script.leaks();
    assert!(!leaks.trend.pattern.grows() || leaks.trend.confidence < SURE, "{:?}", leaks.trend);
    assert_eq!(leaks.verdict, Verdict::Leak);
    assert_eq!(class(&leaks, "slow"), Class::Leak);
}

#[test]
fn what_moves_from_one_owner_to_another_is_no_leak() {
    let mut script = Script::default();
    let mut old: Vec<u32> = (0..20).map(|_| script.alloc(MIB, "old")).collect();
    for _ in 0..18 {
        script.step();
        script.free(old.pop().unwrap());
        script.alloc(MIB, "new");
    }
    script.step();
    assert_ne!(script.leaks().verdict, Verdict::Leak);
}
