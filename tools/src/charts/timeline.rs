//! Timeline: allocated, active and reserved bytes over the events.
//!
//! The areas lie in front of each other, in the colours of the map: what shows of reserved is free memory in
//! the cache, what shows of active awaits other streams, and the narrow band on allocated is rounding.

use super::axes::Frame;
use super::header::{Swatch, caption, legend, nothing};
use super::model::{Peak, Sample, TimelineData};
use super::palette::{ALLOCATED, AWAITING, EDGE, FAILED, FREE, FREE_EDGE, INK, PAPER, ROUNDING};
use super::scene::{Anchor, Area, Fill, MARGIN, Scene, WIDTH};
use super::series::{area, columns, curve};
use super::text::{bold, plain, size, thousands, width};

/// How high the plot is, with its labels.
const HEIGHT: f64 = 700.0;

/// Lays the timeline out.
pub fn scene(data: &TimelineData) -> Scene {
    let mut scene = Scene::new();
    let mut y = caption(&mut scene, &data.caption);
    y = legend(&mut scene, &entries(data), y);
    let Some((first, last)) = data.samples.first().zip(data.samples.last()) else {
        scene.height = nothing(&mut scene, "There are no events to draw.", y);
        return scene;
    };
    let highest = data.samples.iter().map(|sample| sample.reserved.max(sample.active)).max();
    let highest = highest.unwrap_or(0);
    // A device far larger than the use would squash the curves: then its line is only named.
    let capacity = data.capacity_bytes.filter(|bytes| *bytes / 4 <= highest);
    let top = highest.max(capacity.unwrap_or(0)).max(1);
    y += if data.markers.is_empty() { 30.0 } else { 50.0 };
    let frame = Frame::new(y, HEIGHT, (first.event, last.event), top + top / 16);
    frame.byte_axis(&mut scene);
    areas(&mut scene, &frame, &data.samples);
    frame.markers(&mut scene, &data.markers);
    frame.event_axis(&mut scene);
    let mut taken = Vec::new();
    if let Some(bytes) = capacity {
        taken.push(limit(&mut scene, &frame, bytes));
    } else if let Some(bytes) = data.capacity_bytes {
        let words = format!("capacity {}, far above", size(bytes));
        let at = (frame.area.right() - 4.0, frame.area.y + 16.0);
        scene.plaque(at, &words, plain(14.0), Anchor::End, FAILED);
    }
    frame.failures(&mut scene, &data.ooms);
    for (peak, name, color) in [
        (data.peak_reserved, "peak reserved", FREE_EDGE),
        (data.peak_allocated, "peak allocated", ALLOCATED),
    ] {
        if let Some(peak) = peak {
            annotate(&mut scene, &frame, peak, name, color, &mut taken);
        }
    }
    scene.height = y + HEIGHT + 8.0;
    scene
}

fn entries(data: &TimelineData) -> Vec<(Swatch, String)> {
    let swatch = |color| Swatch::Box(Fill::solid(color).edged(EDGE, 1.0));
    let mut out = vec![
        (swatch(ALLOCATED), "allocated".to_string()),
        (swatch(ROUNDING), "rounding waste".to_string()),
        (swatch(AWAITING), "freed, awaiting streams".to_string()),
        (swatch(FREE), "free in the cache".to_string()),
        (Swatch::Line(FREE_EDGE, false), "reserved".to_string()),
    ];
    if data.capacity_bytes.is_some() {
        out.push((Swatch::Line(FAILED, true), "capacity".to_string()));
    }
    if !data.markers.is_empty() {
        out.push((Swatch::Line(super::palette::MUTED, true), "marker".to_string()));
    }
    out
}

fn areas(scene: &mut Scene, frame: &Frame, samples: &[Sample]) {
    let of = |value: fn(&Sample) -> u64| {
        columns(frame, samples.iter().map(|sample| (sample.event, value(sample))))
    };
    let reserved = of(|sample| sample.reserved);
    area(scene, frame, &reserved, FREE, FREE.mix(PAPER, 0.5));
    let active = of(|sample| sample.active);
    area(scene, frame, &active, AWAITING, AWAITING.mix(FREE, 0.5));
    let allocated = of(|sample| sample.allocated);
    area(scene, frame, &allocated, ROUNDING, ROUNDING.mix(FREE, 0.5));
    let requested = of(|sample| sample.requested.min(sample.allocated));
    area(scene, frame, &requested, ALLOCATED, ALLOCATED.mix(FREE, 0.55));
    curve(scene, frame, &reserved, FREE_EDGE, 2.0);
}

/// The line of the capacity and its name; returns where the name stands.
fn limit(scene: &mut Scene, frame: &Frame, bytes: u64) -> Area {
    let y = frame.y(bytes);
    scene.dashed(vec![(frame.area.x, y), (frame.area.right(), y)], FAILED, 2.0);
    let words = format!("capacity {}", size(bytes));
    let w = width(&words, bold(14.0)) + 6.0;
    scene.plaque((frame.area.x + 10.0, y - 7.0), &words, bold(14.0), Anchor::Start, FAILED);
    Area { x: frame.area.x + 7.0, y: y - 20.0, w, h: 20.0 }
}

/// A dot on a peak, and its name where none stands yet.
fn annotate(
    scene: &mut Scene,
    frame: &Frame,
    peak: Peak,
    name: &str,
    color: super::palette::Color,
    taken: &mut Vec<Area>,
) {
    let (x, y) = (frame.x(peak.event), frame.y(peak.bytes));
    let dot = Area { x: x - 4.0, y: y - 4.0, w: 8.0, h: 8.0 };
    scene.rect(dot, Fill::solid(color).edged(PAPER, 1.0));
    let words = format!("{name} {} at event {}", size(peak.bytes), thousands(peak.event));
    let font = bold(14.0);
    let w = width(&words, font) + 8.0;
    let left = (x - w / 2.0).clamp(frame.area.x + 4.0, WIDTH - MARGIN - w - 20.0);
    let mut area = Area { x: left, y: y + 8.0, w, h: 22.0 };
    let overlaps = |a: &Area, b: &Area| {
        a.x < b.right() && b.x < a.right() && a.y < b.bottom() && b.y < a.bottom()
    };
    while let Some(other) = taken.iter().find(|other| overlaps(other, &area)) {
        area.y = other.bottom() + 3.0;
    }
    scene.rect(area, Fill::solid(PAPER).edged(color, 1.0));
    scene.text((left + 4.0, area.y + 16.0), words, font, Anchor::Start, INK);
    taken.push(area);
}
