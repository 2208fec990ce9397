//! Raster: a rectangle of pixels that a view has painted itself.

use super::palette::Color;

/// Rows of pixels, the top row first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raster {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// The pixels.
    pub pixels: Vec<Color>,
}

impl Raster {
    /// The colours as bytes: red, green, blue, red and so on.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.pixels.iter().flat_map(|pixel| [pixel.0, pixel.1, pixel.2]).collect()
    }
}
