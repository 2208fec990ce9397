//! Cli: what can be typed. Parsing only; what is meant is decided in `commands`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use crate::commands::min_capacity_args::MinCapacity;
use crate::commands::shrink_args::Shrink;
use crate::commands::tune_args::Tune;
use crate::estimate::Optimizer;
use crate::model_file::{self, Entry};
use crate::moment::When;
use crate::sizes;

#[path = "cli_checks.rs"]
mod checks;
#[path = "cli_conformance.rs"]
mod conformance;

pub use checks::{Check, Diff, Doctor, Leaks, Owner};
pub use conformance::Conformance;

/// Replay, chart and explain GPU memory traces, on any machine, with no GPU.
#[derive(Debug, Parser)]
#[command(name = "blockyard", version, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "\
Exit codes: 0 done; 1 an internal failure; 2 bad usage or bad input; 3 the replay ran out of memory (the report
was still written); 4 a check that was asked for failed.

Files are recognised by content: PyTorch memory snapshots (pickle or JSON), blockyard traces (CSV, JSON lines),
RMM logs, Umpire replay logs, planner CSV. `-` is standard input; .gz and .zst are opened.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Replay recordings through the allocator, under any policy and capacity.
    Replay(Replay),
    /// Show the statistics of a moment: PyTorch's memory_summary and where the memory of each pool is.
    Summary(Summary),
    /// Draw a chart: memory map, timeline, address-time, histogram, fragmentation, compare, fleet.
    Render(Render),
    /// Say why a request failed, what pins the memory, and which settings serve it, each proved by replay.
    Explain(Explain),
    /// Write a recording in another format.
    Convert(Convert),
    /// Count what training a model should take, beside what a recording took; says what is a guess.
    Estimate(Estimate),
    /// Show settings: what is in force, against what was asked for, and where each value came from.
    Settings(Settings),
    /// Find the smallest device on which a recording completes, for each policy.
    MinCapacity(MinCapacity),
    /// Shrink a trace to the smallest one with the same failure, for a bug report or a test.
    Shrink(Shrink),
    /// Search the settings that serve recordings best, or say that no change is worth it.
    Tune(Tune),
    /// Compare two recordings, two moments of one, or its steps: whose memory grew.
    Diff(Diff),
    /// Show what survives the steps of a run, whose it is, and whether it grows.
    Leaks(Leaks),
    /// Show settings, driver, devices and limits of this machine on one page, for a report.
    Doctor(Doctor),
    /// Check a recording: whether it can have happened, and whether memory was reused too early.
    Check(Check),
    /// Put an allocator, given as C functions in a shared library, through checks of its behaviour.
    Conformance(Conformance),
    /// Print shell completions.
    Completions(Completions),
    /// Print the manual page.
    Man,
}

/// Options that every command takes.
#[derive(Debug, Args)]
pub struct Common {
    /// Print one JSON document to standard output and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// No progress bar, no warnings.
    #[arg(long, short)]
    pub quiet: bool,
}

/// Options of every command that replays.
#[derive(Debug, Args)]
pub struct Engine {
    /// `pytorch`, `pytorch-expandable`, `blockyard`, `blockyard-native`, each also as NAME:SETTINGS in
    /// PYTORCH_CUDA_ALLOC_CONF's grammar; or a settings file (.toml, .json). Plain `pytorch` takes the settings
    /// that the recording carries. Several times, or with commas between plain names: a comparison.
    #[arg(long = "policy", value_name = "POLICY", alias = "compare")]
    pub policies: Vec<String>,
    /// The device's memory, such as 24GiB. Without it an out-of-memory in the recording tells, else unlimited.
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse)]
    pub capacity: Option<u64>,
    /// Only this device of the recording.
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// Who answers driver calls: the device model, or the recording itself.
    #[arg(long, value_enum)]
    pub driver: Option<DriverName>,
}

/// Who answers driver calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DriverName {
    /// The recording: segments at their recorded addresses, refusals where it had them.
    Recorded,
    /// The device model.
    Simulated,
}

/// `blockyard replay`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  blockyard replay oom.pickle                                  did the run have to die? where was the memory?
  blockyard replay oom.pickle --render oom.svg                 the same, with a memory map for the bug report
  blockyard replay oom.pickle --policy pytorch --policy pytorch:max_split_size_mb:128 --policy blockyard
  blockyard replay trace.csv.zst --capacity 24GiB --json
  blockyard replay run.pickle --expect-exact                   every address as recorded, or exit 4")]
pub struct Replay {
    /// Recordings; a directory stands for the files in it.
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub files: Vec<PathBuf>,
    /// Options of the engine.
    #[command(flatten)]
    pub engine: Engine,
    /// Go on after a request that fails; later events of it are ignored.
    #[arg(long)]
    pub continue_on_oom: bool,
    /// The recorded driver, and exit 4 unless every allocation lands at its recorded address.
    #[arg(long, conflicts_with_all = ["capacity", "driver", "continue_on_oom"])]
    pub expect_exact: bool,
    /// Write a snapshot of this moment (oom, peak, end, an event's number, marker:TEXT) that PyTorch's viewer opens.
    #[arg(long, value_name = "WHEN", requires = "output")]
    pub snapshot: Option<When>,
    /// Where the snapshot goes: .json or .pickle.
    #[arg(long, short, value_name = "FILE", requires = "snapshot")]
    pub output: Option<PathBuf>,
    /// Draw a chart of the first policy's replay: .svg or .png.
    #[arg(long, value_name = "FILE")]
    pub render: Option<PathBuf>,
    /// Which chart.
    #[arg(long, value_enum, default_value_t = View::Map)]
    pub view: View,
    /// Everywhere.
    #[command(flatten)]
    pub common: Common,
}

/// A chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum View {
    /// Segments and blocks at one moment.
    Map,
    /// Allocated, active and reserved bytes over the events.
    Timeline,
    /// Blocks as rectangles over events and addresses.
    AddressTime,
    /// Sizes of free and live blocks at one moment.
    Histogram,
    /// Free, pinned free and the largest free block over the events.
    Fragmentation,
    /// Reserved bytes over the events, one curve for each policy.
    Compare,
    /// The devices of the recording side by side at their out-of-memory or peak.
    Fleet,
}

/// `blockyard summary`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  blockyard summary oom.pickle              at the end of the recording
  blockyard summary trace.csv --at peak --policy blockyard")]
pub struct Summary {
    /// The recording.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The moment: oom, peak, end, an event's number, or marker:TEXT.
    #[arg(long, value_name = "WHEN", default_value = "end")]
    pub at: When,
    /// Options of the engine.
    #[command(flatten)]
    pub engine: Engine,
    /// Leave out the rows of the small and the large pool.
    #[arg(long)]
    pub abbreviated: bool,
    /// Everywhere.
    #[command(flatten)]
    pub common: Common,
}

/// `blockyard render`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  blockyard render oom.pickle -o oom.svg                        the memory map where the request failed
  blockyard render trace.csv.zst -o life.png --view address-time
  blockyard render trace.csv --policy blockyard --at marker:step -o map.png
  blockyard render trace.csv --view compare --policy pytorch,blockyard -o compare.svg")]
pub struct Render {
    /// The recording.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The picture: .svg or .png.
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
    /// Which chart.
    #[arg(long, value_enum, default_value_t = View::Map)]
    pub view: View,
    /// The moment of a map or histogram: oom, peak, end, an event's number, or marker:TEXT. Without it the
    /// out-of-memory if there is one, else the peak.
    #[arg(long, value_name = "WHEN")]
    pub at: Option<When>,
    /// Options of the engine.
    #[command(flatten)]
    pub engine: Engine,
    /// Everywhere.
    #[command(flatten)]
    pub common: Common,
}

/// `blockyard explain`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  blockyard explain oom.pickle                    a snapshot that was taken at the out-of-memory
  blockyard explain train.log                     the last error message in a log, of any framework
  pbpaste | blockyard explain -                   a message from the clipboard
  blockyard explain trace.csv --capacity 24GiB --policy pytorch:max_split_size_mb:128
  blockyard explain oom.pickle --json | jq -r '.fixes[] | select(.completes) | .settings'")]
pub struct Explain {
    /// A recording, or a text with an error message in it; `-` is standard input.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Options of the engine; one policy at the most.
    #[command(flatten)]
    pub engine: Engine,
    /// Only the cause: no settings are replayed.
    #[arg(long)]
    pub no_fixes: bool,
    /// Everywhere.
    #[command(flatten)]
    pub common: Common,
}

/// `blockyard convert`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  blockyard convert oom.pickle oom.json           a snapshot as JSON (PyTorch's viewer opens it)
  blockyard convert trace.csv snapshot.pickle     a replay gives the addresses
  blockyard convert oom.pickle oom.csv.zst        a,id,bytes,stream lines
  blockyard convert trace.csv trace.jsonl.zst     blockyard's own format
  blockyard convert trace.csv plan.csv --to planner")]
pub struct Convert {
    /// The recording.
    #[arg(value_name = "FROM", value_hint = ValueHint::FilePath)]
    pub from: PathBuf,
    /// The file to write; its suffix says the format unless --to does.
    #[arg(value_name = "TO")]
    pub to_file: PathBuf,
    /// The format to write.
    #[arg(long, value_enum)]
    pub to: Option<Target>,
    /// Options of the engine, for recordings without addresses.
    #[command(flatten)]
    pub engine: Engine,
    /// Everywhere.
    #[command(flatten)]
    pub common: Common,
}

/// What can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// blockyard's own trace (JSON lines): .jsonl, .trace
    Trace,
    /// A PyTorch snapshot as JSON: .json
    PytorchJson,
    /// A PyTorch snapshot as pickle: .pickle, .pkl
    PytorchPickle,
    /// `a,id,bytes,stream` lines: .csv
    Csv,
    /// `id,lower,upper,size` rows: needs --to
    Planner,
}

/// `blockyard estimate`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  blockyard estimate --params 7e9 --dtype bf16 --optimizer adamw --master-weights
  blockyard estimate --params 124M --optimizer adamw-8bit --capacity 24GiB
  blockyard estimate --params 1.3B --dtype bf16 --activation bf16:8x2048x4096*32
  blockyard estimate model.toml --trace run.pickle         beside what the run took
  blockyard estimate model.json --optimizer momentum --json")]
pub struct Estimate {
    /// A list of tensors, .json or .toml: see docs/estimate.md.
    #[arg(value_name = "MODEL", value_hint = ValueHint::FilePath)]
    pub model: Option<PathBuf>,
    /// How many parameters, besides those of the file: 7e9, 7B, 124M.
    #[arg(long, value_name = "NUMBER", value_parser = model_file::parameters)]
    pub params: Option<u64>,
    /// The type of parameters that do not say theirs: f64, f32, f16, bf16, i8, ... Without it f32.
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<String>,
    /// The type of gradients; without it that of their parameter.
    #[arg(long, value_name = "TYPE")]
    pub gradient_dtype: Option<String>,
    /// What steps on the parameters; without it adamw.
    #[arg(long, value_enum)]
    pub optimizer: Option<Optimizer>,
    /// The optimizer steps on copies of the parameters in f32 (mixed precision).
    #[arg(long)]
    pub master_weights: bool,
    /// Tensors that the forward pass keeps, TYPE:SHAPE or TYPE:SHAPE*COUNT; several times.
    #[arg(long = "activation", value_name = "TENSORS", value_parser = model_file::tensors)]
    pub activations: Vec<Entry>,
    /// A recording to compare with.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
    /// Options of the engine, for the recording.
    #[command(flatten)]
    pub engine: Engine,
    /// Everywhere.
    #[command(flatten)]
    pub common: Common,
}

/// `blockyard settings`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  blockyard settings                                            what the environment asks for
  blockyard settings pytorch:max_split_size_mb:128
  blockyard settings blockyard --capacity 24GiB --json")]
pub struct Settings {
    /// A policy as `--policy` takes it, or a settings file. Without it: PYTORCH_CUDA_ALLOC_CONF and its siblings.
    #[arg(value_name = "POLICY")]
    pub policy: Option<String>,
    /// The device's memory: some settings have no effect without it.
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse)]
    pub capacity: Option<u64>,
    /// Everywhere.
    #[command(flatten)]
    pub common: Common,
}

/// `blockyard completions`
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}
