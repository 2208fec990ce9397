//! Checks: what can be typed after `diff`, `leaks`, `doctor` and `check`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::Common;
use crate::moment::When;
use crate::sizes;

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Owner {
    /// The program's own word for the place, else the innermost frame of Python.
    Tag,
    /// The whole call stack.
    Stack,
    /// The size, in classes between powers of two.
    Size,
}

/// `blockyard diff`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  blockyard diff monday.pickle friday.pickle              two snapshots, by tag
  blockyard diff old.csv new.csv --at peak --by size      two traces, where each peaks
  blockyard diff run.pickle --at 1000 --to end            two moments of one recording
  blockyard diff run.csv --fail-on-growth 1MiB            across the steps of one run: exit 4 above that

Bytes are the client's, live blocks only. The rows add up to the difference. Moments are those of the recording
itself: nothing is replayed, so `oom` is a recorded out-of-memory.")]
pub struct Diff {
    /// The recording before.
    #[arg(value_name = "A", value_hint = ValueHint::FilePath)]
    pub before: PathBuf,
    /// The recording after. Without it: two moments of A, or with neither --at nor --to A's steps.
    #[arg(value_name = "B", value_hint = ValueHint::FilePath)]
    pub after: Option<PathBuf>,
    /// Whose memory it is.
    #[arg(long, value_enum, default_value_t = Owner::Tag)]
    pub by: Owner,
    /// The moment: oom, peak, end, an event's number, or marker:TEXT. Of two files: the end where they are
    /// snapshots, else the peak.
    #[arg(long, value_name = "WHEN")]
    pub at: Option<When>,
    /// The later moment (of B, where there is one).
    #[arg(long, value_name = "WHEN")]
    pub to: Option<When>,
    /// Exit 4 if live bytes grew by more than this.
    #[arg(long, value_name = "BYTES", value_parser = sizes::parse)]
    pub fail_on_growth: Option<u64>,
    /// How many rows are shown; JSON has all.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Only this device of the recordings.
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// Everywhere.
    #[command(flatten)]
    pub common: Common,
}

/// `blockyard leaks`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  blockyard leaks run.csv.zst                      steps at its markers
  blockyard leaks run.csv --marker 'after sleep'   what stays after each sleep
  blockyard leaks run.pickle                       no markers: steps are inferred, and the page says so
  blockyard leaks run.pickle --every 4200 --json")]
pub struct Leaks {
    /// The recording.
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// A step begins at each marker that begins so.
    #[arg(long, value_name = "TEXT", conflicts_with = "every")]
    pub marker: Option<String>,
    /// A step is so many events.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub every: Option<u32>,
    /// Whose memory it is.
    #[arg(long, value_enum, default_value_t = Owner::Tag)]
    pub by: Owner,
    /// How many owners are shown; JSON has all.
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub top: usize,
    /// Only this device of the recording.
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// Everywhere.
    #[command(flatten)]
    pub common: Common,
}

/// `blockyard doctor`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  blockyard doctor                          one page to attach to a report
  blockyard doctor --settings my.toml       with the settings of a file
  blockyard doctor --json

It never fails for want of a fact: what cannot be known is `unknown`, with the reason.")]
pub struct Doctor {
    /// A settings file (.toml or .json), laid over nothing; without it the environment counts.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub settings: Option<PathBuf>,
    /// Everywhere.
    #[command(flatten)]
    pub common: Common,
}

/// `blockyard check`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  blockyard check run.pickle                 exit 0: it can have happened, and nothing was reused too early
  blockyard check run.pickle --strict        warnings fail too
  blockyard check run.csv --capacity 24GiB   a curve above the card is an error

Exit 4 if there is an error (with --strict: or a warning). Notes never fail.")]
pub struct Check {
    /// The recording.
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The device's memory, such as 24GiB.
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse)]
    pub capacity: Option<u64>,
    /// Warnings fail too.
    #[arg(long)]
    pub strict: bool,
    /// Only this device of the recording.
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// Everywhere.
    #[command(flatten)]
    pub common: Common,
}
