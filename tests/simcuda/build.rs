//! Build: the library's SONAME, and the host build of the project's kernels.
#![allow(missing_docs)]

use std::path::Path;

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rustc-check-cfg=cfg(host_kernels)");
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    println!("cargo:rerun-if-changed={}", kernels.display());
    let host = kernels.join("host.cpp");
    if !host.exists() {
        return;
    }
    println!("cargo:rustc-cfg=host_kernels");
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .opt_level(2)
        .file(host)
        .compile("blockyard_host_kernels");
}
