//! Args: what can be typed after `blockyard shrink`.

use std::path::PathBuf;

use blockyard::diagnosis::shrink::Keep;
use clap::{Args, ValueHint};

use crate::cli::Common;
use crate::sizes;

/// `blockyard shrink`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  blockyard shrink oom.pickle -o small.csv                       the smallest trace that still fails like this one
  blockyard shrink trace.csv --capacity 24GiB --policy blockyard -o small.jsonl --test-case fails.rs
  blockyard shrink oom.pickle -o small.csv --no-merge            only take away: what is left is a part of the trace
  blockyard shrink trace.csv --keep 'reserved>30GiB' -o small.csv --anonymise

The same failure: the same verdict, and where that was not the capacity, all that is live would have fitted. Shrunk
under policy pytorch, the trace fails in PyTorch's own allocator too.")]
pub struct Shrink {
    /// The recording.
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The small trace: .csv for text, else JSON lines.
    #[arg(long, short, value_name = "OUT")]
    pub output: PathBuf,
    /// The device's memory. Without it an out-of-memory in the recording tells.
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse)]
    pub capacity: Option<u64>,
    /// The policy under which it fails, as `replay` takes it.
    #[arg(long, value_name = "POLICY", default_value = "pytorch")]
    pub policy: String,
    /// What must stay true: `oom` (for the same cause), or `reserved>SIZE`.
    #[arg(long, value_name = "WHAT", default_value = "oom", value_parser = keep)]
    pub keep: Keep,
    /// Only take whole allocations away: no merging, no resizing.
    #[arg(long)]
    pub no_merge: bool,
    /// Replace tags by numbers.
    #[arg(long, alias = "anonymize")]
    pub anonymise: bool,
    /// Also write text lines (`a,id,bytes,stream`), as PyTorch's replayers read them.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Also write a test that fails as long as the trace does: .rs, or .json with a .csv beside it.
    #[arg(long, value_name = "FILE")]
    pub test_case: Option<PathBuf>,
    /// Only this device of the recording.
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// Everywhere.
    #[command(flatten)]
    pub common: Common,
}

/// What must stay true.
fn keep(text: &str) -> Result<Keep, String> {
    if text.trim() == "oom" {
        return Ok(Keep::OutOfMemory);
    }
    let above = text.trim().strip_prefix("reserved").map(str::trim_start);
    match above.and_then(|text| text.strip_prefix('>')) {
        Some(size) => sizes::parse(size).map(Keep::ReservedAbove),
        None => Err(format!("{text:?} is unknown, expected oom or reserved>SIZE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_keep_is_read() {
        assert_eq!(keep("oom"), Ok(Keep::OutOfMemory));
        assert_eq!(keep("reserved > 1KiB"), Ok(Keep::ReservedAbove(1024)));
        for text in ["", "reserved", "reserved>x", "allocated>1"] {
            assert!(keep(text).is_err(), "{text}");
        }
    }
}
