//! Table: the driver's functions, each looked up once and by name (invariant **D4**).
//!
//! Asked by the loader, which fills it, and by the wrappers, which call it. Never knows what a call
//! is for. A function can be called only through a table, and a table exists only after every
//! function in it was found, so nothing is called before its load succeeded.
//!
//! Codes stay plain integers: a newer driver may return one that no list of today has. Structures
//! are those of the driver's interface since CUDA 11; later versions only fill reserved bytes.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::Library;

use super::error::CudaError;

/// A context, a stream, an event, a pool: the driver's handle.
pub(super) type Handle = *mut c_void;

/// Where memory lies.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Location {
    /// 1: a device.
    pub kind: c_int,
    /// The device's number.
    pub id: c_int,
}

/// What memory `cuMemCreate` makes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct AllocationProp {
    /// 1: pinned, the only kind there is.
    pub kind: c_int,
    /// 0: not exported to other processes.
    pub handle_types: c_int,
    pub location: Location,
    pub windows: *mut c_void,
    /// Compression, RDMA, usage, reserved.
    pub flags: [u8; 8],
}

/// Who may access mapped memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessDesc {
    pub location: Location,
    /// 3: read and write.
    pub flags: c_int,
}

/// What a memory pool is made of.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolProps {
    pub kind: c_int,
    pub handle_types: c_int,
    pub location: Location,
    pub windows: *mut c_void,
    pub reserved: [u64; 8],
}

/// A table of functions, filled from a library.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $($field:ident = $symbol:literal ($($arg:ty),*);)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name {
            $(pub $field: unsafe extern "C" fn($($arg),*) -> c_int,)*
        }

        impl $name {
            /// Looks every function up; the error names the first that is missing.
            pub(super) fn find(library: &Library, path: &str) -> Result<Self, CudaError> {
                Ok(Self { $($field: {
                    // SAFETY: the signature is the driver interface's for this name; the library is never unloaded.
                    let found = unsafe { library.get(concat!($symbol, "\0").as_bytes()) };
                    *found.map_err(|_| CudaError::MissingSymbol {
                        name: $symbol,
                        library: path.to_string(),
                    })?
                },)* })
            }
        }
    };
}

table! {
    /// What every driver must have.
    Core {
        init = "cuInit" (c_uint);
        driver_version = "cuDriverGetVersion" (*mut c_int);
        error_name = "cuGetErrorName" (c_int, *mut *const c_char);
        device_count = "cuDeviceGetCount" (*mut c_int);
        device_get = "cuDeviceGet" (*mut c_int, c_int);
        device_name = "cuDeviceGetName" (*mut c_char, c_int, c_int);
        device_attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
        primary_retain = "cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
        primary_release = "cuDevicePrimaryCtxRelease_v2" (c_int);
        context_get = "cuCtxGetCurrent" (*mut Handle);
        context_push = "cuCtxPushCurrent_v2" (Handle);
        context_pop = "cuCtxPopCurrent_v2" (*mut Handle);
        context_synchronize = "cuCtxSynchronize" ();
        exchange_capture_mode = "cuThreadExchangeStreamCaptureMode" (*mut c_int);
        mem_info = "cuMemGetInfo_v2" (*mut usize, *mut usize);
        mem_alloc = "cuMemAlloc_v2" (*mut u64, usize);
        mem_free = "cuMemFree_v2" (u64);
        pointer_attribute = "cuPointerGetAttribute" (*mut c_void, c_int, u64);
        stream_create = "cuStreamCreate" (*mut Handle, c_uint);
        stream_destroy = "cuStreamDestroy_v2" (Handle);
        stream_synchronize = "cuStreamSynchronize" (Handle);
        stream_wait_event = "cuStreamWaitEvent" (Handle, Handle, c_uint);
        stream_is_capturing = "cuStreamIsCapturing" (Handle, *mut c_int);
        event_create = "cuEventCreate" (*mut Handle, c_uint);
        event_record = "cuEventRecord" (Handle, Handle);
        event_query = "cuEventQuery" (Handle);
        event_synchronize = "cuEventSynchronize" (Handle);
        event_destroy = "cuEventDestroy_v2" (Handle);
    }
}

table! {
    /// Address ranges with pages.
    Paging {
        address_reserve = "cuMemAddressReserve" (*mut u64, usize, usize, u64, u64);
        address_free = "cuMemAddressFree" (u64, usize);
        create = "cuMemCreate" (*mut u64, usize, *const AllocationProp, u64);
        release = "cuMemRelease" (u64);
        map = "cuMemMap" (u64, usize, usize, u64, u64);
        unmap = "cuMemUnmap" (u64, usize);
        set_access = "cuMemSetAccess" (u64, usize, *const AccessDesc, usize);
        granularity = "cuMemGetAllocationGranularity" (*mut usize, *const AllocationProp, c_int);
    }
}

table! {
    /// The driver's own pools.
    Pooling {
        create = "cuMemPoolCreate" (*mut Handle, *const PoolProps);
        destroy = "cuMemPoolDestroy" (Handle);
        set_attribute = "cuMemPoolSetAttribute" (Handle, c_int, *mut c_void);
        set_access = "cuMemPoolSetAccess" (Handle, *const AccessDesc, usize);
        alloc = "cuMemAllocFromPoolAsync" (*mut u64, usize, Handle, Handle);
        alloc_default = "cuMemAllocAsync" (*mut u64, usize, Handle);
        free = "cuMemFreeAsync" (u64, Handle);
    }
}

table! {
    /// One device's memory for another's kernels.
    Peering {
        can_access = "cuDeviceCanAccessPeer" (*mut c_int, c_int, c_int);
        enable = "cuCtxEnablePeerAccess" (Handle, c_uint);
    }
}

table! {
    /// Work that the host decides about.
    Launching {
        host = "cuLaunchHostFunc" (Handle, unsafe extern "C" fn(*mut c_void), *mut c_void);
        module_load = "cuModuleLoadData" (*mut Handle, *const c_void);
        module_unload = "cuModuleUnload" (Handle);
        function = "cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
        kernel = "cuLaunchKernel" (
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle,
            *mut *mut c_void, *mut *mut c_void
        );
    }
}

table! {
    /// Page-locked memory of the host, and copies from and to it.
    Moving {
        host_alloc = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
        host_free = "cuMemFreeHost" (*mut c_void);
        to_device = "cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, Handle);
        to_host = "cuMemcpyDtoHAsync_v2" (*mut c_void, u64, usize, Handle);
    }
}
