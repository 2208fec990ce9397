//! Input: the bytes of a file or of standard input, decompressed, and never more of them than is
//! sane.
//!
//! Compression is recognised by content (gzip and zstd), and a small file may not grow without
//! bound.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::error::{FormatError, Place, Wrong, quoted};

/// A compressed file may always grow to this.
const GROWTH_FLOOR: u64 = 256 << 20;
/// Beyond the floor, to this many times its compressed size.
const GROWTH_LIMIT: u64 = 300;
/// No input is read beyond this.
const INPUT_LIMIT: u64 = 64 << 30;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// What the user calls this path in a message.
pub(crate) fn name_of(path: &Path) -> String {
    if path.as_os_str() == "-" { "stdin".to_string() } else { path.display().to_string() }
}

/// All bytes of a file (`-`: standard input), as they lie on the disk. `sane` looks at the first
/// bytes, so that an endless stream of nonsense is refused before it is read.
pub(crate) fn load(
    path: &Path,
    sane: impl FnOnce(&[u8]) -> Result<(), FormatError>,
) -> Result<Vec<u8>, FormatError> {
    let name = name_of(path);
    let unreadable = |error: io::Error| {
        Wrong::new(format!("cannot be read ({error})"), "a readable file").of(&name)
    };
    if path.as_os_str() == "-" {
        return load_from(io::stdin().lock(), 0, &name, sane);
    }
    let file = File::open(path).map_err(unreadable)?;
    let meta = file.metadata().map_err(unreadable)?;
    if meta.is_dir() {
        return Err(Wrong::new("a directory", "a file").of(&name));
    }
    load_from(file, meta.len(), &name, sane)
}

fn load_from(
    mut source: impl Read,
    size: u64,
    name: &str,
    sane: impl FnOnce(&[u8]) -> Result<(), FormatError>,
) -> Result<Vec<u8>, FormatError> {
    const FIRST: u64 = 64 << 10;
    let unreadable = |error: io::Error| {
        Wrong::new(format!("cannot be read ({error})"), "a readable file").of(name)
    };
    let mut bytes = Vec::with_capacity(size.min(INPUT_LIMIT).saturating_add(1) as usize);
    source.by_ref().take(FIRST).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 == FIRST && !is_compressed(&bytes) && !is_wide(&bytes) {
        sane(&bytes)?;
    }
    source.take(INPUT_LIMIT).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > INPUT_LIMIT {
        return Err(Wrong::new("more than 64 GiB", "a smaller file").of(name));
    }
    Ok(bytes)
}

/// Whether the bytes begin as a compressed file that [`decompress`] opens.
pub(crate) fn is_compressed(bytes: &[u8]) -> bool {
    bytes.starts_with(GZIP) || bytes.starts_with(ZSTD)
}

/// Whether the bytes begin as text in UTF-16 does, with its byte order mark.
fn is_wide(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff])
}

/// Text in UTF-16 with its byte order mark (as PowerShell writes it) as UTF-8; nothing for anything else.
pub(crate) fn narrowed(bytes: &[u8]) -> Option<Vec<u8>> {
    if !is_wide(bytes) {
        return None;
    }
    let little = bytes[0] == 0xff;
    let unit = |pair: &[u8]| match (little, pair) {
        (true, [a, b]) => u16::from_le_bytes([*a, *b]),
        (false, [a, b]) => u16::from_be_bytes([*a, *b]),
        _ => 0xfffd,
    };
    let units: Vec<u16> = bytes[2..].chunks(2).map(unit).collect();
    Some(String::from_utf16_lossy(&units).into_bytes())
}

/// The content of a compressed file, or nothing if it is not compressed.
pub(crate) fn decompress(name: &str, bytes: &[u8]) -> Result<Option<Vec<u8>>, FormatError> {
    let limit = (bytes.len() as u64).saturating_mul(GROWTH_LIMIT).max(GROWTH_FLOOR);
    if bytes.starts_with(GZIP) {
        let decoder = flate2::read::MultiGzDecoder::new(bytes);
        return bounded(decoder, "gzip", limit, name).map(Some);
    }
    if bytes.starts_with(ZSTD) {
        let decoder = zstd::stream::read::Decoder::with_buffer(bytes)
            .map_err(|error| corrupt("zstd", &error, 0).of(name))?;
        return bounded(decoder, "zstd", limit, name).map(Some);
    }
    Ok(None)
}

fn bounded(decoder: impl Read, kind: &str, limit: u64, name: &str) -> Result<Vec<u8>, FormatError> {
    let mut out = Vec::new();
    let read = decoder.take(limit + 1).read_to_end(&mut out);
    if let Err(error) = read {
        return Err(corrupt(kind, &error, out.len() as u64).of(name));
    }
    if out.len() as u64 > limit {
        let found = format!("{kind} data that grows beyond {limit} bytes");
        return Err(Wrong::new(found, "a file that grows less when decompressed").of(name));
    }
    if is_compressed(&out) {
        let found = format!("compressed data ({}) inside {kind} data", quoted(&out[..4]));
        return Err(Wrong::new(found, "a file compressed once").of(name));
    }
    Ok(out)
}

fn corrupt(kind: &str, error: &io::Error, decoded: u64) -> Wrong {
    let found = format!("broken {kind} data ({error}) after {decoded} decompressed bytes");
    Wrong::new(found, format!("a whole {kind} file")).at(Place::Byte(decoded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bomb_is_refused_and_a_dense_file_is_not() {
        let zeros = vec![0u8; 1 << 20];
        let small = zstd::encode_all(&zeros[..], 3).unwrap();
        assert_eq!(decompress("z", &small).unwrap().unwrap().len(), 1 << 20);
        let error = bounded(&zeros[..], "zstd", 1000, "z").unwrap_err().to_string();
        assert!(error.contains("grows beyond 1000 bytes"), "{error}");
    }

    #[test]
    fn nonsense_is_refused_before_it_is_read() {
        let endless = io::repeat(0);
        let refuse = |_: &[u8]| Err(Wrong::new("zeros", "data").of("x"));
        assert!(load_from(endless, 0, "x", refuse).is_err());
    }
}
