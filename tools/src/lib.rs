//! The tools of blockyard as a library: readers of recordings, charts, and the subcommands of the binary.
pub mod charts;
pub mod formats;
