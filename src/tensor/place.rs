//! Place: where tensors live: an allocator, a stream, and who does the work.
//!
//! Owns the counters of what happened unasked: copies by `reshape`, temporaries. Asked by every
//! constructor. Never knows shapes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::compute::{Compute, ComputeError};
use super::error::TensorError;
use super::host::HostCompute;
use super::simulated::NoValues;
use crate::allocator::{CachingAllocator, Config, Stream};
use crate::device::{HostDevice, SimConfig, SimDevice};
use crate::vocab::StreamId;

/// What happened that nobody asked for in so many words.
#[derive(Debug, Default)]
struct Tally {
    reshape_copies: AtomicU64,
    temporaries: AtomicU64,
    transferred_bytes: AtomicU64,
    blocking_copies: AtomicU64,
    refuse_reshape_copies: AtomicBool,
    allow_blocking_copies: AtomicBool,
}

/// Counts since the place was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tallies {
    /// How often `reshape` had to copy, as no view would do.
    pub reshape_copies: u64,
    /// Tensors that an operation made for itself, and dropped.
    pub temporaries: u64,
    /// Bytes that came from another place.
    pub transferred_bytes: u64,
    /// Copies that were asked not to wait, and waited ([`Place::allow_blocking_copies`]).
    pub blocking_copies: u64,
}

/// The streams of a place on which transfers are made, by the handles that stand for them. They are
/// the same streams of the driver in a device's place and in its page-locked one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// To the device.
    Up,
    /// From the device.
    Down,
}

impl Lane {
    /// No driver's handle is so large.
    pub(super) const fn handle(self) -> u64 {
        match self {
            Self::Up => u64::MAX,
            Self::Down => u64::MAX - 1,
        }
    }
}

struct Shared {
    name: String,
    allocator: Arc<CachingAllocator>,
    compute: Box<dyn Compute>,
    tally: Tally,
    #[cfg(feature = "cuda")]
    cuda: Option<super::cuda::Parts>,
}

/// Where tensors live, with the stream that the work of new ones is put on. Cheap to clone; clones
/// are equal.
#[derive(Clone)]
pub struct Place {
    shared: Arc<Shared>,
    stream: Stream,
}

impl Place {
    /// Any device: its allocator, who works on its memory, and its name, such as `cuda:0`.
    #[must_use]
    pub fn new(name: &str, allocator: Arc<CachingAllocator>, compute: Box<dyn Compute>) -> Self {
        let stream = allocator.default_stream();
        let shared = Shared {
            name: name.to_string(),
            allocator,
            compute,
            tally: Tally::default(),
            #[cfg(feature = "cuda")]
            cuda: None,
        };
        Self { shared: Arc::new(shared), stream }
    }

    /// The same, on a device of CUDA.
    #[cfg(feature = "cuda")]
    pub(super) fn with_cuda(
        name: &str,
        allocator: Arc<CachingAllocator>,
        compute: Box<dyn Compute>,
        cuda: super::cuda::Parts,
    ) -> Self {
        let stream = allocator.default_stream();
        let (name, tally) = (name.to_string(), Tally::default());
        let shared = Shared { name, allocator, compute, tally, cuda: Some(cuda) };
        Self { shared: Arc::new(shared), stream }
    }

    #[cfg(feature = "cuda")]
    pub(super) fn cuda_parts(&self) -> Option<&super::cuda::Parts> {
        self.shared.cuda.as_ref()
    }

    /// The memory of this process, as long as the system has some. Each call makes a place of its
    /// own: keep one.
    #[must_use]
    pub fn host() -> Self {
        Self::host_on(HostDevice::new(), Config::default())
    }

    /// The memory of this process, on this device and under this policy.
    #[must_use]
    pub fn host_on(device: HostDevice, config: Config) -> Self {
        let compute = HostCompute::new(device.memory());
        let allocator = CachingAllocator::new(device, config);
        Self::new("host", Arc::new(allocator), Box::new(compute))
    }

    /// A simulated device: tensors have shapes, addresses and lifetimes, and no values.
    #[must_use]
    pub fn sim(config: SimConfig) -> Self {
        Self::sim_on(SimDevice::new(config), Config::default())
    }

    /// A simulated device under this policy.
    #[must_use]
    pub fn sim_on(device: SimDevice, config: Config) -> Self {
        let allocator = CachingAllocator::new(device, config);
        Self::new("sim", Arc::new(allocator), Box::new(NoValues))
    }

    /// The same place; what is made through the new handle belongs to the stream of this driver's
    /// handle.
    #[must_use]
    pub fn on_stream(&self, handle: u64) -> Self {
        Self { shared: Arc::clone(&self.shared), stream: self.allocator().stream(handle) }
    }

    /// The stream on which transfers to or from here are made.
    pub(super) fn lane(&self, lane: Lane) -> Stream {
        self.allocator().stream(lane.handle())
    }

    /// `host`, `sim`, `cuda:0`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Whose memory it is.
    #[must_use]
    pub fn allocator(&self) -> &CachingAllocator {
        &self.shared.allocator
    }

    /// The stream of this handle.
    #[must_use]
    pub const fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Whether tensors here have values that can be read.
    #[must_use]
    pub fn has_values(&self) -> bool {
        self.shared.compute.has_values()
    }

    /// From now on `reshape` fails here instead of copying (or does not).
    pub fn refuse_reshape_copies(&self, refuse: bool) {
        self.shared.tally.refuse_reshape_copies.store(refuse, Ordering::Relaxed);
    }

    /// Whether the host's memory here can be copied from and to by a device while the host goes on.
    #[must_use]
    pub fn is_page_locked(&self) -> bool {
        self.shared.compute.is_page_locked()
    }

    /// From now on a copy to this place that was asked not to wait, and has to, is made nevertheless,
    /// and counted ([`Tallies::blocking_copies`]), instead of being refused (or is not).
    pub fn allow_blocking_copies(&self, allow: bool) {
        self.shared.tally.allow_blocking_copies.store(allow, Ordering::Relaxed);
    }

    /// What happened unasked.
    #[must_use]
    pub fn tallies(&self) -> Tallies {
        let tally = &self.shared.tally;
        Tallies {
            reshape_copies: tally.reshape_copies.load(Ordering::Relaxed),
            temporaries: tally.temporaries.load(Ordering::Relaxed),
            transferred_bytes: tally.transferred_bytes.load(Ordering::Relaxed),
            blocking_copies: tally.blocking_copies.load(Ordering::Relaxed),
        }
    }

    /// Whether a copy that has to wait may; if so it is counted.
    pub(super) fn lets_wait(&self) -> bool {
        let tally = &self.shared.tally;
        let lets = tally.allow_blocking_copies.load(Ordering::Relaxed);
        if lets {
            tally.blocking_copies.fetch_add(1, Ordering::Relaxed);
        }
        lets
    }

    pub(super) fn refuses_reshape_copies(&self) -> bool {
        self.shared.tally.refuse_reshape_copies.load(Ordering::Relaxed)
    }

    pub(super) fn count_reshape_copy(&self) {
        self.shared.tally.reshape_copies.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_temporary(&self) {
        self.shared.tally.temporaries.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_transfer(&self, bytes: u64) {
        self.shared.tally.transferred_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn compute(&self) -> &dyn Compute {
        &*self.shared.compute
    }

    pub(super) fn stream_id(&self) -> StreamId {
        self.stream.id()
    }

    /// This place's failure.
    pub(super) fn failed(&self, error: ComputeError) -> TensorError {
        TensorError::Compute { place: self.name().to_string(), error }
    }

    /// That two operands live in the same place.
    pub(super) fn same(&self, other: &Self) -> Result<(), TensorError> {
        if self == other {
            return Ok(());
        }
        Err(TensorError::Device { left: self.name().into(), right: other.name().into() })
    }
}

/// Streams do not matter.
impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Place {}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({}, {:?})", self.name(), self.stream)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
