//! Workloads: allocation patterns of training and serving, with known answers for a tuner.

use std::fmt::Write;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The hidden size.
const H: u64 = 2048;
/// The weights of a layer.
const WEIGHTS: [u64; 6] = [8 * MIB, 8 * MIB, 8 * MIB, 8 * MIB, 32 * MIB, 32 * MIB];
const EMBEDDING: u64 = 125 * MIB;

/// A trace under way.
#[derive(Default)]
struct Trace {
    text: String,
    next: u64,
}

impl Trace {
    fn alloc_on(&mut self, bytes: u64, stream: u64) -> u64 {
        writeln!(self.text, "a,{},{bytes},{stream}", self.next).unwrap();
        self.next += 1;
        self.next - 1
    }

    fn alloc(&mut self, bytes: u64) -> u64 {
        self.alloc_on(bytes, 0)
    }

    fn free(&mut self, id: u64) {
        writeln!(self.text, "f,{id}").unwrap();
    }

    fn temporary(&mut self, bytes: u64) {
        let id = self.alloc(bytes);
        self.free(id);
    }

    fn free_all(&mut self, ids: impl IntoIterator<Item = u64>) {
        ids.into_iter().for_each(|id| self.free(id));
    }

    fn step(&mut self, step: u64) {
        writeln!(self.text, "m,step {step}").unwrap();
    }

    fn layers(&mut self, count: u64) {
        for _ in 0..count {
            for bytes in WEIGHTS {
                self.alloc(bytes);
            }
        }
    }

    /// Five hidden states and two of the MLP.
    fn saved(&mut self, sequence: u64) -> Vec<u64> {
        let sizes = [hidden(sequence); 5].into_iter().chain([mlp(sequence); 2]);
        sizes.map(|bytes| self.alloc(bytes)).collect()
    }
}

/// Numbers from a seed, the same everywhere.
struct Numbers(u64);

impl Numbers {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(3_037_000_493))
    }

    fn range(&mut self, from: u64, to: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from + (self.0 >> 33) % (to - from + 1)
    }
}

const fn hidden(sequence: u64) -> u64 {
    2 * sequence * H
}

const fn mlp(sequence: u64) -> u64 {
    8 * sequence * H
}

/// Training on sequences of varying length.
pub fn varying_length() -> String {
    let (mut trace, mut numbers) = (Trace::default(), Numbers::new(1));
    trace.layers(16);
    trace.alloc(EMBEDDING);
    for step in 0..60 {
        trace.step(step);
        let sequence = 8 * numbers.range(32, 512);
        let mut layers = Vec::new();
        for _ in 0..16 {
            layers.push(trace.saved(sequence));
            trace.temporary(hidden(sequence));
        }
        let logits = trace.alloc(2 * sequence * 32_000);
        trace.temporary(4 * sequence * 32_000);
        let gradient = trace.alloc(2 * sequence * 32_000);
        trace.free_all([logits, gradient]);
        for layer in layers.into_iter().rev() {
            let temporary = trace.alloc(mlp(sequence));
            trace.free_all(layer);
            trace.free(temporary);
        }
    }
    trace.text
}

/// A cache of keys and values that grows by copying.
pub fn growing_cache() -> String {
    let mut trace = Trace::default();
    let mut tensors: Vec<u64> = (0..32).map(|_| trace.alloc(512 * 16 * KIB)).collect();
    for token in 512..1024 {
        trace.temporary(2 * MIB + 512 * token);
        for tensor in &mut tensors {
            let grown = trace.alloc((token + 1) * 16 * KIB);
            trace.free(std::mem::replace(tensor, grown));
        }
    }
    trace.text
}

/// Training that computes activations again.
pub fn checkpointing() -> String {
    let (mut trace, mut numbers) = (Trace::default(), Numbers::new(2));
    trace.layers(24);
    for step in 0..20 {
        trace.step(step);
        let sequence = 8 * numbers.range(32, 512);
        let (t, m) = (hidden(sequence), mlp(sequence));
        let mut kept = Vec::new();
        for _ in 0..24 {
            kept.push(trace.alloc(t));
            [t, t, m, m].into_iter().for_each(|bytes| trace.temporary(bytes));
        }
        for layer in kept.into_iter().rev() {
            let again: Vec<u64> = [t, t, t, t, t, m, m, m].map(|bytes| trace.alloc(bytes)).into();
            trace.free_all(again);
            trace.free(layer);
        }
    }
    trace.text
}

/// An optimizer whose state appears after the first backward pass; every step is the same.
pub fn first_step() -> String {
    let (mut trace, sequence) = (Trace::default(), 4096);
    trace.layers(16);
    trace.alloc(EMBEDDING);
    for step in 0..3 {
        trace.step(step);
        let layers: Vec<Vec<u64>> = (0..16).map(|_| trace.saved(sequence)).collect();
        let mut gradients = Vec::new();
        for layer in layers.into_iter().rev() {
            gradients.extend(WEIGHTS.map(|bytes| trace.alloc(bytes)));
            trace.free_all(layer);
        }
        if step == 0 {
            for bytes in WEIGHTS.repeat(16).into_iter().chain([EMBEDDING]) {
                trace.alloc(2 * bytes);
                trace.alloc(2 * bytes);
            }
        }
        trace.free_all(gradients);
    }
    trace.text
}

/// Convolutions that try workspaces of all sizes for every new shape.
pub fn workspaces() -> String {
    let (mut trace, mut numbers) = (Trace::default(), Numbers::new(7));
    for _ in 0..12 {
        trace.alloc(MIB);
    }
    for step in 0..24 {
        trace.step(step);
        let height = 4 * numbers.range(12, 56);
        let activation = 768 * height * height;
        let largest = if height % 16 == 0 { 2048 * MIB } else { 256 * MIB };
        let mut kept = Vec::new();
        for _ in 0..12 {
            for bytes in [9 * KIB, 2 * activation, 9 * activation, 64 * MIB, largest] {
                trace.temporary(bytes);
            }
            kept.push(trace.alloc(activation));
        }
        trace.free_all(kept);
    }
    trace.text
}
