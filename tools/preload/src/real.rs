//! Real: the true functions behind those of this library, found at the first call.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// What CUDA calls answer when a function cannot be found.
pub(crate) const NOT_FOUND: c_int = 500;

/// Whose function it is.
#[derive(Clone, Copy)]
pub(crate) enum Library {
    /// `libcuda.so.1`
    Driver,
    /// `libcudart`, whichever the program has.
    Runtime,
}

/// A place for one function's address.
pub(crate) struct Real {
    name: &'static CStr,
    library: Library,
    found: AtomicPtr<c_void>,
}

impl Real {
    pub(crate) const fn new(library: Library, name: &'static CStr) -> Self {
        Self { name, library, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The address; null: there is none.
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.found.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        let found = find(self.library, self.name);
        self.found.store(found, Ordering::Release);
        found
    }
}

fn find(library: Library, name: &CStr) -> *mut c_void {
    let driver = c"libcuda.so.1".as_ptr();
    let from = |handle: *mut c_void| symbol(handle, name.as_ptr());
    // SAFETY: a name that ends with a zero. A driver that is loaded already is only found, and is not closed.
    let loaded = unsafe { libc::dlopen(driver, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    match library {
        Library::Driver if !loaded.is_null() => from(loaded),
        Library::Driver => {
            let next = from(libc::RTLD_NEXT);
            if !next.is_null() {
                return next;
            }
            // SAFETY: as above; the program wants a driver, or it would not have called.
            let handle = unsafe { libc::dlopen(driver, libc::RTLD_LAZY) };
            if handle.is_null() { handle } else { from(handle) }
        }
        Library::Runtime => from(libc::RTLD_NEXT),
    }
}

fn symbol(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: a handle of a library that stays open, or the word for those after this one.
    unsafe { libc::dlsym(handle, name) }
}

/// Functions that this library exports: each calls the true one, if there is one, between what is observed.
macro_rules! forward {
    ($library:ident: $(
        fn $name:ident($($argument:ident: $type:ty),*) $observed:expr;
    )*) => { $(
        /// As CUDA's.
        ///
        /// # Safety
        /// As CUDA's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> std::ffi::c_int {
            use $crate::real::{Library, NOT_FOUND, Real};
            static REAL: Real = Real::new(Library::$library, {
                const NAME: &str = concat!(stringify!($name), "\0");
                match std::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                }
            });
            let address = REAL.address();
            if address.is_null() {
                return NOT_FOUND;
            }
            let call = move || {
                // SAFETY: the symbol of this name has this type; the arguments are the caller's.
                unsafe {
                    let real: unsafe extern "C" fn($($type),*) -> std::ffi::c_int =
                        std::mem::transmute(address);
                    real($($argument),*)
                }
            };
            let observed: fn(&dyn Fn() -> std::ffi::c_int, ($($type,)*)) -> std::ffi::c_int =
                $observed;
            observed(&call, ($($argument,)*))
        }
    )* };
}
pub(crate) use forward;
