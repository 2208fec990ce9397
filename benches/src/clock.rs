//! Clock: the processor time of this thread, which neighbours on a shared machine do not lengthen much.
//!
//! Read where Linux keeps it; elsewhere it is the time on the wall.

use std::time::Instant;

/// A reading from which time is counted.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    processor: Option<u64>,
    wall: Instant,
}

impl Start {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self { processor: processor_nanos(), wall: Instant::now() }
    }

    /// Nanoseconds of this thread's processor time since then.
    #[must_use]
    pub fn nanos(self) -> f64 {
        let wall = self.wall.elapsed().as_nanos() as f64;
        match (self.processor, processor_nanos()) {
            (Some(start), Some(end)) => end.saturating_sub(start) as f64,
            _ => wall,
        }
    }
}

fn processor_nanos() -> Option<u64> {
    // The kernel brings the count up to date when the thread gives way.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}
