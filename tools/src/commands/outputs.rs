//! Outputs: refuses a command that would write over a file which it reads, or twice to one file.
//!
//! Asked once, before a command reads or writes anything; knows for every command what it reads and
//! what it writes, also the files that it names by itself. Never opens a file.

use std::path::{Path, PathBuf};

use crate::cli::{Command, Engine};
use crate::fail::Fail;

/// What a command reads and what it writes.
#[derive(Default)]
struct Names {
    inputs: Vec<PathBuf>,
    outputs: Vec<PathBuf>,
}

/// Refuses an output that is an input, or another output, whatever it is called.
pub(super) fn check(command: &Command) -> Result<(), Fail> {
    let Names { inputs, outputs } = names(command);
    if outputs.is_empty() {
        return Ok(());
    }
    let inputs: Vec<(PathBuf, Identity)> = inputs
        .iter()
        .filter(|path| *path != Path::new("-"))
        .flat_map(|path| inside(path))
        .filter_map(|path| identity(&path).map(|identity| (path, identity)))
        .collect();
    let mut before: Vec<(&Path, Identity)> = Vec::new();
    for path in &outputs {
        let Some(identity) = identity(path) else { continue };
        if let Some((input, _)) = inputs.iter().find(|(_, input)| *input == identity) {
            return Err(refused(path, input, "which is read", "another name to write to"));
        }
        if let Some((other, _)) = before.iter().find(|(_, other)| *other == identity) {
            return Err(refused(path, other, "which is written too", "a name for each output"));
        }
        before.push((path, identity));
    }
    Ok(())
}

fn refused(path: &Path, other: &Path, why: &str, expected: &str) -> Fail {
    let same = if path == other { "this is" } else { "this is the same file as" };
    Fail::BadInput(format!(
        "{}: {same} {}, {why}; expected {expected}; nothing was written",
        path.display(),
        other.display()
    ))
}

fn names(command: &Command) -> Names {
    let mut names = Names::default();
    match command {
        Command::Replay(arguments) => {
            names.inputs.clone_from(&arguments.files);
            names.engine(&arguments.engine);
            names.outputs.extend(arguments.render.iter().chain(&arguments.output).cloned());
        }
        Command::Render(arguments) => {
            names.inputs.push(arguments.file.clone());
            names.engine(&arguments.engine);
            names.outputs.push(arguments.output.clone());
        }
        Command::Convert(arguments) => {
            names.inputs.push(arguments.from.clone());
            names.engine(&arguments.engine);
            names.outputs.push(arguments.to_file.clone());
        }
        Command::Shrink(arguments) => {
            names.inputs.extend([arguments.file.clone(), PathBuf::from(&arguments.policy)]);
            names.outputs.push(arguments.output.clone());
            names.outputs.extend(arguments.csv.iter().cloned());
            if let Some(case) = &arguments.test_case {
                names.outputs.push(case.clone());
                names.outputs.extend(super::shrink_case::beside(case));
            }
        }
        Command::Tune(arguments) => {
            names.inputs.clone_from(&arguments.files);
            names.inputs.extend(arguments.policy.iter().map(PathBuf::from));
            names.outputs.extend(arguments.resume.iter().cloned());
        }
        Command::Summary(_)
        | Command::Explain(_)
        | Command::Estimate(_)
        | Command::Conformance(_)
        | Command::Settings(_)
        | Command::MinCapacity(_)
        | Command::Diff(_)
        | Command::Leaks(_)
        | Command::Doctor(_)
        | Command::Check(_)
        | Command::Completions(_)
        | Command::Man => {}
    }
    names
}

impl Names {
    /// Settings files are read as well.
    fn engine(&mut self, engine: &Engine) {
        self.inputs.extend(engine.policies.iter().map(PathBuf::from));
    }
}

/// The files that a path stands for: a directory for those in it.
fn inside(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_path_buf()];
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// What makes two names the same file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    /// Standard output.
    Standard,
    /// A file that exists: its device and number.
    #[cfg(unix)]
    Number(u64, u64),
    /// A file that does not exist yet, or one where files have no numbers: its whole name.
    Name(PathBuf),
}

/// The file that a name leads to; nothing for what cannot be overwritten (a terminal, a pipe).
fn identity(path: &Path) -> Option<Identity> {
    if path == Path::new("-") {
        return Some(Identity::Standard);
    }
    match std::fs::metadata(path) {
        Ok(meta) if !meta.is_file() => None,
        #[cfg(unix)]
        Ok(meta) => {
            use std::os::unix::fs::MetadataExt;
            Some(Identity::Number(meta.dev(), meta.ino()))
        }
        #[cfg(not(unix))]
        Ok(_) => path.canonicalize().ok().map(Identity::Name),
        Err(_) => Some(Identity::Name(whole(path))),
    }
}

/// The whole name of a file that is not there yet: through links that lead nowhere, in its real folder.
fn whole(path: &Path) -> PathBuf {
    const LINKS: usize = 16;
    let mut path = path.to_path_buf();
    for _ in 0..LINKS {
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new(".")).canonicalize();
    match (folder, path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path,
    }
}
