//! Build: the library's SONAME, and the host build of the project's kernels.

use std::fs;

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    for entry in fs::read_dir("../../kernels").into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_file() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let mut build = cc::Build::new();
    // Kernels call nothing of the C++ library.
    build.cpp(true).file("../../kernels/host.cpp").opt_level(2).std("c++17").cpp_link_stdlib(None);
    build.compile("blockyard_kernels");
}
