//! Bench: allocates and frees on behalf of a check, and sees what is wrong with any block.
//!
//! Owns the ranges that are live, and what was written into them. A block is entered after it was handed out and taken
//! from the list before it goes back, so two entries that share a byte were live at the same time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::foreign_driver::Driver;
use super::foreign_library::{self as library, Subject};
use super::log::Log;
use super::{Place, Plan};

/// Bytes at either end of a block that are written and read back.
const EDGE: u64 = 4096;

/// One page of host memory, at the least.
const PAGE: u64 = 4096;

/// A live block.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) stream: u64,
    ticket: u64,
    /// Whether it is among the live ranges: not if it overlaps one.
    entered: bool,
}

/// What a check works with.
pub(super) struct Bench {
    pub(super) plan: Plan,
    pub(super) log: Log,
    pub(super) driver: Option<Driver>,
    /// Handles of streams other than the default one.
    pub(super) streams: Vec<u64>,
    subject: Subject,
    live: Mutex<BTreeMap<u64, u64>>,
    tickets: AtomicU64,
}

impl Bench {
    /// Loads driver and library.
    pub(super) fn open(plan: Plan, log: Log) -> Result<Self, (Log, String)> {
        match Self::load(&plan) {
            Ok((driver, streams, subject)) => Ok(Self {
                plan,
                log,
                driver,
                streams,
                subject,
                live: Mutex::default(),
                tickets: AtomicU64::new(1),
            }),
            Err(text) => Err((log, text)),
        }
    }

    fn load(plan: &Plan) -> Result<(Option<Driver>, Vec<u64>, Subject), String> {
        let driver = (plan.place != Place::Host)
            .then(|| Driver::open(plan.driver.as_deref(), plan.device))
            .transpose()?;
        let name = driver.as_ref().map_or("", |driver| driver.name.as_str());
        if plan.place == Place::Sim && !name.starts_with("simulated") {
            return Err(format!("--device sim: the driver's device is {name:?}, no simulated one"));
        }
        let streams = match &driver {
            Some(driver) => (0..4).map(|_| driver.stream()).collect::<Result<_, _>>()?,
            // Nobody follows a handle where there is no driver; these are at least addresses.
            None => (0..4_u64).map(|n| std::ptr::from_mut(Box::leak(Box::new(n))) as u64).collect(),
        };
        let reset = plan.reset.as_deref();
        let subject = Subject::open(&plan.library, &plan.alloc, &plan.free, reset)?;
        Ok((driver, streams, subject))
    }

    /// To be called on each thread before it allocates.
    pub(super) fn attach(&self) {
        if let Some(Err(text)) = self.driver.as_ref().map(Driver::attach) {
            self.log.found("driver", || text);
        }
    }

    /// A request as it is. 0 is a null pointer.
    pub(super) fn alloc(&self, bytes: i64, stream: u64) -> u64 {
        self.subject.alloc(bytes, self.plan.device, stream)
    }

    /// A free as it is.
    pub(super) fn free(&self, address: u64, bytes: i64, stream: u64) {
        self.subject.free(address, bytes, self.plan.device, stream);
    }

    pub(super) fn reset(&self) -> bool {
        self.subject.reset()
    }

    /// A block with a pattern in it; a null pointer is a finding.
    pub(super) fn want(&self, bytes: u64, stream: u64) -> Option<Held> {
        let address = self.alloc(bytes as i64, stream);
        if address == 0 {
            self.log.found("refused", || format!("{bytes} bytes were refused"));
            return None;
        }
        if !address.is_multiple_of(self.plan.alignment) {
            let (is, asked) = (1_u64 << address.trailing_zeros(), self.plan.alignment);
            self.log.found("misaligned", || {
                format!("a block of {bytes} bytes is aligned to {is}, asked for {asked}")
            });
        }
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let entered = self.enter(address, bytes);
        let held = Held { address, bytes, stream, ticket, entered };
        self.write(&held);
        Some(held)
    }

    fn enter(&self, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let below = live.range(..end).next_back();
        if let Some((&other, &other_end)) = below.filter(|(_, other_end)| **other_end > address) {
            let (shared, size) = (end.min(other_end) - address.max(other), other_end - other);
            self.log.found("overlap", || {
                format!("a block of {bytes} bytes shares {shared} with a live one of {size}")
            });
            return false;
        }
        live.insert(address, end);
        true
    }

    /// Reads the pattern back and frees the block.
    pub(super) fn give(&self, held: Held) {
        self.verify(&held);
        self.give_unread(held);
    }

    /// Frees the block.
    pub(super) fn give_unread(&self, held: Held) {
        if held.entered {
            let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            live.remove(&held.address);
        }
        self.free(held.address, held.bytes as i64, held.stream);
    }

    /// Whether the block still has its pattern.
    pub(super) fn verify(&self, held: &Held) {
        for (offset, bytes) in edges(held.bytes) {
            let (expected, mut found) = (pattern(held.ticket, bytes), vec![0; bytes as usize]);
            let address = held.address + offset;
            match &self.driver {
                None => library::read(address, &mut found),
                Some(driver) => {
                    let read = driver.read(address, &mut found, held.stream);
                    self.driver_said(read, held);
                }
            }
            let wrong = expected.iter().zip(&found).filter(|(a, b)| a != b).count();
            if wrong > 0 {
                self.log.found("corrupted", || {
                    let at = if offset == 0 { "first" } else { "last" };
                    let size = held.bytes;
                    format!("{wrong} of the {at} {bytes} bytes of a block of {size} have changed")
                });
                return;
            }
        }
    }

    fn write(&self, held: &Held) {
        for (offset, bytes) in edges(held.bytes) {
            let (address, pattern) = (held.address + offset, pattern(held.ticket, bytes));
            match &self.driver {
                None => library::write(address, &pattern),
                Some(driver) => {
                    let written = driver.write(address, &pattern, held.stream);
                    self.driver_said(written, held);
                }
            }
        }
    }

    /// Makes each page of a block count as in use.
    pub(super) fn touch(&self, held: &Held) {
        let inside = EDGE..held.bytes.saturating_sub(EDGE);
        if self.driver.is_none() {
            inside.step_by(PAGE as usize).for_each(|at| library::write(held.address + at, &[1]));
        }
    }

    fn driver_said(&self, said: Result<(), String>, held: &Held) {
        if let Err(text) = said {
            let bytes = held.bytes;
            self.log.found("unreachable", || format!("a block of {bytes} bytes: {text}"));
        }
    }

    /// Bytes in use: on the device, or by this process; `None`: that is not known here.
    pub(super) fn used(&self) -> Option<u64> {
        match &self.driver {
            Some(driver) => driver.used().ok(),
            None => resident(),
        }
    }
}

/// Resident memory of this process.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Offset and length of what is written of a block: its two ends, or all of it.
fn edges(bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let head = bytes.min(EDGE);
    let tail = (bytes - head).min(EDGE);
    [(0, head), (bytes - tail, tail)].into_iter().filter(|(_, length)| *length > 0)
}

/// Bytes that no other block has.
fn pattern(ticket: u64, bytes: u64) -> Vec<u8> {
    let word = ticket.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    word.into_iter().cycle().take(bytes as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_block_do_not_share_a_byte() {
        let of = |bytes| edges(bytes).collect::<Vec<_>>();
        assert_eq!(of(1), [(0, 1)]);
        assert_eq!(of(EDGE), [(0, EDGE)]);
        assert_eq!(of(EDGE + 3), [(0, EDGE), (EDGE, 3)]);
        assert_eq!(of(10 * EDGE), [(0, EDGE), (9 * EDGE, EDGE)]);
        assert_ne!(pattern(1, 8), pattern(2, 8));
    }
}
