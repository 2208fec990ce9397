//! Text: the embedded font, how wide words are in it, and numbers as people read them.
//!
//! Owns: the font. Asked by: every layout, so that no words overlap or are cut.

use std::sync::OnceLock;

use ab_glyph::{Font as AnyFont, FontRef, GlyphId, PxScale, ScaleFont};
use blockyard::vocab::report::Human;

/// What an SVG asks of the viewer's machine: the first is ours, the others are as wide or narrower.
pub const FAMILY: &str = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";

static REGULAR: &[u8] = include_bytes!("../../assets/DejaVuSans-subset.ttf");
static BOLD: &[u8] = include_bytes!("../../assets/DejaVuSans-Bold-subset.ttf");

/// A size in pixels to the em, and a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Font {
    /// Pixels to the em.
    pub size: f64,
    /// Bold.
    pub bold: bool,
}

/// Words of `size` pixels.
#[must_use]
pub const fn plain(size: f64) -> Font {
    Font { size, bold: false }
}

/// Bold words of `size` pixels.
#[must_use]
pub const fn bold(size: f64) -> Font {
    Font { size, bold: true }
}

/// The font's outlines; `None` only if the embedded file were broken.
pub(super) fn face(bold: bool) -> Option<&'static FontRef<'static>> {
    static FACES: OnceLock<[Option<FontRef<'static>>; 2]> = OnceLock::new();
    let faces =
        FACES.get_or_init(|| [REGULAR, BOLD].map(|bytes| FontRef::try_from_slice(bytes).ok()));
    faces[usize::from(bold)].as_ref()
}

/// `font.size`, as the font library counts it: by the height of a line, not by the em.
pub(super) fn scale(face: &FontRef<'_>, size: f64) -> PxScale {
    let em = face.units_per_em().unwrap_or(2048.0);
    PxScale::from(size as f32 * face.height_unscaled() / em)
}

/// The glyph of a character; a question mark where the font has none.
pub(super) fn glyph<F: AnyFont>(font: &impl ScaleFont<F>, c: char) -> GlyphId {
    match font.glyph_id(c) {
        GlyphId(0) => font.glyph_id('?'),
        glyph => glyph,
    }
}

/// How many pixels wide `text` is.
#[must_use]
pub fn width(text: &str, font: Font) -> f64 {
    let Some(face) = face(font.bold) else { return font.size * 0.6 * text.len() as f64 };
    let scaled = face.as_scaled(scale(face, font.size));
    let mut before = None;
    let mut total = 0.0;
    for glyph in text.chars().map(|c| glyph(&scaled, c)) {
        total += before.map_or(0.0, |left| scaled.kern(left, glyph)) + scaled.h_advance(glyph);
        before = Some(glyph);
    }
    f64::from(total)
}

/// `text`, or as much of its start as fits `room` pixels with an ellipsis behind it.
#[must_use]
pub fn ellipsize(text: &str, font: Font, room: f64) -> String {
    if width(text, font) <= room {
        return text.to_string();
    }
    let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    let fits = |end: usize| {
        let cut = format!("{}…", text[..end].trim_end());
        (width(&cut, font) <= room).then_some(cut)
    };
    let keep = ends.partition_point(|end| fits(*end).is_some());
    keep.checked_sub(1).and_then(|last| fits(ends[last])).unwrap_or_default()
}

/// `text` in lines of at most `room` pixels, at most `most` of them.
#[must_use]
pub fn wrap(text: &str, font: Font, room: f64, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let full = lines.len() == most;
        match lines.last_mut() {
            Some(line) if full || width(&format!("{line} {word}"), font) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines.iter().map(|line| ellipsize(line, font, room)).collect()
}

/// `bytes` with its unit: `1.36 GiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    Human(bytes).to_string()
}

/// `bytes` with its unit and no idle zeros, for axes: `512 MiB`, `1.5 GiB`.
#[must_use]
pub fn tick(bytes: u64) -> String {
    let long = size(bytes);
    let Some((number, unit)) = long.split_once(' ') else { return long };
    let short = match number.split_once('.') {
        Some(_) => number.trim_end_matches('0').trim_end_matches('.'),
        None => number,
    };
    format!("{short} {unit}")
}

/// `bytes` to three digits, for labels in small places: `694 MiB`, `1.36 GiB`, `71.2 KiB`.
#[must_use]
pub fn brief(bytes: u64) -> String {
    let long = size(bytes);
    let Some((number, unit)) = long.split_once(' ') else { return long };
    let Ok(value) = number.parse::<f64>() else { return long };
    let short = match value {
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => return format!("{value:.0} {unit}"),
    };
    format!("{} {unit}", short.trim_end_matches('0').trim_end_matches('.'))
}

/// `count` with commas between the thousands.
#[must_use]
pub fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `count` things, in the singular or plural: `1 segment`, `1,150 segments`.
#[must_use]
pub fn counted(count: usize, thing: &str) -> String {
    format!("{} {thing}{}", thousands(count as u64), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(100), "100");
        assert_eq!(tick(3 << 29), "1.5 GiB");
        assert_eq!(tick(100), "100 B");
        assert_eq!(counted(1, "block"), "1 block");
        assert_eq!(brief(727_600_000), "694 MiB");
        assert_eq!(brief(74_650_000), "71.2 MiB");
        assert_eq!(brief(3 << 29), "1.5 GiB");
        assert_eq!(brief(100), "100 B");
        assert_eq!(brief(7), "7 B");
    }

    #[test]
    fn cut_words_fit() {
        let font = plain(14.0);
        let cut = ellipsize("transformer.h.11.mlp.c_proj.weight", font, 120.0);
        assert!(cut.ends_with('…') && width(&cut, font) <= 120.0 && cut.len() > 10, "{cut}");
        assert_eq!(ellipsize("short", font, 120.0), "short");
        assert_eq!(ellipsize("anything", font, 1.0), "");
    }

    #[test]
    fn wrapped_lines_fit_and_keep_every_word() {
        let font = plain(14.0);
        let text = "no one range holds what was asked for";
        let lines = wrap(text, font, 100.0, 9);
        assert!(lines.len() > 2 && lines.iter().all(|line| width(line, font) <= 100.0));
        assert_eq!(lines.join(" "), text);
        assert_eq!(wrap(text, font, 100.0, 2).len(), 2);
    }
}
