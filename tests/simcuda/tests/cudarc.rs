//! Cudarc: its own safe interface, unmodified, on the simulated driver.
//!
//! The library is loaded by its path first; cudarc's later look for `libcuda.so.1` finds it by the
//! name that it carries. One test, because it is one process-wide driver.
#![allow(missing_docs, clippy::unwrap_used, unsafe_code)]

use blockyard_simcuda::control::{Control, library_path};
use cudarc::driver::{CudaContext, DriverError, LaunchConfig, PushKernelArg, result, sys};
use cudarc::nvrtc::Ptx;
use std::ffi::c_void;

const PTX: &str = ".version 7.0\n.target sm_70\n.address_size 64\n\
    .visible .entry scale(.param .u64 p, .param .u32 n, .param .f32 by)\n{ ret; }\n\
    .visible .entry foreign(.param .u64 p)\n{ ret; }\n";

/// The host build of `scale`: `p[i] *= by`.
extern "C" fn scale(
    arguments: *mut *mut c_void,
    _gx: u32,
    _gy: u32,
    _gz: u32,
    _bx: u32,
    _by: u32,
    _bz: u32,
    _shared: u32,
) {
    // SAFETY: three arguments of these types, as registered, and `n` floats at the address.
    unsafe {
        let at = |place: usize| *arguments.add(place);
        let (p, n, by) = (*at(0).cast::<*mut f32>(), *at(1).cast::<u32>(), *at(2).cast::<f32>());
        std::slice::from_raw_parts_mut(p, n as usize).iter_mut().for_each(|x| *x *= by);
    }
}

fn register(path: &std::path::Path) {
    type Register = unsafe extern "C" fn(*const u8, *const c_void, u32, *const u32) -> i32;
    // SAFETY: the function has this type; the library stays loaded through `Control`.
    unsafe {
        let library = libloading::Library::new(path).unwrap();
        let register = library.get::<Register>(b"simcuda_register_kernel").unwrap();
        let sizes = [8, 4, 4];
        assert_eq!(
            register(c"scale".as_ptr().cast(), scale as *const c_void, 3, sizes.as_ptr()),
            0
        );
    }
}

#[test]
fn cudarc_runs_unmodified() {
    let path = library_path().unwrap();
    let control = Control::load(&path).unwrap();
    register(&path);
    safe_interface(&control).unwrap();
    pools(&control).unwrap();
    vmm(&control).unwrap();
    failures(&control).unwrap();
    for kind in ["allocations", "handles", "mappings", "reservations", "streams", "events", "bytes"]
    {
        assert_eq!(control.alive(kind), Some(0), "{kind}");
    }
    assert_eq!(control.alive("contexts"), Some(0));
    assert_eq!(control.alive("left_allocations"), Some(0));
    assert!(control.violations().is_empty(), "{:?}", control.violations());
    assert!(
        control.report().starts_with("{\"simcuda\":{\"allocations\":0,"),
        "{}",
        control.report()
    );
    assert!(control.calls("cuMemAllocAsync").unwrap() > 0);
}

fn safe_interface(control: &Control) -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    assert_eq!(context.name()?, "simulated GPU");
    assert_eq!(context.compute_capability()?, (8, 0));
    let (stream, other) = (context.default_stream(), context.new_stream()?);
    let numbers: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let mut a = stream.clone_htod(&numbers)?;
    let b = stream.clone_dtod(&a)?;
    assert_eq!(other.clone_dtoh(&b)?, numbers, "ordered by cudarc's events");
    let module = context.load_module(Ptx::from_src(PTX))?;
    let function = module.load_function("scale")?;
    let mut launch = stream.launch_builder(&function);
    let (n, by) = (1000_u32, 2.5_f32);
    launch.arg(&mut a).arg(&n).arg(&by);
    // SAFETY: the arguments are those of the kernel.
    unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }?;
    let scaled: Vec<f32> = numbers.iter().map(|x| x * 2.5).collect();
    assert_eq!(stream.clone_dtoh(&a)?, scaled);
    assert_eq!(control.launches("scale"), 1);
    let foreign = module.load_function("foreign")?;
    // SAFETY: it has no host build and does nothing.
    unsafe { stream.launch_builder(&foreign).arg(&mut a).launch(LaunchConfig::for_num_elems(1)) }?;
    assert_eq!(
        module.load_function("missing").err().map(|e| e.0),
        Some(sys::CUresult::CUDA_ERROR_NOT_FOUND)
    );
    stream.memset_zeros(&mut a)?;
    assert_eq!(stream.clone_dtoh(&a)?, vec![0.0; 1000]);
    assert_eq!(control.alive("skipped_kernels"), Some(1));

    let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
    let (from, to) = (context.new_event(timed)?, context.new_event(timed)?);
    from.record(&stream)?;
    stream.memset_zeros(&mut a)?;
    to.record(&stream)?;
    to.synchronize()?;
    assert!(from.elapsed_ms(&to)? >= 0.0);
    // SAFETY: written before it is read.
    let mut pinned = unsafe { context.alloc_pinned::<u8>(64) }?;
    pinned.as_mut_slice()?.fill(3);
    let c = other.clone_htod(&pinned)?;
    assert_eq!(other.clone_dtoh(&c)?, [3; 64]);
    let (free, total) = context.mem_get_info()?;
    assert!(free < total);
    context.synchronize()
}

fn pools(control: &Control) -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    // SAFETY: a device that exists.
    let pool = unsafe { result::device::get_default_mem_pool(context.cu_device()) }?;
    drop(stream.alloc_zeros::<u8>(1 << 20)?);
    stream.synchronize()?;
    assert_eq!(control.used(0), Some(0), "given back at the synchronisation");
    // SAFETY: the attribute is a u64.
    unsafe {
        let threshold = sys::CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let mut bytes = u64::MAX;
        sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut bytes).cast()).result()?;
    }
    drop(stream.alloc_zeros::<u8>(1 << 20)?);
    stream.synchronize()?;
    assert_eq!(control.used(0), Some(1 << 20), "kept");
    // SAFETY: a pool of this device.
    unsafe { sys::cuMemPoolTrimTo(pool, 0) }.result()?;
    assert_eq!(control.used(0), Some(0));
    Ok(())
}

fn vmm(control: &Control) -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let page = 2 << 20;
    // SAFETY: zeros are a value of each field, and mean nothing special.
    let mut how: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    how.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    how.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    // SAFETY: pointers to locals; the address is used while something is mapped there.
    unsafe {
        let (mut at, mut handle) = (0, 0);
        sys::cuMemAddressReserve(&mut at, 2 * page, 0, 0, 0).result()?;
        sys::cuMemCreate(&mut handle, page, &how, 0).result()?;
        sys::cuMemMap(at, page, 0, handle, 0).result()?;
        let rights = sys::CUmemAccessDesc {
            location: how.location,
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        sys::cuMemSetAccess(at, page, &rights, 1).result()?;
        assert_eq!(control.used(0), Some(page as u64));
        let mut out = [0_u8; 4];
        result::memset_d8_async(at, 5, 4, stream.cu_stream())?;
        result::memcpy_dtoh_async(&mut out, at, stream.cu_stream())?;
        stream.synchronize()?;
        assert_eq!(out, [5; 4]);
        sys::cuMemUnmap(at, page).result()?;
        sys::cuMemRelease(handle).result()?;
        sys::cuMemAddressFree(at, 2 * page).result()?;
    }
    Ok(())
}

fn failures(control: &Control) -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let full = sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    // SAFETY: never read.
    assert_eq!(unsafe { stream.alloc::<u8>(1 << 40) }.err().map(|e| e.0), Some(full));
    // SAFETY: likewise.
    assert_eq!(unsafe { result::malloc_sync(1 << 40) }.err().map(|e| e.0), Some(full));
    assert!(control.fail("cuMemAlloc", 1, 2, false));
    // SAFETY: likewise.
    assert_eq!(unsafe { result::malloc_sync(8) }.err().map(|e| e.0), Some(full));
    assert!(!control.fail("cuNothing", 1, 2, false));
    // SAFETY: freed at once.
    unsafe { result::free_sync(result::malloc_sync(8)?) }
}
