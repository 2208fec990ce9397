//! Programs: the interface in the hands of those it is for: C, C++ and Python, compiled by the system's compiler.
//!
//! The library is built by cargo first, as the documentation says to. A language that is not installed is skipped, and
//! says so.
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
        let built = cargo.current_dir(root()).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let said = String::from_utf8(built.stdout).unwrap();
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

/// Compiles a program against the header and the library; `None`: there is no compiler.
fn compiled(compiler: &str, standard: &str, source: &str, folder: &Path) -> Option<PathBuf> {
    if !is_there(compiler) {
        return None;
    }
    let program = folder.join(source.replace('.', "-"));
    let at = library().parent().unwrap();
    output(
        Command::new(compiler)
            .args([standard, "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread"])
            .arg(root().join("ffi/tests/programs").join(source))
            .arg("-I")
            .arg(root().join("include"))
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(at)
            .arg("-lblockyard")
            .arg(format!("-Wl,-rpath,{}", at.display())),
    );
    Some(program)
}

#[test]
fn a_program_in_c_uses_every_function() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("cc", "-std=c11", "program.c", folder.path()) else { return };
    let device = ("BLOCKYARD_DEVICE", "sim:256MiB");
    let said = output(Command::new(&program).arg(folder.path()).env(device.0, device.1));
    assert!(said.contains("c: done"), "{said}");
    let trace = blockyard_core::trace::file::read(folder.path().join("program.trace.zst")).unwrap();
    assert_eq!(trace.devices[0].allocations, 1);
}

#[test]
fn everything_is_recorded_where_the_environment_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("cc", "-std=c11", "program.c", folder.path()) else { return };
    let path = folder.path().join("run.trace.zst");
    let mut command = Command::new(&program);
    command.arg(folder.path()).env("BLOCKYARD_DEVICE", "sim:256MiB").env("BLOCKYARD_TRACE", &path);
    output(&mut command);
    let trace = blockyard_core::trace::file::read(&path).unwrap();
    assert!(trace.devices[0].allocations > 8000, "{}", trace.devices[0].allocations);
    assert!(trace.notices.iter().all(|notice| notice.code != "overflow"));
    // The second allocator of the process.
    let second = blockyard_core::trace::file::read(folder.path().join("run-2.trace.zst")).unwrap();
    assert_eq!(second.devices[0].allocations, 1);
}

#[test]
fn a_program_in_cpp_owns_memory() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("c++", "-std=c++17", "program.cpp", folder.path()) else { return };
    let said = output(&mut Command::new(&program));
    assert!(said.contains("cpp: done"), "{said}");
}

#[test]
fn a_program_in_python_uses_the_package() {
    if !is_there("python3") {
        return;
    }
    let said = output(
        Command::new("python3")
            .arg(root().join("ffi/tests/programs/program.py"))
            .env("PYTHONPATH", root().join("python/blockyard_torch"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("BLOCKYARD_LIBRARY", library()),
    );
    assert!(said.contains("python: done"), "{said}");
}
