//! Code: rules about single lines and files of Rust.

use super::tree::{File, Tree};

/// Lines of a file that are a guide, and the wall.
pub const GUIDE: usize = 400;
const WALL: usize = 600;

/// Columns that no line may pass, but rows of tables and lines with a text in quotes.
const COLUMNS: usize = 120;

/// Files above the wall, with the reason why they still are.
const TALL: [(&str, &str); 0] = [];

/// Where `unsafe` may stand. Files of tests and benches that count allocations need a global allocator, and
/// the simulated driver is a C interface to raw memory.
const UNSAFE: &[&str] = &[
    "src/device/host",
    "src/device/cuda/",
    // The trait that collections ask is unsafe to implement.
    "src/allocator/host_heap.rs",
    "src/interop/",
    "src/tensor/cuda.rs",
    "src/tensor/dlpack.rs",
    "tests/common/launch.rs",
    "src/ffi/",
    "ffi/",
    "kernels/host/",
    "tests/allocations.rs",
    "tests/simcuda/",
    "benches/",
    // Loads whatever library it is told to, and calls it, in a process made for that.
    "tools/src/conformance/foreign_",
    // A C interface that stands before the driver.
    "tools/preload/",
];

/// A line without its comment. Quotes are respected: `"//"` is no comment.
pub fn code_of(line: &str) -> &str {
    let (mut quoted, mut escaped) = (false, false);
    for (place, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            '/' if !quoted && line[place..].starts_with("//") => return &line[..place],
            _ => {}
        }
    }
    line
}

pub fn without_comments(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", code_of(line))).collect()
}

/// `unsafe` stands only where it may, with a reason on the comment lines before it.
pub fn unsafety(file: &File) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut found = Vec::new();
    for (number, line) in file.lines().filter(|(_, line)| begins_unsafe(code_of(line))) {
        let place = format!("{}:{number}", file.path);
        if !UNSAFE.iter().any(|allowed| file.path.starts_with(allowed)) {
            found.push(format!("{place}: unsafe may not stand in this file"));
        } else if !has_reason(&lines[..number]) {
            found.push(format!("{place}: {} without a SAFETY reason", line.trim()));
        }
    }
    found
}

/// A block or an implementation; a function's contract is the caller's.
fn begins_unsafe(code: &str) -> bool {
    let unquoted: String = code.split('"').step_by(2).collect();
    let words: Vec<&str> = unquoted.split_whitespace().collect();
    let begins = words.iter().any(|word| word.trim_start_matches(['(', '!']) == "unsafe");
    begins && !unquoted.contains("unsafe fn") && !unquoted.contains("unsafe extern")
}

/// The line itself, or the run of comments and attributes above it (or above the line it goes on from).
fn has_reason(lines: &[&str]) -> bool {
    let above = lines.iter().rev().enumerate().skip(1);
    let comments = above.take_while(|(distance, line)| {
        let line = line.trim();
        line.starts_with("//") || line.starts_with("#[") || (*distance == 1 && line.ends_with('='))
    });
    comments.map(|(_, line)| line).chain(lines.last()).any(|line| line.contains("SAFETY:"))
}

/// `unwrap`, `expect` without a stated reason, `todo` and `dbg`, outside tests.
pub fn panics(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    let mut test = false;
    for (number, line) in file.lines() {
        test |= line == "#[cfg(test)]";
        test &= line != "}" && !(line.starts_with("mod ") && line.ends_with(';'));
        let code = code_of(line);
        let unsaid = code.split(".expect(").skip(1).any(|rest| {
            !rest.trim().is_empty() && (!rest.starts_with('"') || rest.starts_with("\"\""))
        });
        let bad = [".unwrap()", "todo!(", "dbg!("].iter().any(|bad| code.contains(bad));
        if !test && (bad || unsaid) {
            found.push(format!("{}:{number}: {}", file.path, line.trim()));
        }
    }
    found
}

/// Files that are modules of tests: declared right below `#[cfg(test)]`.
pub fn test_modules(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in &tree.files_ending(".rs") {
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        for place in (0..lines.len()).filter(|&place| lines[place] == "#[cfg(test)]") {
            let path = lines.get(place + 1).and_then(|line| line.strip_prefix("#[path = \""));
            let declared = lines.iter().skip(place + 1).find(|line| line.starts_with("mod "));
            let Some(name) = declared.and_then(|line| line.strip_suffix(';')) else { continue };
            let (folder, name) = (file.folder(), &name[4..]);
            if let Some(path) = path {
                found.push(format!("{folder}/{}", path.trim_end_matches("\"]")));
            }
            let stem = file.path.trim_end_matches(".rs");
            found.push(format!("{folder}/{name}.rs"));
            found.push(format!("{stem}/{name}.rs"));
        }
    }
    found
}

/// A file begins with a line that says in a noun what it is.
pub fn head(file: &File) -> Vec<String> {
    let first = file.text.lines().next().unwrap_or_default();
    let named = first.strip_prefix("//! ").is_some_and(|text| {
        let initial = text.trim_start_matches('*').chars().next();
        initial.is_some_and(|c| c.is_uppercase() || text.starts_with("**"))
    });
    let complaint = || format!("{}: begins with {first:?}, expected `//! Noun: ...`", file.path);
    (!named).then(complaint).into_iter().collect()
}

/// No file above the wall, no line beyond the columns.
pub fn size(file: &File) -> Vec<String> {
    let count = file.text.lines().count();
    let excused = TALL.iter().any(|(path, _)| *path == file.path);
    let tall = count > WALL && !excused;
    let tall = tall.then(|| format!("{}: {count} lines, at most {WALL}", file.path));
    let wide = file.lines().filter(|(_, line)| {
        let table = line.trim_start_matches(['/', '!', ' ']).starts_with('|');
        line.chars().count() > COLUMNS && !table && !line.contains('"')
    });
    let wide = wide.map(|(number, line)| {
        format!("{}:{number}: {} columns, at most {COLUMNS}", file.path, line.chars().count())
    });
    tall.into_iter().chain(wide).collect()
}

/// What the compiler and clippy hold must stay denied, in every crate of the workspace.
pub fn lints(root: &str, tools: &str) -> Vec<String> {
    let denied = ["missing_docs", "unsafe_code", "unwrap_used", "dbg_macro", "todo"];
    let gone = denied.iter().filter(|lint| !root.contains(&format!("\n{lint} = \"deny\"")));
    let gone = gone.map(|lint| format!("Cargo.toml no longer denies {lint}"));
    let crates = [("Cargo.toml", root), ("tools/Cargo.toml", tools)];
    let free = crates.iter().filter(|(_, text)| !text.contains("[lints]\nworkspace = true"));
    gone.chain(free.map(|(path, _)| format!("{path}: not under the workspace's lints"))).collect()
}
