//! Host: the work of a place whose memory is this process's.
//!
//! Owns a lock for each storage: reading shares it, writing does not, so tensors of one storage may
//! be used from many threads. Two storages are locked in the order of their addresses. All work is
//! done when a call returns; streams do not matter.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use parking_lot::RwLock;

use super::compute::{Compute, ComputeError, CsrTimesDense, Region, Side, Strided};
use super::dtype::{DType, Element, with_dtype};
use crate::device::{HostBlock, HostFile, HostMemory};
use crate::vocab::{Address, StreamId};

/// A storage's bytes, and what keeps them alive.
#[derive(Debug)]
enum Held {
    Block(HostBlock),
    File(HostFile),
}

impl Held {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Block(block) => block.bytes(),
            Self::File(file) => file.bytes(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Block(block) => block.bytes_mut(),
            Self::File(file) => file.bytes_mut(),
        }
    }
}

/// Works on the memory of a [`crate::device::HostDevice`].
#[derive(Debug)]
pub struct HostCompute {
    memory: HostMemory,
    storages: RwLock<HashMap<Address, Arc<RwLock<Held>>>>,
}

impl HostCompute {
    /// Works on this memory.
    #[must_use]
    pub fn new(memory: HostMemory) -> Self {
        Self { memory, storages: RwLock::default() }
    }

    fn held(&self, memory: Region) -> Result<Arc<RwLock<Held>>, ComputeError> {
        let found = self.storages.read().get(&memory.address).cloned();
        found.ok_or(ComputeError::Unknown(memory.address))
    }

    fn hold(&self, address: Address, held: Held) {
        self.storages.write().insert(address, Arc::new(RwLock::new(held)));
    }

    /// The bytes of two stretches, to write to the first and read from the second.
    fn both<R>(
        &self,
        (dst, to): (Region, Range<usize>),
        (src, from): (Region, Range<usize>),
        work: impl FnOnce(&mut [u8], &[u8]) -> R,
    ) -> Result<R, ComputeError> {
        let (target, source) = (self.held(dst)?, self.held(src)?);
        if Arc::ptr_eq(&target, &source) {
            let mut held = target.write();
            let (to, from) =
                apart(held.bytes_mut(), to, from).ok_or(ComputeError::Unknown(src.address))?;
            return Ok(work(to, from));
        }
        let early = (src.address < dst.address).then(|| source.read());
        let mut target = target.write();
        let source = early.unwrap_or_else(|| source.read());
        let (to, from) = (target.bytes_mut().get_mut(to), source.bytes().get(from));
        let (to, from) = to.zip(from).ok_or(ComputeError::Unknown(dst.address))?;
        Ok(work(to, from))
    }
}

/// Two stretches of the same bytes that have none in common.
fn apart(bytes: &mut [u8], to: Range<usize>, from: Range<usize>) -> Option<(&mut [u8], &[u8])> {
    if to.end <= from.start {
        let (low, high) = bytes.split_at_mut_checked(from.start)?;
        Some((low.get_mut(to)?, high.get(..from.len())?))
    } else if from.end <= to.start {
        let (low, high) = bytes.split_at_mut_checked(to.start)?;
        Some((high.get_mut(..to.len())?, low.get(from)?))
    } else {
        None
    }
}

impl Compute for HostCompute {
    fn admit(&self, memory: Region) -> Result<(), ComputeError> {
        let block = self.memory.claim(memory.address, memory.bytes);
        let block = block.ok_or(ComputeError::Unknown(memory.address))?;
        self.hold(memory.address, Held::Block(block));
        Ok(())
    }

    fn adopt(&self, file: HostFile) -> Result<Region, HostFile> {
        let memory = Region { address: file.address(), bytes: file.bytes().len() as u64 };
        self.hold(memory.address, Held::File(file));
        Ok(memory)
    }

    fn host_memory(&self) -> Option<HostMemory> {
        Some(self.memory.clone())
    }

    fn dismiss(&self, memory: Region) {
        self.storages.write().remove(&memory.address);
    }

    fn fill(&self, dst: Side, count: u64, bits: u64, _: StreamId) -> Result<(), ComputeError> {
        let size = dst.dtype.size();
        let held = self.held(dst.memory)?;
        let mut held = held.write();
        let bytes = held.bytes_mut().get_mut(stretch(&dst, count as usize * size));
        let bytes = bytes.ok_or(ComputeError::Unknown(dst.address()))?;
        match size {
            1 => bytes.fill(bits as u8),
            2 => bytemuck::cast_slice_mut(bytes).fill(bits as u16),
            4 => bytemuck::cast_slice_mut(bytes).fill(bits as u32),
            _ => bytemuck::cast_slice_mut(bytes).fill(bits),
        }
        Ok(())
    }

    fn copy(&self, dst: Side, src: Side, shape: &Strided, _: StreamId) -> Result<(), ComputeError> {
        let to = (dst.memory, stretch(&dst, reach(shape, &shape.dst) * dst.dtype.size()));
        let from = (src.memory, stretch(&src, reach(shape, &shape.src) * src.dtype.size()));
        self.both(to, from, |to, from| match (dst.dtype, src.dtype) {
            (left, right) if left != right => convert(to, left, from, right, shape),
            (dtype, _) => match dtype.size() {
                1 => copy_elements::<u8>(to, from, shape),
                2 => copy_elements::<u16>(to, from, shape),
                4 => copy_elements::<u32>(to, from, shape),
                _ => copy_elements::<u64>(to, from, shape),
            },
        })
    }

    fn write(&self, dst: Side, bytes: &[u8], _: StreamId) -> Result<(), ComputeError> {
        let held = self.held(dst.memory)?;
        let mut held = held.write();
        let to = held.bytes_mut().get_mut(stretch(&dst, bytes.len()));
        to.ok_or(ComputeError::Unknown(dst.address()))?.copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, src: Side, bytes: &mut [u8], _: StreamId) -> Result<(), ComputeError> {
        let held = self.held(src.memory)?;
        let held = held.read();
        let from = held.bytes().get(stretch(&src, bytes.len()));
        bytes.copy_from_slice(from.ok_or(ComputeError::Unknown(src.address()))?);
        Ok(())
    }

    fn csr_times_dense(&self, job: &CsrTimesDense, _: StreamId) -> Result<(), ComputeError> {
        match (job.values.dtype, job.column.dtype) {
            (DType::F32, DType::I32) => self.product::<f32, i32>(job),
            (DType::F32, DType::I64) => self.product::<f32, i64>(job),
            (DType::F64, DType::I32) => self.product::<f64, i32>(job),
            (DType::F64, DType::I64) => self.product::<f64, i64>(job),
            _ => Err(ComputeError::NotSupported("a product of these types")),
        }
    }
}

/// So many bytes from index zero of a side.
fn stretch(side: &Side, bytes: usize) -> Range<usize> {
    let from = side.byte_offset() as usize;
    from..from + bytes
}

/// How many elements lie from index zero to the last, both included.
fn reach(shape: &Strided, strides: &[u64; 8]) -> usize {
    let axes = shape.sizes.iter().zip(strides).take(shape.rank);
    axes.map(|(size, stride)| (size - 1) * stride).sum::<u64>() as usize + 1
}

/// Every row along the last axis: where it starts on both sides.
fn rows(shape: &Strided, mut visit: impl FnMut(usize, usize)) {
    let outer = shape.rank.saturating_sub(1);
    let (mut index, mut dst, mut src) = ([0u64; 8], 0, 0);
    'rows: loop {
        visit(dst as usize, src as usize);
        for axis in (0..outer).rev() {
            index[axis] += 1;
            dst += shape.dst[axis];
            src += shape.src[axis];
            if index[axis] < shape.sizes[axis] {
                continue 'rows;
            }
            dst -= shape.sizes[axis] * shape.dst[axis];
            src -= shape.sizes[axis] * shape.src[axis];
            index[axis] = 0;
        }
        return;
    }
}

/// Applies `map` to each element of the source.
fn each<D: Pod, S: Pod>(to: &mut [u8], from: &[u8], shape: &Strided, map: impl Fn(S) -> D) {
    let (to, from) = (bytemuck::cast_slice_mut::<u8, D>(to), bytemuck::cast_slice::<u8, S>(from));
    let last = shape.rank.wrapping_sub(1);
    let [count, dst, src] = match shape.rank {
        0 => [1; 3],
        _ => [shape.sizes[last], shape.dst[last], shape.src[last]].map(|number| number as usize),
    };
    rows(shape, |d, s| {
        let to = to[d..].iter_mut().step_by(dst).take(count);
        match src {
            0 => to.for_each(|to| *to = map(from[s])),
            _ => to.zip(from[s..].iter().step_by(src)).for_each(|(to, from)| *to = map(*from)),
        }
    });
}

fn copy_elements<T: Pod>(to: &mut [u8], from: &[u8], shape: &Strided) {
    let last = shape.rank.wrapping_sub(1);
    if shape.rank == 0 || (shape.dst[last], shape.src[last]) != (1, 1) {
        return each::<T, T>(to, from, shape, |element| element);
    }
    let row = shape.sizes[last] as usize * size_of::<T>();
    rows(shape, |d, s| {
        let (d, s) = (d * size_of::<T>(), s * size_of::<T>());
        to[d..d + row].copy_from_slice(&from[s..s + row]);
    });
}

fn convert(to: &mut [u8], left: DType, from: &[u8], right: DType, shape: &Strided) {
    with_dtype!(left, D => with_dtype!(right, S => {
        each(to, from, shape, |bits: <S as Element>::Bits| {
            <D as Element>::narrow(<S as Element>::from_bits(bits).widen()).to_bits()
        });
    }));
}

/// What a product multiplies and adds, rounding once for both.
trait Number: Pod {
    fn fused(self, times: Self, plus: Self) -> Self;
}

impl Number for f32 {
    fn fused(self, times: Self, plus: Self) -> Self {
        self.mul_add(times, plus)
    }
}

impl Number for f64 {
    fn fused(self, times: Self, plus: Self) -> Self {
        self.mul_add(times, plus)
    }
}

/// An index type. Indices were checked when the matrix was made; who changed them since gets an error.
trait Index: Pod {
    fn place(self) -> usize;
}

impl Index for i32 {
    fn place(self) -> usize {
        self as usize
    }
}

impl Index for i64 {
    fn place(self) -> usize {
        self as usize
    }
}

impl HostCompute {
    /// A copy of the elements in a row from a side.
    fn taken<T: Pod>(&self, side: &Side, count: u64) -> Result<Vec<T>, ComputeError> {
        let mut values = vec![T::zeroed(); count as usize];
        self.read(*side, bytemuck::cast_slice_mut(&mut values), StreamId(0))?;
        Ok(values)
    }

    /// Each element in the order of its row, as the kernel does.
    fn product<T: Number, I: Index>(&self, job: &CsrTimesDense) -> Result<(), ComputeError> {
        let starts = self.taken::<I>(&job.starts, job.rows + 1)?;
        let column = self.taken::<I>(&job.column, job.count)?;
        let values = self.taken::<T>(&job.values, job.count)?;
        let columns = job.columns as usize;
        let to =
            (job.out.memory, stretch(&job.out, (job.rows * job.columns) as usize * size_of::<T>()));
        let from =
            (job.x.memory, stretch(&job.x, (job.inner * job.columns) as usize * size_of::<T>()));
        if columns == 0 {
            return Ok(());
        }
        let done = self.both(to, from, |to, from| {
            let (out, x) =
                (bytemuck::cast_slice_mut::<u8, T>(to), bytemuck::cast_slice::<u8, T>(from));
            out.chunks_exact_mut(columns).enumerate().try_for_each(|(row, out)| {
                out.fill(T::zeroed());
                let stored = starts[row].place()..starts[row + 1].place();
                let stored = column.get(stored.clone())?.iter().zip(values.get(stored)?);
                for (column, value) in stored {
                    let x = x.chunks_exact(columns).nth(column.place())?;
                    out.iter_mut().zip(x).for_each(|(sum, x)| *sum = value.fused(*x, *sum));
                }
                Some(())
            })
        })?;
        done.ok_or(ComputeError::Index)
    }
}
