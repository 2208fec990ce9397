//! The tools of blockyard as a library: readers of recordings, charts, and the subcommands of the binary.
//!
//! Data flows one way: `formats` read a file into a recording, `session` replays it, `commands` choose what is
//! replayed and what is shown, `charts` draw. Nothing here decides what the allocator does.

pub mod charts;
pub mod cli;
pub mod commands;
pub mod conformance;
pub mod estimate;
pub mod fail;
pub mod formats;
pub mod free_curve;
pub mod fuzzing;
#[cfg(feature = "cuda")]
pub mod gpu_check;
pub mod model_file;
pub mod moment;
pub mod progress;
pub mod session;
pub mod sizes;
pub mod table;
pub mod watchers;
