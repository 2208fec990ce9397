//! Foreign library: an allocator's C functions, found by name in a shared library.
//!
//! Owns the loaded library. Asked by `bench`. The process it is loaded into was started for it: whatever the library
//! does to the process is what the check is about.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::path::Path;

use libloading::Library;

type Alloc = unsafe extern "C" fn(isize, c_int, *mut c_void) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void, isize, c_int, *mut c_void);
type Reset = unsafe extern "C" fn();

/// An allocator under test.
pub(super) struct Subject {
    alloc: Alloc,
    free: Free,
    reset: Option<Reset>,
    /// Keeps the functions where they are.
    _library: Library,
}

impl Subject {
    /// Loads the library and finds the functions.
    pub(super) fn open(
        path: &Path,
        alloc: &str,
        free: &str,
        reset: Option<&str>,
    ) -> Result<Self, String> {
        let name = path.display();
        // A bare name would be looked for in the loader's folders only.
        let path = &path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        // SAFETY: its initialisers run in a process that was started for that.
        let library = unsafe { Library::new(path) }.map_err(|error| format!("{name}: {error}"))?;
        Ok(Self {
            alloc: function(&library, path, alloc)?,
            free: function(&library, path, free)?,
            reset: reset.map(|symbol| function(&library, path, symbol)).transpose()?,
            _library: library,
        })
    }

    pub(super) fn alloc(&self, bytes: i64, device: i32, stream: u64) -> u64 {
        // SAFETY: the user says that the symbol has this type.
        unsafe { (self.alloc)(bytes as isize, device, pointer(stream)) }.addr() as u64
    }

    pub(super) fn free(&self, address: u64, bytes: i64, device: i32, stream: u64) {
        // SAFETY: the user says that the symbol has this type; the address is null or came from `alloc`.
        unsafe { (self.free)(pointer(address), bytes as isize, device, pointer(stream)) }
    }

    /// Whether there was one to call.
    pub(super) fn reset(&self) -> bool {
        // SAFETY: the user says that the symbol has this type.
        self.reset.map(|reset| unsafe { reset() }).is_some()
    }
}

fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn function<F: Copy>(library: &Library, path: &Path, symbol: &str) -> Result<F, String> {
    // SAFETY: nothing is called here; the types are those that the user promises.
    let found = unsafe { library.get::<F>(symbol) };
    let missing = |_| format!("{}: there is no symbol {symbol:?} in it", path.display());
    found.map(|function| *function).map_err(missing)
}

/// Writes into memory of the process.
pub(super) fn write(address: u64, bytes: &[u8]) {
    // SAFETY: the allocator handed these bytes out; if they are not there, that is the finding.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer(address).cast(), bytes.len()) }
}

/// Reads memory of the process.
pub(super) fn read(address: u64, bytes: &mut [u8]) {
    let from = pointer(address).cast_const().cast();
    // SAFETY: the allocator handed these bytes out; if they are not there, that is the finding.
    unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) }
}
