//! Error: from a result to a status, and the last error of each thread.
//!
//! Every function of the interface is a closure put through [`answer`]. **F1**: a panic inside becomes a status.
//! **F2**: the text of what failed is kept for the thread that asked.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::types::blockyard_status::{self, *};
use crate::allocator::{AllocError, FractionError, FreeError};
use crate::trace::TraceError;

/// What failed, and why.
#[derive(Debug)]
pub(super) struct Failure {
    pub status: blockyard_status,
    pub text: String,
}

impl Failure {
    pub(super) fn new(status: blockyard_status, text: impl Display) -> Self {
        Self { status, text: text.to_string() }
    }

    pub(super) fn argument(text: impl Display) -> Self {
        Self::new(BLOCKYARD_INVALID_ARGUMENT, text)
    }

    pub(super) fn null(name: &str) -> Self {
        Self::argument(format_args!("{name} is a null pointer"))
    }
}

impl From<AllocError> for Failure {
    fn from(error: AllocError) -> Self {
        let status = match error {
            AllocError::OutOfMemory(_) => BLOCKYARD_OUT_OF_MEMORY,
            AllocError::Driver(_) => BLOCKYARD_DRIVER,
        };
        Self::new(status, error)
    }
}

impl From<FreeError> for Failure {
    fn from(error: FreeError) -> Self {
        let status = match error {
            FreeError::UnknownAddress(_) => BLOCKYARD_UNKNOWN_POINTER,
            FreeError::WrongSize { .. } => BLOCKYARD_WRONG_SIZE,
        };
        Self::new(status, error)
    }
}

impl From<FractionError> for Failure {
    fn from(error: FractionError) -> Self {
        let status = match error {
            FractionError::OutOfRange => BLOCKYARD_INVALID_ARGUMENT,
            FractionError::UnknownDevice => BLOCKYARD_UNSUPPORTED,
        };
        Self::new(status, error)
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        Self::new(BLOCKYARD_IO, error)
    }
}

pub(super) type Outcome = Result<(), Failure>;

thread_local! {
    static LAST: RefCell<(blockyard_status, CString)> =
        RefCell::new((BLOCKYARD_OK, CString::default()));
}

/// Does it, keeps the error if there is one, and says which.
#[inline]
pub(super) fn answer(call: impl FnOnce() -> Outcome) -> blockyard_status {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => BLOCKYARD_OK,
        Ok(Err(failure)) => keep(failure),
        Err(panic) => keep(Failure::new(BLOCKYARD_INTERNAL, said(&*panic))),
    }
}

#[cold]
fn keep(Failure { status, text }: Failure) -> blockyard_status {
    // A thread that is ending has no last error any more; its status stays right.
    let _ = LAST.try_with(|last| {
        *last.borrow_mut() = (status, c_text(text));
    });
    status
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a defect of blockyard: {}", text.unwrap_or("a panic without a text"))
}

/// A text for C: without the zero bytes that would end it early.
pub(super) fn c_text(text: String) -> CString {
    let bytes: Vec<u8> = text.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

/// A text from C; `None` for a null pointer.
///
/// # Safety
/// Null, or the beginning of bytes that end with a zero and stay as they are during `'a`.
pub(super) unsafe fn text<'a>(
    pointer: *const c_char,
    name: &str,
) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller says.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Failure::argument(format_args!("{name} is not UTF-8")))
}

/// The same, where there must be one.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn required<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Failure> {
    // SAFETY: as the caller says.
    unsafe { text(pointer, name) }?.ok_or_else(|| Failure::null(name))
}

/// Where a result goes.
pub(super) fn place<'a, T>(out: Option<&'a mut T>, name: &str) -> Result<&'a mut T, Failure> {
    out.ok_or_else(|| Failure::null(name))
}

/// What this thread's last failed call came to; `BLOCKYARD_OK` if none has failed. Calls that succeed leave it alone.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_last_error() -> blockyard_status {
    LAST.try_with(|last| last.borrow().0).unwrap_or(BLOCKYARD_OK)
}

/// The text of this thread's last failed call, "" if none has failed. It belongs to the library and lives until the
/// thread's next failed call, or its end.
#[unsafe(no_mangle)]
pub extern "C" fn blockyard_last_error_text() -> *const c_char {
    LAST.try_with(|last| last.borrow().1.as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_a_panic_becomes_a_status_with_its_text() {
        assert_eq!(answer(|| panic!("planted")), BLOCKYARD_INTERNAL);
        assert_eq!(blockyard_last_error(), BLOCKYARD_INTERNAL);
        // SAFETY: the text of this thread, looked at before its next failure.
        let text = unsafe { CStr::from_ptr(blockyard_last_error_text()) };
        assert!(text.to_string_lossy().ends_with("planted"), "{text:?}");
    }

    #[test]
    fn f2_a_success_leaves_the_last_error_and_other_threads_have_their_own() {
        assert_eq!(answer(|| Err(Failure::null("out"))), BLOCKYARD_INVALID_ARGUMENT);
        assert_eq!(answer(|| Ok(())), BLOCKYARD_OK);
        assert_eq!(blockyard_last_error(), BLOCKYARD_INVALID_ARGUMENT);
        let elsewhere = std::thread::spawn(|| blockyard_last_error()).join().unwrap();
        assert_eq!(elsewhere, BLOCKYARD_OK);
        assert_eq!(c_text("a\0b".into()).as_bytes(), b"ab");
    }
}
