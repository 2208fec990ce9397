//! Timeline: allocated, active and reserved bytes over the events.
//!
//! The areas lie in front of each other, in the colours of the map: what shows of reserved is free
//! memory in the cache, what shows of active awaits other streams, and the narrow band on allocated
//! is rounding.

use super::axes::Frame;
use super::header::{Swatch, caption, legend, nothing};
use super::model::{Peak, Sample, TimelineData};
use super::palette::{
    ALLOCATED, AWAITING, Color, EDGE, FAILED, FREE, FREE_EDGE, INK, MARKER, PAPER, ROUNDING,
};
use super::scene::{Anchor, Area, Fill, Scene};
use super::series::{area, columns, curve};
use super::text::{bold, size, thousands, width};

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
    let frame = Frame::new(y, HEIGHT, (first.event, last.event + 1), top + top / 10);
    frame.byte_axis(&mut scene);
    areas(&mut scene, &frame, &data.samples);
    frame.markers(&mut scene, &data.markers);
    frame.event_axis(&mut scene);
    let mut taken = Vec::new();
    if let Some(bytes) = capacity {
        limit(&mut scene, &frame, bytes, &mut taken);
    } else if let Some(bytes) = data.capacity_bytes {
        let words = format!("capacity {}, far above", size(bytes));
        let at = (frame.area.x + 10.0, frame.area.y + 16.0);
        scene.plaque(at, &words, bold(14.0), Anchor::Start, FAILED);
        let w = width(&words, bold(14.0)) + 6.0;
        taken.push(Area { x: frame.area.x + 7.0, y: frame.area.y, w, h: 22.0 });
    }
    frame.failures(&mut scene, &data.ooms);
    let above = frame.y(highest);
    for (peak, name, color) in [
        (data.peak_reserved, "peak reserved", FREE_EDGE),
        (data.peak_allocated, "peak allocated", ALLOCATED),
    ] {
        if let Some(peak) = peak {
            annotate(&mut scene, &frame, peak, (name, color), above, &mut taken);
        }
    }
    scene.height = y + HEIGHT + 8.0;
    scene
}

fn entries(data: &TimelineData) -> Vec<(Swatch, String)> {
    let swatch = |color| Swatch::Box(Fill::solid(color).edged(EDGE, 1.0));
    let any = |shows: fn(&Sample) -> bool| data.samples.iter().any(shows);
    let mut out = vec![(swatch(ALLOCATED), "allocated".to_string())];
    if any(|sample| sample.allocated > sample.requested) {
        out.push((swatch(ROUNDING), "of it rounding waste".to_string()));
    }
    if any(|sample| sample.active > sample.allocated) {
        out.push((swatch(AWAITING), "freed, awaiting streams".to_string()));
    }
    out.push((swatch(FREE), "free in the cache".to_string()));
    out.push((Swatch::Line(FREE_EDGE, false), "reserved".to_string()));
    if data.capacity_bytes.is_some() {
        out.push((Swatch::Line(FAILED, true), "capacity".to_string()));
    }
    if !data.markers.is_empty() {
        out.push((Swatch::Line(MARKER, true), "marker".to_string()));
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

/// The line of the capacity and its name; what they cover is taken.
fn limit(scene: &mut Scene, frame: &Frame, bytes: u64, taken: &mut Vec<Area>) {
    let y = frame.y(bytes);
    scene.dashed(vec![(frame.area.x, y), (frame.area.right(), y)], FAILED, 2.0);
    let words = format!("capacity {}", size(bytes));
    let w = width(&words, bold(14.0)) + 6.0;
    scene.plaque((frame.area.x + 10.0, y - 7.0), &words, bold(14.0), Anchor::Start, FAILED);
    taken.push(Area { x: frame.area.x + 7.0, y: y - 22.0, w, h: 20.0 });
    taken.push(Area { x: frame.area.x, y: y - 2.0, w: frame.area.w, h: 4.0 });
}

/// A dot on a peak, and its name above the highest curve, led to the dot by a line.
fn annotate(
    scene: &mut Scene,
    frame: &Frame,
    peak: Peak,
    (name, color): (&str, Color),
    above: f64,
    taken: &mut Vec<Area>,
) {
    let (x, y) = (frame.x(peak.event), frame.y(peak.bytes));
    let words = format!("{name} {} at event {}", size(peak.bytes), thousands(peak.event));
    let w = width(&words, bold(14.0)) + 8.0;
    let Some(area) = free_place(frame, taken, (x, above), w) else { return };
    let from = (x.clamp(area.x + 6.0, area.right() - 6.0), area.bottom());
    scene.line(vec![from, (x, y)], color, 1.0);
    let dot = Area { x: x - 4.0, y: y - 4.0, w: 8.0, h: 8.0 };
    scene.rect(dot, Fill::solid(color).edged(PAPER, 1.0));
    scene.rect(area, Fill::solid(PAPER).edged(color, 1.0));
    scene.text((area.x + 4.0, area.y + 16.0), words, bold(14.0), Anchor::Start, INK);
    taken.push(area);
}

/// A place for words of width `w` near `x` and above `above`, or else further up or just below.
fn free_place(frame: &Frame, taken: &[Area], (x, above): (f64, f64), w: f64) -> Option<Area> {
    let h = 22.0;
    let (least, most) = (frame.area.x + 4.0, frame.area.right() - w - 4.0);
    let overlaps = |a: &Area, b: &Area| {
        a.x < b.right() && b.x < a.right() && a.y < b.bottom() && b.y < a.bottom()
    };
    let beside = taken.iter().flat_map(|other| [other.right() + 6.0, other.x - w - 6.0]);
    let mut columns: Vec<f64> = std::iter::once((x - w / 2.0).clamp(least, most.max(least)))
        .chain(beside.filter(|left| (least..=most).contains(left)))
        .collect();
    columns.sort_by(|a, b| (a + w / 2.0 - x).abs().total_cmp(&(b + w / 2.0 - x).abs()));
    let rows = [-32.0, -60.0, -88.0, 10.0, 38.0, 66.0].map(|offset| above + offset);
    rows.into_iter()
        .filter(|y| *y >= frame.area.y && y + h <= frame.area.bottom())
        .flat_map(|y| columns.iter().map(move |x| Area { x: *x, y, w, h }))
        .find(|area| taken.iter().all(|other| !overlaps(other, area)))
}
