//! Recorder: the last requests and what became of them, always at hand.
//!
//! Owns a bounded ring of fixed-size records. Each has a sequence number, which is its order, and a
//! coarse time that was read outside the lock. The oldest are lost first, and how many is known.
//! What a program asked for is a record besides what became of it, and so is what the driver said of
//! fences and ranges: a replay has to guess at nothing.
//! Read while the program goes on: the ring is copied under the lock, and told afterwards. Never
//! knows a file format: `trace` writes what is copied.

use std::collections::BTreeMap;

use super::clock::Clock;
use super::sync::Arc;
use crate::heap::Heap;
use crate::vocab::{
    Address, Answer, Change, Input, Observe, Origin, PoolId, Record, Serial, StreamId, Target,
    Ticket, Want, What,
};

/// This capacity keeps everything, in memory that grows.
const EVERYTHING: usize = usize::MAX;

/// How many records there is room for from the start.
const AT_ONCE: usize = 1 << 16;

/// The ring.
#[derive(Debug)]
pub(crate) struct Recorder {
    ring: Vec<Record>,
    capacity: usize,
    next: u64,
    clock: Arc<Clock>,
    /// Segments and ranges by where they start: which it is, counted from 0.
    orders: BTreeMap<u64, u64>,
    next_order: u64,
    captures: u64,
}

impl Recorder {
    /// Keeps the last `capacity` records; 0 keeps none, `usize::MAX` all.
    pub(crate) fn new(capacity: usize, clock: Arc<Clock>) -> Self {
        let room = if capacity == EVERYTHING { AT_ONCE } else { capacity };
        Self {
            ring: Vec::with_capacity(room),
            capacity,
            next: 0,
            clock,
            orders: BTreeMap::new(),
            next_order: 0,
            captures: 0,
        }
    }

    /// Room for what a copy will hold, and what comes until it is made.
    pub(crate) const fn room(&self) -> usize {
        if self.capacity == EVERYTHING {
            self.ring.len() + self.ring.len() / 8 + 64
        } else {
            self.capacity
        }
    }

    /// An empty one of another capacity, that goes by the same clock.
    pub(crate) fn renewed(&self, capacity: usize) -> Self {
        Self::new(capacity, Arc::clone(&self.clock))
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
        Origin { tag, stack }: Origin,
    ) {
        if self.capacity > 0 {
            self.keep(ticket, bytes, What::Asked { stream, pool, tag, stack });
        }
    }

    /// What the program said, other than a request or a free, before the core hears of it.
    pub(crate) fn told(&mut self, input: &Input, heap: &Heap) {
        if !self.listens() {
            return;
        }
        let what = match *input {
            Input::Use { block, stream } => match heap.live(block) {
                Some((address, _)) => What::Used { address, stream },
                None => return,
            },
            Input::Trim { target, .. } => {
                let retired = matches!(target, Target::Pool(pool) if heap.is_retired(pool));
                What::Trim { target, retired }
            }
            Input::Capture { begins, .. } => {
                let more = if begins { self.captures + 1 } else { self.captures.saturating_sub(1) };
                self.captures = more;
                What::Capture { begins }
            }
            Input::Limit { bytes } => What::Limit { before: heap.limit(), bytes },
            Input::Retire { pool } => What::Retire(pool),
            _ => return,
        };
        self.keep(Ticket(0), 0, what);
    }

    /// What the driver said that changes nothing by itself.
    pub(crate) fn answered(&mut self, ticket: Ticket, want: Want, answer: Answer) {
        if !self.listens() {
            return;
        }
        let (order, what) = match (want, answer) {
            (Want::ReserveRange { bytes, .. }, Answer::Granted { base })
            | (Want::ReserveRange { .. }, Answer::GrantedRange { base, bytes }) => {
                self.begins(base);
                (0, What::RangeGiven { base, bytes })
            }
            (Want::ReleaseRange { base, bytes }, Answer::Released) => {
                (self.ends(base), What::RangeTaken { base, bytes })
            }
            (
                Want::Poll { stream, newest: Serial(newest) }
                | Want::Wait { stream, serial: Serial(newest) },
                Answer::Passed { through },
            ) => (0, What::Passed { stream, behind: newest.saturating_sub(through.0) }),
            _ => return,
        };
        self.keep(ticket, order, what);
    }

    fn begins(&mut self, base: Address) {
        self.orders.insert(base.0, self.next_order);
        self.next_order += 1;
    }

    fn ends(&mut self, base: Address) -> u64 {
        self.orders.remove(&base.0).unwrap_or_default()
    }

    /// How many captures are under way.
    pub(crate) const fn captures(&self) -> u64 {
        self.captures
    }

    #[inline]
    fn keep(&mut self, ticket: Ticket, bytes: u64, what: What) {
        let time_us = self.clock.time_us(self.next);
        let record = Record { sequence: self.next, time_us, ticket, bytes, what };
        if self.ring.len() < self.capacity {
            self.ring.push(record);
        } else {
            let place = (self.next % self.capacity as u64) as usize;
            self.ring[place] = record;
        }
        self.next += 1;
    }

    /// Appends the records, oldest first. Returns how many were lost before them.
    pub(crate) fn copy_to(&self, records: &mut Vec<Record>) -> u64 {
        let lost = self.next - self.ring.len() as u64;
        let turn = if lost == 0 { 0 } else { (self.next % self.capacity as u64) as usize };
        records.extend_from_slice(&self.ring[turn..]);
        records.extend_from_slice(&self.ring[..turn]);
        lost
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
        let order = match change {
            Change::SegmentAllocated { base, .. } => {
                self.begins(base);
                0
            }
            Change::SegmentFreed { base, .. } => self.ends(base),
            _ => 0,
        };
        self.keep(ticket, order, What::Changed(change));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ring(capacity: usize) -> Recorder {
        Recorder::new(capacity, Arc::new(Clock::new(0)))
    }

    fn ask(recorder: &mut Recorder, number: u64) {
        recorder.asked(Ticket(number), 1, StreamId(0), PoolId(0), Origin::default());
    }

    #[test]
    fn j1_the_ring_loses_the_oldest_and_says_how_many() {
        let mut recorder = ring(3);
        (0..5).for_each(|number| ask(&mut recorder, number));
        let mut records = Vec::new();
        assert_eq!(recorder.copy_to(&mut records), 2);
        let kept: Vec<u64> = records.iter().map(|record| record.ticket.0).collect();
        assert_eq!(kept, [2, 3, 4]);
        assert!(records.windows(2).all(|pair| pair[0].sequence + 1 == pair[1].sequence));
        assert!(records.iter().all(|record| record.time_us == 0), "the clock is off");
        let mut none = Vec::new();
        assert_eq!((ring(0).copy_to(&mut none), none.len()), (0, 0));
    }

    #[test]
    fn j1_all_is_kept_where_all_is_asked_for() {
        let mut recorder = ring(EVERYTHING);
        (0..AT_ONCE as u64 + 10).for_each(|number| ask(&mut recorder, number));
        let mut records = Vec::new();
        assert_eq!(recorder.copy_to(&mut records), 0);
        assert_eq!(records.len(), AT_ONCE + 10);
        assert!(recorder.room() > records.len());
        assert_eq!(recorder.renewed(2).room(), 2);
    }

    #[test]
    fn the_clock_is_read_once_in_so_many_records_and_never_by_the_recorder() {
        let clock = Arc::new(Clock::new(2));
        let mut recorder = Recorder::new(8, Arc::clone(&clock));
        let mut readings = 0;
        for number in 0..6 {
            readings += u32::from(clock.tick());
            ask(&mut recorder, number);
        }
        let mut records = Vec::new();
        recorder.copy_to(&mut records);
        assert_eq!(readings, 3, "before records 0, 2 and 4");
        assert!(records.iter().all(|record| record.time_us > 1_600_000_000_000_000));
        assert!(records.windows(2).all(|pair| pair[0].time_us <= pair[1].time_us));
    }
}
