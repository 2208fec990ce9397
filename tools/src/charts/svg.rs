//! SVG writer: a scene as text, small enough to attach to an issue and sharp at any zoom.
//!
//! Owns: the spelling of marks in SVG. Rasters are embedded as PNG, so that a million blocks stay a
//! picture of a few hundred KiB. Hover words become `<title>` elements. Never knows: what a mark
//! means. It is written here and not by the plotting crate, which has neither hover words, patterns
//! nor images.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::palette::{Color, PAPER};
use super::png;
use super::raster::Raster;
use super::scene::{Anchor, Area, Fill, Mark, Scene, WIDTH};
use super::text::FAMILY;

/// `scene` as the text of a file.
pub fn write(scene: &Scene) -> String {
    let mut out = String::new();
    let height = scene.height.ceil();
    // Writing to a String cannot fail, so the results are dropped.
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\" font-family=\"{FAMILY}\">"
    );
    let _ = writeln!(out, "<title>{}</title>", escape(&scene.title));
    if !scene.description.is_empty() {
        let _ = writeln!(out, "<desc>{}</desc>", escape(&scene.description));
    }
    patterns(&mut out, scene);
    let _ = writeln!(out, "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"{}\"/>", hex(PAPER));
    for mark in &scene.marks {
        one(&mut out, mark);
    }
    out.push_str("</svg>\n");
    out
}

/// One pattern for each hatching that is used.
fn patterns(out: &mut String, scene: &Scene) {
    let used: BTreeSet<(Option<Color>, Color)> = scene
        .marks
        .iter()
        .filter_map(|mark| match mark {
            Mark::Rect { fill: Fill { color, hatch: Some(hatch), .. }, .. } => {
                Some((*color, *hatch))
            }
            _ => None,
        })
        .collect();
    for (color, hatch) in used {
        let _ = writeln!(
            out,
            "<pattern id=\"{}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
             patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"{}\"/>\
             <rect width=\"1.8\" height=\"6\" fill=\"{}\"/></pattern>",
            pattern_name(color, hatch),
            color.map_or_else(|| "none".to_string(), hex),
            hex(hatch)
        );
    }
}

fn pattern_name(color: Option<Color>, hatch: Color) -> String {
    let ground = color.map_or_else(|| "none".to_string(), |color| hex(color)[1..].to_string());
    format!("hatch-{}-{ground}", &hex(hatch)[1..])
}

fn one(out: &mut String, mark: &Mark) {
    match mark {
        Mark::Rect { area, fill, hover } => rect(out, *area, *fill, hover.as_deref()),
        Mark::Line { points, color, width, dash } => line(out, points, *color, *width, *dash),
        Mark::Polygon { points, color } => {
            let _ = writeln!(out, "<path d=\"{}Z\" fill=\"{}\"/>", path(points), hex(*color));
        }
        Mark::Text { at, text, font, anchor, color } => {
            let weight = if font.bold { " font-weight=\"bold\"" } else { "" };
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => " text-anchor=\"middle\"",
                Anchor::End => " text-anchor=\"end\"",
            };
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{}\" font-size=\"{}\"{weight}{anchor} fill=\"{}\">{}</text>",
                short(at.0),
                short(at.1),
                short(font.size),
                hex(*color),
                escape(text)
            );
        }
        Mark::Image { area, raster } => image(out, *area, raster),
    }
}

fn rect(out: &mut String, area: Area, fill: Fill, hover: Option<&str>) {
    let _ = write!(
        out,
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"",
        short(area.x),
        short(area.y),
        short(area.w),
        short(area.h)
    );
    let _ = match (fill.color, fill.hatch) {
        (color, Some(hatch)) => write!(out, " fill=\"url(#{})\"", pattern_name(color, hatch)),
        (Some(color), None) => write!(out, " fill=\"{}\"", hex(color)),
        (None, None) => write!(out, " fill=\"none\""),
    };
    if let Some((color, width)) = fill.edge {
        let _ = write!(out, " stroke=\"{}\" stroke-width=\"{}\"", hex(color), short(width));
    }
    let _ = match hover {
        Some(words) => writeln!(out, "><title>{}</title></rect>", escape(words)),
        None => writeln!(out, "/>"),
    };
}

fn line(out: &mut String, points: &[(f64, f64)], color: Color, width: f64, dash: f64) {
    let dashes =
        if dash > 0.0 { format!(" stroke-dasharray=\"{}\"", short(dash)) } else { String::new() };
    let _ = writeln!(
        out,
        "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" \
         stroke-linejoin=\"round\"{dashes}/>",
        path(points),
        hex(color),
        short(width)
    );
}

/// Points as a path: a horizontal or vertical step takes one number.
fn path(points: &[(f64, f64)]) -> String {
    let mut out = String::new();
    let mut before: Option<(String, String)> = None;
    for point in points {
        let (x, y) = (short(point.0), short(point.1));
        let _ = match &before {
            None => write!(out, "M{x} {y}"),
            Some((px, py)) if *px == x && *py == y => continue,
            Some((px, _)) if *px == x => write!(out, "V{y}"),
            Some((_, py)) if *py == y => write!(out, "H{x}"),
            Some(_) => write!(out, "L{x} {y}"),
        };
        before = Some((x, y));
    }
    out
}

fn image(out: &mut String, area: Area, raster: &Raster) {
    let bytes = png::encode(raster.width, raster.height, &raster.bytes());
    let _ = writeln!(
        out,
        "<image x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" style=\"image-rendering:pixelated\" \
         preserveAspectRatio=\"none\" href=\"data:image/png;base64,{}\"/>",
        short(area.x),
        short(area.y),
        short(area.w),
        short(area.h),
        base64(&bytes)
    );
}

fn hex(color: Color) -> String {
    format!("#{:02x}{:02x}{:02x}", color.0, color.1, color.2)
}

/// A coordinate to a tenth of a pixel, without idle zeros.
fn short(value: f64) -> String {
    let tenths = (value * 10.0).round() as i64;
    match tenths % 10 {
        0 => format!("{}", tenths / 10),
        _ => format!("{}", tenths as f64 / 10.0),
    }
}

/// `text` so that markup in it means nothing; characters that XML forbids are dropped.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = (0..3)
            .fold(0u32, |word, at| word << 8 | u32::from(chunk.get(at).copied().unwrap_or(0)));
        for digit in 0..4 {
            let index = (word >> (18 - 6 * digit)) & 63;
            let padding = digit > chunk.len();
            out.push(if padding { '=' } else { char::from(DIGITS[index as usize]) });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads() {
        assert_eq!(base64(b""), "");
        assert_eq!(base64(b"f"), "Zg==");
        assert_eq!(base64(b"fo"), "Zm8=");
        assert_eq!(base64(b"foobar"), "Zm9vYmFy");
    }

    #[test]
    fn markup_in_names_means_nothing() {
        assert_eq!(escape("<a href=\"x\">&\u{7}"), "&lt;a href=&quot;x&quot;&gt;&amp; ");
    }

    #[test]
    fn steps_take_one_number() {
        let steps = [(0.0, 5.0), (10.0, 5.0), (10.0, 5.01), (10.0, 8.25), (12.0, 9.0)];
        assert_eq!(path(&steps), "M0 5H10V8.3L12 9");
        assert_eq!(short(-0.04), "0");
    }
}
