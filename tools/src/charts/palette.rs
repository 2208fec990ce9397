//! Palette: one colour for one meaning, in every view.
//!
//! The hues are those of Okabe and Ito, which people with any common colour blindness tell apart.
//! Lightness differs too (live is dark, free is pale), and what matters most carries a hatching, so
//! that a grey print says the same.

/// A colour: red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Color(pub u8, pub u8, pub u8);

impl Color {
    /// This colour mixed with `other`; 0 gives this one, 1 the other.
    #[must_use]
    pub fn mix(self, other: Self, share: f64) -> Self {
        let one = |a: u8, b: u8| {
            (f64::from(a) + (f64::from(b) - f64::from(a)) * share.clamp(0.0, 1.0)).round() as u8
        };
        Self(one(self.0, other.0), one(self.1, other.1), one(self.2, other.2))
    }
}

/// Titles and numbers.
pub const INK: Color = Color(0x1b, 0x1f, 0x24);
/// Notes and axis labels.
pub const MUTED: Color = Color(0x57, 0x60, 0x6a);
/// Lines at named moments.
pub const MARKER: Color = Color(0x8b, 0x94, 0x9e);
/// Grid lines and frames.
pub const RULE: Color = Color(0xd5, 0xd9, 0xde);
/// Outlines of segments.
pub const EDGE: Color = Color(0x3d, 0x44, 0x4d);
/// The ground.
pub const PAPER: Color = Color(0xff, 0xff, 0xff);
/// Behind a verdict that tells of no failure.
pub const CALM: Color = Color(0xee, 0xf3, 0xf8);
/// Behind a verdict that tells of a failure.
pub const ALARM_PALE: Color = Color(0xfc, 0xee, 0xe4);

/// Live blocks.
pub const ALLOCATED: Color = Color(0x00, 0x5f, 0x9e);
/// Freed, but still used by a stream.
pub const AWAITING: Color = Color(0xe6, 0x9f, 0x00);
/// The hatching on it.
pub const AWAITING_HATCH: Color = Color(0x7a, 0x52, 0x00);
/// Free in the cache.
pub const FREE: Color = Color(0xc6, 0xe9, 0xdb);
/// The line around free memory, and the curve of it.
pub const FREE_EDGE: Color = Color(0x00, 0x7a, 0x59);
/// Free, but held by a live block beside it.
pub const PINNED: Color = Color(0x3d, 0xaa, 0x83);
/// Handed out beyond what was asked for.
pub const ROUNDING: Color = Color(0xcc, 0x79, 0xa7);
/// The hatching on it.
pub const ROUNDING_HATCH: Color = Color(0xf3, 0xdb, 0xe8);
/// The hatching of address space without memory, and of room that is not reserved.
pub const UNMAPPED_HATCH: Color = Color(0xb4, 0xba, 0xc2);
/// What failed.
pub const FAILED: Color = Color(0xd5, 0x5e, 0x00);
/// The hatching on it.
pub const FAILED_HATCH: Color = Color(0xff, 0xd9, 0xbd);

/// Curves that are compared; every second one is dashed besides.
pub const RUNS: [Color; 6] = [
    Color(0x00, 0x5f, 0x9e),
    Color(0xb0, 0x4a, 0x00),
    Color(0x00, 0x7a, 0x59),
    Color(0xa3, 0x4d, 0x7e),
    Color(0x1b, 0x1f, 0x24),
    Color(0x8a, 0x66, 0x00),
];

/// Lifetimes in the address-time view, from never freed to soon freed.
pub const LIFETIMES: [Color; 4] = [
    Color(0x0b, 0x2e, 0x59),
    Color(0x00, 0x6d, 0xb5),
    Color(0x56, 0xa9, 0xe0),
    Color(0x9f, 0xcd, 0xee),
];
