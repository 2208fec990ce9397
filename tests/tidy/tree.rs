//! Tree: the repository's text files, read once. Binary files and build folders are left out.

use std::fs;
use std::path::Path;

/// One text file.
#[derive(Clone, Debug)]
pub struct File {
    /// From the root, with forward slashes.
    pub path: String,
    pub text: String,
}

impl File {
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// Lines with their numbers, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    /// The folder that it lies in, from the root.
    pub fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

/// The repository.
pub struct Tree {
    /// Text files by path.
    pub files: Vec<File>,
    /// Every path, folders and binary files too.
    paths: Vec<String>,
}

impl Tree {
    pub fn read() -> Self {
        let mut tree = Self { files: Vec::new(), paths: vec![String::new()] };
        tree.walk(Path::new(env!("CARGO_MANIFEST_DIR")), "");
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        tree
    }

    fn walk(&mut self, folder: &Path, prefix: &str) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type().unwrap();
            if is_left_out(prefix, &name) || kind.is_symlink() {
                continue;
            }
            if kind.is_dir() {
                self.walk(&entry.path(), &format!("{path}/"));
            } else if let Ok(text) = String::from_utf8(fs::read(entry.path()).unwrap()) {
                self.files.push(File { path: path.clone(), text });
            }
            self.paths.push(path);
        }
    }

    /// Whether a file or folder stands there.
    pub fn holds(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.paths.iter().any(|other| other == path)
    }

    /// The text of a file that must be there.
    pub fn text(&self, path: &str) -> String {
        let file = self.files.iter().find(|file| file.path == path);
        file.unwrap_or_else(|| panic!("{path} is missing")).text.clone()
    }

    /// Rust files whose path begins so.
    pub fn rust(&self, prefix: &str) -> Vec<File> {
        let files = self.files_ending(".rs").into_iter();
        files.filter(|file| file.path.starts_with(prefix)).collect()
    }

    pub fn files_ending(&self, suffix: &str) -> Vec<File> {
        self.files.iter().filter(|file| file.path.ends_with(suffix)).cloned().collect()
    }

    /// Folders that hold Rust files, under these.
    pub fn folders(&self, roots: &[&str]) -> Vec<String> {
        let files = self.files_ending(".rs");
        let inside = |folder: &str| roots.iter().any(|root| folder.starts_with(root));
        let mut folders: Vec<String> =
            files.iter().map(|f| f.folder().into()).filter(|f: &String| inside(f)).collect();
        folders.dedup();
        folders
    }

    /// The rooms of the library: its folders and files beside `lib.rs`.
    pub fn rooms(&self) -> Vec<String> {
        let names = self.files_ending(".rs");
        let mut rooms: Vec<String> =
            names.iter().filter_map(|file| super::imports::room_of(&file.path)).collect();
        rooms.dedup();
        rooms
    }
}

/// Build folders, caches, and whatever begins with a dot but continuous integration.
fn is_left_out(prefix: &str, name: &str) -> bool {
    let hidden = name.starts_with('.') && !matches!(name, ".ci" | ".github" | ".gitignore");
    let build = name.starts_with("target") && !prefix.starts_with("src");
    let corpus = prefix == "fuzz/" && matches!(name, "artifacts" | "corpus" | "coverage");
    let borrowed = prefix.is_empty() && name == super::documents::BORROWED;
    hidden || build || corpus || borrowed || name == "node_modules"
}
