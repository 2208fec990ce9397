//! Compare: the same trace under several policies, what each reserves over the events.
//!
//! The filled area is what the trace itself holds live: no policy can reserve less. Each policy is
//! a curve with its name at the right end; a curve that stops ran out of memory there.

use super::axes::Frame;
use super::header::{Swatch, caption, legend, nothing};
use super::model::{CompareData, Run};
use super::palette::{ALLOCATED, Color, EDGE, FAILED, PAPER, RUNS};
use super::scene::{Anchor, Area, Fill, MARGIN, Mark, Scene, WIDTH};
use super::series::{Column, area, columns, steps};
use super::text::{bold, ellipsize, size};

/// How high the plot is, with its labels.
const HEIGHT: f64 = 680.0;
/// Pixels to the right of the plot, for names.
const NAMES: f64 = 210.0;

/// Lays the comparison out.
pub fn scene(data: &CompareData) -> Scene {
    let mut scene = Scene::new();
    let mut y = caption(&mut scene, &data.caption);
    y = legend(&mut scene, &entries(data), y);
    let curves = data.runs.iter().map(|run| &run.reserved).chain([&data.live]);
    let all: Vec<(u64, u64)> = curves.flatten().copied().collect();
    let events = all.iter().map(|sample| sample.0);
    let Some((first, last)) = events.clone().min().zip(events.max()) else {
        scene.height = nothing(&mut scene, "There are no events to draw.", y);
        return scene;
    };
    let highest = all.iter().map(|sample| sample.1).max().unwrap_or(0);
    let capacity = data.capacity_bytes.filter(|bytes| bytes / 4 <= highest);
    let top = highest.max(capacity.unwrap_or(0)).max(1);
    y += 20.0;
    let mut frame = Frame::new(y, HEIGHT, (first, last + 1), top + top / 12);
    frame.area.w -= NAMES;
    frame.byte_axis(&mut scene);
    let live = columns(&frame, data.live.iter().copied());
    let pale = ALLOCATED.mix(PAPER, 0.72);
    area(&mut scene, &frame, &live, pale, pale.mix(PAPER, 0.4));
    if let Some(bytes) = capacity {
        let at = frame.y(bytes);
        scene.dashed(vec![(frame.area.x, at), (frame.area.right(), at)], FAILED, 2.0);
        let words = format!("capacity {}", size(bytes));
        scene.plaque((frame.area.x + 10.0, at - 7.0), &words, bold(14.0), Anchor::Start, FAILED);
    }
    frame.event_axis(&mut scene);
    curves_of(&mut scene, &frame, data);
    scene.height = y + HEIGHT + 8.0;
    scene
}

fn entries(data: &CompareData) -> Vec<(Swatch, String)> {
    let mut out = Vec::new();
    for (index, run) in data.runs.iter().enumerate() {
        let peak = run.reserved.iter().map(|sample| sample.1).max().unwrap_or(0);
        let mut words = format!("{}: reserves at most {}", run.name, size(peak));
        if run.out_of_memory {
            words.push_str(", runs out of memory");
        }
        if !run.note.is_empty() {
            words = format!("{words}, {}", run.note);
        }
        out.push((Swatch::Line(color(index), dash(index) > 0.0), words));
    }
    if !data.live.is_empty() {
        let pale = Fill::solid(ALLOCATED.mix(PAPER, 0.72)).edged(EDGE, 1.0);
        let most = data.live.iter().map(|sample| sample.1).max().unwrap_or(0);
        out.push((Swatch::Box(pale), format!("live in the trace, at most {}", size(most))));
    }
    out
}

fn color(index: usize) -> Color {
    RUNS[index % RUNS.len()]
}

/// Every second curve is dashed, for a grey print.
fn dash(index: usize) -> f64 {
    [0.0, 10.0][index % 2]
}

/// The curves, and their names at the right in the order of their ends.
fn curves_of(scene: &mut Scene, frame: &Frame, data: &CompareData) {
    let mut ends: Vec<(f64, f64, usize)> = Vec::new();
    for (index, run) in data.runs.iter().enumerate() {
        let columns = columns(frame, run.reserved.iter().copied());
        let Some(end) = one(scene, frame, run, &columns, index) else { continue };
        ends.push((end.1, end.0, index));
    }
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free_from = frame.area.y;
    for (y, x, index) in ends {
        let at = y.max(free_from).min(frame.area.bottom());
        free_from = at + 19.0;
        let right = frame.area.right();
        if !data.runs[index].out_of_memory {
            let line = vec![(x, y), (right + 4.0, y), (right + 14.0, at)];
            scene.line(line, color(index), 1.0);
        }
        let name = ellipsize(&data.runs[index].name, bold(13.0), WIDTH - MARGIN - right - 18.0);
        scene.text((right + 18.0, at + 4.5), name, bold(13.0), Anchor::Start, color(index));
    }
}

/// One curve; where it ends.
fn one(
    scene: &mut Scene,
    frame: &Frame,
    run: &Run,
    columns: &[Column],
    index: usize,
) -> Option<(f64, f64)> {
    let mut points = steps(frame, columns);
    let (x, y) = points.last().copied()?;
    let end = if run.out_of_memory { x } else { frame.area.right() };
    points.push((end, y));
    scene.marks.push(Mark::Line { points, color: color(index), width: 2.0, dash: dash(index) });
    if run.out_of_memory {
        let cross = Area { x: x - 5.0, y: y - 5.0, w: 10.0, h: 10.0 };
        scene.rect(cross, Fill::solid(FAILED).edged(PAPER, 1.0));
    }
    Some((end, y))
}
