//! Axes: one number for each axis, in place: a view allocates nothing.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::error::{Result, TensorError};

/// The most axes that a tensor can have, and the most that a kernel takes.
pub const MAX_RANK: usize = 8;

/// Up to [`MAX_RANK`] numbers. What lies past them is zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Axes {
    rank: usize,
    at: [usize; MAX_RANK],
}

impl Axes {
    /// These numbers.
    ///
    /// # Errors
    /// More than [`MAX_RANK`] of them.
    pub fn new(numbers: &[usize]) -> Result<Self> {
        if numbers.len() > MAX_RANK {
            return Err(TensorError::Rank { rank: numbers.len() });
        }
        let mut axes = Self { rank: numbers.len(), ..Self::default() };
        axes.copy_from_slice(numbers);
        Ok(axes)
    }

    /// The same number of axes, all of this number.
    #[must_use]
    pub fn filled(self, number: usize) -> Self {
        let mut axes = self;
        axes.fill(number);
        axes
    }

    /// One axis more, at this place.
    ///
    /// # Errors
    /// There are [`MAX_RANK`] already.
    pub fn inserted(self, place: usize, number: usize) -> Result<Self> {
        if self.rank == MAX_RANK {
            return Err(TensorError::Rank { rank: MAX_RANK + 1 });
        }
        let mut axes = Self { rank: self.rank + 1, at: self.at };
        axes[place..].rotate_right(1);
        axes[place] = number;
        Ok(axes)
    }

    /// Without this axis.
    #[must_use]
    pub fn removed(self, place: usize) -> Self {
        let mut axes = self;
        axes[place..].rotate_left(1);
        axes.rank -= 1;
        axes.at[axes.rank] = 0;
        axes
    }

    /// With another number for this axis.
    #[must_use]
    pub fn with(mut self, place: usize, number: usize) -> Self {
        self[place] = number;
        self
    }
}

impl Deref for Axes {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.at[..self.rank]
    }
}

impl DerefMut for Axes {
    fn deref_mut(&mut self) -> &mut [usize] {
        &mut self.at[..self.rank]
    }
}

impl fmt::Debug for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self[..].fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::{Axes, MAX_RANK};

    #[test]
    fn axes_come_and_go_and_equal_numbers_are_equal() {
        let axes = Axes::new(&[2, 3, 4]).unwrap();
        assert_eq!(axes.inserted(1, 9).unwrap()[..], [2, 9, 3, 4]);
        assert_eq!(axes.inserted(3, 9).unwrap()[..], [2, 3, 4, 9]);
        assert_eq!(axes.removed(0)[..], [3, 4]);
        assert_eq!(axes.inserted(2, 9).unwrap().removed(2), axes, "nothing is left behind");
        assert!(Axes::new(&[1; MAX_RANK + 1]).is_err());
        assert!(Axes::new(&[1; MAX_RANK]).unwrap().inserted(0, 1).is_err());
    }
}
