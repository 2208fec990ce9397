//! Conformance: what can be typed after `conformance`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::Common;
use crate::conformance::{CHECKS, Place, Plan};

/// `blockyard conformance`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  blockyard conformance --alloc my_alloc --free my_free ./libmine.so
  blockyard conformance --alloc my_alloc --free my_free --device cuda --threads 16 --json ./libmine.so
  BLOCKYARD_DEVICE=host:4GiB blockyard conformance --alloc blockyard_torch_alloc \\
      --free blockyard_torch_free --reset blockyard_torch_reset target/release/libblockyard.so

The functions are those that PyTorch's pluggable allocator takes:
  void* alloc(ssize_t size, int device, void* stream)
  void  free(void* ptr, ssize_t size, int device, void* stream)
  void  reset(void)

Each check runs in a process of its own: a crash or a hang is a finding. Exit 4 if a check fails.")]
pub struct Conformance {
    /// The shared library.
    #[arg(value_name = "LIBRARY", value_hint = ValueHint::FilePath)]
    pub library: PathBuf,
    /// The function that allocates.
    #[arg(long, value_name = "SYMBOL")]
    pub alloc: String,
    /// The function that frees.
    #[arg(long, value_name = "SYMBOL")]
    pub free: String,
    /// The function that gives cached memory back.
    #[arg(long, value_name = "SYMBOL")]
    pub reset: Option<String>,
    /// Whose memory it is: the process's own, a simulated driver's, a real driver's.
    #[arg(long, value_enum, default_value_t = Place::Host)]
    pub device: Place,
    /// The CUDA driver to load first. Without it: libcuda.so.1, as the system finds it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub driver: Option<PathBuf>,
    /// The number of the device.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub ordinal: i32,
    /// How many threads allocate at the same time.
    #[arg(long, value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// What every address must be a multiple of.
    #[arg(long, value_name = "BYTES", default_value_t = 256,
        value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub alignment: u64,
    /// The most that one check may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub timeout: u64,
    /// Which random sizes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Only this check (and `load`); several times, or with commas.
    #[arg(long, value_name = "CHECK", value_delimiter = ',', value_parser = names())]
    pub only: Vec<String>,
    /// Where a child writes; for the parent's use.
    #[arg(long, hide = true)]
    pub child: Option<PathBuf>,
    /// Everywhere.
    #[command(flatten)]
    pub common: Common,
}

fn names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(CHECKS.iter().map(|check| check.name))
}

impl Conformance {
    /// What is to be done.
    #[must_use]
    pub fn plan(&self) -> Plan {
        Plan {
            library: self.library.clone(),
            alloc: self.alloc.clone(),
            free: self.free.clone(),
            reset: self.reset.clone(),
            place: self.device,
            driver: self.driver.clone(),
            device: self.ordinal,
            threads: usize::from(self.threads),
            alignment: self.alignment,
            seconds: self.timeout,
            seed: self.seed,
            only: self.only.clone(),
        }
    }
}
