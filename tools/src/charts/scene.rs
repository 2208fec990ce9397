//! Scene: a picture as a list of marks in pixels, before it is SVG or PNG.
//!
//! Owns: the marks and the size of the canvas. Asked by: the views, which put marks down, and the
//! writers. Never knows: what a mark means.

use super::palette::{Color, PAPER};
use super::raster::Raster;
use super::text::{self, Font};

/// How wide every picture is, in pixels.
pub const WIDTH: f64 = 1600.0;
/// Blank pixels at the left and right.
pub const MARGIN: f64 = 28.0;

/// A rectangle of pixels, from (`x`, `y`) rightwards and down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    /// Left.
    pub x: f64,
    /// Top.
    pub y: f64,
    /// Width.
    pub w: f64,
    /// Height.
    pub h: f64,
}

impl Area {
    /// The right edge.
    #[must_use]
    pub fn right(self) -> f64 {
        self.x + self.w
    }

    /// The lower edge.
    #[must_use]
    pub fn bottom(self) -> f64 {
        self.y + self.h
    }
}

/// How a rectangle is filled and bordered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fill {
    /// The ground; `None` leaves what is below.
    pub color: Option<Color>,
    /// Diagonal lines on it.
    pub hatch: Option<Color>,
    /// The line around it, centred on its edge, and that line's width.
    pub edge: Option<(Color, f64)>,
}

impl Fill {
    /// One colour.
    #[must_use]
    pub const fn solid(color: Color) -> Self {
        Self { color: Some(color), hatch: None, edge: None }
    }

    /// Diagonal lines of `hatch` on `color`.
    #[must_use]
    pub const fn hatched(color: Color, hatch: Color) -> Self {
        Self { color: Some(color), hatch: Some(hatch), edge: None }
    }

    /// Only a line around.
    #[must_use]
    pub const fn outline(color: Color, width: f64) -> Self {
        Self { color: None, hatch: None, edge: Some((color, width)) }
    }

    /// This, with a line around.
    #[must_use]
    pub const fn edged(self, color: Color, width: f64) -> Self {
        Self { edge: Some((color, width)), ..self }
    }
}

/// Which point of the words stands at the given place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Their left end.
    Start,
    /// Their middle.
    Middle,
    /// Their right end.
    End,
}

/// One thing on the canvas.
#[derive(Clone, Debug)]
pub enum Mark {
    /// A rectangle; `hover` is shown by an SVG viewer under the pointer.
    Rect {
        /// Where.
        area: Area,
        /// How.
        fill: Fill,
        /// Words under the pointer.
        hover: Option<String>,
    },
    /// A line through points.
    Line {
        /// The points.
        points: Vec<(f64, f64)>,
        /// Its colour.
        color: Color,
        /// Its width.
        width: f64,
        /// Lengths of dash and gap; zero for a full line.
        dash: f64,
    },
    /// A filled outline.
    Polygon {
        /// Its corners.
        points: Vec<(f64, f64)>,
        /// Its colour.
        color: Color,
    },
    /// Words on a line.
    Text {
        /// Where they are anchored, and their base line.
        at: (f64, f64),
        /// The words.
        text: String,
        /// Size and weight.
        font: Font,
        /// Which point of them is at `at`.
        anchor: Anchor,
        /// Their colour.
        color: Color,
    },
    /// Pixels.
    Image {
        /// Where.
        area: Area,
        /// What.
        raster: Raster,
    },
}

/// A picture.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// Its name, for the viewer and for readers that speak.
    pub title: String,
    /// Its description, likewise.
    pub description: String,
    /// How high it is, in pixels; it is [`WIDTH`] wide.
    pub height: f64,
    /// What is on it, the lowest first.
    pub marks: Vec<Mark>,
}

impl Scene {
    /// An empty picture.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a rectangle down.
    pub fn rect(&mut self, area: Area, fill: Fill) {
        self.marks.push(Mark::Rect { area, fill, hover: None });
    }

    /// Puts a rectangle down that says `hover` under the pointer.
    pub fn rect_saying(&mut self, area: Area, fill: Fill, hover: String) {
        self.marks.push(Mark::Rect { area, fill, hover: Some(hover) });
    }

    /// Puts a full line down.
    pub fn line(&mut self, points: Vec<(f64, f64)>, color: Color, width: f64) {
        self.marks.push(Mark::Line { points, color, width, dash: 0.0 });
    }

    /// Puts a dashed line down.
    pub fn dashed(&mut self, points: Vec<(f64, f64)>, color: Color, width: f64) {
        self.marks.push(Mark::Line { points, color, width, dash: 6.0 });
    }

    /// Puts a filled outline down.
    pub fn polygon(&mut self, points: Vec<(f64, f64)>, color: Color) {
        self.marks.push(Mark::Polygon { points, color });
    }

    /// Puts words down, their base line at `at.1`.
    pub fn text(
        &mut self,
        at: (f64, f64),
        text: impl Into<String>,
        font: Font,
        anchor: Anchor,
        color: Color,
    ) {
        let text = text.into();
        if !text.is_empty() {
            self.marks.push(Mark::Text { at, text, font, anchor, color });
        }
    }

    /// Puts words down on a paper ground, so that what is below them does not disturb.
    pub fn plaque(
        &mut self,
        at: (f64, f64),
        words: &str,
        font: Font,
        anchor: Anchor,
        color: Color,
    ) {
        let area = text_area(at, words, font, anchor);
        let ground = Area { x: area.x - 3.0, y: area.y - 1.0, w: area.w + 6.0, h: area.h + 2.0 };
        self.rect(ground, Fill::solid(PAPER));
        self.text(at, words, font, anchor, color);
    }

    /// Puts all of `other` below what is here.
    pub fn append_below(&mut self, other: Self) {
        let down = self.height;
        self.marks.extend(other.marks.into_iter().map(|mark| mark.moved_down(down)));
        self.height += other.height;
        if self.title.is_empty() {
            (self.title, self.description) = (other.title, other.description);
        }
    }
}

impl Mark {
    fn moved_down(mut self, by: f64) -> Self {
        match &mut self {
            Self::Rect { area, .. } | Self::Image { area, .. } => area.y += by,
            Self::Line { points, .. } | Self::Polygon { points, .. } => {
                points.iter_mut().for_each(|point| point.1 += by);
            }
            Self::Text { at, .. } => at.1 += by,
        }
        self
    }
}

/// The pixels that words cover.
#[must_use]
pub fn text_area(at: (f64, f64), words: &str, font: Font, anchor: Anchor) -> Area {
    let w = text::width(words, font);
    let x = match anchor {
        Anchor::Start => at.0,
        Anchor::Middle => at.0 - w / 2.0,
        Anchor::End => at.0 - w,
    };
    Area { x, y: at.1 - font.size * 0.78, w, h: font.size }
}
