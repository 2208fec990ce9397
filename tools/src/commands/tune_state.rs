//! State: results of replays in a file, so that a long search can be taken up again.
//!
//! One JSON line for the search (traces and options, as a digest), then one for each result. A last line that was
//! cut off by a crash is left out.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use blockyard::diagnosis::search::Measured;
use blockyard::diagnosis::search::rows::{Evaluated, Job};
use blockyard::diagnosis::search::tune::Archive;
use serde::{Deserialize, Serialize};

use crate::fail::{Fail, cannot_write};

/// Results known, and where new ones go.
pub(super) struct State {
    known: HashMap<(String, usize), Evaluated>,
    file: Option<Mutex<File>>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    blockyard_tune: u32,
    search: String,
}

#[derive(Serialize, Deserialize)]
struct Line {
    settings: String,
    trace: usize,
    completes: bool,
    given_up: bool,
    peaks: [u64; 3],
    device_allocs: u64,
    device_frees: u64,
    retries: u64,
    device_nanos: u64,
    allocs: u64,
    failed_at: Option<u32>,
    pools: BTreeMap<u32, u64>,
    min_capacity: Option<u64>,
    at_least: Option<u64>,
}

impl State {
    /// No file.
    pub(super) fn none() -> Self {
        Self { known: HashMap::new(), file: None }
    }

    /// Takes up the file, or begins it.
    pub(super) fn open(path: &Path, search: &str) -> Result<Self, Fail> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Fail::BadInput(format!("{}: {error}", path.display()))),
        };
        let known = results(path, &text, search)?;
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(path);
        let mut file = file.map_err(|error| cannot_write(path, error))?;
        let head = Head { blockyard_tune: 1, search: search.to_string() };
        if text.is_empty() {
            write_line(&mut file, &head).map_err(|error| cannot_write(path, error))?;
        } else if !text.ends_with('\n') {
            file.write_all(b"\n").map_err(|error| cannot_write(path, error))?;
        }
        Ok(Self { known, file: Some(Mutex::new(file)) })
    }
}

/// The results in a file, if it is of this search.
fn results(
    path: &Path,
    text: &str,
    search: &str,
) -> Result<HashMap<(String, usize), Evaluated>, Fail> {
    let mut lines = text.lines();
    let Some(first) = lines.next() else { return Ok(HashMap::new()) };
    let strange = |found: &str| {
        Err(Fail::BadInput(format!(
            "{}: line 1: {found}, expected the state of a search for these traces with these options; \
             name another file",
            path.display()
        )))
    };
    match serde_json::from_str::<Head>(first) {
        Err(_) => strange("not a state of blockyard tune"),
        Ok(head) if head.search != search => strange("the state of another search"),
        Ok(_) => Ok(lines
            .filter_map(|line| serde_json::from_str::<Line>(line).ok())
            .map(|line| ((line.settings.clone(), line.trace), line.into()))
            .collect()),
    }
}

fn write_line(file: &mut File, line: &impl Serialize) -> std::io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    file.write_all(text.as_bytes())
}

impl Archive for State {
    fn recall(&self, spec: &str, job: usize) -> Option<Evaluated> {
        self.known.get(&(spec.to_string(), job)).cloned()
    }

    fn keep(&self, spec: &str, job: usize, found: &Evaluated) {
        let Some(file) = &self.file else { return };
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        // A result that cannot be kept is measured again the next time.
        let _ = write_line(&mut file, &Line::of(spec, job, found));
    }
}

impl Line {
    fn of(spec: &str, trace: usize, found: &Evaluated) -> Self {
        let at = &found.at;
        Self {
            settings: spec.to_string(),
            trace,
            completes: at.completes,
            given_up: at.given_up,
            peaks: [at.peak_requested, at.peak_allocated, at.peak_reserved],
            device_allocs: at.device_allocs,
            device_frees: at.device_frees,
            retries: at.retries,
            device_nanos: at.device_nanos,
            allocs: at.allocs,
            failed_at: at.failed_at,
            pools: at.pools.clone(),
            min_capacity: found.min_capacity,
            at_least: found.at_least,
        }
    }
}

impl From<Line> for Evaluated {
    fn from(line: Line) -> Self {
        let [peak_requested, peak_allocated, peak_reserved] = line.peaks;
        Self {
            at: Measured {
                completes: line.completes,
                given_up: line.given_up,
                peak_requested,
                peak_allocated,
                peak_reserved,
                device_allocs: line.device_allocs,
                device_frees: line.device_frees,
                retries: line.retries,
                device_nanos: line.device_nanos,
                allocs: line.allocs,
                failed_at: line.failed_at,
                pools: line.pools,
            },
            min_capacity: line.min_capacity,
            at_least: line.at_least,
        }
    }
}

/// A digest of what is replayed: every request of every trace.
pub(super) fn digest(jobs: &[Job<'_>]) -> u64 {
    let mut digest = 0xcbf2_9ce4_8422_2325u64;
    let mut add = |value: u64| digest = (digest ^ value).wrapping_mul(0x0000_0100_0000_01b3);
    for job in jobs {
        add(job.capacity.unwrap_or(u64::MAX));
        for event in &job.subject.trace.events {
            add(event.kind as u64);
            add(event.bytes);
            add(u64::from(event.allocation));
            add(u64::from(event.stream.0) << 32 | u64::from(event.pool.0));
        }
    }
    digest
}
