//! Fleet: many devices or ranks beside each other, one bar each, to one scale.

use super::axes::byte_ticks;
use super::header::{Swatch, caption, legend, nothing};
use super::map_bars::fill;
use super::model::{DeviceUse, FleetData};
use super::palette::{EDGE, FAILED, INK, MUTED, PAPER, RULE, UNMAPPED_HATCH};
use super::scene::{Anchor, Area, Fill, MARGIN, Scene, WIDTH};
use super::text::{bold, counted, ellipsize, plain, size, tick, width};
use blockyard::vocab::BlockState;

/// Devices beyond this many are only counted; those that failed and the fullest are drawn.
const MOST: usize = 64;
/// The left end of the bars.
const LEFT: f64 = MARGIN + 190.0;
/// The pixels of a full bar; the numbers stand behind it.
const ROOM: f64 = WIDTH - MARGIN - LEFT - 400.0;
/// Pixels from one bar to the next.
const STEP: f64 = 27.0;

/// Lays the fleet out.
pub fn scene(data: &FleetData) -> Scene {
    let mut scene = Scene::new();
    let mut y = caption(&mut scene, &data.caption);
    let swatch = |state| Swatch::Box(fill(state).edged(EDGE, 1.0));
    let room = Fill::hatched(PAPER, UNMAPPED_HATCH).edged(EDGE, 1.0);
    let entries = [
        (swatch(BlockState::Allocated), "allocated".to_string()),
        (swatch(BlockState::AwaitingFree), "freed, awaiting streams".to_string()),
        (swatch(BlockState::Free), "free in the cache".to_string()),
        (Swatch::Box(room), "not reserved".to_string()),
        (Swatch::Nothing, counted(data.devices.len(), "device")),
    ];
    y = legend(&mut scene, &entries, y);
    if data.devices.is_empty() {
        scene.height = nothing(&mut scene, "There are no devices to draw.", y);
        return scene;
    }
    let (shown, hidden) = choose(&data.devices);
    let most = data.devices.iter().map(|device| device.reserved().max(device.capacity_bytes));
    let most = most.max().unwrap_or(0).max(1);
    y += 26.0;
    let bottom = y + 10.0 + STEP * shown.len() as f64;
    for bytes in byte_ticks(most, 6) {
        let x = LEFT + ROOM * bytes as f64 / most as f64;
        scene.line(vec![(x, y), (x, bottom)], RULE, 1.0);
        scene.text((x, y - 6.0), tick(bytes), plain(13.0), Anchor::Middle, MUTED);
    }
    y += 10.0;
    for device in shown {
        row(&mut scene, device, most, y);
        y += STEP;
    }
    if let Some((least, most)) = hidden.iter().min().zip(hidden.iter().max()) {
        let count = counted(hidden.len(), "more device");
        let words = format!("{count}, {} to {} reserved", size(*least), size(*most));
        scene.text((MARGIN, y + 18.0), words, plain(14.0), Anchor::Start, MUTED);
        y += STEP;
    }
    scene.height = y + 18.0;
    scene
}

/// The devices that are drawn, in their order, and what the others reserve.
fn choose(devices: &[DeviceUse]) -> (Vec<&DeviceUse>, Vec<u64>) {
    let mut order: Vec<usize> = (0..devices.len()).collect();
    order.sort_by_key(|index| {
        let device = &devices[*index];
        (!device.failed, u64::MAX - device.reserved(), *index)
    });
    let mut kept: Vec<usize> = order.iter().copied().take(MOST).collect();
    kept.sort_unstable();
    let hidden = order.iter().skip(MOST).map(|index| devices[*index].reserved()).collect();
    (kept.into_iter().map(|index| &devices[index]).collect(), hidden)
}

/// One device.
fn row(scene: &mut Scene, device: &DeviceUse, most: u64, y: f64) {
    let color = if device.failed { FAILED } else { INK };
    let name = ellipsize(&device.name, bold(13.0), LEFT - MARGIN - 12.0);
    scene.text((MARGIN, y + 15.0), name, bold(13.0), Anchor::Start, color);
    let wide = |bytes: u64| ROOM * bytes as f64 / most as f64;
    let mut x = LEFT;
    for (bytes, state) in [
        (device.allocated_bytes, BlockState::Allocated),
        (device.awaiting_bytes, BlockState::AwaitingFree),
        (device.free_bytes, BlockState::Free),
    ] {
        if bytes > 0 {
            scene.rect(Area { x, y, w: wide(bytes), h: 20.0 }, fill(state));
            x += wide(bytes);
        }
    }
    let left = device.capacity_bytes.saturating_sub(device.reserved());
    if left > 0 {
        let room = Fill::hatched(PAPER, UNMAPPED_HATCH);
        scene.rect(Area { x, y, w: wide(left), h: 20.0 }, room);
        x += wide(left);
    }
    let edge = if device.failed { (FAILED, 2.0) } else { (EDGE, 1.0) };
    let frame = Area { x: LEFT, y, w: (x - LEFT).max(1.0), h: 20.0 };
    scene.rect(frame, Fill::outline(edge.0, edge.1));
    let mut words = format!("{} reserved", size(device.reserved()));
    if device.free_bytes > 0 {
        words.push_str(&format!(", {} free", size(device.free_bytes)));
    }
    if device.failed {
        words.push_str(", out of memory");
    }
    let font = if device.failed { bold(13.0) } else { plain(13.0) };
    let at = (LEFT + ROOM + 10.0).min(WIDTH - MARGIN - width(&words, font));
    scene.text((at, y + 15.0), words, font, Anchor::Start, color);
}
