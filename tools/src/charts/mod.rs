//! Charts: pictures of a heap for people with a bug to report, as SVG or PNG.
//!
//! Owns: what is drawn and where. Data come in as plain values ([`model`]); each view lays them out
//! as a [`scene::Scene`], a list of marks in pixels; `svg` and `png` write a scene down. Asked by:
//! `render`, `report`. Never knows: traces, replays, or where the data came from.

mod address_time;
mod axes;
mod compare;
mod fleet;
mod fragmentation;
mod header;
mod histogram;
mod map;
mod map_bars;
mod map_cells;
mod map_groups;
mod map_panels;
pub mod model;
pub mod palette;
mod png;
mod raster;
pub mod scene;
mod series;
mod svg;
pub mod text;
mod timeline;

use std::fs;
use std::path::{Path, PathBuf};

pub use model::Chart;
use scene::Scene;

/// Why a chart was not written.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    /// The suffix names no format.
    #[error("{0}: the suffix must be .svg or .png")]
    Suffix(PathBuf),
    /// The file could not be written.
    #[error("{path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The bitmap could not be drawn.
    #[error("the chart could not be drawn: {0}")]
    Draw(String),
}

/// Draws `chart` and writes it to `path`: SVG or PNG, by its suffix.
///
/// # Errors
/// An unknown suffix, or a file that cannot be written.
pub fn render(chart: &Chart, path: &Path) -> Result<(), ChartError> {
    let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or("");
    let bytes = match suffix.to_ascii_lowercase().as_str() {
        "svg" => to_svg(chart).into_bytes(),
        "png" => to_png(chart)?,
        _ => return Err(ChartError::Suffix(path.to_path_buf())),
    };
    fs::write(path, bytes).map_err(|source| ChartError::Write { path: path.to_path_buf(), source })
}

/// `chart` as the text of an SVG file.
#[must_use]
pub fn to_svg(chart: &Chart) -> String {
    svg::write(&scene(chart))
}

/// `chart` as the bytes of a PNG file.
///
/// # Errors
/// The bitmap backend failed.
pub fn to_png(chart: &Chart) -> Result<Vec<u8>, ChartError> {
    png::write(&scene(chart)).map_err(ChartError::Draw)
}

/// `chart` as marks on a canvas.
#[must_use]
pub fn scene(chart: &Chart) -> Scene {
    match chart {
        Chart::Map(data) => map::scene(data),
        Chart::Timeline(data) => timeline::scene(data),
        Chart::AddressTime(data) => address_time::scene(data),
        Chart::Histogram(data) => histogram::scene(data),
        Chart::Fragmentation(data) => fragmentation::scene(data),
        Chart::Compare(data) => compare::scene(data),
        Chart::Fleet(data) => fleet::scene(data),
        Chart::Stack(charts) => {
            let mut all = Scene::new();
            for chart in charts {
                all.append_below(scene(chart));
            }
            all
        }
    }
}
