//! Kernels: what `kernels/*.cu` compute, on the calling thread of a CPU.
//!
//! Owns the table that the host build exports, as Rust values. A launch runs all threads of the
//! grid, one after another, and returns when they are done. Asked by tests and by whoever plays a
//! CUDA driver; knows neither streams nor memory.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_uint, c_void};

/// Runs a launch; the arguments stand as for `cuLaunchKernel`.
type Launch =
    unsafe extern "C" fn(*mut *mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint);

/// A row as C declares it, in `kernels/host_shim.h`.
#[repr(C)]
struct Row {
    name: *const c_char,
    launch: Launch,
    n_args: c_uint,
    arg_sizes: *const c_uint,
}

unsafe extern "C" {
    fn blockyard_host_kernels() -> *const Row;
}

/// One kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// As in the PTX.
    pub name: &'static str,
    /// Bytes of each parameter.
    pub arg_sizes: &'static [u32],
    launch: Launch,
}

impl Kernel {
    /// Runs the kernel once for each thread of the grid.
    ///
    /// # Safety
    /// `args` points at one pointer for each of `arg_sizes`, each to that many readable bytes that
    /// mean what `docs/kernels.md` says; memory that they name may be accessed as it says.
    pub unsafe fn launch(&self, args: *mut *mut c_void, grid: [u32; 3], block: [u32; 3]) {
        let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
        // SAFETY: the caller's promise is what the kernel expects.
        unsafe { (self.launch)(args, gx, gy, gz, bx, by, bz, 0) }
    }
}

/// Every kernel of the host build, in the order of its table.
pub fn kernels() -> Vec<Kernel> {
    // SAFETY: it takes nothing and returns a static table.
    let table = unsafe { blockyard_host_kernels() };
    let mut found = Vec::new();
    loop {
        // SAFETY: the table goes on to a row with a null name, and no such row was met yet.
        let row = unsafe { &*table.add(found.len()) };
        if row.name.is_null() {
            return found;
        }
        // SAFETY: a name is a string constant.
        let name = unsafe { CStr::from_ptr(row.name) };
        // SAFETY: `n_args` constants stand there.
        let arg_sizes = unsafe { core::slice::from_raw_parts(row.arg_sizes, row.n_args as usize) };
        found.push(Kernel {
            name: name.to_str().unwrap_or_default(),
            arg_sizes,
            launch: row.launch,
        });
    }
}

/// The kernel of this name.
pub fn kernel(name: &str) -> Option<Kernel> {
    kernels().into_iter().find(|kernel| kernel.name == name)
}
