//! Map: the segments and blocks at one moment, to scale.
//!
//! ```text
//!   title, subtitle, verdict
//!   legend with totals
//!   ruler
//!   what failed        |####|           the request, the largest hole, the room: to one scale
//!   pool · side · stream  |===|==  |=== segments, the largest first, as many to a row as fit
//!   ruler, largest owners
//! ```
//!
//! A segment longer than a row goes on in the next. Segments too thin to be seen one by one stand
//! together in one strip, the fullest first.

use blockyard::vocab::{BlockState, Class};

use super::header::{Swatch, caption, legend, nothing};
use super::map_bars::{Brush, ROUNDING_FILL, fill, piece};
use super::map_groups::{GUTTER, Group, Piece, ROW, Totals, bytes_in_row, gather, pack};
use super::map_panels::{LEFT, owners, request, ruler};
use super::model::MapData;
use super::palette::{EDGE, FAILED, INK, MUTED, PAPER, RULE, UNMAPPED_HATCH};
use super::scene::{Anchor, Area, Fill, MARGIN, Scene, WIDTH};
use super::text::{bold, counted, ellipsize, plain, size, width};

/// Pixels between two rows.
const ROW_GAP: f64 = 6.0;
/// Blocks beyond this many say nothing under the pointer, to keep the file small.
const MOST_HOVERS: usize = 6000;

/// Lays the map out.
pub fn scene(data: &MapData) -> Scene {
    let mut scene = Scene::new();
    let mut totals = Totals::default();
    data.view.segments.iter().for_each(|segment| totals.add(segment));
    let mut y = caption(&mut scene, &data.caption);
    y = legend(&mut scene, &entries(data, totals), y);
    let groups = gather(data);
    let row = bytes_in_row(data, &groups);
    if !groups.is_empty() || data.request.is_some() {
        y = ruler(&mut scene, row, y + 28.0);
    }
    if let Some(asked) = data.request {
        y = request(&mut scene, data, asked, totals, row, y);
    }
    if groups.is_empty() {
        y = nothing(&mut scene, "No memory is reserved: the heap is empty.", y);
        scene.height = y;
        return scene;
    }
    y = rows(&mut scene, data, &groups, row, y);
    y = ruler(&mut scene, row, y + 22.0);
    scene.height = owners(&mut scene, data, y) + 18.0;
    scene
}

/// The legend: every state that occurs, with its total.
fn entries(data: &MapData, totals: Totals) -> Vec<(Swatch, String)> {
    let named = |state: BlockState, name: &str, bytes: u64| {
        (Swatch::Box(fill(state).edged(EDGE, 1.0)), format!("{name} {}", size(bytes)))
    };
    let mut out =
        vec![named(BlockState::Allocated, "allocated", totals.requested + totals.rounding)];
    if totals.rounding > 0 {
        let words = format!("of it rounding waste {}", size(totals.rounding));
        out.push((Swatch::Box(ROUNDING_FILL.edged(EDGE, 1.0)), words));
    }
    if totals.awaiting > 0 {
        out.push(named(BlockState::AwaitingFree, "freed, awaiting streams", totals.awaiting));
    }
    let mut free = named(BlockState::Free, "free in the cache", totals.free);
    if totals.pinned > 0 {
        free.1.push_str(&format!(" ({} beside live blocks)", size(totals.pinned)));
    }
    out.push(free);
    if totals.unmapped > 0 {
        out.push(named(BlockState::Unmapped, "address space, unmapped", totals.unmapped));
    }
    if let Some(capacity) = data.capacity_bytes {
        let left = size(capacity.saturating_sub(totals.reserved()));
        let words =
            format!("reserved {} of {}, {left} left", size(totals.reserved()), size(capacity));
        let room = Fill::hatched(PAPER, UNMAPPED_HATCH).edged(EDGE, 1.0);
        out.push((Swatch::Box(room), words));
    } else {
        let outline = Fill::solid(PAPER).edged(EDGE, 1.0);
        let count = counted(data.view.segments.len(), "segment");
        out.push((Swatch::Box(outline), format!("{count}, {} reserved", size(totals.reserved()))));
    }
    out
}

/// Draws all groups; returns the first free pixel below.
fn rows(scene: &mut Scene, data: &MapData, groups: &[Group<'_>], row: u64, y: f64) -> f64 {
    let bytes_per_pixel = row as f64 / ROW;
    let packed: Vec<Vec<Vec<Piece<'_>>>> =
        groups.iter().map(|group| pack(group, bytes_per_pixel)).collect();
    let count: usize = packed.iter().map(Vec::len).sum();
    let blocks: usize = data.view.segments.iter().map(|segment| segment.blocks.len()).sum();
    let height = [(10, 36.0), (20, 28.0)].iter().find(|(most, _)| count <= *most);
    let height = height.map_or(22.0, |(_, height)| *height);
    let brush = Brush { left: LEFT, bytes_per_pixel, height, hover: blocks <= MOST_HOVERS };
    let lines = if groups.len() > 12 { 1 } else { 2 };
    let mut y = y + 4.0;
    for (group, rows) in groups.iter().zip(&packed) {
        let asked = data.request.filter(|asked| {
            group.key == Some((asked.pool, asked.class == Class::Small, asked.stream))
        });
        let words = gutter(scene, group, lines, asked.is_some(), y);
        let mut bottom = y;
        for row in rows {
            for part in row {
                piece(scene, data, part, brush, bottom);
            }
            strip_note(scene, row, brush, bottom);
            bottom += height + ROW_GAP;
        }
        if let Some(asked) = asked {
            mark_hole(scene, rows, asked.largest_free_bytes, brush, y);
        }
        y = bottom.max(words) + 2.0;
        scene.line(vec![(MARGIN, y), (WIDTH - MARGIN, y)], RULE, 1.0);
        y += 8.0;
    }
    y
}

/// Name and totals of a group, left of its rows; returns the first free pixel below.
fn gutter(scene: &mut Scene, group: &Group<'_>, lines: usize, asked: bool, y: f64) -> f64 {
    let room = GUTTER - 14.0;
    let name = ellipsize(&group.name, bold(13.0), room);
    scene.text((MARGIN, y + 13.0), name, bold(13.0), Anchor::Start, INK);
    let mut y = y + 13.0;
    for note in group.notes(lines) {
        y += 17.0;
        let note = ellipsize(&note, plain(12.5), room);
        scene.text((MARGIN, y), note, plain(12.5), Anchor::Start, MUTED);
    }
    if asked {
        y += 17.0;
        let area = Area { x: MARGIN - 10.0, y: y - 11.0, w: 4.0, h: 13.0 };
        scene.rect(area, Fill::solid(FAILED));
        let words = "the failed request searches here";
        scene.text((MARGIN, y), words, bold(12.5), Anchor::Start, FAILED);
    }
    y + 6.0
}

/// How many segments a strip of thin ones holds, behind it if there is room.
fn strip_note(scene: &mut Scene, row: &[Piece<'_>], brush: Brush, y: f64) {
    let Some(strip) = row.last().filter(|strip| strip.segments.len() > 1) else { return };
    if strip.to < strip.bytes {
        return;
    }
    let wide = ((strip.to - strip.from) as f64 / brush.bytes_per_pixel).max(1.0);
    let x = brush.left + strip.x + wide + 8.0;
    let count = counted(strip.segments.len(), "segment");
    let first = strip.segments.first().map_or(0, |segment| segment.bytes);
    let same = strip.segments.iter().all(|segment| segment.bytes == first);
    let sizes = if same {
        format!("{count} of {}", size(first))
    } else {
        format!("{count}, together {}", size(strip.bytes))
    };
    let room = WIDTH - MARGIN - x;
    let at = (x, y + brush.height / 2.0 + 4.5);
    for words in [format!("{sizes}, the fullest first"), sizes, count] {
        if width(&words, plain(12.5)) <= room {
            scene.text(at, words, plain(12.5), Anchor::Start, MUTED);
            return;
        }
    }
}

/// A thick line around the largest free block that the failed request may use.
fn mark_hole(scene: &mut Scene, rows: &[Vec<Piece<'_>>], bytes: u64, brush: Brush, y: f64) {
    let segments = rows.iter().flatten().filter(|piece| piece.segments.len() == 1);
    let free = segments
        .flat_map(|piece| &piece.segments[0].blocks)
        .filter(|block| block.state == BlockState::Free && block.bytes <= bytes);
    let Some(hole) = free.max_by_key(|block| (block.bytes, std::cmp::Reverse(block.address)))
    else {
        return;
    };
    let mut widest: Option<Area> = None;
    for (index, row) in rows.iter().enumerate() {
        let top = y + index as f64 * (brush.height + ROW_GAP);
        for piece in row.iter().filter(|piece| piece.segments.len() == 1) {
            let base = piece.segments[0].base.0;
            // A hole in a segment that is longer than a row may lie in two rows.
            let Some(start) = hole.address.0.checked_sub(base) else { continue };
            let (from, to) = (start.max(piece.from), (start + hole.bytes).min(piece.to));
            if from >= to {
                continue;
            }
            let x = |byte: u64| (byte - piece.from) as f64 / brush.bytes_per_pixel;
            let w = (x(to) - x(from)).max(3.0);
            let area = Area { x: brush.left + piece.x + x(from), y: top, w, h: brush.height };
            scene.rect(area, Fill::outline(FAILED, 3.0));
            widest = widest.filter(|widest| widest.w >= area.w).or(Some(area));
        }
    }
    let Some(area) = widest else { return };
    let words = "largest free";
    if area.w > width(words, bold(11.0)) + 70.0 {
        let at = (area.right() - 6.0, area.y + brush.height / 2.0 + 4.0);
        scene.text(at, words, bold(11.0), Anchor::End, FAILED);
    }
}
