//! Panels beside the rows of the map: what failed, to the scale of the map, and whose the live
//! blocks are.

use std::collections::BTreeMap;

use blockyard::vocab::{BlockState, Class};

use super::axes::byte_ticks;
use super::map_groups::{self, GUTTER, ROW, Totals};
use super::model::{FailedRequest, MapData};
use super::palette::{
    ALLOCATED, EDGE, FAILED, FAILED_HATCH, FREE, INK, MUTED, PAPER, RULE, UNMAPPED_HATCH,
};
use super::scene::{Anchor, Area, Fill, MARGIN, Scene, WIDTH};
use super::text::{bold, counted, ellipsize, plain, size, tick, width};

/// The left end of the rows.
pub const LEFT: f64 = MARGIN + GUTTER;

/// A ruler of bytes with its line at `y`, its labels above; returns the first free pixel below.
pub fn ruler(scene: &mut Scene, bytes_in_row: u64, y: f64) -> f64 {
    scene.line(vec![(LEFT, y), (LEFT + ROW, y)], MUTED, 1.0);
    for bytes in byte_ticks(bytes_in_row, 6) {
        let x = LEFT + ROW * bytes as f64 / bytes_in_row as f64;
        scene.line(vec![(x, y), (x, y + 5.0)], MUTED, 1.0);
        let words = if bytes == 0 { "0".to_string() } else { tick(bytes) };
        let x = x.min(WIDTH - MARGIN - width(&words, plain(13.0)) / 2.0);
        scene.text((x, y - 6.0), words, plain(13.0), Anchor::Middle, MUTED);
    }
    let words = format!("to scale: a full row is {}", tick(bytes_in_row));
    scene.text((MARGIN, y + 4.0), words, plain(13.0), Anchor::Start, MUTED);
    y + 12.0
}

/// What failed, the largest free range it may use and the room on the device; returns what is free
/// below.
pub fn request(
    scene: &mut Scene,
    data: &MapData,
    asked: FailedRequest,
    totals: Totals,
    bytes_in_row: u64,
    y: f64,
) -> f64 {
    let key = (asked.pool, asked.class == Class::Small, asked.stream);
    let place = map_groups::name(data, key);
    let failed = Fill::hatched(FAILED, FAILED_HATCH).edged(FAILED, 2.0);
    let hole = Fill::solid(FREE).edged(FAILED, 2.0);
    let served = data.view.segments.iter().any(|segment| map_groups::key(segment) == key);
    let none = if served { String::new() } else { "no segment serves such requests".to_string() };
    let mut rows = vec![
        ("the request that failed", asked.bytes, failed, place),
        ("largest free range for it", asked.largest_free_bytes, hole, none),
    ];
    if let Some(capacity) = data.capacity_bytes {
        let room = Fill::hatched(PAPER, UNMAPPED_HATCH).edged(EDGE, 1.0);
        let left = capacity.saturating_sub(totals.reserved());
        rows.push(("not reserved", left, room, format!("of {}", size(capacity))));
    }
    let mut y = y + 6.0;
    for (name, bytes, fill, note) in rows {
        scene.text((MARGIN, y + 19.0), name, bold(14.0), Anchor::Start, INK);
        bar(scene, bytes, bytes_in_row, fill, &note, y);
        y += 32.0;
    }
    scene.line(vec![(MARGIN, y + 4.0), (WIDTH - MARGIN, y + 4.0)], RULE, 1.0);
    y + 14.0
}

/// One bar with its size behind it, or in it if it fills the row.
fn bar(scene: &mut Scene, bytes: u64, bytes_in_row: u64, fill: Fill, note: &str, y: f64) {
    let whole = ROW * bytes as f64 / bytes_in_row as f64;
    let wide = whole.min(ROW);
    if bytes > 0 {
        scene.rect(Area { x: LEFT, y, w: wide.max(2.0), h: 26.0 }, fill);
    }
    let mut words = size(bytes);
    if !note.is_empty() {
        words = format!("{words}, {note}");
    }
    if whole > ROW + 0.5 {
        words.push_str(" (longer than this row)");
    }
    let behind = LEFT + wide + 10.0;
    if behind + width(&words, bold(14.0)) <= WIDTH - MARGIN {
        scene.text((behind, y + 19.0), words, bold(14.0), Anchor::Start, INK);
    } else {
        let words = ellipsize(&words, bold(14.0), wide - 30.0);
        scene.plaque((LEFT + 14.0, y + 18.0), &words, bold(14.0), Anchor::Start, INK);
    }
}

/// The owners of most live bytes; returns the first free pixel below.
pub fn owners(scene: &mut Scene, data: &MapData, y: f64) -> f64 {
    let mut sums: BTreeMap<&str, (u64, usize)> = BTreeMap::new();
    let mut live = 0;
    for block in data.view.segments.iter().flat_map(|segment| &segment.blocks) {
        if block.state != BlockState::Allocated {
            continue;
        }
        live += block.bytes;
        if let Some(owner) = data.owners.get(&block.ticket) {
            let sum = sums.entry(owner).or_default();
            *sum = (sum.0 + block.bytes, sum.1 + 1);
        }
    }
    let mut sums: Vec<(&str, (u64, usize))> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.0.cmp(&a.1.0).then(a.0.cmp(b.0)));
    if sums.is_empty() || live == 0 {
        return y;
    }
    let title = format!("largest owners of the {} that are allocated", size(live));
    scene.text((MARGIN, y + 24.0), title, bold(14.0), Anchor::Start, INK);
    let mut y = y + 36.0;
    let most = sums[0].1.0.max(1);
    for (owner, (bytes, blocks)) in sums.into_iter().take(8) {
        let name = ellipsize(owner, plain(13.0), GUTTER + 170.0);
        scene.text((MARGIN, y + 14.0), name, plain(13.0), Anchor::Start, INK);
        let wide = (560.0 * bytes as f64 / most as f64).max(1.0);
        let area = Area { x: LEFT + 190.0, y: y + 2.0, w: wide, h: 15.0 };
        scene.rect(area, Fill::solid(ALLOCATED));
        let share = 100.0 * bytes as f64 / live as f64;
        let words = format!("{} in {}, {share:.1} %", size(bytes), counted(blocks, "block"));
        scene.text((area.right() + 8.0, y + 14.0), words, plain(13.0), Anchor::Start, INK);
        y += 22.0;
    }
    y + 8.0
}
