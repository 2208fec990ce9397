//! Address-time: blocks as rectangles over events and addresses, the picture in which fragmentation
//! is seen.
//!
//! Addresses that never held a segment are cut out. A pixel is as dark as it is covered: where
//! blocks are thinner than a pixel, the free memory between them shines through. Colour tells how
//! long a block lived, because long lives between short ones are what pins memory. A million blocks
//! are painted as pixels; an SVG carries them as an embedded PNG, so that it stays small.

use super::axes::{Frame, byte_ticks};
use super::header::{Swatch, caption, legend, nothing};
use super::model::{AddressTimeData, BlockLife};
use super::palette::{AWAITING, Color, EDGE, FREE, LIFETIMES, MUTED, PAPER, UNMAPPED_HATCH};
use super::raster::Raster;
use super::scene::{Anchor, Area, Fill, Mark, Scene};
use super::text::{counted, plain, size, tick};

/// How high the plot is, with its labels.
const HEIGHT: f64 = 760.0;
/// Pixels to the right of the plot, for addresses.
const ADDRESSES: f64 = 100.0;
/// Ranges lower than this have no line between them.
const LINED: f64 = 8.0;
/// A range of addresses is at least this many pixels high, if there is room.
const LEAST: f64 = 3.0;
/// A block thinner than a pixel is at least this much of one.
const FAINTEST: f32 = 0.4;

/// A range of addresses that held segments, and where it is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    base: u64,
    bytes: u64,
    top: f64,
    h: f64,
}

/// Lays the chart out.
pub fn scene(data: &AddressTimeData) -> Scene {
    let mut scene = Scene::new();
    let mut y = caption(&mut scene, &data.caption);
    y = legend(&mut scene, &entries(data), y);
    let mut ranges = ranges(data);
    if ranges.is_empty() {
        scene.height = nothing(&mut scene, "No segment was ever reserved.", y);
        return scene;
    }
    y += 30.0;
    let mut frame = Frame::new(y, HEIGHT, (0, data.end_event), 1);
    frame.area.w -= ADDRESSES;
    stack(&mut ranges, frame.area.h.floor());
    let raster = paint(data, &ranges, frame.area.w.floor() as usize, frame.area.h.floor() as usize);
    let area = Area { x: frame.area.x.round(), y: frame.area.y.round(), ..frame.area };
    scene
        .marks
        .push(Mark::Image { area: Area { w: area.w.floor(), h: area.h.floor(), ..area }, raster });
    scene.rect(area, Fill::outline(EDGE, 1.0));
    labels(&mut scene, &ranges, area);
    frame.event_axis(&mut scene);
    frame.failures(&mut scene, &data.ooms);
    scene.height = y + HEIGHT + 8.0;
    scene
}

fn entries(data: &AddressTimeData) -> Vec<(Swatch, String)> {
    let swatch = |color| Swatch::Box(Fill::solid(color).edged(EDGE, 1.0));
    let mut out = vec![
        (swatch(LIFETIMES[0]), "never freed".to_string()),
        (swatch(LIFETIMES[1]), "lived ≥ 10 % of the events".to_string()),
        (swatch(LIFETIMES[2]), "≥ 1 %".to_string()),
        (swatch(LIFETIMES[3]), "shorter".to_string()),
    ];
    if data.blocks.iter().any(|block| block.awaiting_free) {
        out.push((swatch(AWAITING), "freed, awaiting streams".to_string()));
    }
    out.push((swatch(FREE), "free in a segment".to_string()));
    out.push((swatch(PAPER), "no segment".to_string()));
    let words = format!(
        "{}, {}",
        counted(data.blocks.len(), "block"),
        counted(data.segments.len(), "segment")
    );
    out.push((Swatch::Nothing, words));
    out
}

/// All addresses that ever held a segment, as ranges by address.
fn ranges(data: &AddressTimeData) -> Vec<Range> {
    let mut spans: Vec<(u64, u64)> = data
        .segments
        .iter()
        .map(|segment| (segment.base.0, segment.base.0 + segment.bytes))
        .collect();
    spans.sort_unstable();
    let mut out: Vec<Range> = Vec::new();
    for (from, to) in spans.into_iter().filter(|(from, to)| from < to) {
        match out.last_mut() {
            Some(range) if range.base + range.bytes >= from => {
                range.bytes = range.bytes.max(to - range.base);
            }
            _ => out.push(Range { base: from, bytes: to - from, top: 0.0, h: 0.0 }),
        }
    }
    out
}

/// Gives each range its height and place: to scale, but never invisible; low addresses lie at the
/// bottom.
fn stack(ranges: &mut [Range], high: f64) {
    let gap = if ranges.len() as f64 * LINED * 2.0 < high { 2.0 } else { 0.0 };
    let room = high - gap * (ranges.len() - 1) as f64;
    let least = LEAST.min(room / ranges.len() as f64 / 2.0);
    // Those too small for the scale get the least height; the others share the rest.
    let (mut bytes, mut pixels): (u64, f64) = (ranges.iter().map(|range| range.bytes).sum(), room);
    loop {
        let per_byte = pixels / bytes.max(1) as f64;
        let small = |range: &&mut Range| range.h == 0.0 && range.bytes as f64 * per_byte < least;
        let Some(range) = ranges.iter_mut().find(small) else { break };
        range.h = least;
        bytes -= range.bytes;
        pixels -= least;
    }
    let per_byte = pixels / bytes.max(1) as f64;
    let mut bottom = high;
    for range in ranges {
        if range.h == 0.0 {
            range.h = range.bytes as f64 * per_byte;
        }
        range.top = bottom - range.h;
        bottom = range.top - gap;
    }
}

/// The range that holds `address`.
fn find(ranges: &[Range], address: u64) -> Option<&Range> {
    let after = ranges.partition_point(|range| range.base <= address);
    ranges[..after].last().filter(|range| address < range.base + range.bytes)
}

/// A pixel covered by more than the first share is at least as dark as the second.
const HARDLY: f32 = 0.004;
const SEEN: f32 = 0.3;

/// What a pixel has got so far: colour times cover, and cover.
type Ink = [f32; 4];

fn paint(data: &AddressTimeData, ranges: &[Range], w: usize, h: usize) -> Raster {
    let end = data.end_event.max(1) as f64;
    let x = |event: u64| (event as f64 / end).min(1.0) * w as f64;
    let mut pixels = vec![PAPER; w * h];
    for segment in &data.segments {
        let Some(range) = find(ranges, segment.base.0) else { continue };
        let (top, bottom) = rows(range, segment.base.0, segment.bytes);
        let (left, right) = (x(segment.birth).floor() as usize, x(segment.death).ceil() as usize);
        for row in top.round() as usize..(bottom.round() as usize).min(h) {
            pixels[row * w + left.min(w)..row * w + right.min(w)].fill(FREE);
        }
    }
    let mut inks: Vec<Ink> = vec![[0.0; 4]; w * h];
    for block in &data.blocks {
        let Some(range) = find(ranges, block.address.0) else { continue };
        let across = (x(block.start_event), x(block.end_event));
        cover(
            &mut inks,
            w,
            h,
            across,
            rows(range, block.address.0, block.bytes),
            color(block, end),
        );
    }
    for (pixel, ink) in pixels.iter_mut().zip(&inks).filter(|(_, ink)| ink[3] > 0.0) {
        let [red, green, blue, all] = *ink;
        let mean = Color((red / all) as u8, (green / all) as u8, (blue / all) as u8);
        // Short lives among a million events must be seen at all.
        let seen = if all > HARDLY { all.max(SEEN) } else { all };
        *pixel = pixel.mix(mean, f64::from(seen.min(1.0)));
    }
    seams(&mut pixels, data, ranges, w, x);
    Raster { width: w, height: h, pixels }
}

/// From which row to which row `bytes` bytes at `address` reach.
fn rows(range: &Range, address: u64, bytes: u64) -> (f64, f64) {
    let per_byte = range.h / range.bytes as f64;
    let bottom = range.top + range.h - (address - range.base) as f64 * per_byte;
    (bottom - bytes as f64 * per_byte, bottom)
}

/// Colour by lifetime, a little lighter or darker by address, so that neighbours can be told apart.
fn color(block: &BlockLife, end: f64) -> Color {
    let share = block.end_event.saturating_sub(block.start_event) as f64 / end;
    let base = if block.awaiting_free {
        AWAITING
    } else if block.end_event as f64 >= end {
        LIFETIMES[0]
    } else if share >= 0.1 {
        LIFETIMES[1]
    } else if share >= 0.01 {
        LIFETIMES[2]
    } else {
        LIFETIMES[3]
    };
    let mixed = (block.address.0 / 512).wrapping_add(block.start_event);
    let noise = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62;
    base.mix(PAPER, noise as f64 * 0.05)
}

/// Adds a rectangle to the pixels, each in proportion to how much of it is covered.
fn cover(
    inks: &mut [Ink],
    w: usize,
    h: usize,
    (left, right): (f64, f64),
    (top, bottom): (f64, f64),
    color: Color,
) {
    let faint = if bottom - top < 1.0 { FAINTEST } else { 0.0 };
    let Color(red, green, blue) = color;
    let (red, green, blue) = (f32::from(red), f32::from(green), f32::from(blue));
    let columns = (left as usize).min(w)..(right.ceil() as usize).min(w);
    for row in (top.max(0.0) as usize).min(h)..(bottom.ceil().max(0.0) as usize).min(h) {
        let high = (bottom.min(row as f64 + 1.0) - top.max(row as f64)) as f32;
        // A thin block that straddles two rows stays faint in the one that it hardly touches.
        let high =
            if faint > 0.0 && high * 2.0 >= (bottom - top) as f32 { high.max(faint) } else { high };
        for (column, ink) in columns.clone().zip(&mut inks[row * w + columns.start..]) {
            let wide = (right.min(column as f64 + 1.0) - left.max(column as f64)) as f32;
            let part = high * wide.max(0.0);
            ink[0] += red * part;
            ink[1] += green * part;
            ink[2] += blue * part;
            ink[3] += part;
        }
    }
}

/// A hair of paper between segments that touch, and a grey line where addresses are cut out.
fn seams(
    pixels: &mut [Color],
    data: &AddressTimeData,
    ranges: &[Range],
    w: usize,
    x: impl Fn(u64) -> f64,
) {
    for segment in &data.segments {
        let Some(range) = find(ranges, segment.base.0) else { continue };
        let (top, bottom) = rows(range, segment.base.0, segment.bytes);
        if bottom - top < 6.0 || segment.base.0 == range.base {
            continue;
        }
        let (left, right) = (x(segment.birth) as usize, x(segment.death) as usize);
        let row = (bottom.round() as usize).saturating_sub(1) * w;
        pixels[row + left.min(w)..row + right.min(w)].fill(PAPER);
    }
    let apart = ranges.windows(2).any(|pair| pair[0].top - (pair[1].top + pair[1].h) > 1.0);
    for range in ranges.iter().skip(1).filter(|_| apart) {
        let row = (range.top + range.h).round() as usize * w;
        if let Some(line) = pixels.get_mut(row..row + w) {
            line.fill(UNMAPPED_HATCH);
        }
    }
}

/// Bytes at the left, first addresses of ranges at the right, as many as there is room for.
fn labels(scene: &mut Scene, ranges: &[Range], area: Area) {
    let all: u64 = ranges.iter().map(|range| range.bytes).sum();
    let mut below = 0;
    let mut free_above = f64::MAX;
    let mut ticks = byte_ticks(all, 7).into_iter().peekable();
    for range in ranges {
        let bottom = area.y + range.top + range.h;
        while let Some(bytes) = ticks.next_if(|bytes| *bytes <= below + range.bytes) {
            let y = bottom - range.h * (bytes - below) as f64 / range.bytes as f64;
            scene.line(vec![(area.x - 6.0, y), (area.x, y)], MUTED, 1.0);
            scene.text((area.x - 10.0, y + 5.0), tick(bytes), plain(14.0), Anchor::End, MUTED);
        }
        below += range.bytes;
        if bottom <= free_above && range.h >= LINED {
            let (right, words) = (area.right(), format!("{:#x}", range.base));
            scene.line(vec![(right, bottom), (right + 5.0, bottom)], MUTED, 1.0);
            scene.text((right + 9.0, bottom + 4.0), words, plain(12.0), Anchor::Start, MUTED);
            free_above = bottom - 15.0;
        }
    }
    let what = counted(ranges.len(), "range");
    let words = format!("upwards: {} of addresses in {what}, gaps cut out", size(all));
    let at = (area.x, area.bottom() + 45.0);
    scene.text(at, words, plain(14.0), Anchor::Start, MUTED);
}
