//! Formats: readers of every file that can be read as a recording, recognised by content, never by
//! name.
//!
//! Owns: recognition, decompression and one reader for each format. Every reader is total: any
//! bytes give a recording or one clear [`FormatError`]. Never knows what a recording is used for.
//!
//! | format | reader |
//! |---|---|
//! | PyTorch memory snapshot, pickled or JSON | `pytorch*`, over `pickle`, `machine` and `arena` |
//! | blockyard's text trace | `csv` |
//! | RAPIDS RMM log, LLNL Umpire replay log | `rmm`, `umpire` |
//! | static planner instance | `planner` |

mod arena;
mod csv;
mod error;
mod input;
mod link;
mod machine;
mod numbers;
mod pickle;
mod planner;
mod pytorch;
mod pytorch_finish;
mod pytorch_json;
mod pytorch_pickle;
mod pytorch_segment;
mod rmm;
mod text;
mod tree;
mod umpire;
pub mod write;

use std::path::Path;

use blockyard::trace::Recording;

pub use error::{FormatError, Place};

use error::{Wrong, quoted};

/// What can be read, for people.
const EXPECTED: &str = "a PyTorch memory snapshot (pickle or JSON), a blockyard trace (CSV or JSON \
                        lines), an RMM log, an Umpire replay log or a planner CSV";

/// A format, recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Pickle,
    Json,
    Native,
    Csv,
    Rmm,
    Umpire,
    Planner,
}

/// What messages call this path: `stdin` for `-`.
#[must_use]
pub fn name_of(path: &Path) -> String {
    input::name_of(path)
}

/// Reads a file as a recording; `-` is standard input. Gzip and zstd are opened.
///
/// # Errors
/// A file that cannot be read, or is none of the known formats, or is broken.
pub fn read(path: &Path) -> Result<Recording, FormatError> {
    let name = input::name_of(path);
    let sane = |first: &[u8]| recognise(first).map(|_| ()).map_err(|wrong| wrong.of(&name));
    let bytes = input::load(path, sane)?;
    match input::decompress(&name, &bytes)? {
        Some(content) => {
            drop(bytes);
            read_content(&name, &content)
        }
        None => read_content(&name, &bytes),
    }
}

/// Reads the bytes of a file as a recording; `name` is what messages call it.
///
/// # Errors
/// Bytes that are none of the known formats, or broken.
pub fn read_bytes(name: &str, bytes: &[u8]) -> Result<Recording, FormatError> {
    match input::decompress(name, bytes)? {
        Some(content) => read_content(name, &content),
        None => read_content(name, bytes),
    }
}

/// The bytes of a file (`-`: standard input), opened if compressed, and what messages call it: for
/// commands that read more than recordings.
///
/// # Errors
/// A file that cannot be read or opened.
pub fn load(path: &Path) -> Result<(String, Vec<u8>), FormatError> {
    let name = input::name_of(path);
    let nul = |first: &[u8]| match recognise(first) {
        Err(wrong) if first.contains(&0) => Err(wrong.of(&name)),
        _ => Ok(()),
    };
    let bytes = input::load(path, nul)?;
    let content = input::decompress(&name, &bytes)?.unwrap_or(bytes);
    let narrow = input::narrowed(&content);
    Ok((name, narrow.unwrap_or(content)))
}

fn read_content(name: &str, bytes: &[u8]) -> Result<Recording, FormatError> {
    if let Some(narrow) = input::narrowed(bytes) {
        return read_content(name, &narrow);
    }
    let format = recognise(bytes).map_err(|wrong| wrong.of(name))?.ok_or_else(|| {
        let found = if bytes.is_empty() { "an empty file" } else { "only blanks and comments" };
        Wrong::new(found, EXPECTED).of(name)
    })?;
    let read = match format {
        Format::Pickle => pytorch_pickle::read(bytes),
        Format::Json => pytorch_json::read(bytes.strip_prefix(BOM).unwrap_or(bytes)),
        Format::Native => return native(name, bytes),
        Format::Csv => csv::read(bytes),
        Format::Rmm => rmm::read(bytes),
        Format::Umpire => umpire::read(bytes),
        Format::Planner => planner::read(bytes),
    };
    read.map_err(|wrong| wrong.of(name))
}

const BOM: &[u8] = b"\xef\xbb\xbf";

/// blockyard's own trace format: its decoder stands in the library's `trace` room.
fn native(name: &str, bytes: &[u8]) -> Result<Recording, FormatError> {
    blockyard::trace::wire::decode(bytes).map_err(|wrong| {
        let field = wrong.field.map_or_else(String::new, |field| format!("field \"{field}\": "));
        Wrong {
            place: Some(Place::Line(wrong.line as u64)),
            found: format!("{field}{}", wrong.found),
            expected: wrong.expected,
        }
        .of(name)
    })
}

/// The format of these first bytes of a file; nothing if they say nothing yet.
fn recognise(bytes: &[u8]) -> Result<Option<Format>, Wrong> {
    const OLD_PICKLES: [&[u8]; 4] = [b"(dp", b"(lp", b"}q\x00", b"]q\x00"];
    if bytes.len() > 1 && bytes[0] == 0x80 && bytes[1] < b' '
        || OLD_PICKLES.iter().any(|start| bytes.starts_with(start))
    {
        return Ok(Some(Format::Pickle));
    }
    if bytes.starts_with(b"PK\x03\x04") {
        let expected = "the pickle that torch.cuda.memory._dump_snapshot writes";
        return Err(Wrong::byte(0, "a zip archive (as torch.save writes)", expected));
    }
    let Some((line, text)) = text::Lines::new(bytes).find(|(_, text)| !text::is_silent(text))
    else {
        return Ok(None);
    };
    let format = match text.trim_ascii_start() {
        text if text.starts_with(b"{\"blockyard_trace\"") => Format::Native,
        text if text.starts_with(b"{") && umpire::is_entry(text) => Format::Umpire,
        [b'{' | b'[', ..] => Format::Json,
        text if rmm::is_header(text) => Format::Rmm,
        text if planner::is_header(text) => Format::Planner,
        text if csv::is_row(text) => Format::Csv,
        text => return Err(Wrong::line(line, quoted(text), EXPECTED)),
    };
    Ok(Some(format))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_recognised_by_content() {
        let cases: [(&[u8], Option<Format>); 12] = [
            (b"", None),
            (b"# only\n\n", None),
            (b"\x80\x02}.", Some(Format::Pickle)),
            (b"(dp0\n.", Some(Format::Pickle)),
            (b"{\"segments\": []}", Some(Format::Json)),
            (b"\n [", Some(Format::Json)),
            (b"{\"blockyard_trace\":1}", Some(Format::Native)),
            (b"{\"kind\":\"replay\",\"event\":\"version\"}\n", Some(Format::Umpire)),
            (b"Thread,Time,Action,Pointer,Size,Stream\n", Some(Format::Rmm)),
            (b"id,lower,upper,size\n", Some(Format::Planner)),
            (b"# c\na,1,2,0\n", Some(Format::Csv)),
            (b"\xef\xbb\xbfe\r\n", Some(Format::Csv)),
        ];
        for (bytes, expected) in cases {
            assert_eq!(recognise(bytes), Ok(expected), "{}", quoted(bytes));
        }
        assert!(recognise(b"PK\x03\x04").is_err());
        assert!(recognise(b"hello").is_err());
    }
}
