//! Inbox: frees that found the lock taken, left for whoever holds it next.
//!
//! A fixed row of slots, each empty (0) or one block id. Leaving a free is one compare-and-swap; a
//! full row sends the caller to the lock. Whoever locks the core empties the row first, so nobody
//! who looks sees a block live that its owner has given back.

use super::sync::{AtomicU64, AtomicUsize, Ordering};
use crate::vocab::BlockId;

#[cfg(not(loom))]
const SLOTS: usize = 64;
#[cfg(loom)]
const SLOTS: usize = 2;

pub(crate) struct Inbox {
    slots: [AtomicU64; SLOTS],
    /// How many slots are filled, or about to be.
    filled: AtomicUsize,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { slots: std::array::from_fn(|_| AtomicU64::new(EMPTY)), filled: AtomicUsize::new(0) }
    }

    /// Leaves a free. `false`: there is no room.
    pub(crate) fn leave(&self, block: BlockId) -> bool {
        let taken = self.filled.fetch_add(1, Ordering::Relaxed);
        if taken < SLOTS {
            for step in 0..SLOTS {
                let slot = &self.slots[(taken + step) % SLOTS];
                let word = pack(block);
                if slot.compare_exchange(EMPTY, word, Ordering::Release, Ordering::Relaxed).is_ok()
                {
                    return true;
                }
            }
        }
        self.filled.fetch_sub(1, Ordering::Relaxed);
        false
    }

    /// Whether there may be something in it. One load.
    #[inline]
    pub(crate) fn may_hold(&self) -> bool {
        self.filled.load(Ordering::Relaxed) > 0
    }

    /// Takes everything out that is in it. Called by the holder of the core's lock.
    #[cold]
    pub(crate) fn empty(&self, mut take: impl FnMut(BlockId)) {
        let mut taken = 0;
        for slot in &self.slots {
            if slot.load(Ordering::Relaxed) == EMPTY {
                continue;
            }
            let word = slot.swap(EMPTY, Ordering::Acquire);
            if word != EMPTY {
                taken += 1;
                take(unpack(word));
            }
        }
        self.filled.fetch_sub(taken, Ordering::Relaxed);
    }
}

/// No block has this id: see [`BlockId::NONE`].
const EMPTY: u64 = u64::MAX;

const fn pack(block: BlockId) -> u64 {
    (block.index as u64) << 32 | block.generation as u64
}

const fn unpack(word: u64) -> BlockId {
    BlockId { index: (word >> 32) as u32, generation: word as u32 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_taken_once_and_a_full_row_says_so() {
        let inbox = Inbox::new();
        assert!(!inbox.may_hold());
        let id = |index| BlockId { index, generation: 7 };
        for index in 0..SLOTS as u32 {
            assert!(inbox.leave(id(index)));
        }
        assert!(!inbox.leave(id(99)), "full");
        let mut taken = Vec::new();
        inbox.empty(|block| taken.push(block.index));
        taken.sort_unstable();
        assert!(taken.iter().copied().eq(0..SLOTS as u32));
        assert!(!inbox.may_hold());
        assert!(inbox.leave(id(5)));
    }
}
