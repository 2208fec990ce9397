//! Fragmentation: free memory over the events, how much of it is pinned, and the largest free
//! block.

use super::axes::Frame;
use super::header::{Swatch, caption, legend, nothing};
use super::model::{FragmentationData, FreeSample};
use super::palette::{EDGE, FREE, FREE_EDGE, INK, MARKER, PAPER, PINNED};
use super::scene::{Fill, Scene};
use super::series::{area, columns, curve};
use super::text::size;

/// How high the plot is, with its labels.
const HEIGHT: f64 = 640.0;

/// Lays the chart out.
pub fn scene(data: &FragmentationData) -> Scene {
    let mut scene = Scene::new();
    let mut y = caption(&mut scene, &data.caption);
    let most = |value: fn(&FreeSample) -> u64| data.samples.iter().map(value).max().unwrap_or(0);
    let (free, pinned) = (most(|sample| sample.free), most(|sample| sample.pinned_free));
    let largest = most(|sample| sample.largest_free);
    let swatch = |color| Swatch::Box(Fill::solid(color).edged(EDGE, 1.0));
    let mut entries = vec![
        (
            swatch(FREE),
            format!("free, could go back to the driver (all free: at most {})", size(free)),
        ),
        (swatch(PINNED), format!("free, pinned by a live block (at most {})", size(pinned))),
        (Swatch::Line(INK, false), format!("largest free block (at most {})", size(largest))),
    ];
    if !data.markers.is_empty() {
        entries.push((Swatch::Line(MARKER, true), "marker".to_string()));
    }
    y = legend(&mut scene, &entries, y);
    let Some((first, last)) = data.samples.first().zip(data.samples.last()) else {
        scene.height = nothing(&mut scene, "There are no events to draw.", y);
        return scene;
    };
    y += if data.markers.is_empty() { 30.0 } else { 50.0 };
    let top = free.max(largest).max(1);
    let frame = Frame::new(y, HEIGHT, (first.event, last.event + 1), top + top / 16);
    frame.byte_axis(&mut scene);
    let of = |value: fn(&FreeSample) -> u64| {
        columns(&frame, data.samples.iter().map(|sample| (sample.event, value(sample))))
    };
    let all = of(|sample| sample.free);
    area(&mut scene, &frame, &all, FREE, FREE.mix(PAPER, 0.5));
    let pinned = of(|sample| sample.pinned_free);
    area(&mut scene, &frame, &pinned, PINNED, PINNED.mix(FREE, 0.5));
    curve(&mut scene, &frame, &all, FREE_EDGE, 1.0);
    curve(&mut scene, &frame, &of(|sample| sample.largest_free), INK, 2.0);
    frame.markers(&mut scene, &data.markers);
    frame.event_axis(&mut scene);
    frame.failures(&mut scene, &data.ooms);
    scene.height = y + HEIGHT + 8.0;
    scene
}
