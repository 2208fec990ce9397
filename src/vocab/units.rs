//! Units: sizes are `u64` bytes everywhere (invariant **U1**); identifiers are small, copyable and ours.
//!
//! Nothing here is a driver handle: streams, pools and tickets are dense numbers that the caller assigned,
//! so that every order built on them is the same in every run.

use core::fmt;

/// Bytes in one KiB.
pub const KIB: u64 = 1 << 10;
/// Bytes in one MiB.
pub const MIB: u64 = 1 << 20;
/// Bytes in one GiB.
pub const GIB: u64 = 1 << 30;
/// The smallest step of any block size, in bytes: every block starts at a multiple of it and spans a
/// multiple of it.
pub const UNIT: u64 = 512;

/// The largest segment or block there can be, in bytes: 2 TiB less one unit.
pub const LARGEST_SEGMENT: u64 = UNIT * u32::MAX as u64;

/// A device address in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Address(pub u64);

impl Address {
    /// The address `bytes` further on.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A stream of device work, as a dense number (0 is the default stream).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId(pub u32);

/// A pool of segments, as a dense number. 0 is the default pool; others are private pools (CUDA graph
/// capture, user pools). Each pool has a small and a large side ([`Class`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PoolId(pub u32);

impl PoolId {
    /// The pool that serves every request that names no other.
    pub const DEFAULT: Self = Self(0);
}

/// Names one request from its birth to the end of the block it got. Unique among live requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticket(pub u64);

/// A fence's number on its stream: a later fence has a larger number, so "has it passed" is one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Serial(pub u64);

/// Which side of a pool a block belongs to: `small_pool` or `large_pool` in PyTorch's statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Requests up to the policy's small limit (1 MiB in PyTorch).
    Small = 0,
    /// All larger requests.
    Large = 1,
}

impl Class {
    /// Both sides, small first.
    pub const BOTH: [Self; 2] = [Self::Small, Self::Large];

    /// `small` or `large`, as PyTorch's snapshots spell `segment_type`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }
}

/// A block in the heap's slab. A stale id never finds a new tenant (invariant **A1**).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    /// The slot in the slab.
    pub index: u32,
    /// How often that slot had been let before.
    pub generation: u32,
}

impl BlockId {
    /// An id that no block ever has.
    pub const NONE: Self = Self { index: u32::MAX, generation: u32::MAX };
}

/// A segment in the heap's slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u32);
