//! Parent: one process a check, its time limit, and what it left behind.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::log::{self, Finding, Said};
use super::{CHECKS, Check, Plan};

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything holds.
    Passed,
    /// Something does not.
    Failed,
    /// It cannot be made here.
    Skipped,
}

impl Outcome {
    /// For the page and the JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// What one check came to.
#[derive(Debug)]
pub struct Result {
    /// Its name.
    pub name: &'static str,
    /// What must hold.
    pub rule: &'static str,
    /// How it ended.
    pub outcome: Outcome,
    /// What does not hold.
    pub findings: Vec<Finding>,
    /// What is worth knowing; of a check that was skipped: why.
    pub notes: Vec<String>,
    /// How long it took.
    pub seconds: f64,
}

/// All checks.
#[derive(Debug)]
pub struct Report {
    /// In order.
    pub results: Vec<Result>,
}

impl Report {
    /// How many ended so.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> usize {
        self.results.iter().filter(|result| result.outcome == outcome).count()
    }
}

/// Why nothing could be checked.
#[derive(Debug)]
pub struct Refused(pub String);

/// Makes the checks of a plan, by `program`, which is this binary.
///
/// # Errors
/// The library cannot be loaded, a symbol is missing, there is no such driver, no process can be started.
pub fn run(
    plan: &Plan,
    program: &Path,
    mut told: impl FnMut(&str),
) -> std::result::Result<Report, Refused> {
    let mut results: Vec<Result> = Vec::new();
    for check in &CHECKS {
        let asked = plan.only.is_empty() || plan.only.iter().any(|name| name == check.name);
        if !asked && check.name != "load" {
            continue;
        }
        told(check.name);
        let result = one(plan, program, check)?;
        let dead = check.name == "load" && result.outcome == Outcome::Failed;
        results.push(result);
        if dead {
            break;
        }
    }
    Ok(Report { results })
}

fn one(plan: &Plan, program: &Path, check: &'static Check) -> std::result::Result<Result, Refused> {
    let place = Scratch::new(check.name);
    let begin = Instant::now();
    let (status, complaints) = (|| {
        let complaints = File::create(place.complaints())?;
        let mut command = Command::new(program);
        command.args(arguments(plan, check, &place.log()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints);
        let status = wait(command.spawn()?, Duration::from_secs(plan.seconds))?;
        Ok((status, std::fs::read(place.complaints())?))
    })()
    .map_err(|error: std::io::Error| Refused(format!("a process for the check: {error}")))?;
    let said = log::read(&place.log());
    if let Some(why) = said.unusable {
        return Err(Refused(why));
    }
    let seconds = begin.elapsed().as_secs_f64();
    Ok(judged(plan, check, said, status, &String::from_utf8_lossy(&complaints), seconds))
}

fn judged(
    plan: &Plan,
    check: &'static Check,
    said: Said,
    status: Option<ExitStatus>,
    complaints: &str,
    seconds: f64,
) -> Result {
    let Said { at, mut found, mut notes, skipped, done, .. } = said;
    let last = complaints.lines().rfind(|line| !line.trim().is_empty());
    let last = last.map(|line| format!("; it said: {}", line.trim())).unwrap_or_default();
    let mut ended = |kind: &str, text: String| {
        found.insert(0, Finding { kind: kind.to_owned(), text, count: 1 });
    };
    match status {
        None => ended("timeout", format!("not done after {} s, at: {at}{last}", plan.seconds)),
        Some(status) if !done => ended("crash", format!("{status}, at: {at}{last}")),
        Some(_) => {}
    }
    let outcome = match (&found[..], skipped) {
        ([], Some(why)) => {
            notes = vec![why];
            Outcome::Skipped
        }
        ([], None) => Outcome::Passed,
        _ => Outcome::Failed,
    };
    Result { name: check.name, rule: check.rule, outcome, findings: found, notes, seconds }
}

/// `None`: it ran out of time, and was ended.
fn wait(mut child: Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begin.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The command line of the child.
fn arguments(plan: &Plan, check: &Check, log: &Path) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec!["conformance".into(), plan.library.clone().into()];
    let mut option = |name: &str, value: OsString| {
        let mut text = OsString::from(format!("--{name}="));
        text.push(value);
        all.push(text);
    };
    option("alloc", plan.alloc.clone().into());
    option("free", plan.free.clone().into());
    plan.reset.iter().for_each(|reset| option("reset", reset.into()));
    option("device", plan.place.name().into());
    plan.driver.iter().for_each(|driver| option("driver", driver.into()));
    option("ordinal", plan.device.to_string().into());
    option("threads", plan.threads.to_string().into());
    option("alignment", plan.alignment.to_string().into());
    option("seed", plan.seed.to_string().into());
    option("only", check.name.into());
    option("child", log.into());
    all
}

/// Two files for one check; gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(check: &str) -> Self {
        let name = format!("blockyard-conformance-{}-{check}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn log(&self) -> PathBuf {
        self.0.with_extension("log")
    }

    fn complaints(&self) -> PathBuf {
        self.0.with_extension("stderr")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.log());
        let _ = std::fs::remove_file(self.complaints());
    }
}
