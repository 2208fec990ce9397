//! Overlap: whether elements share memory; and copies reduced to as few axes as can be.
//!
//! Asked by everything that writes. Never knows a storage.

use std::ops::Range;

use super::axes::MAX_RANK;
use super::compute::Strided;
use super::layout::Layout;

impl Layout {
    /// Whether two indices lead to one element. Exact: where the strides alone do not tell, the
    /// elements are counted.
    #[must_use]
    pub fn overlaps_itself(&self) -> bool {
        let count = self.elements();
        if count < 2 {
            return false;
        }
        // Each axis steps over all that the smaller strides reach.
        let mut reached = 0;
        let apart = self.by_stride().iter().filter(|&&axis| self.shape[axis] > 1).all(|&axis| {
            let clear = self.strides[axis] > reached;
            reached += (self.shape[axis] - 1) * self.strides[axis];
            clear
        });
        let extent = self.reach().unwrap_or(0) + 1;
        !apart && (count > extent || self.any_twice(extent))
    }

    fn any_twice(&self, extent: usize) -> bool {
        let mut seen = vec![0u64; extent.div_ceil(64)];
        let mut twice = false;
        self.each(|at| {
            let (word, bit) = ((at - self.offset) / 64, 1 << ((at - self.offset) % 64));
            twice |= seen[word] & bit != 0;
            seen[word] |= bit;
        });
        twice
    }

    /// Every element in the order of the indices, the last axis fastest.
    pub(super) fn each(&self, mut visit: impl FnMut(usize)) {
        let mut index = self.shape.filled(0);
        for _ in 0..self.elements() {
            visit(self.at(&index));
            for axis in (0..self.rank()).rev() {
                index[axis] += 1;
                if index[axis] < self.shape[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
    }

    /// The bytes from the first to the last element of `size` bytes.
    pub(super) fn byte_range(&self, size: usize) -> Range<usize> {
        let end = self.reach().map_or(self.offset, |reach| self.offset + reach + 1);
        self.offset * size..end * size
    }

    /// The shape of a copy from `src`, which has this layout's shape, to here: axes sorted by the
    /// destination's strides, those of size 1 left out, and joined where both sides go on evenly.
    pub(super) fn copy_from(&self, src: &Self) -> Strided {
        debug_assert_eq!(self.shape, src.shape, "broadcast before");
        let mut found = Strided::default();
        let mut axes: Vec<usize> = (0..self.rank()).filter(|&axis| self.shape[axis] != 1).collect();
        axes.sort_by_key(|&axis| std::cmp::Reverse((self.strides[axis], src.strides[axis])));
        for axis in axes {
            let (size, dst, src) = (self.shape[axis], self.strides[axis], src.strides[axis]);
            found.push([size as u64, dst as u64, src as u64]);
        }
        found
    }
}

impl Strided {
    /// One axis more, faster than those before: joined to the last if it goes on where this ends.
    fn push(&mut self, [size, dst, src]: [u64; 3]) {
        let last = self.rank.wrapping_sub(1);
        let joins = self.rank > 0 && self.dst[last] == dst * size && self.src[last] == src * size;
        if joins {
            (self.sizes[last], self.dst[last], self.src[last]) =
                (self.sizes[last] * size, dst, src);
        } else if self.rank < MAX_RANK {
            (self.sizes[self.rank], self.dst[self.rank], self.src[self.rank]) = (size, dst, src);
            self.rank += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;

    fn strided(shape: &[usize], strides: &[usize]) -> Layout {
        Layout::as_strided(shape, strides, 3).unwrap()
    }

    #[test]
    fn overlap_is_found_exactly() {
        assert!(strided(&[2, 2], &[0, 1]).overlaps_itself());
        assert!(strided(&[3, 3], &[2, 1]).overlaps_itself(), "windows");
        assert!(strided(&[2, 3], &[2, 1]).overlaps_itself());
        assert!(!strided(&[2, 3], &[3, 2]).overlaps_itself(), "they interleave: 0 2 4, 3 5 7");
        assert!(!strided(&[2, 2, 2], &[4, 2, 1]).overlaps_itself());
        assert!(!strided(&[0, 9], &[0, 0]).overlaps_itself(), "nothing at all");
        assert!(!strided(&[1, 9], &[0, 1]).overlaps_itself());
    }

    #[test]
    fn copies_between_equal_orders_are_runs() {
        let dense = Layout::contiguous(&[4, 3, 2]).unwrap();
        assert!(dense.copy_from(&dense).is_run());
        let turned = dense.permute(&[2, 0, 1]).unwrap();
        assert!(turned.copy_from(&turned).is_run(), "the order does not matter");
        let mixed = Layout::contiguous(&[2, 4, 3]).unwrap().copy_from(&turned);
        assert_eq!((mixed.rank, mixed.sizes[0], mixed.sizes[1]), (2, 2, 12));
        assert_eq!((mixed.dst[1], mixed.src[1], mixed.src[0]), (1, 2, 1));
    }
}
