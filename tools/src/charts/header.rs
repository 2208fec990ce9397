//! Header: title, subtitle, verdict and legend, the same above every picture.

use super::model::Caption;
use super::palette::{ALARM_PALE, CALM, Color, EDGE, FAILED, INK, MUTED};
use super::scene::{Anchor, Area, Fill, MARGIN, Scene, WIDTH};
use super::text::{bold, ellipsize, plain, width, wrap};

/// What stands before an entry of a legend.
#[derive(Clone, Copy, Debug)]
pub enum Swatch {
    /// A box.
    Box(Fill),
    /// A line; dashed or not.
    Line(Color, bool),
    /// Nothing: the entry is a note.
    Nothing,
}

/// Puts the words down; returns the first free pixel below them.
pub fn caption(scene: &mut Scene, caption: &Caption) -> f64 {
    let room = WIDTH - 2.0 * MARGIN;
    scene.title.clone_from(&caption.title);
    scene.description.clone_from(&caption.verdict);
    let title = ellipsize(&caption.title, bold(26.0), room);
    scene.text((MARGIN, 44.0), title, bold(26.0), Anchor::Start, INK);
    let mut y = 52.0;
    if !caption.subtitle.is_empty() {
        let subtitle = ellipsize(&caption.subtitle, plain(15.0), room);
        scene.text((MARGIN, y + 17.0), subtitle, plain(15.0), Anchor::Start, MUTED);
        y += 26.0;
    }
    if caption.verdict.is_empty() {
        return y + 8.0;
    }
    let font = plain(18.0);
    let lines = wrap(&caption.verdict, font, room - 40.0, 4);
    let (pale, strong) = if caption.alarm { (ALARM_PALE, FAILED) } else { (CALM, EDGE) };
    let area = Area { x: MARGIN, y: y + 8.0, w: room, h: 18.0 + 26.0 * lines.len() as f64 };
    scene.rect(area, Fill::solid(pale));
    scene.rect(Area { w: 6.0, ..area }, Fill::solid(strong));
    for (index, line) in lines.into_iter().enumerate() {
        let base = area.y + 29.0 + 26.0 * index as f64;
        scene.text((MARGIN + 20.0, base), line, font, Anchor::Start, INK);
    }
    area.bottom() + 8.0
}

/// Puts a legend down from `y` on, in as many lines as it needs; returns the first free pixel
/// below.
pub fn legend(scene: &mut Scene, entries: &[(Swatch, String)], y: f64) -> f64 {
    let font = plain(14.0);
    let (mut x, mut top) = (MARGIN, y + 6.0);
    for (swatch, words) in entries {
        let words = ellipsize(words, font, WIDTH - 2.0 * MARGIN - 30.0);
        let indent = if matches!(swatch, Swatch::Nothing) { 0.0 } else { 30.0 };
        let wide = indent + width(&words, font);
        if x > MARGIN && x + wide > WIDTH - MARGIN {
            (x, top) = (MARGIN, top + 25.0);
        }
        match *swatch {
            Swatch::Box(fill) => {
                scene.rect(Area { x: x + 0.5, y: top + 2.5, w: 22.0, h: 15.0 }, fill);
            }
            Swatch::Line(color, true) => {
                scene.dashed(vec![(x, top + 10.0), (x + 23.0, top + 10.0)], color, 2.0);
            }
            Swatch::Nothing => {}
            Swatch::Line(color, false) => {
                scene.line(vec![(x, top + 10.0), (x + 23.0, top + 10.0)], color, 3.0);
            }
        }
        scene.text((x + indent, top + 15.0), words, font, Anchor::Start, INK);
        x += wide + 26.0;
    }
    top + 28.0
}

/// Says that there is nothing to draw; returns the first free pixel below.
pub fn nothing(scene: &mut Scene, words: &str, y: f64) -> f64 {
    let area = Area { x: MARGIN + 0.5, y: y + 8.5, w: WIDTH - 2.0 * MARGIN - 1.0, h: 120.0 };
    scene.rect(area, Fill::solid(CALM));
    scene.text((WIDTH / 2.0, y + 75.0), words, plain(18.0), Anchor::Middle, MUTED);
    area.bottom() + 20.0
}
