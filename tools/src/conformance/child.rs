//! Child: one check inside a process that was started for it.

use std::path::Path;

use super::bench::Bench;
use super::log::Log;
use super::{Check, Plan};

/// Loads the library, makes the check and writes down what it finds.
///
/// # Errors
/// The log cannot be written.
pub fn run(plan: Plan, check: &Check, log: &Path) -> std::io::Result<()> {
    let log = Log::create(log)?;
    log.at("loading the library");
    match Bench::open(plan, log) {
        Ok(bench) => {
            (check.run)(&bench);
            bench.log.done();
            // The library stays loaded: whatever it does at its end is no part of the check.
            std::mem::forget(bench);
        }
        Err((log, text)) => {
            log.unusable(text);
            log.done();
        }
    }
    Ok(())
}
