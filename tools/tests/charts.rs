//! Charts: every view of every shape of heap is drawn, says what it must, and stays small and
//! legible.
#![allow(missing_docs)]

#[path = "charts/synthetic.rs"]
mod synthetic;

use std::path::Path;
use std::time::{Duration, Instant};

use blockyard::vocab::report::Human;
use blockyard::vocab::{BlockState, BlockView, Class, GIB};
use blockyard_tools::charts::model::{Chart, FragmentationData, HistogramData, TimelineData};
use blockyard_tools::charts::scene::{Area, Mark, WIDTH, text_area};
use blockyard_tools::charts::{ChartError, model, palette, render, scene, to_png, to_svg};

fn shapes() -> Vec<(&'static str, Chart)> {
    vec![
        ("empty", Chart::Map(synthetic::empty())),
        ("three", Chart::Map(synthetic::three())),
        ("fragmented", Chart::Map(synthetic::fragmented())),
        ("many", Chart::Map(synthetic::many())),
        ("huge among small", Chart::Map(synthetic::huge_among_small())),
        ("forty streams", Chart::Map(synthetic::forty_streams())),
        ("expandable", Chart::Map(synthetic::expandable())),
        ("impossible", Chart::Map(synthetic::impossible())),
        ("two devices", two_devices()),
        ("timeline of nothing", Chart::Timeline(TimelineData::default())),
        ("timeline of one event", Chart::Timeline(synthetic::timeline(1))),
        ("timeline of few events", Chart::Timeline(synthetic::timeline(60))),
        ("timeline", Chart::Timeline(synthetic::timeline(9000))),
        ("address-time of nothing", Chart::AddressTime(model::AddressTimeData::default())),
        ("address-time of few blocks", Chart::AddressTime(synthetic::address_time(60))),
        ("address-time", Chart::AddressTime(synthetic::address_time(9000))),
        ("histogram of nothing", Chart::Histogram(HistogramData::default())),
        ("histogram", Chart::Histogram(synthetic::histogram())),
        ("fragmentation of nothing", Chart::Fragmentation(FragmentationData::default())),
        ("compare of nothing", Chart::Compare(model::CompareData::default())),
        ("compare", Chart::Compare(synthetic::compare(9000))),
        ("fleet of nothing", Chart::Fleet(model::FleetData::default())),
        ("fleet of two", Chart::Fleet(synthetic::fleet(2))),
        ("fleet", Chart::Fleet(synthetic::fleet(200))),
        ("fragmentation", Chart::Fragmentation(synthetic::fragmentation(9000))),
    ]
}

fn two_devices() -> Chart {
    Chart::Stack(vec![Chart::Map(synthetic::three()), Chart::Map(synthetic::fragmented())])
}

#[test]
fn every_shape_becomes_both_files() {
    let folder = tempfile::tempdir().unwrap();
    for (name, chart) in shapes() {
        for suffix in ["svg", "png", "PNG"] {
            let path = folder.path().join(format!("chart.{suffix}"));
            render(&chart, &path).unwrap_or_else(|error| panic!("{name}: {error}"));
            let bytes = std::fs::read(&path).unwrap();
            let magic: &[u8] = if suffix == "svg" { b"<svg " } else { b"\x89PNG\r\n\x1a\n" };
            assert!(bytes.starts_with(magic), "{name}.{suffix}");
        }
    }
}

#[test]
fn other_suffixes_and_lost_folders_are_errors() {
    let chart = Chart::Map(synthetic::three());
    let error = render(&chart, Path::new("chart.jpeg")).unwrap_err();
    assert!(matches!(error, ChartError::Suffix(_)) && error.to_string().contains("chart.jpeg"));
    let error = render(&chart, Path::new("/no/such/folder/chart.svg")).unwrap_err();
    assert!(matches!(error, ChartError::Write { .. }), "{error}");
}

#[test]
fn svgs_are_well_formed_and_small() {
    for (name, chart) in shapes() {
        let svg = to_svg(&chart);
        assert!(svg.len() < 2_000_000, "{name}: {} bytes", svg.len());
        let elements = svg.matches('<').count() - svg.matches("</").count();
        assert!(elements < 20_000, "{name}: {elements} elements");
        well_formed(name, &svg);
    }
}

#[test]
fn every_mark_is_somewhere() {
    for (name, chart) in shapes() {
        let scene = scene(&chart);
        assert!(scene.height.is_finite() && scene.height > 0.0, "{name}");
        for mark in &scene.marks {
            let numbers: Vec<f64> = match mark {
                Mark::Rect { area, .. } | Mark::Image { area, .. } => {
                    assert!(area.w >= 0.0 && area.h >= 0.0, "{name}: {mark:?}");
                    vec![area.x, area.y, area.right(), area.bottom()]
                }
                Mark::Line { points, .. } | Mark::Polygon { points, .. } => {
                    points.iter().flat_map(|point| [point.0, point.1]).collect()
                }
                Mark::Text { at, .. } => vec![at.0, at.1],
            };
            let limit = WIDTH.max(scene.height) + 1.0;
            let inside = numbers.iter().all(|number| (-1.0..=limit).contains(number));
            assert!(inside, "{name}: {mark:?}");
        }
    }
}

/// Every tag is closed in order, and no attribute holds markup.
fn well_formed(name: &str, svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    for part in svg.split('<').skip(1) {
        let (tag, _) = part.split_once('>').unwrap_or_else(|| panic!("{name}: no end: {part}"));
        assert_eq!(tag.matches('"').count() % 2, 0, "{name}: {tag}");
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "{name}");
        } else if !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap_or(""));
        }
    }
    assert!(open.is_empty(), "{name}: {open:?}");
}

#[test]
fn the_map_of_a_failure_says_what_fails_and_why() {
    let svg = to_svg(&Chart::Map(synthetic::fragmented()));
    for words in [
        "Out of memory: GPT-2, variable length, batch 8",
        "device 0",
        "fragmentation: 1.89 GiB are free",
        "max_split_size_mb:128",
        "allocated 5.90 GiB",
        "rounding waste",
        "awaiting streams",
        "free in the cache 2.13 GiB",
        "1.00 GiB left",
        "the request that failed",
        "1.36 GiB, default pool · large · stream 0",
        "largest free range for it",
        "largest free<",
        "the failed request searches here",
        "default pool · small · stream 0",
        "22 segments of 2.00 MiB",
        "to scale: a full row is",
        "largest owners",
        "CrossEntropyLoss &lt;logits &amp; labels&gt;",
    ] {
        assert!(svg.contains(words), "{words}");
    }
}

#[test]
fn request_and_hole_are_drawn_to_the_scale_of_the_map() {
    let data = synthetic::fragmented();
    let request = data.request.unwrap();
    let scene = scene(&Chart::Map(data));
    let edged = |width: f64| {
        scene.marks.iter().filter_map(move |mark| match mark {
            Mark::Rect { area, fill, .. } if fill.edge == Some((palette::FAILED, width)) => {
                Some(*area)
            }
            _ => None,
        })
    };
    let bars: Vec<Area> = edged(2.0).collect();
    let marked: Vec<Area> = edged(3.0).collect();
    assert_eq!((bars.len(), marked.len()), (2, 1));
    let ratio = bars[0].w / bars[1].w;
    let expected = request.bytes as f64 / request.largest_free_bytes as f64;
    assert!((ratio / expected - 1.0).abs() < 0.01, "{ratio} {expected}");
    assert!((bars[1].w - marked[0].w).abs() < 0.5, "{:?} {:?}", bars[1], marked[0]);
}

#[test]
fn the_other_views_say_what_they_must() {
    let timeline = to_svg(&Chart::Timeline(synthetic::timeline(9000)));
    for words in [
        "24 training steps",
        "allocated",
        "free in the cache",
        "reserved",
        "capacity 5.89 GiB",
        "peak reserved 5.39 GiB at event",
        "peak allocated 5.08 GiB at event",
        "out of memory × 2",
        "step 3",
        ">4 GiB<",
        ">5,000<",
        ">event<",
    ] {
        assert!(timeline.contains(words), "{words}");
    }
    let address = to_svg(&Chart::AddressTime(synthetic::address_time(9000)));
    for words in
        ["never freed", "free in a segment", "9,000 blocks", ">1 GiB<", "data:image/png;base64,"]
    {
        assert!(address.contains(words), "{words}");
    }
    let histogram = to_svg(&Chart::Histogram(synthetic::histogram()));
    for words in ["live: 5.90 GiB in 576 blocks", "failed request 1.36 GiB", ">16 MiB<", ">1 GiB<"]
    {
        assert!(histogram.contains(words), "{words}");
    }
    let free = to_svg(&Chart::Fragmentation(synthetic::fragmentation(9000)));
    for words in
        ["pinned by a live block (at most", "largest free block", ">2 GiB<", "out of memory × 2"]
    {
        assert!(free.contains(words), "{words}");
    }
    let compare = to_svg(&Chart::Compare(synthetic::compare(9000)));
    for words in [
        "blockyard: reserves at most",
        "garbage_collection_threshold:0.8: reserves at most",
        "runs out of memory",
        "130 driver calls",
        "live in the trace, at most",
        ">4 GiB<",
    ] {
        assert!(compare.contains(words), "{words}");
    }
    let fleet = to_svg(&Chart::Fleet(synthetic::fleet(200)));
    for words in ["rank 3 ·", "rank 153 ·", "200 devices", "136 more devices, ", ">64 GiB<"] {
        assert!(fleet.contains(words), "{words}");
    }
    assert!(to_svg(&Chart::Map(synthetic::empty())).contains("the heap is empty"));
}

#[test]
fn no_words_overlap_or_leave_the_canvas() {
    for (name, chart) in shapes() {
        let scene = scene(&chart);
        let mut seen: Vec<(Area, String)> = Vec::new();
        for mark in &scene.marks {
            let Mark::Text { at, text, font, anchor, .. } = mark else { continue };
            let area = text_area(*at, text, *font, *anchor);
            let inside = area.x >= 0.0 && area.right() <= WIDTH && area.bottom() <= scene.height;
            assert!(inside, "{name}: {text:?} at {area:?}");
            for (other, words) in &seen {
                let apart = area.x >= other.right()
                    || other.x >= area.right()
                    || area.y + 1.0 >= other.bottom()
                    || other.y + 1.0 >= area.bottom();
                assert!(apart, "{name}: {text:?} over {words:?}");
            }
            seen.push((area, text.clone()));
        }
    }
}

/// A hole that two rows share is marked in both.
#[test]
fn a_hole_in_two_rows_is_marked_in_both() {
    let mut data = synthetic::huge_among_small();
    let row = 28 * GIB;
    let across = |block: &&BlockView, base: u64| {
        let start = block.address.0 - base;
        start / row != (start + block.bytes - 1) / row
    };
    let segment = &mut data.view.segments[0];
    let base = segment.base.0;
    let found = segment.blocks.iter().position(|block| across(&block, base)).unwrap();
    segment.blocks[found].state = BlockState::Free;
    for (index, block) in segment.blocks.iter_mut().enumerate() {
        if index != found && block.state == BlockState::Free {
            block.state = BlockState::AwaitingFree;
        }
    }
    let largest_free_bytes = segment.blocks[found].bytes;
    let (stream, pool, class) = (segment.stream, segment.pool, segment.class);
    let bytes = 4 * GIB;
    data.request = Some(model::FailedRequest { bytes, stream, pool, class, largest_free_bytes });
    let scene = scene(&Chart::Map(data));
    let marked = scene.marks.iter().filter(|mark| match mark {
        Mark::Rect { fill, .. } => fill.edge == Some((palette::FAILED, 3.0)),
        _ => false,
    });
    assert_eq!(marked.count(), 2);
}

#[test]
fn every_byte_of_a_small_heap_is_drawn() {
    let data = synthetic::three();
    let live: u64 = data
        .view
        .segments
        .iter()
        .filter(|segment| segment.class == Class::Large)
        .flat_map(|segment| &segment.blocks)
        .filter(|block| block.state == BlockState::Free)
        .map(|block| block.bytes)
        .sum();
    let svg = to_svg(&Chart::Map(data));
    assert!(svg.contains(&format!("<title>free, {}", Human(live))), "{live}");
}

#[test]
fn colours_differ_in_a_grey_print() {
    let grey = |color: palette::Color| {
        0.2126 * f64::from(color.0) + 0.7152 * f64::from(color.1) + 0.0722 * f64::from(color.2)
    };
    let states =
        [palette::ALLOCATED, palette::ROUNDING, palette::AWAITING, palette::FREE, palette::PAPER];
    for pair in states.windows(2) {
        assert!(grey(pair[1]) - grey(pair[0]) >= 14.0, "{pair:?}");
    }
    for pair in palette::LIFETIMES.windows(2) {
        assert!(grey(pair[1]) - grey(pair[0]) >= 25.0, "{pair:?}");
    }
}

#[test]
fn millions_are_drawn_soon_and_small() {
    let line = Chart::Timeline(synthetic::timeline(1_000_000));
    let blocks = Chart::AddressTime(synthetic::address_time(1_000_000));
    // Generous, for a slow and busy machine without optimisation.
    for (name, chart, limit) in [("timeline", line, 5), ("address-time", blocks, 15)] {
        let begun = Instant::now();
        let svg = to_svg(&chart);
        let png = to_png(&chart).unwrap();
        let took = begun.elapsed();
        println!("{name}: both files of 1M in {took:?}, {} and {} bytes", svg.len(), png.len());
        assert!(took < Duration::from_secs(limit), "{name}: {took:?}");
        assert!(svg.len() < 2_000_000 && png.len() < 2_000_000, "{name}: {}", svg.len());
    }
}

#[test]
fn the_same_data_give_the_same_bytes() {
    for (name, chart) in shapes() {
        assert_eq!(to_svg(&chart), to_svg(&chart), "{name}");
        assert_eq!(to_png(&chart).unwrap(), to_png(&chart).unwrap(), "{name}");
    }
}

/// Set `BLOCKYARD_BLESS=1` to take what is drawn now as what is expected.
#[test]
fn the_golden_map_is_drawn() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/charts/three.svg");
    let drawn = to_svg(&Chart::Map(synthetic::three()));
    if std::env::var_os("BLOCKYARD_BLESS").is_some() {
        std::fs::write(&path, &drawn).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    if let Some((line, (is, was))) =
        drawn.lines().zip(expected.lines()).enumerate().find(|(_, (is, was))| is != was)
    {
        panic!(
            "line {}:\n  drawn    {is}\n  expected {was}\nbless with BLOCKYARD_BLESS=1",
            line + 1
        );
    }
    assert_eq!(drawn.len(), expected.len());
}
