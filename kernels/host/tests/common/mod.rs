//! Common: memory with guards, launches by name, and the types that kernels know.
#![allow(dead_code, unsafe_code)]

pub mod dtype;
pub mod views;

use blockyard_kernels_host::kernel;
use proptest::prelude::*;

/// A grid of so many blocks of so many threads.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    pub grid: u32,
    pub block: u32,
}

pub const ONE: Launch = Launch { grid: 1, block: 1 };
pub const ODD: Launch = Launch { grid: 3, block: 37 };

/// Small and odd ones, and some that have more threads than there is work.
pub fn launches() -> impl Strategy<Value = Launch> {
    (1u32..7, prop_oneof![1u32..40, Just(257)]).prop_map(|(grid, block)| Launch { grid, block })
}

/// What can be passed to a kernel.
pub trait Arg {
    fn to_bytes(&self) -> Vec<u8>;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Arg for $number {
            fn to_bytes(&self) -> Vec<u8> {
                self.to_ne_bytes().to_vec()
            }
        }
    )*};
}

numbers! { u32 u64 f32 f64 }

/// Runs a kernel by name; arguments must have the sizes that the kernel's table says.
pub fn run(name: &str, launch: Launch, args: &[&dyn Arg]) {
    let kernel = kernel(name).unwrap_or_else(|| panic!("there is no kernel {name}"));
    let mut values: Vec<Vec<u8>> = args.iter().map(|arg| arg.to_bytes()).collect();
    let sizes: Vec<u32> = values.iter().map(|value| value.len() as u32).collect();
    assert_eq!(sizes, kernel.arg_sizes, "arguments of {name}");
    let mut pointers: Vec<_> = values.iter_mut().map(|value| value.as_mut_ptr().cast()).collect();
    // SAFETY: one pointer for each parameter, each to as many bytes; addresses come from arenas
    // that outlive the call and that their callers own alone.
    unsafe { kernel.launch(pointers.as_mut_ptr(), [launch.grid, 1, 1], [launch.block, 1, 1]) };
}

/// Bytes on each side of what a kernel may touch.
const GUARD: usize = 96;

/// Memory for a kernel, with guards around it. Offset 0 is aligned to 64.
pub struct Arena {
    raw: Vec<u8>,
    begin: usize,
    size: usize,
}

impl Arena {
    /// `size` bytes of noise, guards of noise.
    pub fn noise(size: usize, seed: u64) -> Self {
        let raw = noise(size + 2 * GUARD + 64, seed);
        let begin = GUARD + raw[GUARD..].as_ptr().align_offset(64);
        Self { raw, begin, size }
    }

    pub fn of(bytes: &[u8]) -> Self {
        let mut arena = Self::noise(bytes.len(), 1);
        arena.bytes().copy_from_slice(bytes);
        arena
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.raw[self.begin..self.begin + self.size]
    }

    /// The address of a byte, as an argument.
    pub fn at(&mut self, offset: usize) -> u64 {
        assert!(offset <= self.size);
        self.raw[self.begin..].as_mut_ptr() as u64 + offset as u64
    }

    /// Everything, guards too, as `change` would leave the inside: what a kernel is compared with.
    pub fn after(&self, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut changed = self.raw.clone();
        change(&mut changed[self.begin..self.begin + self.size]);
        changed
    }

    pub fn everything(&self) -> &[u8] {
        &self.raw
    }
}

/// Bytes that look random and depend on the seed only.
pub fn noise(size: usize, seed: u64) -> Vec<u8> {
    (0..size as u64).map(|place| (mix(seed ^ (place << 20)) >> 24) as u8).collect()
}

/// splitmix64 of `index`, from its description.
pub fn mix(index: u64) -> u64 {
    let z = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
