//! File: a trace on disk, plain or compressed.
//!
//! Owns the suffixes (`.zst`, `.gz`) and the error with the file's name. Asked by the tools and by
//! whoever records. Never knows the records; those are [`super::wire`]'s.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use super::recording::Recording;
use super::wire::{self, Malformed};

/// A trace that cannot be read or written. Its text is one line and begins with the file's name.
#[derive(Debug)]
pub struct TraceError {
    /// The file.
    pub name: String,
    /// What was wrong.
    pub cause: Cause,
}

/// What was wrong with a trace.
#[derive(Debug)]
pub enum Cause {
    /// The file system, the compression or the recording itself.
    Io(io::Error),
    /// A line that cannot be read.
    Malformed(Malformed),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Io(error) => write!(f, "{}: {error}", self.name),
            Cause::Malformed(malformed) => write!(f, "{}: {malformed}", self.name),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::Io(error) => Some(error),
            Cause::Malformed(malformed) => Some(malformed),
        }
    }
}

/// Writes a trace to a file, compressed if the name ends in `.zst` or `.gz`.
pub fn write(path: impl AsRef<Path>, recording: &Recording) -> Result<(), TraceError> {
    let path = path.as_ref();
    let failed = |error| TraceError { name: path.display().to_string(), cause: Cause::Io(error) };
    let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default();
    let mut file = File::create(path).map_err(failed)?;
    compress(suffix, recording, &mut file).map_err(failed)
}

fn compress(suffix: &str, recording: &Recording, file: &mut File) -> io::Result<()> {
    match suffix {
        "zst" => {
            let mut out = zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?;
            write_to(&mut out, recording)?;
            out.finish()?.flush()
        }
        "gz" => {
            let mut out = flate2::write::GzEncoder::new(file, flate2::Compression::default());
            write_to(&mut out, recording)?;
            out.finish()?.flush()
        }
        _ => write_to(file, recording),
    }
}

/// Writes a trace, not compressed. The writer gets chunks of 64 KiB and needs no buffer of its own.
pub fn write_to(out: &mut impl Write, recording: &Recording) -> io::Result<()> {
    wire::encode(recording, out)?;
    out.flush()
}

/// Reads the trace in a file.
pub fn read(path: impl AsRef<Path>) -> Result<Recording, TraceError> {
    let name = path.as_ref().display().to_string();
    match std::fs::read(path) {
        Ok(bytes) => read_bytes(&name, &bytes),
        Err(error) => Err(TraceError { name, cause: Cause::Io(error) }),
    }
}

/// Reads a trace from memory, decompressing it if its first bytes say so. `name` is for errors.
pub fn read_bytes(name: &str, bytes: &[u8]) -> Result<Recording, TraceError> {
    let failed = |cause| TraceError { name: name.to_owned(), cause };
    let mut plain = Vec::new();
    let bytes = match bytes {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let mut stream = zstd::Decoder::new(bytes).map_err(|e| failed(Cause::Io(e)))?;
            stream.read_to_end(&mut plain).map_err(|e| failed(Cause::Io(e)))?;
            &plain
        }
        [0x1f, 0x8b, ..] => {
            let mut stream = flate2::read::MultiGzDecoder::new(bytes);
            stream.read_to_end(&mut plain).map_err(|e| failed(Cause::Io(e)))?;
            &plain
        }
        _ => bytes,
    };
    wire::decode(bytes).map_err(|malformed| failed(Cause::Malformed(malformed)))
}
