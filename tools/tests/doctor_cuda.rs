//! Doctor beside a driver: what the page says of a simulated one, and where there is none.
#![allow(missing_docs, clippy::unwrap_used)]
#![cfg(feature = "cuda")]

use std::process::Command;

fn page(driver: &str) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_blockyard"))
        .arg("doctor")
        .env("BLOCKYARD_CUDA_DRIVER", driver)
        .output()
        .unwrap();
    assert!(out.status.success());
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn a_driver_is_asked_and_a_simulated_one_named() {
    let driver = blockyard_simcuda::control::library_path().expect("cargo built the driver");
    let page = page(driver.to_str().unwrap());
    for expected in ["(a simulated driver)", "page granularity", "0: 2.00 MiB", "0: yes"] {
        assert!(page.contains(expected), "{expected} in\n{page}");
    }
    assert!(!page.contains("no CUDA driver found"), "{page}");
}

#[test]
fn without_a_driver_each_fact_says_why() {
    let page = page("/nowhere/libcuda.so.1");
    assert!(page.contains("unknown: no CUDA driver found: /nowhere/libcuda.so.1"), "{page}");
}
