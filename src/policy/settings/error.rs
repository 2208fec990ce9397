//! Error: a setting that cannot be taken, in one line.

use alloc::string::String;
use core::fmt;

use super::Key;

/// Where in the input the trouble stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Bytes from the start of the text.
    Byte(usize),
    /// Line of a file, from 1.
    Line(usize),
}

/// A setting that cannot be taken, by name. Prints as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// The file or environment variable that the text stands in, if known.
    pub origin: Option<String>,
    /// Where the trouble stands, if it stands in a text.
    pub place: Option<Place>,
    /// The setting as it was named; `None`: the text is wrong before any setting is known.
    pub key: Option<String>,
    /// The value as written, if there is one.
    pub value: Option<String>,
    /// What is wrong and what was expected.
    pub problem: String,
}

impl SettingsError {
    /// An error that has no place and no key yet.
    pub(super) fn new(problem: impl Into<String>) -> Self {
        Self { origin: None, place: None, key: None, value: None, problem: problem.into() }
    }

    pub(super) fn expected(what: &str) -> Self {
        Self::new(alloc::format!("expected {what}"))
    }

    pub(super) fn at(mut self, place: Place) -> Self {
        self.place = self.place.or(Some(place));
        self
    }

    pub(super) fn key(mut self, key: &str) -> Self {
        self.key = self.key.or_else(|| Some(key.into()));
        self
    }

    pub(super) fn of(self, key: Key) -> Self {
        self.key(key.name())
    }

    pub(super) fn value(mut self, value: &str) -> Self {
        self.value = self.value.or_else(|| Some(value.into()));
        self
    }

    pub(super) fn origin(mut self, origin: &str) -> Self {
        self.origin = self.origin.or_else(|| Some(origin.into()));
        self
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{}", Clipped(origin))?;
            if let Some(Place::Line(line)) = self.place {
                write!(f, ":{line}")?;
            }
            f.write_str(": ")?;
        } else if let Some(Place::Line(line)) = self.place {
            write!(f, "line {line}: ")?;
        }
        if let Some(key) = &self.key {
            write!(f, "{}", Clipped(key))?;
        }
        if let Some(value) = &self.value {
            let gap = if self.key.is_some() { " " } else { "" };
            write!(f, "{gap}\"{}\"", Clipped(value))?;
        }
        if let Some(Place::Byte(byte)) = self.place {
            let gap = if self.key.is_some() || self.value.is_some() { " " } else { "" };
            write!(f, "{gap}at byte {byte}")?;
        }
        let bare = self.key.is_none()
            && self.value.is_none()
            && !matches!(self.place, Some(Place::Byte(_)));
        write!(f, "{}{}", if bare { "" } else { ": " }, self.problem)
    }
}

impl core::error::Error for SettingsError {}

/// User's text on one line: control characters are escaped, and 60 letters are shown at most.
pub(super) struct Clipped<'a>(pub &'a str);

impl fmt::Display for Clipped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 60;
        for (index, letter) in self.0.chars().enumerate() {
            if index == MOST {
                return f.write_str("...");
            }
            if letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') {
                write!(f, "{}", letter.escape_default())?;
            } else {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn prints_what_it_knows_on_one_line() {
        let bare = SettingsError::expected("True or False");
        assert_eq!(bare.to_string(), "expected True or False");
        let full = bare.clone().key("k").value("a\nb").at(Place::Byte(2)).origin("VAR");
        assert_eq!(full.to_string(), "VAR: k \"a\\nb\" at byte 2: expected True or False");
        let file = bare.key("k").value("1").at(Place::Line(3)).origin("x.toml");
        assert_eq!(file.to_string(), "x.toml:3: k \"1\": expected True or False");
        let long = SettingsError::new("x").key(&"y".repeat(100));
        assert_eq!(long.to_string(), alloc::format!("{}...: x", "y".repeat(60)));
    }
}
