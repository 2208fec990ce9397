//! GPU check: the whole of it on the simulated driver, which it must name as such.
#![allow(missing_docs, clippy::unwrap_used)]
#![cfg(feature = "cuda")]

use std::process::Command;

use blockyard_simcuda::control::library_path;

const BINARY: &str = env!("CARGO_BIN_EXE_blockyard-gpu-check");

fn check(fail: &str) -> std::process::Output {
    let driver = library_path().expect("cargo built the simulated driver");
    let mut command = Command::new(BINARY);
    command.args(["--quick", "--cap", "96MiB", "--driver"]).arg(driver);
    command.env("SIMCUDA_FAIL", fail).output().unwrap()
}

#[test]
fn a_simulated_device_passes_and_is_called_simulated() {
    let output = check("");
    let (page, said) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{page}{said}");
    assert!(page.contains("A SIMULATED DRIVER: there was no GPU"), "{page}");
    assert!(page.matches("| passed |").count() >= 8, "{page}");
    assert!(!page.contains("FAILED"), "{page}");
    for part in
        ["## Checks", "## Driver calls", "| 32 |", "preset blockyard-native", "cuMemAllocAsync"]
    {
        assert!(page.contains(part), "no {part:?} in {page}");
    }
}

#[test]
fn a_failing_device_fails_the_check_and_the_page_is_written() {
    let output = check("cuMemUnmap:1:719:forever");
    let page = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(4), "{page}");
    assert!(page.contains("**FAILED**"), "{page}");
}

#[test]
fn without_a_driver_it_says_so() {
    let output = Command::new(BINARY).args(["--driver", "no-such-library.so"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no CUDA driver found: no-such-library.so"), "{said}");
}
