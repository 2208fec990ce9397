//! Header: `include/blockyard.h` is what cbindgen makes of `src/ffi`, and names every function that is exported.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The files in the order in which the header shows them.
const FILES: [&str; 8] =
    ["types", "open", "error", "memory", "figures", "observe", "scopes", "torch"];

fn generated() -> String {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("cbindgen.toml");
    let mut builder = cbindgen::Builder::new()
        .with_config(cbindgen::Config::from_file(config.to_str().unwrap()).unwrap());
    for file in FILES {
        builder = builder.with_src(root().join(format!("src/ffi/{file}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    let text = String::from_utf8(text).unwrap();
    // What a Rust caller has to keep is said in Rust's documentation; C has one contract, in docs/c-abi.md.
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("* # Safety"));
    lines.map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn the_header_is_fresh() {
    let path = root().join("include/blockyard.h");
    let fresh = generated();
    if std::env::var_os("BLOCKYARD_WRITE_HEADER").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &fresh).unwrap();
    }
    let stands = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = fresh.lines().zip(stands.lines()).find(|(fresh, stands)| fresh != stands);
    assert_eq!(stands, fresh, "stale at {differs:?}: run tools/header.sh");
}

#[test]
fn every_exported_function_is_in_the_header() {
    let header = generated();
    let folder = std::fs::read_dir(root().join("src/ffi")).unwrap();
    let mut count = 0;
    for file in folder {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for (_, rest) in text
            .match_indices("extern \"C\" fn blockyard_")
            .map(|(at, it)| (at, &text[at + it.len()..]))
        {
            let name: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            assert!(header.contains(&format!("blockyard_{name}(")), "blockyard_{name} is missing");
            count += 1;
        }
    }
    assert!(count > 40, "{count} functions were found");
}
