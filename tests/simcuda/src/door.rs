//! Door: what every entry point passes on its way in and out.
//!
//! Owns counts, costs, planned faults and the rules of admission: the driver must be ready, a
//! context current and sound, no host function running. No panic leaves through it. Asked by the
//! files of `api`; never knows what an entry point does.

use crate::code::{self, Code, Done};
use crate::faults::Plan;
use crate::{thread, world};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An entry point: its name, where it is, what it cost so far.
pub struct Entry {
    pub name: &'static str,
    pub address: *const (),
    pub calls: AtomicU64,
    pub refused: AtomicU64,
    pub cost: AtomicU64,
    pub plan: Plan,
}

// SAFETY: `address` is the address of code, which no thread changes; the rest is shared by design.
unsafe impl Sync for Entry {}

impl Entry {
    pub const fn new(name: &'static str, address: *const ()) -> Self {
        Self {
            name,
            address,
            calls: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            cost: AtomicU64::new(0),
            plan: Plan::new(),
        }
    }
}

/// What must hold for a call to be let in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Nothing.
    Free,
    /// The driver is initialised.
    Ready,
    /// The same, and the context, if one is current, is sound.
    Sound,
    /// A sound context is current.
    Context,
    /// The same, and no capture forbids what may be unsafe in one.
    Unsafe,
}

/// Where a call is made: the current context and its device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Here {
    pub context: u64,
    pub device: usize,
}

/// Whether costs pass on the clock only.
pub static VIRTUAL: AtomicBool = AtomicBool::new(false);
/// Nanoseconds that calls cost, spent or virtual.
pub static COST: AtomicU64 = AtomicU64::new(0);

/// Lets a call in, runs it, and brings its answer out.
pub fn enter(entry: &'static Entry, class: Class, body: impl FnOnce(&Here) -> Done) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(|| pass(entry, class, body)));
    let answer = match result.unwrap_or(Err(code::UNKNOWN)) {
        Ok(()) => 0,
        Err(Code(code)) => code,
    };
    entry.calls.fetch_add(1, Ordering::Relaxed);
    if answer != 0 {
        entry.refused.fetch_add(1, Ordering::Relaxed);
    }
    crate::report::trace(entry.name, answer);
    answer
}

fn pass(entry: &Entry, class: Class, body: impl FnOnce(&Here) -> Done) -> Done {
    crate::report::prepare();
    if class != Class::Free && thread::in_host_function() {
        return Err(code::NOT_PERMITTED);
    }
    spend(entry.cost.load(Ordering::Relaxed));
    if let Some(code) = entry.plan.strike() {
        if code::is_sticky(code) {
            world::lock().fail_current(Code(code), entry.name);
        }
        return Err(Code(code));
    }
    let here = match class {
        Class::Free => Here::default(),
        Class::Ready => world::lock().ready()?,
        Class::Sound => world::lock().sound()?,
        Class::Context => world::lock().here()?,
        Class::Unsafe => {
            let mut world = world::lock();
            let here = world.here()?;
            world.forbid_unsafe()?;
            here
        }
    };
    body(&here)
}

/// Lets `nanos` pass.
fn spend(nanos: u64) {
    if nanos == 0 {
        return;
    }
    COST.fetch_add(nanos, Ordering::Relaxed);
    if !VIRTUAL.load(Ordering::Relaxed) {
        let (start, whole) = (Instant::now(), Duration::from_nanos(nanos));
        while start.elapsed() < whole {
            std::hint::spin_loop();
        }
    }
}

/// A pointer of the caller's to write one value through. It is null or valid: that is C's promise.
#[repr(transparent)]
pub struct Out<T>(*mut T);

/// A pointer of the caller's to read from. It is null or valid: that is C's promise.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}
impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<T> {}

impl<T> Out<T> {
    /// Writes where the caller asked; a null pointer is an invalid value.
    pub fn set(self, value: T) -> Done {
        if self.0.is_null() {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: not null, so valid for a write by the promise of the C interface.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes where the caller asked, if they did.
    pub fn set_if_wanted(self, value: T) {
        let _ = self.set(value);
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Nowhere.
    pub fn none() -> Self {
        Self(std::ptr::null_mut())
    }

    /// A pointer that the caller wrote down as a number.
    pub fn at_address(address: u64) -> Self {
        Self(address as *mut T)
    }

    /// The same place, to read from.
    pub fn as_in(self) -> In<T> {
        In(self.0)
    }

    pub fn check(self) -> Done {
        if self.0.is_null() { Err(code::INVALID_VALUE) } else { Ok(()) }
    }

    /// Writes the `index`th of several values.
    pub fn set_at(self, index: usize, value: T) -> Done {
        Out(self.0.wrapping_add(if self.0.is_null() { 0 } else { index })).set(value)
    }

    /// The same place for another type.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

impl Out<u8> {
    /// Writes `text` and a zero into `room` bytes, cut where it does not fit.
    pub fn text(self, text: &str, room: usize) -> Done {
        let kept = text.len().min(room.checked_sub(1).ok_or(code::INVALID_VALUE)?);
        for (place, byte) in text.as_bytes()[..kept].iter().enumerate() {
            self.set_at(place, *byte)?;
        }
        self.set_at(kept, 0)
    }
}

impl<T: Copy> In<T> {
    /// Reads one value; a null pointer is an invalid value.
    pub fn get(self) -> Result<T, Code> {
        self.at(0)
    }

    /// Reads the `index`th of several values.
    pub fn at(self, index: usize) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: not null, so valid for reads of as many values as the call says.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }

    pub fn list(self, count: usize) -> Result<Vec<T>, Code> {
        (0..count).map(|index| self.at(index)).collect()
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Nowhere.
    pub fn none() -> Self {
        Self(std::ptr::null())
    }

    /// A pointer that the caller wrote down as a number.
    pub fn at_address(address: u64) -> Self {
        Self(address as *const T)
    }

    /// The same place for another type.
    pub fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }
}

impl In<u8> {
    /// A text that ends with a zero.
    pub fn text(self) -> Result<String, Code> {
        if self.0.is_null() {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: not null, so a text ended by a zero by the promise of the C interface.
        let text = unsafe { std::ffi::CStr::from_ptr(self.0.cast()) };
        Ok(text.to_string_lossy().into_owned())
    }
}

/// Defines entry points, and an [`Entry`] for each in `entries`.
macro_rules! exports {
    ($($(#[$doc:meta])* $class:ident($at:ident) fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($arg: $type),*) -> i32 {
                $crate::door::enter(&entries::$name, $crate::door::Class::$class, |$at| $body)
            }
        )*

        pub mod entries {
            use crate::door::Entry;
            $(pub static $name: Entry = Entry::new(stringify!($name), super::$name as *const ());)*
            pub static ALL: &[&Entry] = &[$(&$name),*];
        }
    };
}
pub(crate) use exports;
