//! Histogram: how many bytes lie in live and in free blocks of which size, by powers of two.

use super::axes::byte_ticks;
use super::header::{Swatch, caption, legend, nothing};
use super::model::HistogramData;
use super::palette::{ALLOCATED, EDGE, FAILED, FREE, FREE_EDGE, INK, MUTED, PAPER, RULE};
use super::scene::{Anchor, Area, Fill, MARGIN, Scene, WIDTH};
use super::text::{bold, counted, plain, size, thousands, tick, width};

/// How high the plot is, without its labels.
const HEIGHT: f64 = 520.0;

/// Blocks of one power of two.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    live: (u64, usize),
    free: (u64, usize),
}

/// Lays the histogram out.
pub fn scene(data: &HistogramData) -> Scene {
    let mut scene = Scene::new();
    let mut y = caption(&mut scene, &data.caption);
    let swatch = |color| Swatch::Box(Fill::solid(color).edged(EDGE, 1.0));
    let words = |name: &str, blocks: &[u64]| {
        let bytes = blocks.iter().sum();
        format!("{name}: {} in {}", size(bytes), counted(blocks.len(), "block"))
    };
    let mut entries = vec![
        (swatch(ALLOCATED), words("live", &data.live)),
        (swatch(FREE), words("free", &data.free)),
    ];
    if let Some(bytes) = data.request_bytes {
        entries.push((Swatch::Line(FAILED, false), format!("the failed request, {}", size(bytes))));
    }
    y = legend(&mut scene, &entries, y);
    let sizes = data.live.iter().chain(&data.free).copied().filter(|bytes| *bytes > 0);
    let logs = sizes.chain(data.request_bytes.filter(|bytes| *bytes > 0)).map(u64::ilog2);
    let Some((least, most)) = logs.fold(None, |range, log| match range {
        None => Some((log, log)),
        Some((least, most)) => Some((log.min(least), log.max(most))),
    }) else {
        scene.height = nothing(&mut scene, "There are no blocks to draw.", y);
        return scene;
    };
    let mut buckets = vec![Bucket::default(); (most - least + 1) as usize];
    for (blocks, is_live) in [(&data.live, true), (&data.free, false)] {
        for bytes in blocks.iter().filter(|bytes| **bytes > 0) {
            let bucket = &mut buckets[(bytes.ilog2() - least) as usize];
            let sum = if is_live { &mut bucket.live } else { &mut bucket.free };
            *sum = (sum.0 + bytes, sum.1 + 1);
        }
    }
    let asked = data.request_bytes.filter(|bytes| *bytes > 0);
    bars(&mut scene, &buckets, least, asked, y + 40.0);
    scene.height = y + 40.0 + HEIGHT + 72.0;
    scene
}

fn bars(scene: &mut Scene, buckets: &[Bucket], least: u32, asked: Option<u64>, y: f64) {
    let area = Area { x: MARGIN + 92.0, y, w: WIDTH - 2.0 * MARGIN - 92.0, h: HEIGHT };
    let highest = buckets.iter().map(|bucket| bucket.live.0.max(bucket.free.0)).max().unwrap_or(0);
    let top = (highest + highest / 12).max(1);
    let high = |bytes: u64| area.h * bytes as f64 / top as f64;
    for bytes in byte_ticks(top, 6) {
        let y = area.bottom() - high(bytes);
        scene.line(vec![(area.x, y), (area.right(), y)], RULE, 1.0);
        let at = (area.x - 10.0, y + 5.0);
        scene.text(at, tick(bytes), plain(14.0), Anchor::End, MUTED);
    }
    let step = area.w / buckets.len() as f64;
    let wide = (step * 0.42).min(56.0);
    for (index, bucket) in buckets.iter().enumerate() {
        let middle = area.x + step * (index as f64 + 0.5);
        let pair = [(bucket.live, middle - wide, ALLOCATED), (bucket.free, middle, FREE)];
        for ((bytes, count), x, color) in pair {
            if count == 0 {
                continue;
            }
            let h = high(bytes).max(1.0);
            let bar = Area { x, y: area.bottom() - h, w: wide, h };
            let edge = if color == FREE { FREE_EDGE } else { color };
            scene.rect(bar, Fill::solid(color).edged(edge, 1.0));
            let words = thousands(count as u64);
            if width(&words, plain(12.0)) <= wide + 2.0 {
                let at = (x + wide / 2.0, bar.y - 5.0);
                scene.text(at, words, plain(12.0), Anchor::Middle, INK);
            }
        }
        // From this size up to the next one.
        let left = area.x + step * index as f64;
        scene.line(vec![(left, area.bottom()), (left, area.bottom() + 6.0)], INK, 1.0);
        if step > 66.0 || index % 2 == 0 {
            let words = tick(1 << (least + index as u32));
            let at = (left.max(area.x), area.bottom() + 22.0);
            scene.text(at, words, plain(13.0), Anchor::Middle, MUTED);
        }
    }
    scene.line(vec![(area.x, area.bottom()), (area.right(), area.bottom())], INK, 1.0);
    let at = (area.x + area.w / 2.0, area.bottom() + 48.0);
    let words = "block size, each bar from its left mark up to the next; number of blocks above";
    scene.text(at, words, plain(14.0), Anchor::Middle, MUTED);
    if let Some(bytes) = asked {
        flag(scene, area, area.x + step * ((bytes as f64).log2() - f64::from(least)), bytes);
    }
}

/// A line at the size that failed, and a flag on it.
fn flag(scene: &mut Scene, area: Area, x: f64, bytes: u64) {
    scene.line(vec![(x, area.y - 8.0), (x, area.bottom())], FAILED, 2.0);
    let words = format!("failed request {}", size(bytes));
    let half = width(&words, bold(13.0)) / 2.0 + 6.0;
    let x = x.clamp(area.x + half, WIDTH - MARGIN - half);
    let flag = Area { x: x - half, y: area.y - 28.0, w: 2.0 * half, h: 20.0 };
    scene.rect(flag, Fill::solid(FAILED));
    scene.text((x, flag.y + 15.0), words, bold(13.0), Anchor::Middle, PAPER);
}
