//! Figures: sizes as messages print them, with the error of their rounding.
//!
//! Owns the reading of `7.31 GiB`, `512 bytes`, `1,693,802,496 bytes`, `8.000000 MiB`, `1.19GiB`.
//! Asked by the readers of messages. A size that does not read is nothing, never a guess.

/// A size that was printed: the true value lies within `slack` of `bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// The printed value.
    pub bytes: u64,
    /// Half a unit of the last printed digit.
    pub slack: u64,
}

impl Size {
    /// A size known to the byte.
    #[must_use]
    pub const fn exact(bytes: u64) -> Self {
        Self { bytes, slack: 0 }
    }

    /// 2^64 bytes: the program printed "not available" (or "no limit") as a number.
    #[must_use]
    pub const fn is_unavailable(self) -> bool {
        self.bytes >= u64::MAX - (1 << 40)
    }

    /// The sum.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            slack: self.slack.saturating_add(other.slack),
        }
    }

    /// The difference, not below 0.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            slack: self.slack.saturating_add(other.slack),
        }
    }

    /// Larger, whatever the rounding.
    #[must_use]
    pub const fn surely_exceeds(self, other: Self) -> bool {
        self.bytes > other.bytes.saturating_add(self.slack).saturating_add(other.slack)
    }

    /// So near that the rounding decides.
    #[must_use]
    pub const fn is_near(self, other: Self) -> bool {
        !self.surely_exceeds(other)
            && !other.surely_exceeds(self)
            && self.slack.saturating_add(other.slack) > 0
    }
}

/// Units by name, with the step that one is. Messages of this trade mean binary units throughout.
const UNITS: [(&str, u64); 22] = [
    ("bytes", 1),
    ("byte", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("pib", 1 << 50),
    ("eib", 1 << 60),
    ("kb", 1 << 10),
    ("mb", 1 << 20),
    ("gb", 1 << 30),
    ("tb", 1 << 40),
    ("pb", 1 << 50),
    ("eb", 1 << 60),
    ("b", 1),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("p", 1 << 50),
    ("e", 1 << 60),
    ("", 1),
];

/// The size at the start of `text` (blanks before it are skipped), and what follows it. A number
/// without a unit counts only if `plain` says that it may be bytes.
#[must_use]
pub fn size_at(text: &str, plain: bool) -> Option<(Size, &str)> {
    let text = text.trim_start();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
    let (mut number, mut rest) = text.split_at(digits.unwrap_or(text.len()));
    // The full stop or comma behind a number is the sentence's.
    let kept = number.trim_end_matches(['.', ',']).len();
    if kept < number.len() {
        rest = &text[kept..];
        number = &text[..kept];
    }
    let after_blank = rest.strip_prefix(' ').unwrap_or(rest);
    let letters = after_blank.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after_blank.len());
    let word = after_blank[..letters].to_ascii_lowercase();
    let unit = UNITS.iter().find(|(name, _)| !name.is_empty() && *name == word);
    let (scale, rest) = match unit {
        Some(&(_, scale)) => (scale, &after_blank[letters..]),
        None if plain => (1, rest),
        None => return None,
    };
    // What runs on without a break is not the end of a figure.
    let runs_on = |c: char| c.is_alphanumeric() || c == '_' || c == char::REPLACEMENT_CHARACTER;
    let goes_on = rest
        .strip_prefix(['.', ','])
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if rest.starts_with(runs_on) || goes_on {
        return None;
    }
    Some((value(number, scale)?, rest))
}

/// The size that ends right before `end` in `text`.
#[must_use]
pub fn size_before(text: &str, end: usize) -> Option<Size> {
    let head = text.get(..end)?.trim_end();
    let unit = head.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number = unit.trim_end();
    let start = number.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == ',');
    if !begins_cleanly(start) {
        return None;
    }
    let (size, rest) = size_at(&head[start.len()..], false)?;
    rest.is_empty().then_some(size)
}

/// Whether a figure that follows `before` is a whole one: no digits or letters run into it.
fn begins_cleanly(before: &str) -> bool {
    let last = before.chars().next_back();
    if !last.is_none_or(|c| c.is_whitespace() || matches!(c, '(' | '[' | ':' | '=' | '"' | '\'')) {
        return false;
    }
    let word = before.split_whitespace().next_back().unwrap_or_default();
    let is_digit = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
    word.is_empty() || !last.is_some_and(char::is_whitespace) || !word.chars().all(is_digit)
}

fn value(number: &str, scale: u64) -> Option<Size> {
    if number.is_empty() || !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let number: String = if grouped(number) { number.replace(',', "") } else { number.to_string() };
    let Some((_, fraction)) = number.split_once('.') else {
        let whole: u64 = number.parse().ok()?;
        let bytes = whole.saturating_mul(scale);
        return Some(Size { bytes, slack: if scale == 1 { 0 } else { scale / 2 } });
    };
    let value: f64 = number.parse().ok()?;
    let places = i32::try_from(fraction.len()).ok()?;
    let slack = (0.5 * scale as f64 * 10f64.powi(-places)).ceil() as u64;
    // Above 2^64 the cast saturates, which is what "not available" looks like.
    Some(Size { bytes: (value * scale as f64).round() as u64, slack })
}

/// Digits in groups of three behind commas.
fn grouped(number: &str) -> bool {
    let mut groups = number.split(',');
    groups.next().is_some_and(|first| first.len() <= 3)
        && groups.all(|group| group.len() == 3 && group.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_messages_print_them() {
        for (text, bytes, slack) in [
            ("7.31 GiB", 7_849_052_733, 5_368_710),
            (" 20.00 MiB.", 20 << 20, 5243),
            ("0 bytes;", 0, 0),
            ("1,693,802,496 bytes", 1_693_802_496, 0),
            ("8.000000 MiB)", 8 << 20, 1),
            ("1.19GiB", 1_277_752_771, 5_368_710),
            ("0B", 0, 0),
            ("896.00 KiB", 917_504, 6),
            ("15.75G free", 16_911_433_728, 5_368_710),
        ] {
            let (size, _) = size_at(text, false).unwrap();
            assert_eq!((size.bytes, size.slack), (bytes, slack), "{text}");
        }
        assert!(size_at("17179869184.00 GiB", false).unwrap().0.is_unavailable());
        assert_eq!(size_at("42", true).unwrap().0, Size::exact(42));
        for text in [
            "",
            "GiB",
            "x.xx GiB",
            "156.0",
            "1.2.3 GiB",
            ",5 GiB",
            "1,2 GiB",
            "3 apples",
            "1.00 GiB2",
            "2K.70 GiB",
        ] {
            assert_eq!(size_at(text, false), None, "{text}");
        }
    }

    #[test]
    fn a_size_before_an_anchor_is_read_backwards() {
        let text = "(GPU 0; 11.92 GiB total capacity; x GiB free";
        let at = text.find(" total").unwrap();
        assert_eq!(size_before(text, at).unwrap().bytes, 12_799_002_542);
        assert_eq!(size_before(text, text.find(" free").unwrap()), None);
        for garbled in ["11x92 GiB", "1\u{fffd}1.92 GiB", "1.3 6 GiB", "11.92 GiB7", "1-1.92 GiB"] {
            assert_eq!(size_before(garbled, garbled.len()), None, "{garbled}");
        }
    }

    #[test]
    fn rounding_is_respected() {
        let coarse = |text| size_at(text, false).unwrap().0;
        let (a, b) = (coarse("1.00 GiB"), coarse("1.01 GiB"));
        assert!(a.is_near(b) && !b.surely_exceeds(a));
        assert!(coarse("1.02 GiB").surely_exceeds(a));
        assert!(!Size::exact(4).is_near(Size::exact(4)), "exact figures are compared exactly");
    }
}
