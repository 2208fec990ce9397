//! Series: a curve of steps, reduced to one range for each column of pixels.
//!
//! However many samples there are, a column keeps the least and the most of its samples, so that no
//! peak is lost. Asked by: the views over time.

use super::axes::Frame;
use super::palette::Color;
use super::scene::Scene;

/// One column of pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column {
    /// Its place.
    pub x: f64,
    /// The least in it.
    pub low: u64,
    /// The most in it.
    pub high: u64,
    /// The last in it, which holds up to the next column.
    pub last: u64,
}

/// Samples (event, value), by event, as columns.
pub fn columns(frame: &Frame, samples: impl Iterator<Item = (u64, u64)>) -> Vec<Column> {
    let mut out: Vec<Column> = Vec::new();
    for (event, value) in samples {
        let x = frame.x(event).floor();
        match out.last_mut() {
            Some(column) if column.x >= x => {
                column.low = column.low.min(value);
                column.high = column.high.max(value);
                column.last = value;
            }
            // The value before still holds at the left edge of this column.
            before => {
                let held = before.map_or(value, |column| column.last);
                out.push(Column { x, low: value.min(held), high: value.max(held), last: value });
            }
        }
    }
    out
}

/// Fills from the lower edge of the frame up to the curve; paler between the least and the most of
/// a column.
pub fn area(scene: &mut Scene, frame: &Frame, columns: &[Column], color: Color, pale: Color) {
    if columns.iter().any(|column| column.low != column.high) {
        scene.polygon(under(frame, columns, |column| column.high), pale);
    }
    scene.polygon(under(frame, columns, |column| column.low), color);
}

fn under(frame: &Frame, columns: &[Column], value: fn(&Column) -> u64) -> Vec<(f64, f64)> {
    let Some((first, last)) = columns.first().zip(columns.last()) else { return Vec::new() };
    let bottom = frame.area.bottom();
    let mut points = vec![(first.x, bottom)];
    for (index, column) in columns.iter().enumerate() {
        let next = columns.get(index + 1).map_or(column.x + 1.0, |next| next.x);
        points.push((column.x, frame.y(value(column))));
        points.push(((column.x + 1.0).min(next), frame.y(value(column))));
        // Between columns the last value holds.
        if next > column.x + 1.0 {
            points.push((column.x + 1.0, frame.y(column.last)));
            points.push((next, frame.y(column.last)));
        }
    }
    let end = frame.area.right().max(last.x + 1.0);
    points.push((last.x + 1.0, frame.y(last.last)));
    points.push((end, frame.y(last.last)));
    points.push((end, bottom));
    points
}

/// A line along the curve, to the right edge of the frame.
pub fn curve(scene: &mut Scene, frame: &Frame, columns: &[Column], color: Color, width: f64) {
    let mut points = steps(frame, columns);
    if let Some((_, y)) = points.last().copied() {
        points.push((frame.area.right(), y));
    }
    scene.line(points, color, width);
}

/// The points of a line along the curve, up to the last column.
pub fn steps(frame: &Frame, columns: &[Column]) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for column in columns {
        if let Some((_, y)) = points.last().copied() {
            points.push((column.x, y));
        }
        if column.low != column.high {
            points.push((column.x, frame.y(column.low)));
            points.push((column.x, frame.y(column.high)));
        }
        points.push((column.x, frame.y(column.last)));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_samples_become_a_column_a_pixel_and_keep_the_peak() {
        let frame = Frame::new(0.0, 500.0, (0, 1_000_000), 100);
        let samples = (0..1_000_000u64).map(|n| (n, if n == 777_777 { 99 } else { n % 7 }));
        let columns = columns(&frame, samples);
        assert!(columns.len() as f64 <= frame.area.w + 1.0);
        assert_eq!(columns.iter().map(|column| column.high).max(), Some(99));
        assert!(columns.windows(2).all(|pair| pair[0].x < pair[1].x));
    }
}
