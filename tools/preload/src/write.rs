//! Write: where the trace goes, and when: at the end of the process, and when a request failed.
//!
//! Owns the one record of the process, behind its lock. Without `BLOCKYARD_TRACE` nothing is recorded.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::SystemTime;

use blockyard::trace::file;

use crate::record::Record;

const VARIABLE: &str = "BLOCKYARD_TRACE";

struct Recorder {
    state: Mutex<State>,
    begun: SystemTime,
}

struct State {
    record: Record,
    path: PathBuf,
    /// Whether the file is ours already, and of which process: a fork is another one.
    written_by: Option<u32>,
    failures: u64,
}

static RECORDER: LazyLock<Option<Recorder>> = LazyLock::new(|| {
    let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty())?;
    // SAFETY: a function of this library, which is not unloaded: its handle is never closed.
    let _ = unsafe { libc::atexit(at_exit) };
    let path = path.to_string_lossy().replace("%p", &std::process::id().to_string());
    let state = State { record: Record::new(), path: path.into(), written_by: None, failures: 0 };
    Some(Recorder { state: Mutex::new(state), begun: SystemTime::now() })
});

/// Tells the record something. A panic stays here; so does everything after it.
pub(crate) fn tell<T>(what: impl FnOnce(&mut Record) -> T) -> Option<T> {
    let told = catch_unwind(AssertUnwindSafe(|| {
        let recorder = RECORDER.as_ref()?;
        let mut state = recorder.state.lock().unwrap_or_else(PoisonError::into_inner);
        Some(what(&mut state.record))
    }));
    told.ok().flatten()
}

/// A request failed: the first, second, fourth, eighth ... time the file is written.
pub(crate) fn failed() {
    let _ = catch_unwind(|| {
        let Some(recorder) = RECORDER.as_ref() else { return };
        let mut state = recorder.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failures += 1;
        if state.failures.is_power_of_two() {
            recorder.write(&mut state);
        }
    });
}

extern "C" fn at_exit() {
    let _ = catch_unwind(|| {
        let Some(recorder) = RECORDER.as_ref() else { return };
        let mut state = recorder.state.lock().unwrap_or_else(PoisonError::into_inner);
        recorder.write(&mut state);
    });
}

impl Recorder {
    fn write(&self, state: &mut State) {
        if state.record.is_empty() {
            return;
        }
        let process = std::process::id();
        if state.written_by != Some(process) {
            if state.written_by.is_some() || is_newer(&state.path, self.begun) {
                state.path = of_process(&state.path, process);
            }
            state.written_by = Some(process);
        }
        if let Err(error) = file::write(&state.path, state.record.recording()) {
            eprintln!("blockyard-preload: {VARIABLE}: {error}");
        }
    }
}

/// Whether another process of this run has written the file.
fn is_newer(path: &Path, begun: SystemTime) -> bool {
    let written = std::fs::metadata(path).and_then(|data| data.modified());
    written.is_ok_and(|written| written > begun)
}

/// `run.trace.zst` as `run-4711.trace.zst`.
fn of_process(path: &Path, process: u32) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let (stem, rest) = name.split_at(name.find('.').unwrap_or(name.len()));
    path.with_file_name(format!("{stem}-{process}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_process_has_a_file_of_its_own() {
        let name = |path| of_process(Path::new(path), 47).display().to_string();
        assert_eq!(name("a/run.trace.zst"), "a/run-47.trace.zst");
        assert_eq!(name("run"), "run-47");
    }
}
