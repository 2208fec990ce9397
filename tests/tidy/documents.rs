//! Documents: rules about prose: paths that exist, links that lead somewhere, no machine's name.

use super::tree::{File, Tree};

/// A folder beside the sources that holds what others lent, where there is one.
pub const BORROWED: &str = concat!("sha", "red");

/// What looks like a path in backticks and is none.
pub fn paths(file: &File, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let quoted = file.text.split('`').skip(1).step_by(2);
    let paths = quoted.filter(|text| is_path(text));
    let gone = paths.filter(|path| !exists(path));
    gone.map(|path| format!("{}: names {path}, which does not exist", file.path)).collect()
}

fn is_path(text: &str) -> bool {
    let plain = text.chars().all(|c| c.is_alphanumeric() || "_-./".contains(c));
    let suffix = [".rs", ".md", ".toml", ".txt", "/"].iter().any(|end| text.ends_with(end));
    plain && suffix && text.len() > 3 && !text.starts_with('.')
}

/// Folders of the sources that the map does not name.
pub fn folders(file: &File, folders: &[String]) -> Vec<String> {
    let unnamed = folders.iter().filter(|folder| !file.text.contains(&format!("`{folder}/")));
    unnamed.map(|folder| format!("{}: does not name {folder}/", file.path)).collect()
}

/// Relative links whose file or heading does not exist.
pub fn links(file: &File, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let targets = file.text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let relative = targets.filter(|target| !target.contains(':') && !target.contains(' '));
    let dead = relative.filter(|target| {
        let (path, part) = target.split_once('#').unwrap_or((target, ""));
        let path = if path.is_empty() { file.path.clone() } else { resolve(file.folder(), path) };
        // A made-up file has no parts to look for.
        let own = path == file.path;
        !(own || exists(&path)) || (!part.is_empty() && !own && !has_heading(&path, part))
    });
    dead.map(|target| format!("{}: {target} leads nowhere", file.path)).collect()
}

fn has_heading(path: &str, part: &str) -> bool {
    let text = Tree::read().text(path);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(slug).any(|heading| heading == part)
}

/// A heading as its link spells it.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// `../x` from `folder`, from the root.
fn resolve(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Paths of somebody's machine have no place here.
pub fn machines(file: &File) -> Vec<String> {
    let marks = [
        concat!("/wo", "rk/"),
        concat!("/tmp", "/wt"),
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("/Us", "ers/"),
    ];
    let borrowed = format!("{BORROWED}/");
    let mut found = Vec::new();
    for (number, line) in file.lines() {
        let mark = marks.iter().find(|mark| line.contains(**mark)).copied();
        let mark = mark.or_else(|| line.contains(&borrowed).then_some(BORROWED));
        found.extend(mark.map(|mark| format!("{}:{number}: names {mark}", file.path)));
    }
    found
}
