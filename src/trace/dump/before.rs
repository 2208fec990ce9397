//! Before: what was in force when a ring of records begins.
//!
//! Owns where the first whole step of the program begins, and the events that stand for a limit,
//! captures and pools without users from before it. Asked by [`super`]. Never knows a heap.

use super::super::recording::{Event, Kind};
use super::limit;
use crate::vocab::{Change, Class, Dump, PoolId, Record, Target, What};

/// Whether a record is of something that the program said.
pub(super) const fn is_input(record: &Record) -> bool {
    match record.what {
        What::Asked { .. }
        | What::Used { .. }
        | What::Trim { .. }
        | What::Retire(_)
        | What::Capture { .. }
        | What::Limit { .. }
        | What::Changed(Change::FreeRequested { .. }) => true,
        What::RangeGiven { .. }
        | What::RangeTaken { .. }
        | What::Passed { .. }
        | What::Changed(_) => false,
    }
}

/// The first record to be told: what is left of a step whose beginning is lost belongs to the state
/// before.
pub(super) fn first_whole(dump: &Dump) -> usize {
    if dump.lost == 0 {
        return 0;
    }
    let served = |record: &Record| matches!(record.what, What::Changed(Change::Allocated { .. }));
    let whole = |record: &Record| is_input(record) || served(record);
    dump.records.iter().position(whole).unwrap_or(dump.records.len())
}

/// Events for what was in force before the first record.
pub(super) fn events(dump: &Dump) -> Vec<Event> {
    let time_us = dump.records.first().map_or(0, |record| record.time_us);
    let event = |kind| Event { time_us, ..Event::new(kind) };
    let mut events = Vec::new();
    if dump.records.is_empty() {
        return events;
    }
    let changed = dump.records.iter().find_map(|record| match record.what {
        What::Limit { before, .. } => Some(before),
        _ => None,
    });
    let first = changed.unwrap_or(dump.limit_bytes);
    if first.is_some() {
        events.push(limit(first, event(Kind::Limit)));
    }
    for pool in retired(dump) {
        events.push(Event { pool, ..event(Kind::Retire) });
    }
    let captures = |wanted| {
        let records = dump.records.iter();
        let turns = records.filter_map(|record| match record.what {
            What::Capture { begins } => Some(begins),
            _ => None,
        });
        turns.filter(|&begins| begins == wanted).count() as u64
    };
    let open = (dump.captures + captures(false)).saturating_sub(captures(true));
    events.extend((0..open).map(|_| event(Kind::CaptureBegin)));
    events
}

/// Private pools that had no users before the first record.
fn retired(dump: &Dump) -> Vec<PoolId> {
    let (mut before, mut since) = (Vec::new(), Vec::new());
    for record in &dump.records {
        match record.what {
            What::Trim { target: Target::Pool(pool), retired: true } if !since.contains(&pool) => {
                before.push(pool);
            }
            What::Retire(pool) => since.push(pool),
            _ => {}
        }
    }
    before.extend(dump.retired.iter().filter(|pool| !since.contains(pool)));
    before.sort_unstable();
    before.dedup();
    before
}

/// The event of an address range, with whose it is: the pages that were mapped in it tell. A range from
/// before that never had one while the ring lasts is no more than a number: of its end there is no
/// event.
pub(super) fn of_range(dump: &Dump, place: usize, event: Event) -> Option<Event> {
    let range = event.address..event.address + event.bytes;
    let tells = |record: &Record| match record.what {
        What::Changed(
            Change::Mapped { base, class, stream, pool, .. }
            | Change::Unmapped { base, class, stream, pool, .. },
        ) if range.contains(&base.0) => Some((class, stream, pool)),
        What::RangeGiven { base, .. } | What::RangeTaken { base, .. }
            if base.0 == event.address =>
        {
            Some((Class::Large, event.stream, event.pool))
        }
        _ => None,
    };
    let found = match event.kind {
        Kind::RangeFree => dump.records[first_whole(dump)..place].iter().rev().find_map(tells)?,
        _ => {
            let later = dump.records[place + 1..].iter().find_map(tells);
            later.unwrap_or((Class::Large, event.stream, event.pool))
        }
    };
    let (class, stream, pool) = found;
    Some(Event { class: Some(class), stream, pool, ..event })
}
