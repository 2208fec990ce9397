//! Bars of the map: one piece of a row drawn to scale, block by block.

use blockyard::vocab::{BlockState, BlockView};

use super::map_cells::{Cell, Shares, cells};
use super::map_groups::Piece;
use super::model::MapData;
use super::palette::{
    ALLOCATED, AWAITING, AWAITING_HATCH, Color, EDGE, FREE, FREE_EDGE, INK, PAPER, ROUNDING,
    ROUNDING_HATCH, UNMAPPED_HATCH,
};
use super::scene::{Anchor, Area, Fill, Scene};
use super::text::{brief, ellipsize, plain, size, width};

/// How each state looks.
pub fn fill(state: BlockState) -> Fill {
    match state {
        BlockState::Allocated => Fill::solid(ALLOCATED),
        BlockState::AwaitingFree => Fill::hatched(AWAITING, AWAITING_HATCH),
        BlockState::Free => Fill::solid(FREE),
        BlockState::Unmapped => Fill::hatched(PAPER, UNMAPPED_HATCH),
    }
}

/// How rounding waste looks.
pub const ROUNDING_FILL: Fill = Fill::hatched(ROUNDING, ROUNDING_HATCH);

/// Where bars are drawn, and how.
#[derive(Clone, Copy, Debug)]
pub struct Brush {
    /// The left end of the rows.
    pub left: f64,
    /// Bytes to a pixel.
    pub bytes_per_pixel: f64,
    /// How high a bar is.
    pub height: f64,
    /// Blocks say what they are under the pointer.
    pub hover: bool,
}

/// Draws one piece with its top at `y`.
pub fn piece(scene: &mut Scene, data: &MapData, piece: &Piece<'_>, brush: Brush, y: f64) {
    let wide = ((piece.to - piece.from) as f64 / brush.bytes_per_pixel).max(1.0);
    let bar = Area { x: brush.left + piece.x, y, w: wide, h: brush.height };
    let at = |byte: u64| bar.x + (byte - piece.from) as f64 / brush.bytes_per_pixel;
    let cells = cells(&piece.segments, piece.from, piece.to, brush.bytes_per_pixel);
    for cell in cells.iter().filter(|cell| matches!(cell, Cell::One { .. })) {
        if let Cell::One { block, from, to, ends } = *cell {
            let area = Area { x: at(from), y, w: at(to) - at(from), h: brush.height };
            one(scene, data, block, area, brush, ends);
        }
    }
    for cell in &cells {
        if let Cell::Shared { from, to, shares } = *cell {
            let area = Area { x: at(from), y, w: (at(to) - at(from)).max(1.0), h: brush.height };
            shared(scene, shares, to - from, area);
        }
    }
    outline(scene, piece, bar, brush);
}

fn one(scene: &mut Scene, data: &MapData, block: &BlockView, area: Area, brush: Brush, ends: bool) {
    // A hair of paper between neighbours.
    let seam = if ends && area.w >= 3.0 { 1.0 } else { 0.0 };
    let body = Area { w: area.w - seam, ..area };
    if brush.hover {
        scene.rect_saying(body, fill(block.state), describe(data, block));
    } else {
        scene.rect(body, fill(block.state));
    }
    let waste = match block.state {
        BlockState::Allocated => block.bytes - block.requested.min(block.bytes),
        _ => 0,
    };
    let waste = waste as f64 / brush.bytes_per_pixel;
    if ends && waste >= 1.0 {
        let waste = waste.min(body.w);
        scene.rect(Area { x: body.right() - waste, w: waste, ..body }, ROUNDING_FILL);
    }
    let room = body.w - waste - 8.0;
    label(scene, data, block, Area { w: room, x: body.x + 4.0, ..body });
}

/// Size and owner inside the block, if there is room.
fn label(scene: &mut Scene, data: &MapData, block: &BlockView, room: Area) {
    let font = plain(12.0);
    let words = brief(block.bytes);
    let plain_width = width(&words, font);
    if room.w < plain_width || room.h < 18.0 {
        return;
    }
    let words = match data.owners.get(&block.ticket).filter(|_| block.state != BlockState::Free) {
        Some(owner) if room.w > plain_width + 60.0 => {
            ellipsize(&format!("{words} {owner}"), font, room.w)
        }
        _ => words,
    };
    let at = (room.x, room.y + room.h / 2.0 + 4.5);
    let color = match block.state {
        BlockState::Allocated => PAPER,
        BlockState::Free => FREE_EDGE.mix(INK, 0.45),
        BlockState::AwaitingFree | BlockState::Unmapped => INK,
    };
    if fill(block.state).hatch.is_some() {
        let ground = fill(block.state).color.unwrap_or(PAPER);
        let wide = width(&words, font) + 4.0;
        let area = Area { x: at.0 - 2.0, y: at.1 - 12.0, w: wide, h: 16.0 };
        scene.rect(area, Fill::solid(ground));
    }
    scene.text(at, words, font, Anchor::Start, color);
}

/// Thin neighbours: live below, free above.
fn shared(scene: &mut Scene, shares: Shares, bytes: u64, area: Area) {
    let mut bottom = area.bottom();
    let layers: [(u64, Color); 4] = [
        (shares.allocated, ALLOCATED),
        (shares.awaiting, AWAITING),
        (shares.free, FREE),
        (shares.unmapped, PAPER),
    ];
    for (part, color) in layers.into_iter().filter(|(part, _)| *part > 0) {
        // Anything live stays visible, however little it is.
        let least = if color == ALLOCATED || color == AWAITING { 3.0 } else { 0.0 };
        let h = (area.h * part as f64 / bytes as f64).max(least).min(bottom - area.y);
        if h >= 0.5 {
            scene.rect(Area { y: bottom - h, h, ..area }, Fill::solid(color));
            bottom -= h;
        }
    }
}

/// The line around a segment: open where it goes on in another row.
fn outline(scene: &mut Scene, piece: &Piece<'_>, bar: Area, brush: Brush) {
    if piece.from == 0 && piece.to == piece.bytes {
        scene.rect(bar, Fill::outline(EDGE, 1.0));
        return;
    }
    let (right, bottom) = (bar.right(), bar.bottom());
    scene.line(vec![(bar.x, bar.y), (right, bar.y)], EDGE, 1.0);
    scene.line(vec![(bar.x, bottom), (right, bottom)], EDGE, 1.0);
    let middle = bar.y + brush.height / 2.0;
    if piece.from == 0 {
        scene.line(vec![(bar.x, bar.y), (bar.x, bottom)], EDGE, 1.0);
    } else {
        arrow(scene, bar.x - 8.0, middle);
    }
    if piece.to == piece.bytes {
        scene.line(vec![(right, bar.y), (right, bottom)], EDGE, 1.0);
    } else {
        arrow(scene, right + 3.0, middle);
    }
}

/// "Goes on": a small triangle that points right.
fn arrow(scene: &mut Scene, x: f64, y: f64) {
    scene.polygon(vec![(x, y - 5.0), (x + 6.0, y), (x, y + 5.0)], EDGE);
}

/// What a block says under the pointer.
fn describe(data: &MapData, block: &BlockView) -> String {
    let what = match block.state {
        BlockState::Allocated => "allocated",
        BlockState::AwaitingFree => "awaiting free",
        BlockState::Free => "free",
        BlockState::Unmapped => "unmapped",
    };
    let mut words = format!("{what}, {} at {}", size(block.bytes), block.address);
    if matches!(block.state, BlockState::Allocated | BlockState::AwaitingFree) {
        if block.requested != block.bytes {
            words.push_str(&format!(", {} requested", size(block.requested)));
        }
        if let Some(owner) = data.owners.get(&block.ticket) {
            words.push_str(&format!(", {owner}"));
        }
    }
    words
}
