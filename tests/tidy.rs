//! Tidy: what must stay true of the text of this repository, read as plain files.
//!
//! Each rule is a function from text to complaints and stands in `tests/tidy/`; here each is put to the repository,
//! and to a bad sample that it must complain about: a rule that cannot fail is no rule.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "tidy/code.rs"]
mod code;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/invariants.rs"]
mod invariants;
#[path = "tidy/tree.rs"]
mod tree;

use imports::Block;
use tree::{File, Tree};

/// Fails with all complaints, one on each line.
fn hold(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} complaints:\n{}\n", complaints.len(), complaints.join("\n"));
}

/// What a rule says of one made-up file.
fn said(rule: impl Fn(&File) -> Vec<String>, path: &str, text: &str) -> usize {
    rule(&File::new(path, text)).len()
}

fn each(files: &[File], rule: impl Fn(&File) -> Vec<String>) -> Vec<String> {
    files.iter().flat_map(rule).collect()
}

fn block(tree: &Tree) -> Block {
    Block::parse(&tree.text("ARCHITECTURE.md")).unwrap()
}

const SAMPLE: &str = "## Who may import whom\n\n```\nvocab ->\nstore -> vocab\nlib -> vocab store\ntools -> lib\n```\n";

#[test]
fn rooms_import_as_the_block_says() {
    let tree = Tree::read();
    let block = block(&tree);
    hold(&each(&tree.rust("src/"), |file| block.complaints(file)));
    hold(&block.against_rooms(&tree.rooms()));

    let sample = Block::parse(SAMPLE).unwrap();
    let rule = |file: &File| sample.complaints(file);
    assert_eq!(said(rule, "src/store/a.rs", "use crate::vocab::X;\nuse super::b;"), 0);
    assert_eq!(said(rule, "src/vocab/a.rs", "use crate::store::Y;"), 1);
    assert_eq!(said(rule, "src/vocab/a.rs", "use crate::{store::Y, vocab::X};"), 1);
    assert_eq!(said(rule, "src/vocab/a.rs", "use crate::{\n    vocab::{X, Y},\n    store,\n};"), 1);
    assert_eq!(said(rule, "src/vocab/a.rs", "fn f(x: crate::store::Y) {}"), 1);
    assert_eq!(said(rule, "src/vocab/a.rs", "use super::super::store::Y;"), 1, "around the house");
    assert_eq!(said(rule, "src/vocab/mod.rs", "use super::store::Y;"), 1, "around the house");
    assert_eq!(said(rule, "src/vocab/a.rs", "// crate::store is a word here"), 0);
    assert_eq!(said(rule, "src/attic/a.rs", ""), 1, "no such room");
    assert_eq!(said(rule, "src/lib.rs", "pub mod vocab;\npub mod attic;"), 1);
    assert_eq!(sample.against_rooms(&["vocab".into()]).len(), 1, "store is gone");
    assert!(Block::parse("no block").is_err());
    let circle = SAMPLE.replace("vocab ->", "vocab -> store");
    assert!(Block::parse(&circle).is_err(), "a room may use lower rows only");
}

#[test]
fn tools_use_public_names_and_nothing_names_the_tools() {
    let tree = Tree::read();
    let block = block(&tree);
    hold(&each(&tree.rust("tools/src/"), |file| block.tools(file)));
    hold(&each(&tree.rust("src/"), imports::names_tools));

    let sample = Block::parse(SAMPLE).unwrap();
    let rule = |file: &File| sample.tools(file);
    assert_eq!(said(rule, "tools/src/a.rs", "use blockyard::{vocab::X, store::Y};"), 0);
    assert_eq!(said(rule, "tools/src/a.rs", "use blockyard::attic::X;"), 1);
    assert_eq!(said(rule, "tools/src/a.rs", "#[path = \"../../src/heap/mod.rs\"]\nmod heap;"), 1);
    assert_eq!(said(imports::names_tools, "src/vocab/a.rs", "use blockyard_tools::cli;"), 1);
}

#[test]
fn unsafe_has_its_place_and_its_reason() {
    let tree = Tree::read();
    hold(&each(&tree.rust(""), code::unsafety));

    let good = "// SAFETY: it is ours.\nlet x = unsafe { y() };";
    assert_eq!(said(code::unsafety, "src/device/host.rs", good), 0);
    assert_eq!(said(code::unsafety, "src/heap/mod.rs", good), 1, "not there");
    assert_eq!(said(code::unsafety, "src/device/host.rs", "let x = unsafe { y() };"), 1);
    let far = "// SAFETY: it is ours.\nlet a = 1;\nlet b = 2;\nlet x = unsafe { y() };";
    assert_eq!(said(code::unsafety, "src/device/host.rs", far), 1);
    assert_eq!(said(code::unsafety, "src/heap/mod.rs", "// unsafe is a word\n\"unsafe\""), 0);
}

#[test]
fn nothing_in_the_library_or_the_tools_may_panic_unsaid() {
    let tree = Tree::read();
    let tests = code::test_modules(&tree);
    let product = tree.rust("src/").into_iter().chain(tree.rust("tools/src/"));
    let product: Vec<File> = product.filter(|file| !tests.contains(&file.path)).collect();
    hold(&each(&product, code::panics));

    for bad in ["x.unwrap();", "x.expect(text);", "todo!()", "dbg!(x)", "x.expect(\"\")"] {
        assert_eq!(said(code::panics, "src/a.rs", bad), 1, "{bad}");
    }
    for good in ["x.expect(\"the map holds what was put in\")", "// x.unwrap()", "x.unwrap_or(1)"] {
        assert_eq!(said(code::panics, "src/a.rs", good), 0, "{good}");
    }
    let test = "#[cfg(test)]\nmod tests {\n    fn f() { x.unwrap(); }\n}\n";
    assert_eq!(said(code::panics, "src/a.rs", test), 0);
    assert_eq!(said(code::panics, "src/a.rs", &format!("{test}fn g() {{ x.unwrap(); }}")), 1);
}

#[test]
fn files_have_a_head_and_a_size() {
    let tree = Tree::read();
    let product: Vec<File> = tree.rust("src/").into_iter().chain(tree.rust("tools/")).collect();
    hold(&each(&product, code::head));
    hold(&each(&tree.rust(""), code::size));
    for file in tree.rust("").iter().filter(|file| file.text.lines().count() > code::GUIDE) {
        println!("note: {} has {} lines", file.path, file.text.lines().count());
    }

    assert_eq!(said(code::head, "src/a.rs", "//! Slab: values in slots."), 0);
    assert_eq!(said(code::head, "src/a.rs", "//! values in slots"), 1);
    assert_eq!(said(code::head, "src/a.rs", "use core::fmt;"), 1);
    assert_eq!(said(code::size, "src/a.rs", &"x\n".repeat(601)), 1);
    assert_eq!(said(code::size, "src/a.rs", &format!("// {}", "x".repeat(120))), 1);
    assert_eq!(said(code::size, "src/a.rs", &format!("f(\"{}\")", "x".repeat(120))), 0, "a text");
}

#[test]
fn the_compiler_denies_what_it_can() {
    let tree = Tree::read();
    let (root, tools) = (tree.text("Cargo.toml"), tree.text("tools/Cargo.toml"));
    hold(&code::lints(&root, &tools));

    let allowed = root.replace("missing_docs = \"deny\"", "missing_docs = \"allow\"");
    assert_eq!(code::lints(&allowed, &tools).len(), 1);
    assert_eq!(code::lints(&root, "[package]").len(), 1);
}

#[test]
fn the_map_names_what_exists() {
    let tree = Tree::read();
    let exists = |path: &str| tree.holds(path);
    let map = File::new("ARCHITECTURE.md", &tree.text("ARCHITECTURE.md"));
    hold(&documents::paths(&map, exists));
    hold(&documents::folders(&map, &tree.folders(&["src", "tools/src"])));

    let bad = File::new("ARCHITECTURE.md", "`src/attic/mod.rs` and `src/lib.rs`");
    assert_eq!(documents::paths(&bad, exists).len(), 1);
    assert_eq!(documents::folders(&bad, &["src/heap".into()]).len(), 1);
}

#[test]
fn links_lead_somewhere() {
    let tree = Tree::read();
    let exists = |path: &str| tree.holds(path);
    hold(&each(&tree.files_ending(".md"), |file| documents::links(file, exists)));

    let rule = |file: &File| documents::links(file, exists);
    assert_eq!(said(rule, "docs/a.md", "[a](../Cargo.toml), [b](https://x.y/z), [c](#part)"), 0);
    assert_eq!(said(rule, "docs/a.md", "[a](attic.md)"), 1);
    assert_eq!(said(rule, "docs/a.md", "[a](cli.md#no-such-part)"), 1);
}

#[test]
fn nothing_names_a_machine() {
    hold(&each(&Tree::read().files, documents::machines));
    let path = ["", "home", "me", "x"].join("/");
    assert_eq!(said(documents::machines, "docs/a.md", &path), 1);
    assert_eq!(said(documents::machines, "docs/a.md", "a shared object; /dev/null"), 0);
}

#[test]
fn every_invariant_is_owned_and_tested() {
    let tree = Tree::read();
    let list = invariants::list(&tree.text("docs/invariants.md"));
    assert!(list.len() > 30, "only {} rows were understood", list.len());
    hold(&invariants::complaints(&list, &tree.rust("")));

    let row = |text: &str| invariants::list(&format!("| **Q1** | words | {text} |"));
    let file = File::new("src/a.rs", "//! **Q1** holds.\n#[test]\nfn q1_holds() {}");
    let against = |text: &str| invariants::complaints(&row(text), std::slice::from_ref(&file));
    assert_eq!(against("`src/a.rs` | | | `q1_holds`").len(), 0);
    assert_eq!(against("`src/b.rs` | | | `q1_holds`").len(), 1, "no such owner");
    assert_eq!(against("`src/a.rs` | | | `q1_fails`").len(), 1, "no such test");
    assert_eq!(against("`src/a.rs` | | |  ").len(), 1, "no test at all");
    assert_eq!(invariants::complaints(&[], std::slice::from_ref(&file)).len(), 1, "not listed");
    let mute = [File::new("src/a.rs", "//! A.\n#[test]\nfn q1_holds() {}")];
    assert_eq!(invariants::complaints(&row("`src/a.rs` | | | `q1_holds`"), &mute).len(), 1);
}
