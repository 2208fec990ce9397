//! DLPack: tensors handed to other libraries and taken from them, without a copy.
//!
//! Owns the C structures of DLPack (the unversioned ones, which every library takes) and who calls
//! a deleter. Asked by programs and by a C interface. Never knows Python: a capsule is made of the
//! pointer by whoever has an interpreter.
//!
//! Memory of the host, of a GPU, and page-locked memory is handed out; simulated devices have none.
//! Host memory and memory of a GPU is taken.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use super::compute::{ComputeError, Region};
use super::error::{Result, TensorError};
use super::layout::Layout;
use super::place::Place;
use super::storage::{Foreign, Storage};
use super::{Axes, DType, Tensor};
use crate::vocab::Address;

/// `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlDevice {
    /// 1: the host; 2: CUDA; 3: page-locked memory of the host.
    pub kind: i32,
    /// Which of them.
    pub number: i32,
}

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlDataType {
    /// 0: signed, 1: unsigned, 2: IEEE float, 4: bfloat, 6: bool.
    pub code: u8,
    /// Bits of an element.
    pub bits: u8,
    /// 1, or a vector type.
    pub lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DlTensor {
    /// Where the memory starts.
    pub data: *mut c_void,
    /// Where it is.
    pub device: DlDevice,
    /// How many axes there are.
    pub ndim: i32,
    /// The type of elements.
    pub dtype: DlDataType,
    /// The size of each axis.
    pub shape: *mut i64,
    /// Elements between neighbours on each axis; null: the last axis fastest, no gaps.
    pub strides: *mut i64,
    /// From `data` to index zero.
    pub byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
#[derive(Debug)]
pub struct DlManagedTensor {
    /// What is handed over.
    pub tensor: DlTensor,
    /// The producer's.
    pub context: *mut c_void,
    /// Called once by whoever took it; null: nothing to do.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

const HOST: i32 = 1;
const CUDA: i32 = 2;
const PAGE_LOCKED: i32 = 3;

/// A tensor that is handed over. Dropped: nobody took it.
#[derive(Debug)]
pub struct DlPack(NonNull<DlManagedTensor>);

// SAFETY: it is the only handle on the structure, and deleters may be called by any thread.
unsafe impl Send for DlPack {}
// SAFETY: as above; nothing is changed through a shared reference.
unsafe impl Sync for DlPack {}

impl DlPack {
    /// Takes what another library has handed over.
    ///
    /// # Safety
    /// The pointer is null or a managed tensor as DLPack defines it, whose deleter nobody else calls,
    /// and which any thread may call.
    #[must_use]
    pub unsafe fn from_raw(managed: *mut DlManagedTensor) -> Option<Self> {
        NonNull::new(managed).map(Self)
    }

    /// The pointer, for a consumer who will call its deleter.
    #[must_use]
    pub fn into_raw(self) -> *mut DlManagedTensor {
        let managed = self.0.as_ptr();
        std::mem::forget(self);
        managed
    }

    /// What is handed over.
    #[must_use]
    pub fn tensor(&self) -> &DlTensor {
        // SAFETY: it lives until the deleter is called, in `drop`.
        unsafe { &self.0.as_ref().tensor }
    }

    /// Sizes and strides.
    fn axes(&self) -> Result<(Axes, Axes)> {
        let tensor = self.tensor();
        let rank = usize::try_from(tensor.ndim).unwrap_or(usize::MAX);
        if rank > super::MAX_RANK || (rank > 0 && tensor.shape.is_null()) {
            return Err(TensorError::Rank { rank });
        }
        let list = |from: *mut i64| -> Result<Vec<usize>> {
            // SAFETY: the producer promises as many numbers as there are axes.
            let numbers = (0..rank).map(|axis| unsafe { *from.add(axis) });
            let sizes: Result<Vec<usize>, _> = numbers.map(usize::try_from).collect();
            sizes.map_err(|_| TensorError::Zero { what: "a size or stride of DLPack" })
        };
        let shape = list(tensor.shape)?;
        let strides = if tensor.strides.is_null() {
            Layout::contiguous(&shape)?.strides
        } else {
            Axes::new(&list(tensor.strides)?)?
        };
        Ok((Axes::new(&shape)?, strides))
    }
}

impl Drop for DlPack {
    fn drop(&mut self) {
        // SAFETY: alive until its deleter is called, which is here and once.
        unsafe {
            if let Some(deleter) = self.0.as_ref().deleter {
                deleter(self.0.as_ptr());
            }
        }
    }
}

const fn code_of(dtype: DType) -> DlDataType {
    let code = match dtype {
        DType::I64 | DType::I32 | DType::I16 | DType::I8 => 0,
        DType::U8 => 1,
        DType::F64 | DType::F32 | DType::F16 => 2,
        DType::BF16 => 4,
        DType::Bool => 6,
    };
    DlDataType { code, bits: dtype.size() as u8 * 8, lanes: 1 }
}

/// What stands behind an exported structure.
struct Exported {
    managed: DlManagedTensor,
    _tensor: Tensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// The deleter of what is exported here.
unsafe extern "C" fn give_up(managed: *mut DlManagedTensor) {
    // SAFETY: `context` is the box that `Tensor::to_dlpack` gave away, and this is called once.
    drop(unsafe { Box::from_raw((*managed).context.cast::<Exported>()) });
}

impl Tensor {
    /// This tensor for another library, which may keep it as long as it likes: the storage lives on.
    /// Waits for the work of its stream so far. Whoever uses the pointer must not write while tensors
    /// of this storage are read, nor read while they are written.
    ///
    /// # Errors
    /// A place without memory; the device's.
    pub fn to_dlpack(&self) -> Result<DlPack> {
        let place = self.place();
        let device = device_of(place).ok_or_else(|| place.failed(ComputeError::NoValues))?;
        self.settle()?;
        let so_far = place.compute().mark(place.stream_id());
        let waited = so_far.and_then(|so_far| so_far.map_or(Ok(()), |so_far| so_far.wait()));
        waited.map_err(|error| place.failed(error))?;
        let numbers = |axes: &[usize]| axes.iter().map(|&size| size as i64).collect::<Vec<i64>>();
        let tensor = DlTensor {
            data: self.storage().address().0 as *mut c_void,
            device,
            ndim: self.rank() as i32,
            dtype: code_of(self.dtype()),
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: (self.offset() * self.dtype().size()) as u64,
        };
        let managed =
            DlManagedTensor { tensor, context: std::ptr::null_mut(), deleter: Some(give_up) };
        let (shape, strides) = (numbers(self.shape()), numbers(self.strides()));
        let exported = Box::new(Exported { managed, _tensor: self.clone(), shape, strides });
        let exported = NonNull::from(Box::leak(exported));
        // SAFETY: the box was just given away and has no other handle; `give_up` takes it back.
        let managed = unsafe {
            let all = &mut *exported.as_ptr();
            all.managed.tensor.shape = all.shape.as_mut_ptr();
            all.managed.tensor.strides = all.strides.as_mut_ptr();
            all.managed.context = exported.as_ptr().cast();
            NonNull::from(&mut (*exported.as_ptr()).managed)
        };
        Ok(DlPack(managed))
    }

    /// A tensor over memory of another library, on the place where that memory is. Its deleter is
    /// called when the last tensor over it is dropped, or at once if this fails.
    ///
    /// # Safety
    /// The structure says the truth, and nobody writes the memory while tensors read it, nor reads it
    /// while they write it.
    ///
    /// # Errors
    /// Another device than the place's; elements that there are none of here; negative strides;
    /// memory that is not aligned to its elements; too many axes.
    pub unsafe fn from_dlpack(place: &Place, pack: DlPack) -> Result<Self> {
        let tensor = *pack.tensor();
        let dtype = DType::ALL.into_iter().find(|dtype| code_of(*dtype) == tensor.dtype);
        let unknown = || place.failed(ComputeError::NotSupported("this type of DLPack"));
        let dtype = dtype.ok_or_else(unknown)?;
        if device_of(place) != Some(tensor.device) {
            let right =
                format!("device {} of DLPack's kind {}", tensor.device.number, tensor.device.kind);
            return Err(TensorError::Device { left: place.name().into(), right });
        }
        let (shape, strides) = pack.axes()?;
        let layout = Layout { shape, strides, offset: 0 };
        if shape.contains(&0) {
            return Self::empty(place, &shape, dtype);
        }
        let too_large = || TensorError::TooLarge { shape: shape.to_vec() };
        let elements = layout.reach().and_then(|far| far.checked_add(1)).ok_or_else(too_large)?;
        let bytes = elements.checked_mul(dtype.size()).ok_or_else(too_large)? as u64;
        let address = Address(tensor.data as u64 + tensor.byte_offset);
        if !address.0.is_multiple_of(dtype.size() as u64) || address.0 == 0 {
            return Err(place.failed(ComputeError::NotSupported("memory that is not aligned")));
        }
        let memory = Region { address, bytes };
        let foreign = if tensor.device.kind == HOST {
            // SAFETY: so many bytes stand there and nobody else uses them, as the caller promises.
            let lent = unsafe { lend(place, memory, pack) };
            lent.map_err(|error| place.failed(error))?
        } else {
            Foreign::Device(Box::new(pack))
        };
        let storage = Storage::of_foreign(place, memory, foreign)?;
        Self::over(Arc::new(storage), layout, dtype, false)
    }
}

/// Foreign memory becomes memory that the host's place can claim.
unsafe fn lend(place: &Place, memory: Region, pack: DlPack) -> Result<Foreign, ComputeError> {
    let missing = ComputeError::NotSupported("foreign memory");
    let host = place.compute().host_memory().ok_or(missing.clone())?;
    let base = NonNull::new(memory.address.0 as *mut u8).ok_or(missing)?;
    // SAFETY: the caller's promise.
    if !unsafe { host.lend(base, memory.bytes as usize, Box::new(pack)) } {
        return Err(ComputeError::Unknown(memory.address));
    }
    Ok(Foreign::Host(host, memory))
}

/// What DLPack calls a place; `None`: it has no memory, or none that others can reach.
fn device_of(place: &Place) -> Option<DlDevice> {
    if !place.has_values() {
        return None;
    }
    let name = place.name();
    if let Some(number) = name.strip_prefix("cuda:") {
        return Some(DlDevice { kind: CUDA, number: number.parse().ok()? });
    }
    let kind = if place.is_page_locked() { PAGE_LOCKED } else { HOST };
    Some(DlDevice { kind, number: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::SimConfig;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_tensor_goes_to_another_place_and_back_without_a_copy() -> Result<()> {
        let (here, there) = (Place::host(), Place::host());
        let tensor = Tensor::arange(&here, 0i32, 24, 1)?.view(&[4, 6])?;
        let view = tensor.slice(1, 1.., 2)?.transpose(0, 1)?;
        let (address, pack) = (tensor.storage().address(), view.to_dlpack()?);
        assert_eq!((pack.tensor().data as u64, pack.tensor().byte_offset), (address.0, 4));
        drop((tensor, view));
        // SAFETY: nobody else uses it.
        let taken = unsafe { Tensor::from_dlpack(&there, pack) }?;
        assert_eq!(taken.storage().address().0, address.0 + 4);
        assert_eq!(taken.strides(), [2, 6]);
        assert_eq!(taken.to_vec::<i32>()?, [1, 7, 13, 19, 3, 9, 15, 21, 5, 11, 17, 23]);
        assert_eq!(here.allocator().memory_allocated(), 512, "it still holds the storage");
        taken.fill_(9)?;
        drop(taken);
        assert_eq!(here.allocator().memory_allocated(), 0);
        assert_eq!(there.allocator().memory_allocated(), 0);
        Ok(())
    }

    static DELETED: AtomicUsize = AtomicUsize::new(0);

    /// A producer of the test's own.
    struct Theirs {
        managed: DlManagedTensor,
        numbers: Vec<f64>,
        shape: [i64; 2],
        strides: [i64; 2],
    }

    unsafe extern "C" fn deleter(managed: *mut DlManagedTensor) {
        DELETED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the box of `theirs`, taken back once.
        drop(unsafe { Box::from_raw((*managed).context.cast::<Theirs>()) });
    }

    fn theirs(spoil: impl FnOnce(&mut Theirs)) -> DlPack {
        let null = std::ptr::null_mut();
        let dtype = DlDataType { code: 2, bits: 64, lanes: 1 };
        let device = DlDevice { kind: HOST, number: 0 };
        let tensor = DlTensor {
            data: null,
            device,
            ndim: 2,
            dtype,
            shape: null.cast(),
            strides: null.cast(),
            byte_offset: 0,
        };
        let managed = DlManagedTensor { tensor, context: null, deleter: Some(deleter) };
        let numbers = (0..6).map(f64::from).collect();
        let all = Box::leak(Box::new(Theirs { managed, numbers, shape: [2, 3], strides: [3, 1] }));
        all.managed.tensor.data = all.numbers.as_mut_ptr().cast();
        all.managed.tensor.shape = all.shape.as_mut_ptr();
        spoil(all);
        all.managed.context = std::ptr::from_mut(all).cast();
        // SAFETY: a managed tensor that nobody else has.
        unsafe { DlPack::from_raw(&raw mut all.managed) }.expect("not null")
    }

    #[test]
    fn foreign_memory_is_used_as_it_is_and_given_up_once() -> Result<()> {
        let host = Place::host();
        let take = |pack| {
            // SAFETY: made by `theirs`, for this.
            unsafe { Tensor::from_dlpack(&host, pack) }
        };
        let taken = take(theirs(|_| {}))?;
        assert_eq!(taken.to_vec::<f64>()?, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let column = taken.select(1, 2)?;
        drop(taken);
        assert_eq!((DELETED.load(Ordering::Relaxed), column.to_vec::<f64>()?), (0, vec![2.0, 5.0]));
        drop(column);
        assert_eq!(DELETED.load(Ordering::Relaxed), 1);
        let spoiled: [fn(&mut Theirs); 6] = [
            |all| all.managed.tensor.device.kind = CUDA,
            |all| all.managed.tensor.dtype.lanes = 4,
            |all| all.managed.tensor.dtype.code = 5,
            |all| all.managed.tensor.ndim = 9,
            |all| all.managed.tensor.byte_offset = 3,
            |all| {
                all.strides[0] = -3;
                all.managed.tensor.strides = all.strides.as_mut_ptr();
            },
        ];
        for (number, spoil) in spoiled.into_iter().enumerate() {
            assert!(take(theirs(spoil)).is_err(), "{number}");
            assert_eq!(DELETED.load(Ordering::Relaxed), number + 2, "given up though refused");
        }
        let empty = take(theirs(|all| all.shape[0] = 0))?;
        assert_eq!((empty.shape(), empty.elements()), (&[0, 3][..], 0));
        let sim = Place::sim(SimConfig::default());
        assert!(Tensor::zeros(&sim, &[3], DType::F32)?.to_dlpack().is_err(), "no memory there");
        Ok(())
    }
}
