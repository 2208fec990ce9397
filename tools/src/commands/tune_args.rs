//! Args: what can be typed after `blockyard tune`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use crate::cli::Common;
use crate::sizes;

/// `blockyard tune`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  blockyard tune trace.csv                           which settings need the smallest device?
  blockyard tune oom.pickle                          which settings would have saved the run, and at what cost?
  blockyard tune rank0.pickle rank1.pickle --capacity 80GiB --objective reserved
  blockyard tune trace.csv --for blockyard --json
  blockyard tune huge.csv.zst --min-capacity --resume tune.state

Every figure comes from a replay of the whole recording. Of several recordings (or devices) the worst one counts.")]
pub struct Tune {
    /// Recordings; a directory stands for the files in it.
    #[arg(required = true, value_name = "TRACE", value_hint = ValueHint::AnyPath)]
    pub files: Vec<PathBuf>,
    /// The device's memory. Without it an out-of-memory in each recording tells, else there is no limit.
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse)]
    pub capacity: Option<u64>,
    /// What is to be small. Without it: fit where the device's memory is known, else min-capacity.
    #[arg(long, value_enum)]
    pub objective: Option<Goal>,
    /// Whose settings are searched.
    #[arg(long = "for", value_enum, default_value_t = For::Pytorch)]
    pub family: For,
    /// Also find the smallest device for each setting (a dozen replays each); implied by that objective.
    #[arg(long)]
    pub min_capacity: bool,
    /// The settings in use, as `replay --policy` takes them; `pytorch` is what the recording carries.
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// Steps in each recording, for figures a step. Without it markers that begin with `step` are counted.
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// Percent that a change must win to be worth it.
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub worth: u64,
    /// Settings to try at the most.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    pub tries: u64,
    /// Keep results in this file, and take those that are there.
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Show every row, not only those that nothing beats.
    #[arg(long)]
    pub all: bool,
    /// Only this device of each recording.
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// Everywhere.
    #[command(flatten)]
    pub common: Common,
}

/// What is to be small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Goal {
    /// Memory going back to the driver: to complete on the device, and in peace.
    Fit,
    /// The device on which the recordings complete.
    MinCapacity,
    /// What is obtained from the driver at the most.
    Reserved,
    /// Calls of the driver.
    DriverCalls,
}

/// Whose settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum For {
    /// `PYTORCH_CUDA_ALLOC_CONF`.
    Pytorch,
    /// This project's presets and keys.
    Blockyard,
}
