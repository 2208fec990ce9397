//! Clock: the time of records, read seldom and with no lock held.
//!
//! A reading costs more than a record. So the recorder, under the lock, only copies the last
//! reading and says when the next is due; whoever asks for a block next reads the clock before it
//! takes the lock. A record's time is that of the last reading before it: never later than the
//! record, and never earlier than the record before the last reading.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::sync::{AtomicU64, AtomicUsize, Ordering};

#[derive(Debug)]
pub(crate) struct Clock {
    /// Records between two readings, a power of two; 0: never read.
    every: u64,
    began: Instant,
    /// Microseconds from 1970 to `began`.
    epoch_us: u64,
    last_us: AtomicU64,
    due: AtomicUsize,
}

impl Clock {
    /// Reads once in `every` records, rounded up to a power of two; 0: never.
    pub(crate) fn new(every: u64) -> Self {
        let every = if every == 0 { 0 } else { every.min(1 << 32).next_power_of_two() };
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            every,
            began: Instant::now(),
            epoch_us: since_1970.as_micros() as u64,
            last_us: AtomicU64::new(0),
            due: AtomicUsize::new(usize::from(every > 0)),
        }
    }

    pub(crate) const fn runs(&self) -> bool {
        self.every > 0
    }

    /// The time of record `sequence`. Called under the lock.
    #[inline]
    pub(crate) fn time_us(&self, sequence: u64) -> u64 {
        if self.every == 0 {
            return 0;
        }
        if (sequence + 1) & (self.every - 1) == 0 {
            self.due.store(1, Ordering::Relaxed);
        }
        self.last_us.load(Ordering::Relaxed)
    }

    /// Reads the clock if that is due. Called with no lock held. Returns whether it did.
    pub(crate) fn tick(&self) -> bool {
        if self.due.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.due.store(0, Ordering::Relaxed);
        let now = self.epoch_us + self.began.elapsed().as_micros() as u64;
        self.last_us.fetch_max(now, Ordering::Relaxed);
        true
    }
}
