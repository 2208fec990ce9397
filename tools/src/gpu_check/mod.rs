//! GPU check: whether blockyard holds on this device, and what the device's calls cost.
//!
//! Owns: what is checked (`checks`), what is measured (`costs`, `sequences`), and the page that says so (`page`).
//! Asked by the binary `blockyard-gpu-check`. Runs on a simulated driver too, and says then that it was one.

mod checks;
mod costs;
mod page;
mod sequences;

use std::path::PathBuf;
use std::sync::Arc;

use blockyard::device::cuda::{CudaError, Driver, Gpu};
use clap::Parser;

use crate::fail::Fail;

/// What can be typed.
#[derive(Parser, Debug)]
#[command(name = "blockyard-gpu-check", version)]
#[command(about = "Puts a CUDA device through blockyard's checks and writes one page of Markdown")]
pub struct Options {
    /// Load the driver from this library instead of the system's (a simulated driver, for example).
    #[arg(long, value_name = "LIBRARY")]
    driver: Option<PathBuf>,

    /// The device's number.
    #[arg(long, default_value_t = 0)]
    device: u32,

    /// Use at most so much of the device's memory.
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = crate::sizes::parse)]
    cap: u64,

    /// Fewer and smaller rounds: to see that it runs.
    #[arg(long)]
    quick: bool,

    /// Write the page here instead of to stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Only write the allocation sequences into this folder, for another allocator to run.
    #[arg(long, value_name = "FOLDER")]
    write_sequences: Option<PathBuf>,

    /// What another allocator came to on those sequences, as tools/gpu-check-pytorch.py writes it.
    #[arg(long, value_name = "FILE")]
    others: Option<PathBuf>,
}

/// Runs everything that was asked for.
///
/// # Errors
/// No driver or no device; a check that failed, after the page was written; a file.
pub fn run(options: &Options) -> Result<(), Fail> {
    if let Some(folder) = &options.write_sequences {
        return sequences::write(folder, options.quick);
    }
    let others = options.others.as_deref().map(sequences::read_others).transpose()?;
    let gpu = open(options).map_err(|error| Fail::BadInput(error.to_string()))?;
    let checks = checks::run(&gpu, options.cap, options.quick);
    let costs = costs::grid(&gpu, options.cap, options.quick);
    let runs = sequences::run(&gpu, options.cap, options.quick, others.unwrap_or_default());
    let text = page::write(&gpu, options, &checks, &costs, &runs);
    match &options.output {
        Some(path) => std::fs::write(path, text)
            .map_err(|error| Fail::BadInput(format!("{}: {error}", path.display())))?,
        None => print!("{text}"),
    }
    let failed: Vec<&str> =
        checks.iter().filter(|check| check.outcome.is_err()).map(|check| check.name).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Fail::Check(format!(
        "{} of {} checks failed: {}",
        failed.len(),
        checks.len(),
        failed.join("; ")
    )))
}

fn open(options: &Options) -> Result<Arc<Gpu>, CudaError> {
    if let Some(path) = &options.driver {
        Driver::load_from(path)?;
    }
    Gpu::open(options.device)
}
