//! Groups of the map: segments that serve the same requests (pool, side, stream), their totals, and
//! how they are packed into rows of one scale.

use std::collections::BTreeMap;

use blockyard::vocab::{BlockState, Class, PoolId, SegmentView, StreamId};

use super::model::MapData;
use super::scene::{MARGIN, WIDTH};
use super::text::{counted, size, tick};

/// Pixels to the left of the bars, for the names of the groups.
pub const GUTTER: f64 = 296.0;
/// Pixels between two bars.
pub const GAP: f64 = 2.0;
/// Bars thinner than this are drawn together in one strip.
const THIN: f64 = 5.0;
/// More groups than this are not named one by one.
const MOST_GROUPS: usize = 48;

/// The pixels of a full row.
pub const ROW: f64 = WIDTH - 2.0 * MARGIN - GUTTER - 14.0;

/// Where memory is, summed up. All are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Live, as client sizes.
    pub requested: u64,
    /// Live beyond that.
    pub rounding: u64,
    /// Awaiting free.
    pub awaiting: u64,
    /// Free.
    pub free: u64,
    /// Free in segments that also hold something else.
    pub pinned: u64,
    /// Address space without memory.
    pub unmapped: u64,
    /// The largest free block.
    pub largest_free: u64,
}

impl Totals {
    /// Obtained from the driver.
    pub fn reserved(&self) -> u64 {
        self.requested + self.rounding + self.awaiting + self.free
    }

    /// Adds one segment.
    pub fn add(&mut self, segment: &SegmentView) {
        let before = *self;
        for block in &segment.blocks {
            match block.state {
                BlockState::Allocated => {
                    let asked = block.requested.min(block.bytes);
                    self.requested += asked;
                    self.rounding += block.bytes - asked;
                }
                BlockState::AwaitingFree => self.awaiting += block.bytes,
                BlockState::Free => {
                    self.free += block.bytes;
                    self.largest_free = self.largest_free.max(block.bytes);
                }
                BlockState::Unmapped => self.unmapped += block.bytes,
            }
        }
        let held = |totals: &Self| totals.requested + totals.rounding + totals.awaiting;
        if held(self) > held(&before) {
            self.pinned += self.free - before.free;
        }
    }
}

/// What tells groups apart: the pool, whether it is the small side, the stream.
pub type Key = (PoolId, bool, StreamId);

/// Segments that serve the same requests.
#[derive(Debug)]
pub struct Group<'a> {
    /// Whose; `None` for the groups that are not named one by one.
    pub key: Option<Key>,
    /// Its name: pool, side, stream.
    pub name: String,
    /// Its segments, the largest first.
    pub segments: Vec<&'a SegmentView>,
    /// Its sums.
    pub totals: Totals,
}

impl Group<'_> {
    /// Number and size, free memory: one or two lines.
    pub fn notes(&self, lines: usize) -> Vec<String> {
        let counts = counted(self.segments.len(), "segment");
        let Totals { free, largest_free, unmapped, .. } = self.totals;
        let reserved = size(self.totals.reserved());
        if lines < 2 {
            return vec![format!(
                "{counts}, {}, free {}",
                tick(self.totals.reserved()),
                tick(free)
            )];
        }
        let span = match unmapped {
            0 => String::new(),
            bytes => format!(" + {} unmapped", tick(bytes)),
        };
        let free = match free {
            0 => "nothing free".to_string(),
            free => format!("free {}, largest {}", size(free), size(largest_free)),
        };
        vec![format!("{counts}, {reserved}{span}"), free]
    }
}

/// The key of the group that `segment` belongs to.
pub fn key(segment: &SegmentView) -> Key {
    (segment.pool, segment.class == Class::Small, segment.stream)
}

/// The name of a group.
pub fn name(data: &MapData, (pool, small, stream): Key) -> String {
    let pool = data.pool_names.get(&pool).cloned().unwrap_or_else(|| match pool {
        PoolId::DEFAULT => "default pool".to_string(),
        PoolId(number) => format!("private pool {number}"),
    });
    let class = if small { Class::Small } else { Class::Large };
    let number = || format!("stream {}", stream.0);
    let stream = data.stream_names.get(&stream).cloned().unwrap_or_else(number);
    format!("{pool} · {} · {stream}", class.name())
}

/// The groups by pool, large before small, by stream; beyond [`MOST_GROUPS`] the smallest are put
/// together.
pub fn gather(data: &MapData) -> Vec<Group<'_>> {
    let mut sorted: BTreeMap<Key, Vec<&SegmentView>> = BTreeMap::new();
    for segment in &data.view.segments {
        sorted.entry(key(segment)).or_default().push(segment);
    }
    let mut groups: Vec<Group<'_>> = sorted
        .into_iter()
        .map(|(key, segments)| Group::new(Some(key), name(data, key), segments))
        .collect();
    if groups.len() > MOST_GROUPS {
        let mut sizes: Vec<u64> = groups.iter().map(|group| group.totals.reserved()).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let asked = data.request.map(|r| (r.pool, r.class == Class::Small, r.stream));
        let least = sizes[MOST_GROUPS - 1];
        let (named, others): (Vec<_>, Vec<_>) = groups
            .into_iter()
            .partition(|group| group.totals.reserved() > least || group.key == asked);
        groups = named;
        let name = counted(others.len(), "smaller group");
        let segments = others.into_iter().flat_map(|group| group.segments).collect();
        groups.push(Group::new(None, name, segments));
    }
    groups
}

impl<'a> Group<'a> {
    fn new(key: Option<Key>, name: String, mut segments: Vec<&'a SegmentView>) -> Self {
        segments.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.base.cmp(&b.base)));
        let mut totals = Totals::default();
        segments.iter().for_each(|segment| totals.add(segment));
        Self { key, name, segments, totals }
    }
}

/// A bar or a part of one: some bytes of one segment, or of many thin ones.
#[derive(Debug)]
pub struct Piece<'a> {
    /// One segment, or several that are drawn as one strip, the fullest first.
    pub segments: Vec<&'a SegmentView>,
    /// From which byte, counted through all of `segments`.
    pub from: u64,
    /// To which byte.
    pub to: u64,
    /// How many bytes `segments` have.
    pub bytes: u64,
    /// Pixels from the left end of the row.
    pub x: f64,
}

/// Bytes to a pixel such that all groups take about a dozen rows, with a round number of bytes in a
/// row.
pub fn bytes_in_row(data: &MapData, groups: &[Group<'_>]) -> u64 {
    let all: u64 = data.view.segments.iter().map(|segment| segment.bytes).sum();
    let largest = data.view.segments.iter().map(|segment| segment.bytes).max().unwrap_or(0);
    let blocks: usize = data.view.segments.iter().map(|segment| segment.blocks.len()).sum();
    let rows = (blocks as u64 / 40).clamp(1, 14);
    let widest = groups.iter().map(|group| bytes_of(&group.segments)).max().unwrap_or(0);
    let asked = data.request.map_or(0, |request| request.bytes.min(all.max(1 << 20) * 2));
    let least = (all / rows).min(widest).max(largest.min(all / 3)).max(asked).max(1 << 20);
    round_up(least)
}

/// The next of 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5 and so on times a power of two.
fn round_up(bytes: u64) -> u64 {
    let step = (1u64 << bytes.max(4).ilog2()) / 4;
    bytes.div_ceil(step) * step
}

fn bytes_of(segments: &[&SegmentView]) -> u64 {
    segments.iter().map(|segment| segment.bytes).sum()
}

/// The rows of one group.
pub fn pack<'a>(group: &Group<'a>, bytes_per_pixel: f64) -> Vec<Vec<Piece<'a>>> {
    let thin = |segment: &&&SegmentView| (segment.bytes as f64 / bytes_per_pixel) < THIN;
    let first_thin = group.segments.len() - group.segments.iter().filter(thin).count();
    let (wide, thin) = group.segments.split_at(first_thin);
    let mut rows = Rows { bytes_per_pixel, rows: Vec::new(), ends: Vec::new() };
    for segment in wide {
        rows.place(vec![segment]);
    }
    if !thin.is_empty() {
        let mut thin = thin.to_vec();
        thin.sort_by_cached_key(|segment| {
            let mut totals = Totals::default();
            totals.add(segment);
            let held = segment.bytes - totals.free - totals.unmapped;
            (u64::MAX - held, segment.base)
        });
        rows.place(thin);
    }
    rows.rows
}

/// Rows that are being filled.
struct Rows<'a> {
    bytes_per_pixel: f64,
    rows: Vec<Vec<Piece<'a>>>,
    /// Where the next bar of each row would begin.
    ends: Vec<f64>,
}

impl<'a> Rows<'a> {
    /// Puts one bar into the first row with room for it, or, if it is too long, on rows of its own.
    fn place(&mut self, segments: Vec<&'a SegmentView>) {
        let bytes = bytes_of(&segments);
        let wide = self.wide(bytes);
        let first = self.ends.iter().position(|end| end + wide <= ROW + 0.5);
        if let Some(row) = first {
            self.push(row, Piece { segments, from: 0, to: bytes, bytes, x: 0.0 });
            return;
        }
        let room = ((ROW + 0.5) * self.bytes_per_pixel) as u64;
        let mut from = 0;
        while from < bytes {
            self.rows.push(Vec::new());
            self.ends.push(0.0);
            let to = bytes.min(from + room.max(1));
            let piece = Piece { segments: segments.clone(), from, to, bytes, x: 0.0 };
            self.push(self.rows.len() - 1, piece);
            from = to;
        }
    }

    fn push(&mut self, row: usize, piece: Piece<'a>) {
        let x = self.ends[row];
        self.ends[row] += self.wide(piece.to - piece.from) + GAP;
        self.rows[row].push(Piece { x, ..piece });
    }

    fn wide(&self, bytes: u64) -> f64 {
        (bytes as f64 / self.bytes_per_pixel).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard::vocab::{Address, BlockView, MIB, Ticket};

    fn segment(base: u64, bytes: u64, live: u64) -> SegmentView {
        let block = |address, bytes, state| BlockView {
            address: Address(address),
            bytes,
            requested: if state == BlockState::Allocated { bytes } else { 0 },
            state,
            ticket: Ticket(0),
        };
        let mut blocks = vec![block(base, live, BlockState::Allocated)];
        blocks.push(block(base + live, bytes - live, BlockState::Free));
        blocks.retain(|block| block.bytes > 0);
        let (stream, pool, class) = (StreamId(0), PoolId(0), Class::Large);
        SegmentView {
            base: Address(base),
            bytes,
            stream,
            pool,
            class,
            expandable: false,
            order: 0,
            blocks,
        }
    }

    #[test]
    fn only_free_memory_beside_something_live_is_pinned() {
        let mut totals = Totals::default();
        totals.add(&segment(0, 20 * MIB, 0));
        totals.add(&segment(20 * MIB, 20 * MIB, 5 * MIB));
        assert_eq!((totals.free, totals.pinned), (35 * MIB, 15 * MIB));
        assert_eq!((totals.reserved(), totals.largest_free), (40 * MIB, 20 * MIB));
    }

    #[test]
    fn rows_hold_every_byte_once_and_never_overflow() {
        let segments: Vec<SegmentView> =
            (0..50).map(|n| segment(n << 32, (1 + n * n) * MIB, MIB)).collect();
        let group = Group::new(None, String::new(), segments.iter().collect());
        let per_pixel = (3000 * MIB) as f64 / ROW;
        let rows = pack(&group, per_pixel);
        let drawn: u64 = rows.iter().flatten().map(|piece| piece.to - piece.from).sum();
        assert_eq!(drawn, segments.iter().map(|segment| segment.bytes).sum::<u64>());
        for piece in rows.iter().flatten() {
            assert!(piece.x + (piece.to - piece.from) as f64 / per_pixel <= ROW + 1.0);
        }
    }

    #[test]
    fn rows_have_round_sizes() {
        assert_eq!(round_up(1 << 30), 1 << 30);
        assert_eq!(round_up((1 << 30) + 1), (1 << 30) + (1 << 28));
    }
}
