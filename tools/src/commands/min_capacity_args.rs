//! Args: what can be typed after `blockyard min-capacity`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::cli::Common;
use crate::sizes;

/// `blockyard min-capacity`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  blockyard min-capacity trace.csv                              how small may the device be?
  blockyard min-capacity trace.csv --policy pytorch --policy pytorch:max_split_size_mb:128 --policy blockyard
  blockyard min-capacity oom.pickle --json
  blockyard min-capacity trace.csv --step 64MiB                 multiples of 64 MiB only

The capacity that is printed completed; one that is 0.1 % (or one step) smaller was seen to fail. A device that is
smaller still may complete too: emptying the cache earlier sometimes helps.")]
pub struct MinCapacity {
    /// The recording.
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Policies, as `replay` takes them. Several times, or with commas between plain names.
    #[arg(long = "policy", value_name = "POLICY")]
    pub policies: Vec<String>,
    /// Only this device of the recording.
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// Try multiples of this only.
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse, default_value = "2MiB")]
    pub step: u64,
    /// Everywhere.
    #[command(flatten)]
    pub common: Common,
}
