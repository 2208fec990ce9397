//! Build: the kernels as one C++ translation unit.

use std::fs;

fn main() {
    for entry in fs::read_dir("..").into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_file() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let mut build = cc::Build::new();
    // Kernels call nothing of the C++ library.
    build.cpp(true).file("../host.cpp").opt_level(2).std("c++17").cpp_link_stdlib(None);
    build.compile("blockyard_kernels");
}
