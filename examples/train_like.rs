//! Train-like: a loop that uses memory as training does, on a simulated GPU, and the trace that it leaves.
//!
//! `cargo run --example train_like -- run.trace.zst [STEPS]`, then
//! `blockyard replay run.trace.zst --policy blockyard` and
//! `blockyard render run.trace.zst -o run.svg`. No GPU: tensors have shapes, addresses and lifetimes.
//!
//! A small transformer on batches of varying length: layer after layer keeps what the backward pass
//! needs, gradients live until the optimizer has stepped, and the optimizer's states appear at its
//! first step and stay. Then the same number of batches through page-locked memory, by a model of the bus.

use std::error::Error;
use std::sync::Arc;

use blockyard::allocator::{CachingAllocator, Config};
use blockyard::device::{SimConfig, SimDevice};
use blockyard::policy::presets;
use blockyard::tag;
use blockyard::tensor::{DType, NoValues, Place, Prefetcher, Result, Tensor};
use blockyard::trace::write_records;
use blockyard::vocab::{GIB, Human};

const LAYERS: usize = 6;
const WIDTH: usize = 512;
const BATCH: usize = 8;

/// What a layer keeps: its weights, and how the optimizer remembers them.
struct Layer {
    weights: [Tensor; 3],
    states: Vec<Tensor>,
}

impl Layer {
    fn new(gpu: &Place) -> Result<Self> {
        let weights = [[WIDTH, 3 * WIDTH], [WIDTH, 4 * WIDTH], [4 * WIDTH, WIDTH]];
        let [a, b, c] = weights.map(|shape| Tensor::zeros(gpu, &shape, DType::BF16));
        Ok(Self { weights: [a?, b?, c?], states: Vec::new() })
    }

    /// The activation that comes out, and what the backward pass will want.
    fn forward(&self, input: &Tensor, kept: &mut Vec<Tensor>) -> Result<Tensor> {
        let (gpu, rows) = (input.place(), input.shape()[0]);
        let wide = Tensor::empty(gpu, &[rows, 4 * WIDTH], DType::BF16)?;
        let attention = {
            // Gone as soon as the scores are there.
            let queries = Tensor::empty(gpu, &[rows, 3 * WIDTH], DType::BF16)?;
            kept.push(queries.narrow(1, 0, WIDTH)?.contiguous()?);
            queries.narrow(1, WIDTH, WIDTH)?.to(gpu, DType::F32, false)?
        };
        let output = attention.to(gpu, DType::BF16, false)?;
        kept.extend([wide, output.clone()]);
        Ok(output)
    }

    /// Gradients of the weights; the gradient of the activations is a temporary.
    fn backward(&self, kept: &mut Vec<Tensor>) -> Result<Vec<Tensor>> {
        let used = kept.split_off(kept.len() - 3);
        let _gradient = Tensor::empty_like(&used[1])?;
        self.weights.iter().map(Tensor::empty_like).collect()
    }

    /// AdamW: two states in f32 for each weight, made at the first step.
    fn step(&mut self, gradients: &[Tensor]) -> Result<()> {
        if self.states.is_empty() {
            for weight in self.weights.iter().chain(&self.weights) {
                self.states.push(Tensor::zeros(weight.place(), weight.shape(), DType::F32)?);
            }
        }
        for (weight, gradient) in self.weights.iter().zip(gradients) {
            let update = gradient.to(weight.place(), DType::F32, false)?;
            weight.copy_(&update)?;
        }
        Ok(())
    }
}

/// One step on one batch of token embeddings.
fn train(layers: &mut [Layer], batch: &Tensor) -> Result<()> {
    let mut kept = Vec::new();
    let mut activation = batch.clone();
    {
        tag!("forward");
        for layer in layers.iter() {
            activation = layer.forward(&activation, &mut kept)?;
        }
    }
    let mut gradients = Vec::new();
    {
        tag!("backward");
        let _logits = Tensor::empty(batch.place(), &[batch.shape()[0], 8192], DType::F32)?;
        for layer in layers.iter().rev() {
            gradients.push(layer.backward(&mut kept)?);
        }
    }
    tag!("optimizer");
    layers.iter_mut().zip(gradients.iter().rev()).try_for_each(|(layer, own)| layer.step(own))
}

/// A simulated GPU whose allocator keeps its last records.
fn recorded_gpu() -> Place {
    let device = SimDevice::new(SimConfig::with_capacity(2 * GIB));
    let config = Config { record: 1 << 16, ..Config::with_policy(presets::blockyard()) };
    Place::new("sim", Arc::new(CachingAllocator::new(device, config)), Box::new(NoValues))
}

/// Trains, writes the trace, and says how much it took.
pub fn run(path: &str, steps: usize) -> Result<(), Box<dyn Error>> {
    let gpu = recorded_gpu();
    let mut layers = {
        tag!("weights");
        (0..LAYERS).map(|_| Layer::new(&gpu)).collect::<Result<Vec<_>>>()?
    };
    for step in 0..steps {
        // Sentences differ in length.
        let rows = BATCH * (64 + step * 37 % 128);
        let batch = Tensor::empty(&gpu, &[rows, WIDTH], DType::BF16)?;
        train(&mut layers, &batch)?;
    }
    let allocator = gpu.allocator();
    allocator.audit()?;
    write_records(path, &allocator.dump())?;
    let (peak, reserved) = (allocator.max_memory_allocated(), allocator.max_memory_reserved());
    println!("{steps} steps: peak {} handed out, {} reserved", Human(peak), Human(reserved));
    println!("written: {path}");
    overlap(steps)
}

/// The same batches through page-locked memory, on the clock of a modelled bus.
fn overlap(steps: usize) -> Result<(), Box<dyn Error>> {
    const WORK: u64 = 80_000;
    let (gpu, clock) = Place::modelled(SimConfig::with_capacity(2 * GIB), Default::default());
    let pinned = Place::pinned(&gpu, Some(GIB))?;
    let shape = [BATCH * 128, WIDTH];
    let source = (0..steps).map(|_| Tensor::empty(&pinned, &shape, DType::BF16));
    for batch in Prefetcher::new(source, &pinned, &gpu, (&shape, DType::BF16), 2)? {
        let batch = batch?;
        clock.work_on(&batch, WORK)?;
    }
    let (done, work) = (clock.done(), steps as u64 * WORK);
    println!("by the bus model: {done} ns for {work} ns of work, copies beside it");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| "train_like.trace.zst".to_string());
    let steps = arguments.next().map_or(Ok(12), |text| text.parse())?;
    run(&path, steps)
}
