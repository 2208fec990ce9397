//! Views: random pairs of strided views of one shape, and where their elements lie, by plain
//! counting.

use super::Arg;
use proptest::prelude::*;

/// `Shape` of kernels/shape.h, and what a launcher knows besides.
#[derive(Clone, Debug)]
pub struct Views {
    pub size: Vec<u64>,
    pub dst: Vec<i64>,
    pub src: Vec<i64>,
}

impl Arg for Views {
    fn to_bytes(&self) -> Vec<u8> {
        // Axes that are not there hold nonsense: kernels do not look at them.
        let axes =
            |values: Vec<i64>| (0..8).map(move |axis| values.get(axis).copied().unwrap_or(-7));
        let size = self.size.iter().map(|&size| size as i64).collect();
        let lists = axes(size).chain(axes(self.dst.clone())).chain(axes(self.src.clone()));
        lists.chain([self.size.len() as i64]).flat_map(i64::to_ne_bytes).collect()
    }
}

impl Views {
    pub fn elements(&self) -> usize {
        self.size.iter().product::<u64>() as usize
    }

    /// (destination, source) in elements from index zero, in row-major order of the shape.
    pub fn places(&self) -> Vec<(i64, i64)> {
        let mut places = vec![(0, 0)];
        for axis in 0..self.size.len() {
            let along = |(dst, src): (i64, i64)| {
                (0..self.size[axis] as i64)
                    .map(move |i| (dst + i * self.dst[axis], src + i * self.src[axis]))
            };
            places = places.into_iter().flat_map(along).collect();
        }
        places
    }

    /// Elements before index zero, and elements in all, that each side reaches.
    pub fn extent(&self, strides: &[i64]) -> (usize, usize) {
        let reach = |sign: i64| {
            let far = self.size.iter().zip(strides).filter(|(_, stride)| *stride * sign > 0);
            far.map(|(&size, stride)| size.saturating_sub(1) as i64 * stride * sign).sum::<i64>()
        };
        (reach(-1) as usize, (reach(-1) + reach(1) + 1) as usize)
    }
}

/// One axis: its size, how the destination lies, how the source lies (none: row-major).
type Axis = (u64, (u16, i64, bool), Option<i64>);

fn axis() -> impl Strategy<Value = Axis> {
    let size = prop_oneof![20 => 1u64..4, 8 => 4u64..14, 1 => Just(0)];
    let dst = (any::<u16>(), 1i64..3, any::<bool>());
    (size, dst, prop_oneof![2 => Just(None), 1 => (-5i64..6).prop_map(Some)])
}

/// Rank 0 to 8. The destination is any order of axes with gaps and signs, but no two elements in
/// one place; the source is anything: repeated, reversed, overlapping.
pub fn views() -> impl Strategy<Value = Views> {
    prop::collection::vec(axis(), 0..9).prop_map(|axes| build(&axes))
}

fn build(axes: &[Axis]) -> Views {
    const MOST: u64 = 6000;
    let mut size = Vec::new();
    for &(wanted, ..) in axes {
        let fits = size.iter().product::<u64>() * wanted <= MOST;
        size.push(if fits { wanted } else { 1 });
    }
    let mut order: Vec<usize> = (0..axes.len()).collect();
    order.sort_by_key(|&axis| axes[axis].1.0);
    let (mut dst, mut row) = (vec![0; axes.len()], 1);
    for axis in order {
        let (_, gap, backwards) = axes[axis].1;
        dst[axis] = row * gap * if backwards { -1 } else { 1 };
        row = row * gap * size[axis].max(1) as i64;
    }
    let (mut src, mut row) = (vec![0; axes.len()], 1);
    for axis in (0..axes.len()).rev() {
        src[axis] = axes[axis].2.unwrap_or(row);
        row *= size[axis].max(1) as i64;
    }
    Views { size, dst, src }
}
