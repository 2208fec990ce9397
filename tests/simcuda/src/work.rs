//! Work: what a stream does, piece by piece, and which addresses each piece touches.
//!
//! Made by the entry points, performed by the workers after its addresses were checked. The only
//! place where bytes of the simulated memory are read or written.

use crate::memory::Touch;
use crate::thread;
use std::ffi::c_void;
use std::sync::Arc;

/// A host function, as `cuLaunchHostFunc` takes it.
pub type HostFunction = extern "C" fn(*mut c_void);
/// A callback, as `cuStreamAddCallback` takes it.
pub type Callback = extern "C" fn(u64, i32, *mut c_void);
/// The host build of a kernel.
pub type HostKernel = extern "C" fn(*mut *mut c_void, u32, u32, u32, u32, u32, u32, u32);

/// An address of the caller's that is handed back as it came.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Data(pub *mut c_void);

// SAFETY: it is never read here; whoever gave it promised that any thread may have it.
unsafe impl Send for Data {}
// SAFETY: likewise.
unsafe impl Sync for Data {}

/// Where a copy reads.
#[derive(Clone)]
pub enum Source {
    Address(u64),
    /// Pageable memory of the host, taken when the copy was asked for; rows without gaps.
    Staged(Arc<[u8]>),
}

/// Rows of a copy or fill, in slices: bytes of a row, and how far apart rows and slices begin.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub width: u64,
    pub height: u64,
    pub depth: u64,
    pub to: (u64, u64),
    pub from: (u64, u64),
}

impl Shape {
    /// One row.
    pub fn line(bytes: u64) -> Self {
        Self { width: bytes, height: 1, depth: 1, to: (bytes, bytes), from: (bytes, bytes) }
    }

    pub fn bytes(&self) -> u64 {
        self.width.saturating_mul(self.height).saturating_mul(self.depth)
    }

    fn span(&self, (row, slice): (u64, u64)) -> u64 {
        if self.bytes() == 0 {
            return 0;
        }
        let rows = row.saturating_mul(self.height - 1);
        slice.saturating_mul(self.depth - 1).saturating_add(rows).saturating_add(self.width)
    }

    /// Bytes from the first that is read to the last.
    pub fn source_span(&self) -> u64 {
        self.span(self.from)
    }

    /// Bytes from the first that is written to the last.
    pub fn target_span(&self) -> u64 {
        self.span(self.to)
    }

    /// Offsets of each row: where it goes and where it comes from.
    fn rows(self) -> impl Iterator<Item = (u64, u64)> {
        let depth = if self.width == 0 { 0 } else { self.depth };
        (0..depth).flat_map(move |z| {
            (0..self.height)
                .map(move |y| (z * self.to.1 + y * self.to.0, z * self.from.1 + y * self.from.0))
        })
    }
}

/// A launch of a kernel.
#[derive(Clone)]
pub struct Launch {
    pub name: Arc<str>,
    pub run: Option<HostKernel>,
    /// Each argument's bytes, in words so that they are aligned, and how many bytes count.
    pub arguments: Vec<(Vec<u64>, u64)>,
    pub grid: (u32, u32, u32),
    pub block: (u32, u32, u32),
    pub shared: u32,
}

/// One piece of work.
#[derive(Clone)]
pub enum Work {
    Copy { to: u64, from: Source, shape: Shape },
    Fill { to: u64, value: u32, unit: u64, shape: Shape },
    Kernel(Launch),
    Host { run: HostFunction, data: Data },
    Callback { run: Callback, stream: u64, data: Data },
    Record { event: u64, number: u64 },
    Free { address: u64 },
    Nothing,
}

impl Work {
    /// What it is called in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Copy { .. } => "copy",
            Self::Fill { .. } => "fill",
            Self::Kernel(_) => "kernel",
            Self::Host { .. } => "host function",
            Self::Callback { .. } => "callback",
            Self::Record { .. } => "record",
            Self::Free { .. } => "free",
            Self::Nothing => "nothing",
        }
    }

    /// What it touches. Of a kernel that `ranges` does not know, those of its arguments that look
    /// like addresses of a device count as one byte that is read.
    pub fn touches(&self, is_ours: impl Fn(u64) -> bool) -> Vec<Touch> {
        match self {
            Self::Copy { to, from, shape } => {
                let bytes = shape.target_span();
                let mut touches = vec![Touch { address: *to, bytes, write: true }];
                if let Source::Address(from) = from {
                    let bytes = shape.source_span();
                    touches.push(Touch { address: *from, bytes, write: false });
                }
                touches
            }
            Self::Fill { to, shape, .. } => {
                vec![Touch { address: *to, bytes: shape.target_span(), write: true }]
            }
            Self::Kernel(launch) => launch.touches(is_ours),
            _ => Vec::new(),
        }
    }

    /// Does it. The addresses were checked and stay mapped until the worker says it is done.
    pub fn perform(&mut self, status: i32) {
        match self {
            Self::Copy { to, from, shape } => copy(*to, from, *shape),
            Self::Fill { to, value, unit, shape } => fill(*to, *value, *unit, *shape),
            Self::Kernel(launch) => launch.perform(),
            Self::Host { run, data } => {
                let (run, data) = (*run, *data);
                thread::as_host_function(move || run(data.0));
            }
            Self::Callback { run, stream, data } => {
                let (run, stream, data) = (*run, *stream, *data);
                thread::as_host_function(move || run(stream, status, data.0));
            }
            Self::Record { .. } | Self::Free { .. } | Self::Nothing => {}
        }
    }
}

impl Launch {
    fn touches(&self, is_ours: impl Fn(u64) -> bool) -> Vec<Touch> {
        let words: Vec<u64> = self.arguments.iter().map(|(words, _)| words[0]).collect();
        if let Some(ranges) = crate::ranges::of(&self.name, &words).filter(|_| self.run.is_some()) {
            return ranges;
        }
        let pointers = self.arguments.iter().filter(|(_, bytes)| *bytes == 8);
        let addresses = pointers.map(|(words, _)| words[0]).filter(|word| is_ours(*word));
        addresses.map(|address| Touch { address, bytes: 1, write: false }).collect()
    }

    fn perform(&mut self) {
        let Some(run) = self.run else { return };
        let arguments = self.arguments.iter_mut();
        let mut places: Vec<*mut c_void> =
            arguments.map(|(words, _)| words.as_mut_ptr().cast()).collect();
        let ((gx, gy, gz), (bx, by, bz)) = (self.grid, self.block);
        run(places.as_mut_ptr(), gx, gy, gz, bx, by, bz, self.shared);
    }
}

fn copy(to: u64, from: &Source, shape: Shape) {
    let mut staged = 0;
    for (target, source) in shape.rows() {
        let target = (to + target) as *mut u8;
        let source = match from {
            Source::Address(from) => (from + source) as *const u8,
            Source::Staged(bytes) => {
                staged += shape.width as usize;
                bytes[staged - shape.width as usize..staged].as_ptr()
            }
        };
        // SAFETY: device addresses were checked by the worker, host addresses are the caller's
        // promise; the regions may overlap.
        unsafe { std::ptr::copy(source, target, shape.width as usize) };
    }
}

fn fill(to: u64, value: u32, unit: u64, shape: Shape) {
    let bytes = value.to_le_bytes();
    for (row, _) in shape.rows() {
        let row = to + row;
        if unit == 1 || bytes[..unit as usize].iter().all(|byte| *byte == bytes[0]) {
            // SAFETY: checked by the worker, or host memory that the caller vouches for.
            unsafe { std::ptr::write_bytes(row as *mut u8, bytes[0], shape.width as usize) };
            continue;
        }
        for place in (0..shape.width).step_by(unit as usize) {
            let target = (row + place) as *mut u8;
            // SAFETY: likewise; `unit` bytes of the pattern at each place.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, unit as usize) };
        }
    }
}

/// Reads pageable memory now, because its owner may have it back when the call returns.
pub fn stage(from: u64, shape: Shape) -> Source {
    let mut bytes = Vec::with_capacity(shape.bytes() as usize);
    for (_, source) in shape.rows() {
        let row = (from + source) as *const u8;
        // SAFETY: readable memory of the host by the promise of the caller of the copy.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(row, shape.width as usize) });
    }
    Source::Staged(bytes.into())
}
