//! Conformance: whether an allocator, given as C functions, does what a caller of such functions relies on.
//!
//! Owns the list of checks. Each runs in a process of its own (`parent` starts it, `child` is what it does), so that a
//! library that crashes or hangs is a finding and not the end of the report. Never knows which allocator it is.
//!
//! | file | what |
//! |---|---|
//! | `parent` | one process a check, its time limit, what it left behind |
//! | `child` | inside that process: loads, checks, writes down |
//! | `log` | what was found so far, in a file that outlives a crash |
//! | `bench` | allocates and frees on behalf of a check; sees overlaps, alignment, contents |
//! | `basics`, `crowd`, `time` | the checks: single calls; threads, streams, stress; leak, reuse, reset |
//! | `foreign_library`, `foreign_driver` | the library's functions, the driver's; all the unsafe code |

mod basics;
mod bench;
mod child;
mod crowd;
mod foreign_driver;
mod foreign_library;
mod log;
mod parent;
mod time;

use std::path::PathBuf;

use bench::Bench;
pub use child::run as child;
pub use log::Finding;
pub use parent::{Outcome, Refused, Report, Result, run};

/// Whose memory the library hands out, and so how it may be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Place {
    /// The process's own: it is written and read directly.
    Host,
    /// A simulated CUDA driver's: through its copies; any other driver is refused.
    Sim,
    /// A CUDA driver's.
    Cuda,
}

impl Place {
    /// As it is typed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Sim => "sim",
            Self::Cuda => "cuda",
        }
    }
}

/// What is checked, and how hard.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The library.
    pub library: PathBuf,
    /// `void* alloc(ssize_t size, int device, void* stream)`
    pub alloc: String,
    /// `void free(void* ptr, ssize_t size, int device, void* stream)`
    pub free: String,
    /// `void reset(void)`: gives cached memory back.
    pub reset: Option<String>,
    /// Whose memory.
    pub place: Place,
    /// The driver to load first; none: the system's.
    pub driver: Option<PathBuf>,
    /// What `device` is in each call.
    pub device: i32,
    /// How many threads.
    pub threads: usize,
    /// What every address must be a multiple of.
    pub alignment: u64,
    /// Seconds for one check.
    pub seconds: u64,
    /// Which random numbers.
    pub seed: u64,
    /// Only these checks; empty: all.
    pub only: Vec<String>,
}

/// One check.
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// What must hold.
    pub rule: &'static str,
    /// What it does.
    run: fn(&Bench),
}

/// All of them, in order. The first loads the library and no more.
pub const CHECKS: [Check; 11] = [
    Check { name: "load", rule: "the library loads and has the symbols", run: |_| {} },
    Check {
        name: "alignment",
        rule: "every address is a multiple of the alignment",
        run: basics::alignment,
    },
    Check {
        name: "overlap",
        rule: "live blocks share no byte and keep their contents",
        run: basics::overlap,
    },
    Check {
        name: "zero",
        rule: "no bytes and null pointers are answered, and do no harm",
        run: basics::zero,
    },
    Check {
        name: "huge",
        rule: "what cannot be had is a null pointer, and the next request is served",
        run: basics::huge,
    },
    Check {
        name: "threads",
        rule: "threads allocate, hand over and free at the same time",
        run: crowd::threads,
    },
    Check {
        name: "streams",
        rule: "streams do not disturb each other, nor see memory before its work is done",
        run: crowd::streams,
    },
    Check {
        name: "stress",
        rule: "thousands of random requests keep their contents",
        run: crowd::stress,
    },
    Check {
        name: "leak",
        rule: "memory in use does not grow over rounds that free everything",
        run: time::leak,
    },
    Check { name: "reuse", rule: "freed memory serves again", run: time::reuse },
    Check {
        name: "reset",
        rule: "reset leaves live blocks alone and gives the rest back",
        run: time::reset,
    },
];

/// The check of this name.
#[must_use]
pub fn check(name: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| check.name == name)
}
