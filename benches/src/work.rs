//! Work: what contenders are given to do, the same for each.
//!
//! A unit of work is a pair, one alloc and one free, in a state that the pair leaves as it found it.

use blockyard::lab::rng::Rng;
use blockyard::vocab::UNIT;

use crate::contenders::{Contender, Spec};

/// Something that can be done any number of times.
pub trait Work {
    /// Does `count` pairs.
    fn pairs(&mut self, count: u64);
}

/// Sizes from 512 B to `high`, their magnitudes evenly spread.
pub fn log_uniform(rng: &mut Rng, high: u64) -> u64 {
    let share = rng.below(1 << 32) as f64 / (1u64 << 32) as f64;
    let bytes = UNIT as f64 * (high as f64 / UNIT as f64).powf(share);
    (bytes as u64).next_multiple_of(UNIT)
}

/// One size, 64 blocks of it live. With `exact` there is a hole of just that size between two of them;
/// else every block is cut from a larger one, and joins it again.
#[derive(Debug)]
pub struct OneSize<C: Contender> {
    contender: C,
    bytes: u64,
}

impl<C: Contender> OneSize<C> {
    /// With blocks of `bytes`.
    #[must_use]
    pub fn new(bytes: u64, exact: bool) -> Self {
        let mut contender = C::new(Spec { bytes: 256 * bytes, blocks: 256 });
        let live: Vec<_> = (0..64).map(|_| contender.alloc(bytes)).collect();
        if exact {
            contender.free(live[33]);
        }
        Self { contender, bytes }
    }
}

impl<C: Contender> Work for OneSize<C> {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            let block = self.contender.alloc(std::hint::black_box(self.bytes));
            self.contender.free(std::hint::black_box(block));
        }
    }
}

/// Many sizes, many blocks live: a random one is freed and another one allocated.
#[derive(Debug)]
pub struct Mixed<C: Contender> {
    contender: C,
    live: Vec<C::Block>,
    /// In units, and few: the work's own cache misses must not be what is measured.
    sizes: Vec<u32>,
    rng: Rng,
}

impl<C: Contender> Mixed<C> {
    /// With sizes up to `high` and so many live blocks.
    #[must_use]
    pub fn new(high: u64, live: u32) -> Self {
        let mut rng = Rng::new(u64::from(live) ^ high);
        let sizes: Vec<u32> =
            (0..4096).map(|_| (log_uniform(&mut rng, high) / UNIT) as u32).collect();
        let mean = sizes.iter().map(|&units| u64::from(units) * UNIT).sum::<u64>() / 4096;
        let spec = Spec { bytes: 2 * mean * u64::from(live) + 8 * high, blocks: live };
        let mut contender = C::new(spec);
        let live = (0..live)
            .map(|_| contender.alloc(u64::from(sizes[rng.below(4096) as usize]) * UNIT))
            .collect();
        let mut mixed = Self { contender, live, sizes, rng };
        mixed.pairs(20 * mixed.live.len() as u64);
        mixed
    }

    /// The contender, to look at.
    pub const fn contender(&self) -> &C {
        &self.contender
    }
}

impl<C: Contender> Work for Mixed<C> {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            let random = self.rng.bits();
            let victim = (((random >> 32) * self.live.len() as u64) >> 32) as usize;
            self.contender.free(self.live[victim]);
            let bytes = u64::from(self.sizes[random as usize % 4096]) * UNIT;
            self.live[victim] = self.contender.alloc(bytes);
        }
    }
}

/// Free blocks between live ones of 512 B; blocks of their sizes are allocated and freed 16 pairs later.
#[derive(Debug)]
pub struct Holes<C: Contender> {
    contender: C,
    out: [C::Block; 16],
    sizes: Vec<u32>,
    at: usize,
}

impl<C: Contender> Holes<C> {
    /// With so many holes, all of one size or of sizes up to 1 MiB.
    #[must_use]
    pub fn new(holes: u32, one_size: bool) -> Self {
        let mut rng = Rng::new(u64::from(holes));
        let size = |_| if one_size { 128 } else { (log_uniform(&mut rng, 1 << 20) / UNIT) as u32 };
        let mut sizes: Vec<u32> = (0..holes).map(size).collect();
        let bytes = sizes.iter().map(|&units| u64::from(units + 1) * UNIT).sum::<u64>();
        let mut contender = C::new(Spec { bytes: bytes + (64 << 20), blocks: 2 * holes + 64 });
        let mut blocks: Vec<C::Block> = Vec::new();
        for &units in &sizes {
            blocks.push(contender.alloc(u64::from(units) * UNIT));
            contender.alloc(UNIT);
        }
        // Freed in a random order, as a program would.
        for place in (1..blocks.len()).rev() {
            blocks.swap(place, rng.below(place as u64 + 1) as usize);
        }
        blocks.into_iter().for_each(|block| contender.free(block));
        for place in (1..sizes.len()).rev() {
            sizes.swap(place, rng.below(place as u64 + 1) as usize);
        }
        let out = std::array::from_fn(|place| {
            contender.alloc(u64::from(sizes[place % sizes.len()]) * UNIT)
        });
        Self { contender, out, sizes, at: 16 }
    }
}

impl<C: Contender> Work for Holes<C> {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            let bytes = u64::from(self.sizes[self.at % self.sizes.len()]) * UNIT;
            self.contender.free(self.out[self.at % 16]);
            self.out[self.at % 16] = self.contender.alloc(bytes);
            self.at += 1;
        }
    }
}
