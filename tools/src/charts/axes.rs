//! Axes: round steps for bytes and events, and the frame of a plot over events.
//!
//! Owns: where an event or a size lies in pixels. Asked by: the views over time.

use super::palette::{FAILED, INK, MARKER, MUTED, PAPER, RULE};
use super::scene::{Anchor, Area, Fill, MARGIN, Scene, WIDTH};
use super::text::{bold, ellipsize, plain, thousands, tick, width};

/// Multiples of a power of two from 0 to at most `most`, about `wanted` of them.
pub fn byte_ticks(most: u64, wanted: u64) -> Vec<u64> {
    let step = (most / wanted.max(1)).max(1).checked_next_power_of_two().unwrap_or(1 << 63);
    (0..=most / step).map(|index| index * step).collect()
}

/// Multiples of 1, 2 or 5 times a power of ten from `first` to `last`, about `wanted` of them.
pub fn event_ticks(first: u64, last: u64, wanted: u64) -> Vec<u64> {
    let rough = (last.saturating_sub(first) / wanted.max(1)).max(1);
    let ten = 10u64.pow(rough.ilog10());
    let step = [1, 2, 5, 10].map(|unit| unit * ten).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(ten);
    (first.div_ceil(step)..=last / step).map(|index| index * step).collect()
}

/// A plot with events to the right and something upwards.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The pixels inside.
    pub area: Area,
    /// The event at the left edge.
    pub first: u64,
    /// The event at the right edge, at least one more.
    pub last: u64,
    /// The bytes at the upper edge, at least one; the lower edge is zero.
    pub top: u64,
}

impl Frame {
    /// A frame from `y` on, `h` pixels high with its labels, for events and sizes.
    pub fn new(y: f64, h: f64, (first, last): (u64, u64), top: u64) -> Self {
        let left = MARGIN + 92.0;
        let area = Area { x: left, y, w: WIDTH - MARGIN - 20.0 - left, h: h - 56.0 };
        Self { area, first, last: last.max(first + 1), top: top.max(1) }
    }

    /// Where an event lies.
    pub fn x(&self, event: u64) -> f64 {
        let share = event.saturating_sub(self.first) as f64 / (self.last - self.first) as f64;
        self.area.x + self.area.w * share.min(1.0)
    }

    /// Where a size lies.
    pub fn y(&self, bytes: u64) -> f64 {
        self.area.bottom() - self.area.h * (bytes as f64 / self.top as f64).min(1.0)
    }

    /// Puts the ground, the grid and the labels of the sizes down.
    pub fn byte_axis(&self, scene: &mut Scene) {
        scene.rect(self.area, Fill::solid(PAPER));
        for bytes in byte_ticks(self.top, 7) {
            let y = self.y(bytes);
            scene.line(vec![(self.area.x, y), (self.area.right(), y)], RULE, 1.0);
            let at = (self.area.x - 10.0, y + 5.0);
            scene.text(at, tick(bytes), plain(14.0), Anchor::End, MUTED);
        }
    }

    /// Puts the line below and the labels of the events down.
    pub fn event_axis(&self, scene: &mut Scene) {
        let bottom = self.area.bottom();
        scene.line(vec![(self.area.x, bottom), (self.area.right(), bottom)], INK, 1.0);
        for event in event_ticks(self.first, self.last, 10) {
            let x = self.x(event);
            scene.line(vec![(x, bottom), (x, bottom + 6.0)], INK, 1.0);
            let at = (x, bottom + 22.0);
            scene.text(at, thousands(event), plain(14.0), Anchor::Middle, MUTED);
        }
        let at = (self.area.x + self.area.w / 2.0, bottom + 45.0);
        scene.text(at, "event", plain(14.0), Anchor::Middle, MUTED);
    }

    /// Puts lines down where requests failed, with one flag for those that lie close together.
    pub fn failures(&self, scene: &mut Scene, ooms: &[u64]) {
        let mut groups: Vec<(f64, f64, usize)> = Vec::new();
        for x in ooms.iter().map(|event| self.x(*event)) {
            match groups.last_mut() {
                Some((_, last, count)) if x - *last < 110.0 => (*last, *count) = (x, *count + 1),
                _ => groups.push((x, x, 1)),
            }
        }
        let mut drawn = f64::MIN;
        for x in ooms.iter().map(|event| self.x(*event)) {
            if x - drawn >= 2.0 {
                scene.line(vec![(x, self.area.y - 4.0), (x, self.area.bottom())], FAILED, 2.0);
                drawn = x;
            }
        }
        for (first, last, count) in groups {
            let words = match count {
                1 => "out of memory".to_string(),
                many => format!("out of memory × {}", thousands(many as u64)),
            };
            let font = bold(13.0);
            let half = width(&words, font) / 2.0 + 6.0;
            let x = f64::midpoint(first, last).clamp(self.area.x + half, WIDTH - MARGIN - half);
            let flag = Area { x: x - half, y: self.area.y - 24.0, w: 2.0 * half, h: 20.0 };
            scene.rect(flag, Fill::solid(FAILED));
            scene.text((x, flag.y + 15.0), words, font, Anchor::Middle, PAPER);
        }
    }

    /// Puts thin lines down at named moments, with as many names as there is room for.
    pub fn markers(&self, scene: &mut Scene, markers: &[(u64, String)]) {
        let every = markers.len().div_ceil(60).max(1);
        let mut free_from = f64::MIN;
        for (event, name) in markers.iter().step_by(every) {
            let x = self.x(*event);
            scene.dashed(vec![(x, self.area.y), (x, self.area.bottom())], MARKER, 1.0);
            let name = ellipsize(name, plain(13.0), 150.0);
            let end = x + 4.0 + width(&name, plain(13.0));
            if x >= free_from && end <= WIDTH - MARGIN {
                scene.text((x, self.area.y - 32.0), name, plain(13.0), Anchor::Start, MUTED);
                free_from = end + 10.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_steps_are_powers_of_two() {
        assert_eq!(byte_ticks(9 << 30, 7), (0..=4).map(|n| n << 31).collect::<Vec<u64>>());
        assert_eq!(byte_ticks(0, 7), vec![0]);
        assert!(byte_ticks(u64::MAX, 1).len() <= 2);
    }

    #[test]
    fn event_steps_are_round() {
        assert_eq!(event_ticks(0, 10_000, 10), (0..=10).map(|n| n * 1000).collect::<Vec<u64>>());
        assert_eq!(event_ticks(5, 5, 10), vec![5]);
        assert_eq!(
            event_ticks(1_007, 1_030, 10),
            vec![1008, 1010, 1012, 1014, 1016, 1018, 1020, 1022, 1024, 1026, 1028, 1030]
        );
    }
}
