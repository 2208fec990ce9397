//! Ladder: the way from a request to a block, or to out-of-memory, as data.
//!
//! **L1** rungs only rise between answers. **L2** out-of-memory is said only after every open rung.

use crate::vocab::Rung;

/// The most rungs a ladder can have.
pub const MAX_RUNGS: usize = 16;

/// Rungs in the order in which they are climbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ladder {
    rungs: &'static [Rung],
}

impl Ladder {
    /// A ladder of these rungs, at most [`MAX_RUNGS`].
    #[must_use]
    pub const fn new(rungs: &'static [Rung]) -> Self {
        assert!(rungs.len() <= MAX_RUNGS);
        Self { rungs }
    }

    /// The rung at this height; `None` above the top.
    #[inline]
    #[must_use]
    pub fn rung(&self, height: usize) -> Option<Rung> {
        self.rungs.get(height).copied()
    }

    /// All rungs from the bottom up.
    #[must_use]
    pub const fn rungs(&self) -> &'static [Rung] {
        self.rungs
    }

    /// PyTorch's order: pending frees are polled before every search; after the cache was emptied the driver
    /// is asked again, the pool is not.
    pub const PYTORCH: Self = Self::new(&[
        Rung::Poll,
        Rung::Search,
        Rung::Collect,
        Rung::Grow,
        Rung::EvictSome,
        Rung::Grow,
        Rung::Wait,
        Rung::EvictAll,
        Rung::Regrow,
    ]);

    /// Ours: what the driver does not have is borrowed from other streams. That comes after the
    /// first growth, because memory of one's own never makes a stream wait for another, and before
    /// anything is given back, because a wait on the device costs less than emptying a cache. Once
    /// pending frees were waited for the pool is searched again before anything is given back; and
    /// rather than fail a request gets a segment smaller than its class's, or a small one a large
    /// block.
    pub const BLOCKYARD: Self = Self::new(&[
        Rung::Poll,
        Rung::Search,
        Rung::Collect,
        Rung::Grow,
        Rung::Borrow,
        Rung::EvictSome,
        Rung::Grow,
        Rung::Wait,
        Rung::SearchAgain,
        Rung::Borrow,
        Rung::EvictAll,
        Rung::Regrow,
        Rung::GrowLeast,
        Rung::BorrowClass,
    ]);
}
