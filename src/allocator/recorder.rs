//! Recorder: the last requests and what became of them, always at hand.
//!
//! Owns a bounded ring of fixed-size records. Each has a sequence number instead of a time; the
//! oldest are lost first, and how many is known. Read while the program goes on: the ring is copied
//! under the lock, and told afterwards.

use super::tags::TagId;
use crate::vocab::{Change, Observe, PoolId, StreamId, Ticket};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A block was asked for. `bytes`: the client's size; `address`: 0.
    Asked {
        /// The stream.
        stream: StreamId,
        /// The pool.
        pool: PoolId,
        /// Whose it is.
        tag: TagId,
    },
    /// A change of the core.
    Changed(Change),
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which record it is, ever: the first has 0.
    pub sequence: u64,
    /// The request, where it is one's.
    pub ticket: Ticket,
    /// The client's size, of a request.
    pub bytes: u64,
    /// What happened.
    pub what: What,
}

/// The ring.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    ring: Vec<Record>,
    capacity: usize,
    next: u64,
}

impl Recorder {
    /// Keeps the last `capacity` records; 0 keeps none.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { ring: Vec::with_capacity(capacity), capacity, next: 0 }
    }

    #[inline]
    pub(crate) const fn listens(&self) -> bool {
        self.capacity > 0
    }

    #[inline]
    pub(crate) fn asked(
        &mut self,
        ticket: Ticket,
        bytes: u64,
        stream: StreamId,
        pool: PoolId,
        tag: TagId,
    ) {
        if self.capacity > 0 {
            self.keep(ticket, bytes, What::Asked { stream, pool, tag });
        }
    }

    #[inline]
    fn keep(&mut self, ticket: Ticket, bytes: u64, what: What) {
        let record = Record { sequence: self.next, ticket, bytes, what };
        if self.ring.len() < self.capacity {
            self.ring.push(record);
        } else {
            let place = (self.next % self.capacity as u64) as usize;
            self.ring[place] = record;
        }
        self.next += 1;
    }

    /// The records, oldest first, and how many were lost before them.
    pub(crate) fn copy(&self) -> (Vec<Record>, u64) {
        let lost = self.next - self.ring.len() as u64;
        let turn = if lost == 0 { 0 } else { (self.next % self.capacity as u64) as usize };
        let mut records = Vec::with_capacity(self.ring.len());
        records.extend_from_slice(&self.ring[turn..]);
        records.extend_from_slice(&self.ring[..turn]);
        (records, lost)
    }
}

impl Observe for Recorder {
    #[inline]
    fn observe(&mut self, change: Change) {
        let ticket = match change {
            Change::Allocated { ticket, .. }
            | Change::FreeRequested { ticket, .. }
            | Change::FreeCompleted { ticket, .. } => ticket,
            Change::InactiveSplit { .. } => return,
            _ => Ticket(0),
        };
        self.keep(ticket, 0, What::Changed(change));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn j1_the_ring_loses_the_oldest_and_says_how_many() {
        let mut recorder = Recorder::new(3);
        for number in 0..5 {
            recorder.asked(Ticket(number), 1, StreamId(0), PoolId(0), TagId::NONE);
        }
        let (records, lost) = recorder.copy();
        assert_eq!(lost, 2);
        let kept: Vec<u64> = records.iter().map(|record| record.ticket.0).collect();
        assert_eq!(kept, [2, 3, 4]);
        assert!(records.windows(2).all(|pair| pair[0].sequence + 1 == pair[1].sequence));
        assert_eq!(Recorder::new(0).copy(), (Vec::new(), 0));
    }
}
