//! Adaptor: blockyard below a tensor library in the style of candle, and one in the style of burn.
//!
//! `cargo run --example candle_style`. Neither library is used here: their traits are sketched to the size of this
//! page, so that what an adaptor has to do can be seen and run, on the host's memory, without a GPU.
//!
//! What their extension points allow at present:
//!
//! - **burn** (cubecl) asks a trait for raw memory, `ComputeStorage`: allocate, look up, free by id. [`BlockStorage`]
//!   is all that an implementation over blockyard has to do. But its CUDA server makes its own storage, so this needs
//!   a change of cubecl, or a server of one's own; and above the storage cubecl keeps a cache, which would have to be
//!   set to one page an allocation (`ExclusivePages`) or there are two caches.
//! - **candle** asks nobody: its CUDA device calls cudarc's `alloc`, and there is no hook. What it does allow is a
//!   custom operation, whose result may be any slice: `interop::PooledSlice` makes one over blockyard's memory. Such a
//!   slice must be handed back by its lease, and candle drops it as its own, which gives the driver an address in the
//!   middle of a segment. So today this is for tensors that live as long as the program (weights, caches), whose lease
//!   is forgotten. The way without a change of candle is to stand before the driver: `docs/preload.md` records it.
//! - A library that one writes oneself can be written as [`Storage`] is below: a tensor owns a buffer, and nothing else
//!   is needed.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use blockyard::allocator::{AllocError, CachingAllocator, Config, DeviceBuffer, Stream};
use blockyard::device::{HostDevice, HostMemory};

// ---- in the style of burn: raw memory by id ----

/// A piece of one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StorageId(u64);

/// What cubecl's trait asks of whoever has the memory.
trait ComputeStorage {
    type Resource;
    fn alignment(&self) -> u64;
    fn alloc(&mut self, bytes: u64) -> Result<StorageId, AllocError>;
    fn get(&self, id: StorageId) -> Option<Self::Resource>;
    fn dealloc(&mut self, id: StorageId);
    fn flush(&mut self);
}

/// It over blockyard: a map from ids to buffers, on one stream.
struct BlockStorage {
    stream: Stream,
    buffers: HashMap<StorageId, DeviceBuffer>,
    next: u64,
}

impl ComputeStorage for BlockStorage {
    /// Address and size: on a GPU, what a kernel is launched with.
    type Resource = (u64, u64);

    fn alignment(&self) -> u64 {
        512
    }

    fn alloc(&mut self, bytes: u64) -> Result<StorageId, AllocError> {
        let buffer = self.stream.alloc(bytes)?;
        self.next += 1;
        self.buffers.insert(StorageId(self.next), buffer);
        Ok(StorageId(self.next))
    }

    fn get(&self, id: StorageId) -> Option<(u64, u64)> {
        self.buffers.get(&id).map(|buffer| (buffer.address().0, buffer.bytes()))
    }

    /// The memory is used again in the stream's order at once: there is nothing to collect and to flush.
    fn dealloc(&mut self, id: StorageId) {
        self.buffers.remove(&id);
    }

    fn flush(&mut self) {}
}

// ---- in the style of candle: a device makes storages, a tensor shares one ----

/// What makes storages.
#[derive(Clone)]
struct Device {
    stream: Stream,
    memory: HostMemory,
}

/// The memory of tensors; it goes back with the last of them.
struct Storage {
    buffer: DeviceBuffer,
    device: Device,
}

/// A vector of numbers.
#[derive(Clone)]
struct Tensor {
    storage: Arc<Storage>,
    len: usize,
}

impl Device {
    fn storage(&self, len: usize) -> Result<Storage, AllocError> {
        let buffer = self.stream.alloc(4 * len as u64)?;
        Ok(Storage { buffer, device: self.clone() })
    }

    fn tensor(&self, values: &[f32]) -> Result<Tensor, Box<dyn Error>> {
        let storage = self.storage(values.len())?;
        storage.write(values)?;
        Ok(Tensor { storage: Arc::new(storage), len: values.len() })
    }
}

impl Storage {
    fn bytes(&self) -> Result<blockyard::device::HostBlock, Box<dyn Error>> {
        let claimed = self.device.memory.claim(self.buffer.address(), self.buffer.bytes());
        claimed.ok_or_else(|| "somebody else has this memory".into())
    }

    fn write(&self, values: &[f32]) -> Result<(), Box<dyn Error>> {
        let mut block = self.bytes()?;
        for (place, value) in block.bytes_mut().chunks_exact_mut(4).zip(values) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }

    fn read(&self) -> Result<Vec<f32>, Box<dyn Error>> {
        let number = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Ok(self.bytes()?.bytes().chunks_exact(4).map(number).collect())
    }
}

impl Tensor {
    fn add(&self, other: &Self) -> Result<Self, Box<dyn Error>> {
        let (left, right) = (self.storage.read()?, other.storage.read()?);
        let sums: Vec<f32> = left.iter().zip(&right).map(|(a, b)| a + b).collect();
        self.storage.device.tensor(&sums)
    }

    fn values(&self) -> Result<Vec<f32>, Box<dyn Error>> {
        Ok(self.storage.read()?[..self.len].to_vec())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let host = HostDevice::with_cap(256 << 20);
    let memory = host.memory();
    let allocator = CachingAllocator::new(host, Config::default());
    let stream = allocator.default_stream();

    let mut storage = BlockStorage { stream: stream.clone(), buffers: HashMap::new(), next: 0 };
    let first = storage.alloc(3 << 20)?;
    let (address, bytes) = storage.get(first).ok_or("no such storage")?;
    assert_eq!((address % storage.alignment(), bytes), (0, 3 << 20));
    storage.dealloc(first);
    storage.flush();
    let again = storage.alloc(3 << 20)?;
    assert_eq!(storage.get(again), Some((address, bytes)), "the same memory, with no driver call");
    assert!(storage.alloc(1 << 40).is_err(), "and what cannot be had is an error");
    drop(storage);

    let device = Device { stream, memory };
    let mut sum = device.tensor(&[1.0, 2.0, 3.0])?;
    for _ in 0..100 {
        sum = sum.add(&device.tensor(&[1.0, 1.0, 1.0])?)?;
    }
    assert_eq!(sum.values()?, [101.0, 102.0, 103.0]);
    drop((sum, device));
    assert_eq!(allocator.memory_allocated(), 0);
    println!("{}", allocator.memory_summary());
    Ok(())
}
