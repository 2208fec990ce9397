//! Sync: the one door to locks, atomics and reference counts: the real ones, or loom's.
//!
//! Every other file of this room takes them from here, so that the same code runs under the model checker.
//!
//! [`Lock`] guards the core for the length of one `apply`, some tens of nanoseconds: it spins, and yields the processor when
//! that takes longer. [`Gate`] is where parked requests wait for as long as a driver call takes.

#[cfg(not(loom))]
mod real {
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use std::cell::Cell;

    /// Spins a while, then gives the processor away: with more threads than cores the holder may be waiting
    /// for one.
    pub struct SpinThenYield;

    /// Looks between two yields.
    const SPINS: u32 = 64;

    impl spin::relax::RelaxStrategy for SpinThenYield {
        fn relax() {
            thread_local! { static LOOKS: Cell<u32> = const { Cell::new(0) }; }
            let looks = LOOKS.with(|looks| looks.replace(looks.get().wrapping_add(1)));
            if looks % SPINS == SPINS - 1 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// A lock for very short holds. Unlocking is one plain store.
    pub(crate) struct Lock<T>(spin::mutex::SpinMutex<T, SpinThenYield>);

    impl<T> Lock<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(spin::mutex::SpinMutex::new(value))
        }

        #[inline]
        pub(crate) fn lock(&self) -> impl std::ops::DerefMut<Target = T> + '_ {
            self.0.lock()
        }

        #[inline]
        pub(crate) fn try_lock(&self) -> Option<impl std::ops::DerefMut<Target = T> + '_> {
            self.0.try_lock()
        }
    }

    /// Where threads wait for a number to rise.
    #[derive(Default)]
    pub(crate) struct Gate {
        level: parking_lot::Mutex<u64>,
        raised: parking_lot::Condvar,
    }

    impl Gate {
        /// Raises the number to `level` at least, and wakes everyone.
        pub(crate) fn raise(&self, level: u64) {
            let mut now = self.level.lock();
            *now = level.max(*now);
            self.raised.notify_all();
        }

        /// Waits until the number is above `seen`.
        pub(crate) fn wait_above(&self, seen: u64) {
            let mut now = self.level.lock();
            while *now <= seen {
                self.raised.wait(&mut now);
            }
        }
    }

    /// A lock for long holds: driver calls.
    pub(crate) struct Slow<T>(parking_lot::Mutex<T>);

    impl<T> Slow<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(parking_lot::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> impl std::ops::DerefMut<Target = T> + '_ {
            self.0.lock()
        }
    }
}

#[cfg(loom)]
mod modelled {
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    fn sound<T>(result: Result<T, std::sync::PoisonError<T>>) -> T {
        result.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) struct Lock<T>(loom::sync::Mutex<T>);

    impl<T> Lock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> impl std::ops::DerefMut<Target = T> + '_ {
            sound(self.0.lock())
        }

        pub(crate) fn try_lock(&self) -> Option<impl std::ops::DerefMut<Target = T> + '_> {
            self.0.try_lock().ok()
        }
    }

    pub(crate) struct Gate {
        level: loom::sync::Mutex<u64>,
        raised: loom::sync::Condvar,
    }

    impl Default for Gate {
        fn default() -> Self {
            Self { level: loom::sync::Mutex::new(0), raised: loom::sync::Condvar::new() }
        }
    }

    impl Gate {
        pub(crate) fn raise(&self, level: u64) {
            let mut now = sound(self.level.lock());
            *now = level.max(*now);
            self.raised.notify_all();
        }

        pub(crate) fn wait_above(&self, seen: u64) {
            let mut now = sound(self.level.lock());
            while *now <= seen {
                now = sound(self.raised.wait(now));
            }
        }
    }

    pub(crate) use Lock as Slow;
}

#[cfg(loom)]
pub(crate) use modelled::*;
#[cfg(not(loom))]
pub(crate) use real::*;
