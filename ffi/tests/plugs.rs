//! Plugs: the adaptors for CuPy, RMM and Numba, over `libblockyard` and stubs of those packages.
//!
//! None of the three runs here: they need a GPU. What is tested is our side of their interfaces, as their documentation
//! gives them. A language that is not installed is skipped, and says so.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// `libblockyard`, built by the documented command.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "-p", "blockyard-ffi", "--message-format=json"]);
        let said = output(cargo.current_dir(root()));
        let names = said.split('"').filter(|text| text.contains("libblockyard."));
        let mut libraries = names.filter(|name| name.ends_with(std::env::consts::DLL_SUFFIX));
        PathBuf::from(libraries.next().expect("cargo names the library"))
    })
}

fn output(command: &mut Command) -> String {
    let done = command.output().unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {}\n{said}{complained}", done.status);
    said.into_owned()
}

fn is_there(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        println!("SKIPPED: there is no {program}");
    }
    there
}

#[test]
fn the_examples_in_python_run_over_stubs() {
    if !is_there("python3") {
        return;
    }
    let plug = root().join("ffi/tests/plug");
    let path = std::env::join_paths([root().join("examples/plug"), plug.join("python")]).unwrap();
    let mut python = Command::new("python3");
    python.arg("-B").arg(plug.join("check.py")).env("PYTHONPATH", path);
    python.env("BLOCKYARD_LIBRARY", library()).env("BLOCKYARD_DEVICE", "sim:64MiB");
    let said = output(&mut python);
    assert!(said.contains("plug: done"), "{said}");
}

#[test]
fn the_header_for_rmm_compiles_with_and_without_it() {
    if !is_there("c++") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (plug, at) = (root().join("ffi/tests/plug"), library().parent().unwrap());
    for (standard, stub) in [("-std=c++17", false), ("-std=c++17", true), ("-std=c++20", true)] {
        let program = folder.path().join("program");
        let mut compiler = Command::new("c++");
        compiler.args([standard, "-Wall", "-Wextra", "-Werror", "-O1"]);
        compiler.arg(plug.join("program.cpp")).arg("-I").arg(root().join("include"));
        if stub {
            compiler.arg("-I").arg(plug.join("include"));
        }
        compiler.arg("-o").arg(&program).arg("-L").arg(at).arg("-lblockyard");
        output(compiler.arg(format!("-Wl,-rpath,{}", at.display())));
        let said = output(&mut Command::new(&program));
        assert!(said.contains("plug: done"), "{said}");
        assert_eq!(said.contains("with RMM's class"), stub, "{said}");
    }
}
