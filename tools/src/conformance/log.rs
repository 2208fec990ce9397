//! Log: what a check has found so far, in a file that outlives a crash.
//!
//! One JSON document a line, written when it is known. The last line that says what is being done says where a crash
//! happened. Asked by the child, which writes, and the parent, which reads.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// How many texts of one kind of finding are kept.
const TEXTS: u64 = 3;

/// Something that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// A word for programs: `misaligned`, `overlap`, `corrupted`, `refused`, `promised`, `order`, `leak`, `kept`,
    /// `crash`, `timeout`.
    pub kind: String,
    /// A sentence, of the first time.
    pub text: String,
    /// How often.
    pub count: u64,
}

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// What is being done.
    At(String),
    /// A finding, or once more a finding of this kind.
    Found { kind: String, text: Option<String> },
    /// Worth knowing, and no failure.
    Note(String),
    /// The check cannot be made here.
    Skipped(String),
    /// The library cannot be checked at all.
    Unusable(String),
    /// The end was reached.
    Done,
}

/// The writing side.
pub(super) struct Log {
    inside: Mutex<(File, BTreeMap<&'static str, u64>)>,
}

impl Log {
    pub(super) fn create(path: &Path) -> std::io::Result<Self> {
        Ok(Self { inside: Mutex::new((File::create(path)?, BTreeMap::new())) })
    }

    fn line(file: &mut File, line: &Line) {
        // A log that cannot be written reads as a check that did not come to its end.
        if let Ok(mut text) = serde_json::to_vec(line) {
            text.push(b'\n');
            let _ = file.write_all(&text);
        }
    }

    fn say(&self, line: &Line) {
        Self::line(&mut self.inside.lock().unwrap_or_else(PoisonError::into_inner).0, line);
    }

    /// What is done next.
    pub(super) fn at(&self, what: impl Into<String>) {
        self.say(&Line::At(what.into()));
    }

    /// Something does not hold.
    pub(super) fn found(&self, kind: &'static str, text: impl FnOnce() -> String) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, counts) = &mut *inside;
        let count = counts.entry(kind).or_default();
        *count += 1;
        let text = (*count <= TEXTS).then(text);
        Self::line(file, &Line::Found { kind: kind.to_owned(), text });
    }

    pub(super) fn note(&self, text: impl Into<String>) {
        self.say(&Line::Note(text.into()));
    }

    pub(super) fn skipped(&self, why: impl Into<String>) {
        self.say(&Line::Skipped(why.into()));
    }

    pub(super) fn unusable(&self, why: impl Into<String>) {
        self.say(&Line::Unusable(why.into()));
    }

    pub(super) fn done(&self) {
        self.say(&Line::Done);
    }
}

/// What the file says.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) at: String,
    pub(super) found: Vec<Finding>,
    pub(super) notes: Vec<String>,
    pub(super) skipped: Option<String>,
    pub(super) unusable: Option<String>,
    pub(super) done: bool,
}

/// Reads a log, whole or cut off.
pub(super) fn read(path: &Path) -> Said {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut said = Said::default();
    for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        match line {
            Line::At(what) => said.at = what,
            Line::Note(text) => said.notes.push(text),
            Line::Skipped(why) => said.skipped = Some(why),
            Line::Unusable(why) => said.unusable = Some(why),
            Line::Done => said.done = true,
            Line::Found { kind, text } => said.count(kind, text),
        }
    }
    said
}

impl Said {
    fn count(&mut self, kind: String, text: Option<String>) {
        match self.found.iter_mut().find(|finding| finding.kind == kind) {
            Some(finding) => finding.count += 1,
            None => self.found.push(Finding { kind, text: text.unwrap_or_default(), count: 1 }),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_was_cut_off_says_how_far_it_came() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = Log::create(&path).unwrap();
        log.at("one");
        (0..5).for_each(|time| log.found("overlap", || format!("time {time}")));
        log.at("two");
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}{{\"at\":\"thr")).unwrap();
        let said = read(&path);
        assert_eq!((said.at.as_str(), said.done), ("two", false));
        let expected = Finding { kind: "overlap".into(), text: "time 0".into(), count: 5 };
        assert_eq!(said.found, [expected]);
    }
}
