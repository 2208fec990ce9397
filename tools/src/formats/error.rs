//! Error: the one way in which reading a file fails: which file, where, what was found, what was
//! expected.
//!
//! Every reader returns it and nobody else makes it. Its text is always one line, whatever bytes
//! the file holds.

use std::fmt;

/// Where in a file something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    File,
    /// An offset from the start of the (decompressed) file.
    Byte(u64),
    /// A line, from 1.
    Line(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => Ok(()),
            Self::Byte(offset) => write!(f, "byte {offset}: "),
            Self::Line(line) => write!(f, "line {line}: "),
        }
    }
}

/// A file that cannot be read as a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {place}{}; expected {}", one_line(file), one_line(found), one_line(expected))]
pub struct FormatError {
    /// The file, as the user named it.
    pub file: String,
    /// Where in it.
    pub place: Place,
    /// What stands there.
    pub found: String,
    /// What should stand there.
    pub expected: String,
}

/// A complaint of a reader that does not yet know the file's name, and perhaps not the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// Where, if the complainer knew.
    pub place: Option<Place>,
    /// What was found.
    pub found: String,
    /// What was expected.
    pub expected: String,
}

impl Wrong {
    /// A complaint without a place.
    pub fn new(found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { place: None, found: found.into(), expected: expected.into() }
    }

    /// A complaint about a byte.
    pub fn byte(at: usize, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { place: Some(Place::Byte(at as u64)), ..Self::new(found, expected) }
    }

    /// A complaint about a line.
    pub fn line(line: u32, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { place: Some(Place::Line(line.into())), ..Self::new(found, expected) }
    }

    /// The same complaint, at this place unless it already names one.
    pub fn at(self, place: Place) -> Self {
        Self { place: Some(self.place.unwrap_or(place)), ..self }
    }

    /// The error for the user.
    pub fn of(self, file: &str) -> FormatError {
        FormatError {
            file: file.to_string(),
            place: self.place.unwrap_or(Place::File),
            found: self.found,
            expected: self.expected,
        }
    }
}

/// The text without line breaks and other control characters, cut when long.
fn one_line(text: &str) -> String {
    const LONGEST: usize = 240;
    let mut line = String::with_capacity(text.len().min(LONGEST));
    for character in text.chars() {
        if line.len() >= LONGEST {
            line.push_str("...");
            break;
        }
        match character {
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                line.extend(c.escape_default());
            }
            c => line.push(c),
        }
    }
    line
}

/// Some bytes of a file, quoted for a message: short, printable.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    const LONGEST: usize = 40;
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]).into_owned();
    let dots = if bytes.len() > LONGEST { "..." } else { "" };
    format!("`{shown}{dots}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_one_line_and_names_everything() {
        let wrong = Wrong::byte(812, "opcode REDUCE (0x52) would run code", "plain data");
        assert_eq!(
            wrong.of("x.pickle").to_string(),
            "x.pickle: byte 812: opcode REDUCE (0x52) would run code; expected plain data"
        );
        let nasty = Wrong::line(3, quoted(b"a\nb\r\x00\xff"), "a row").of("odd\nname.csv");
        let text = nasty.to_string();
        assert!(!text.contains('\n') && !text.contains('\r'), "{text:?}");
        assert!(text.starts_with("odd\\nname.csv: line 3: `a\\nb"), "{text}");
    }
}
