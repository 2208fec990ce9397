//! Text: lines and numbers of text formats, scanned as bytes.

use super::error::{Wrong, quoted};

/// The lines of a file with their numbers from 1, without their line ends.
pub(crate) struct Lines<'a> {
    rest: &'a [u8],
    line: u32,
}

impl<'a> Lines<'a> {
    /// The lines of these bytes; a byte order mark at the start is skipped.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes), line: 0 }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = (u32, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (line, rest) = match memchr::memchr(b'\n', self.rest) {
            Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
            None => (self.rest, &self.rest[..0]),
        };
        self.rest = rest;
        self.line = self.line.saturating_add(1);
        Some((self.line, line.strip_suffix(b"\r").unwrap_or(line)))
    }
}

/// Whether a line says nothing: blank, or a comment.
pub(crate) fn is_silent(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    line.is_empty() || line[0] == b'#'
}

/// The decimal number that these bytes are, and nothing else.
#[inline]
pub(crate) fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &byte in bytes {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(digit.into())?;
    }
    Some(value)
}

/// The decimal number in a field, or a complaint that names the field.
#[inline]
pub(crate) fn number(bytes: &[u8], what: &str, line: u32) -> Result<u64, Wrong> {
    decimal(bytes).ok_or_else(|| {
        let found = format!("{what} is {}", quoted(bytes));
        Wrong::line(line, found, "a whole number from 0 to 18446744073709551615")
    })
}

/// A pointer as `printf` writes one: `0x...`, `(nil)` or a plain 0.
pub(crate) fn pointer(bytes: &[u8], what: &str, line: u32) -> Result<u64, Wrong> {
    if bytes == b"(nil)" || bytes == b"0" {
        return Ok(0);
    }
    let digits = bytes.strip_prefix(b"0x").or_else(|| bytes.strip_prefix(b"0X"));
    digits
        .filter(|digits| (1..=16).contains(&digits.len()))
        .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or_else(|| {
            let found = format!("{what} is {}", quoted(bytes));
            Wrong::line(line, found, "a pointer such as 0x7f00a0000000, or (nil)")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_or_nothing() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in ["", "-1", "1x", " 1", "18446744073709551616", "0x10"] {
            assert_eq!(decimal(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(pointer(b"0xFf", "pointer", 1), Ok(255));
        assert_eq!(pointer(b"(nil)", "pointer", 1), Ok(0));
        assert!(pointer(b"0x", "pointer", 1).is_err());
        assert!(pointer(b"0x+f", "pointer", 1).is_err());
        assert!(pointer(b"ff", "pointer", 1).is_err());
    }

    #[test]
    fn lines_are_counted_from_one_and_lose_their_ends() {
        let lines: Vec<_> = Lines::new(b"\xef\xbb\xbfa\r\n\nb").collect();
        assert_eq!(lines, [(1, &b"a"[..]), (2, b""), (3, b"b")]);
    }
}
