//! Block: one piece of a segment.
//!
//! ```text
//!  segment  |--------------------------------------------------|
//!  blocks   [ live 64K ][ free 1M          ][ draining ][ live ]     prev <-> next by address
//! ```
//! **B1** neighbours agree: `next.prev` is the block, and `next` begins where it ends. **B2** no two free neighbours,
//! and no two unmapped ones. **B4** `requested <= size`.
//!
//! | state | who may enter | what holds | who may leave |
//! |---|---|---|---|
//! | `Free` | freed, split off, mapped | in its bin (**F1**) | to `Live` by a search, to `Moving` by an eviction or a borrowing |
//! | `Live` | a search or a growth | the client has its id | to `Free`, or `Draining` where streams used it |
//! | `Draining` | a free while streams use it | a fence is outstanding (**E1**) | to `Free` when the last fence passes |
//! | `Unmapped` | address space without memory | in the unmapped list | to `Moving` by a growth |
//! | `Moving` | a driver call is under way for it, or a stream is being ordered | in no list | as the answer says |
//!
//! **B3** these are the only transitions.

use super::bins::Key;
use crate::vocab::{Class, UNIT};

/// No block, in links between blocks.
pub const NONE: u32 = u32::MAX;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Can be handed out.
    Free,
    /// Handed out.
    Live,
    /// Given back, still used by a stream.
    Draining,
    /// Address space without memory.
    Unmapped,
    /// Memory on its way in or out.
    Moving,
}

/// One piece of a segment. Sizes are bytes.
#[derive(Clone, Debug)]
pub struct Block {
    /// Where it starts.
    pub address: u64,
    /// Its size, a multiple of the unit.
    pub size: u64,
    /// The client's size, while live or draining (**B4**: never above `size`).
    pub requested: u64,
    /// The request that has it, while live or draining.
    pub ticket: u64,
    /// Searches of its pool when it was last put into its bin.
    pub idle_since: u64,
    /// The newest fence of its stream begun when it was last freed: every later one stands behind
    /// all of that stream's work on it. Kept where the policy lets other streams borrow.
    pub freed_after: u64,
    /// What its address in units is added to for its tie among blocks of equal size (wrapping).
    pub tie_base: u64,
    /// The block before it in the segment (**B1**).
    pub prev: u32,
    /// The block behind it in the segment.
    pub next: u32,
    /// Its segment's slot.
    pub segment: u32,
    /// The free lists it returns to.
    pub lists: u32,
    /// Fences outstanding, while draining (**E1**: never 0 then).
    pub fences: u32,
    /// The side of the pool of its lists.
    pub class: Class,
    /// What it is.
    pub state: State,
    /// Other streams were named for it.
    pub used: bool,
    /// Its segment is page-mapped.
    pub paged: bool,
}

impl Block {
    /// Whether it is the only block of its segment.
    #[inline]
    #[must_use]
    pub const fn is_alone(&self) -> bool {
        self.prev == NONE && self.next == NONE
    }

    /// Its key among the free blocks, if it stands in this slot.
    #[inline]
    #[must_use]
    pub const fn key(&self, slot: u32) -> Key {
        Key::new(self.size, self.tie_base.wrapping_add(self.address / UNIT), slot)
    }

    /// The first byte behind it.
    #[inline]
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.address + self.size
    }
}
