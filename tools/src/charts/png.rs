//! PNG writer: a scene as pixels, drawn by the bitmap backend of plotters, and pixels as a file.
//!
//! Owns: how marks snap to pixels. Words are set here from the embedded font, glyph by glyph at
//! fractions of a pixel, because the backend rounds each glyph's place and so sets words unevenly.

use std::io::Write as _;

use ab_glyph::{Font as _, ScaleFont as _, point};
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use plotters::backend::{BitMapBackend, DrawingBackend};
use plotters::style::{Color as _, RGBColor};

use super::palette::{Color, PAPER};
use super::raster::Raster;
use super::scene::{Anchor, Area, Fill, Mark, Scene, WIDTH, text_area};
use super::text::{self, Font};

type Backend<'a> = BitMapBackend<'a>;

/// `scene` as the bytes of a file.
pub fn write(scene: &Scene) -> Result<Vec<u8>, String> {
    let (width, height) = (WIDTH as u32, scene.height.ceil() as u32);
    let mut pixels = vec![0u8; width as usize * height as usize * 3];
    {
        let mut backend = Backend::with_buffer(&mut pixels, (width, height));
        fill(&mut backend, (0, 0), (width as i32, height as i32), PAPER)?;
        for mark in &scene.marks {
            one(&mut backend, mark)?;
        }
        backend.present().map_err(|error| error.to_string())?;
    }
    Ok(encode(width as usize, height as usize, &pixels))
}

fn one(backend: &mut Backend<'_>, mark: &Mark) -> Result<(), String> {
    match mark {
        Mark::Rect { area, fill, .. } => rect(backend, *area, *fill),
        Mark::Line { points, color, width, dash } => line(backend, points, *color, *width, *dash),
        Mark::Polygon { points, color } => {
            let corners: Vec<(i32, i32)> = points.iter().map(|at| snap(*at)).collect();
            backend.fill_polygon(corners, &rgb(*color).filled()).map_err(|error| error.to_string())
        }
        Mark::Text { at, text, font, anchor, color } => {
            words(backend, *at, text, *font, *anchor, *color)
        }
        Mark::Image { area, raster } => image(backend, *area, raster),
    }
}

fn rgb(color: Color) -> RGBColor {
    RGBColor(color.0, color.1, color.2)
}

fn snap(at: (f64, f64)) -> (i32, i32) {
    (at.0.round() as i32, at.1.round() as i32)
}

/// Fills the pixels from `from` up to, not including, `to`.
fn fill(
    backend: &mut Backend<'_>,
    from: (i32, i32),
    to: (i32, i32),
    color: Color,
) -> Result<(), String> {
    let (w, h) = backend.get_size();
    let (from, to) = ((from.0.max(0), from.1.max(0)), (to.0.min(w as i32), to.1.min(h as i32)));
    if from.0 >= to.0 || from.1 >= to.1 {
        return Ok(());
    }
    // The backend leaves the last row and column of a filled rectangle out.
    backend.draw_rect(from, to, &rgb(color), true).map_err(|error| error.to_string())
}

/// Whatever has any width or height covers at least one pixel.
fn rect(backend: &mut Backend<'_>, area: Area, how: Fill) -> Result<(), String> {
    let from = snap((area.x, area.y));
    let to = snap((area.right(), area.bottom()));
    let to = (to.0.max(from.0 + 1), to.1.max(from.1 + 1));
    if let Some(color) = how.color {
        fill(backend, from, to, color)?;
    }
    if let Some(color) = how.hatch {
        for y in from.1..to.1 {
            for x in (from.0..to.0).filter(|x| (x + y).rem_euclid(8) < 2) {
                fill(backend, (x, y), (x + 1, y + 1), color)?;
            }
        }
    }
    let Some((color, width)) = how.edge else { return Ok(()) };
    let thick = (width.round() as i32).max(1);
    let (a, b) = ((from.0 - thick / 2, from.1 - thick / 2), (to.0 + thick / 2, to.1 + thick / 2));
    fill(backend, a, (b.0, a.1 + thick), color)?;
    fill(backend, (a.0, b.1 - thick), b, color)?;
    fill(backend, a, (a.0 + thick, b.1), color)?;
    fill(backend, (b.0 - thick, a.1), b, color)
}

/// Horizontal and vertical steps are drawn as sharp bars; other lines by the backend.
fn line(
    backend: &mut Backend<'_>,
    points: &[(f64, f64)],
    color: Color,
    width: f64,
    dash: f64,
) -> Result<(), String> {
    let thick = (width.round() as i32).max(1);
    let off = (thick - 1) / 2;
    let step = if dash > 0.0 { (dash as i32).max(1) } else { i32::MAX };
    // How far the line has run: dashes go on around corners.
    let mut run = 0;
    for pair in points.windows(2) {
        let (a, b) = (snap(pair[0]), snap(pair[1]));
        if a.0 != b.0 && a.1 != b.1 {
            let style = rgb(color).stroke_width(thick as u32);
            backend.draw_path([a, b], &style).map_err(|error| error.to_string())?;
            continue;
        }
        let from = (a.0.min(b.0) - off, a.1.min(b.1) - off);
        let to = (a.0.max(b.0) - off + thick, a.1.max(b.1) - off + thick);
        dashes(backend, (from, to), (step, run), color)?;
        run += (b.0 - a.0).abs() + (b.1 - a.1).abs();
    }
    Ok(())
}

/// Fills every second `step` pixels of a bar, of a line that has run `run` pixels before it.
fn dashes(
    backend: &mut Backend<'_>,
    (from, to): ((i32, i32), (i32, i32)),
    (step, run): (i32, i32),
    color: Color,
) -> Result<(), String> {
    if step == i32::MAX {
        return fill(backend, from, to, color);
    }
    let across = to.0 - from.0 >= to.1 - from.1;
    let (start, end) = if across { (from.0, to.0) } else { (from.1, to.1) };
    let mut at = start;
    while at < end {
        let done = run + at - start;
        let stop = (at + step - done % step).min(end);
        if (done / step) % 2 == 0 {
            let (a, b) =
                if across { ((at, from.1), (stop, to.1)) } else { ((from.0, at), (to.0, stop)) };
            fill(backend, a, b, color)?;
        }
        at = stop;
    }
    Ok(())
}

fn words(
    backend: &mut Backend<'_>,
    at: (f64, f64),
    text: &str,
    font: Font,
    anchor: Anchor,
    color: Color,
) -> Result<(), String> {
    let Some(face) = text::face(font.bold) else { return Ok(()) };
    let scaled = face.as_scaled(text::scale(face, font.size));
    let (mut x, y) = (text_area(at, text, font, anchor).x as f32, at.1.round() as f32);
    let mut before = None;
    for glyph in text.chars().map(|c| text::glyph(&scaled, c)) {
        x += before.map_or(0.0, |left| scaled.kern(left, glyph));
        before = Some(glyph);
        let placed = glyph.with_scale_and_position(scaled.scale(), point(x, y));
        x += scaled.h_advance(glyph);
        let Some(outline) = scaled.outline_glyph(placed) else { continue };
        let corner = outline.px_bounds().min;
        let mut failed = None;
        outline.draw(|dx, dy, cover| {
            let pixel = (corner.x as i32 + dx as i32, corner.y as i32 + dy as i32);
            let ink = rgb(color).mix(f64::from(cover.min(1.0))).to_backend_color();
            if let Err(error) = backend.draw_pixel(pixel, ink) {
                failed = Some(error.to_string());
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(())
}

/// Puts a raster down, each of its pixels on the nearest of ours.
fn image(backend: &mut Backend<'_>, area: Area, raster: &Raster) -> Result<(), String> {
    let (from, to) = (snap((area.x, area.y)), snap((area.right(), area.bottom())));
    let (w, h) = ((to.0 - from.0).max(0) as usize, (to.1 - from.1).max(0) as usize);
    let mut pixels = Vec::with_capacity(w * h * 3);
    for y in 0..h {
        for x in 0..w {
            let at = (y * raster.height / h) * raster.width + x * raster.width / w;
            let pixel = raster.pixels.get(at).copied().unwrap_or(PAPER);
            pixels.extend([pixel.0, pixel.1, pixel.2]);
        }
    }
    backend.blit_bitmap(from, (w as u32, h as u32), &pixels).map_err(|error| error.to_string())
}

/// Rows of red, green and blue bytes as a PNG file.
pub fn encode(width: usize, height: usize, rgb: &[u8]) -> Vec<u8> {
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = Vec::with_capacity(13);
    header.extend((width as u32).to_be_bytes());
    header.extend((height as u32).to_be_bytes());
    header.extend([8, 2, 0, 0, 0]);
    chunk(&mut out, b"IHDR", &header);
    let mut rows = Vec::with_capacity(rgb.len() + height);
    let nothing = vec![0u8; width * 3];
    let mut above: &[u8] = &nothing;
    for row in rgb.chunks_exact((width * 3).max(1)) {
        // Filter 2: each byte less the one above it, which turns equal rows into zeros.
        rows.push(2);
        rows.extend(row.iter().zip(above).map(|(here, over)| here.wrapping_sub(*over)));
        above = row;
    }
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::default());
    // Writing to a Vec cannot fail.
    let packed = packer.write_all(&rows).and_then(|()| packer.finish()).unwrap_or_default();
    chunk(&mut out, b"IDAT", &packed);
    chunk(&mut out, b"IEND", &[]);
    out
}

fn chunk(out: &mut Vec<u8>, name: &[u8; 4], body: &[u8]) {
    out.extend((body.len() as u32).to_be_bytes());
    out.extend(name);
    out.extend(body);
    let mut check = Crc::new();
    check.update(name);
    check.update(body);
    out.extend(check.sum().to_be_bytes());
}
