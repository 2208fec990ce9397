//! Adaptor: a program written for cudarc, with its memory from blockyard.
//!
//! `cargo run --features cuda --example cudarc_adaptor`. Without a GPU: build the simulated driver with
//! `cargo build -p blockyard-simcuda` and set `BLOCKYARD_CUDA_DRIVER=target/debug/libblockyard_simcuda.so`.

use std::error::Error;
use std::sync::Arc;

use blockyard::interop::{CudaAllocator, CudaBuffer, PooledSlice};
use cudarc::driver::{CudaSlice, CudaStream};

/// Code that knows cudarc only, and takes its slices.
fn checksum(stream: &Arc<CudaStream>, data: &CudaSlice<u32>) -> Result<u64, Box<dyn Error>> {
    Ok(stream.clone_dtoh(data)?.into_iter().map(u64::from).sum())
}

/// A store that hands out slices of cudarc's type, as candle's storage holds them.
struct Storage<'a> {
    allocator: &'a CudaAllocator,
    stream: Arc<CudaStream>,
}

impl Storage<'_> {
    fn upload(&self, data: &[u32]) -> Result<PooledSlice<u32>, Box<dyn Error>> {
        let mut slice = self.allocator.alloc_slice(&self.stream, data.len())?;
        self.stream.memcpy_htod(data, &mut slice.view_mut())?;
        Ok(slice)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let allocator = CudaAllocator::open(0)?;
    let stream = allocator.context().new_stream()?;
    println!("on {}", allocator.gpu().name()?);

    // Buffers of our own type go wherever cudarc takes memory.
    let numbers: Vec<u32> = (0..1 << 20).collect();
    let mut buffer: CudaBuffer<u32> = allocator.alloc(&stream, numbers.len())?;
    stream.memcpy_htod(&numbers, &mut buffer)?;
    let mut copy = allocator.alloc::<u32>(&stream, numbers.len())?;
    stream.memcpy_dtod(&buffer, &mut copy)?;
    assert_eq!(stream.clone_dtoh(&copy)?, numbers);

    // Slices of cudarc's type, where nothing else will do.
    let storage = Storage { allocator: &allocator, stream: Arc::clone(&stream) };
    let expected: u64 = numbers.iter().copied().map(u64::from).sum();
    for _ in 0..1000 {
        let slice = storage.upload(&numbers)?;
        assert_eq!(checksum(&stream, &slice)?, expected);
    }

    println!("peak {} bytes reserved, for 1002 requests", allocator.max_memory_reserved());
    drop((buffer, copy));
    println!("{} bytes given back", allocator.empty_cache().released_bytes);
    Ok(())
}
