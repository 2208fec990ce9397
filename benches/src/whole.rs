//! Whole: the caching allocator as programs use it: its lock, its buffers, a simulated device.

use blockyard::allocator::{CachingAllocator, Config, DeviceBuffer, Stream};
use blockyard::device::{SimConfig, SimDevice};
use blockyard::lab::rng::Rng;
use blockyard::policy::Policy;
use blockyard::vocab::GIB;

/// An allocator on a simulated device of 80 GiB that keeps the last `record` records.
#[must_use]
pub fn allocator(policy: Policy, record: usize) -> CachingAllocator {
    let device = SimDevice::new(SimConfig::with_capacity(80 * GIB));
    CachingAllocator::new(device, Config { policy, record, ..Config::default() })
}

/// Pairs of one size; after the first the cache serves them.
#[inline(never)]
pub fn hits(stream: &Stream, bytes: u64, pairs: u64) {
    for _ in 0..pairs {
        let buffer = stream.alloc(std::hint::black_box(bytes)).expect("a hit");
        drop(std::hint::black_box(buffer));
    }
}

/// The same, borrowed.
#[inline(never)]
pub fn borrowed_hits(stream: &Stream, bytes: u64, pairs: u64) {
    for _ in 0..pairs {
        let buffer = stream.alloc_borrowed(std::hint::black_box(bytes)).expect("a hit");
        drop(std::hint::black_box(buffer));
    }
}

/// The same by address.
#[inline(never)]
pub fn raw_hits(allocator: &CachingAllocator, stream: &Stream, bytes: u64, pairs: u64) {
    for _ in 0..pairs {
        let address = allocator.alloc_raw(std::hint::black_box(bytes), stream).expect("a hit");
        allocator.free_raw(std::hint::black_box(address), None).expect("it is live");
    }
}

/// Many live buffers of sizes from 512 B to `high`: a random one is given back, another one allocated.
#[derive(Debug)]
pub struct Mix {
    stream: Stream,
    live: Vec<Option<DeviceBuffer>>,
    sizes: Vec<u64>,
    victims: Vec<u32>,
    at: usize,
}

impl Mix {
    /// With so many live buffers, all sizes and victims drawn beforehand.
    #[must_use]
    pub fn new(stream: Stream, high: u64, live: u32, seed: u64) -> Self {
        const DRAWN: usize = 1 << 16;
        let mut rng = Rng::new(seed);
        let sizes: Vec<u64> = (0..DRAWN).map(|_| any_size(&mut rng, high)).collect();
        let victims = (0..DRAWN).map(|_| rng.below(u64::from(live)) as u32).collect();
        let take = |_| stream.alloc(any_size(&mut rng, high)).ok();
        let live = (0..live).map(take).collect();
        Self { stream, live, sizes, victims, at: 0 }
    }

    /// So many pairs.
    #[inline(never)]
    pub fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            let victim = self.victims[self.at] as usize;
            self.live[victim] = None;
            self.live[victim] = self.stream.alloc(self.sizes[self.at]).ok();
            self.at = (self.at + 1) % self.sizes.len();
        }
    }
}

/// Magnitudes evenly spread, not rounded to anything.
fn any_size(rng: &mut Rng, high: u64) -> u64 {
    let share = rng.below(1 << 32) as f64 / (1u64 << 32) as f64;
    (512.0 * (high as f64 / 512.0).powf(share)) as u64
}
