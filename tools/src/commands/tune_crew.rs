//! Crew: the threads that replay for a search, with a progress bar for whoever watches a terminal.

use std::sync::atomic::{AtomicU64, Ordering};

use blockyard::diagnosis::search::Crew;
use indicatif::ProgressBar;
use rayon::prelude::*;

use crate::progress;

/// All threads of the machine.
pub(super) struct Threads {
    bar: ProgressBar,
    done: AtomicU64,
}

impl Threads {
    pub(super) fn new(what: &str, quiet: bool) -> Self {
        Self { bar: progress::bar(0, what, quiet), done: AtomicU64::new(0) }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Crew for Threads {
    fn each<T: Send>(&self, count: usize, work: &(dyn Fn(usize) -> T + Sync)) -> Vec<T> {
        (0..count).into_par_iter().map(work).collect()
    }

    fn progress(&self, done: usize, of: usize, what: &str) {
        let done = self.done.fetch_max(done as u64, Ordering::Relaxed).max(done as u64);
        self.bar.set_length(of as u64);
        self.bar.set_position(done.min(of as u64));
        self.bar.set_message(what.to_string());
    }
}
