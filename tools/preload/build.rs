//! Build: the library's SONAME, by which the stand-in finds it.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libblockyard_preload.so");
    println!("cargo::rerun-if-changed=build.rs");
}
