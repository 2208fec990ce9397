//! Pickled snapshots: walks the values of a pickle and gives them to the schema.
//!
//! Trace entries never become dicts: each turns into an event as soon as its items are there.

use blockyard::trace::{Event, Kind, NO_ALLOCATION, Recording};

use super::arena::{Arena, Value};
use super::error::Wrong;
use super::pickle::{Fold, run};
use super::pytorch::{Builder, not_a_snapshot};
use super::tree::{Pickled, Tree};

/// Reads a pickled snapshot.
pub(crate) fn read(input: &[u8]) -> Result<Recording, Wrong> {
    // Sized from the file, so that a long trace is not copied as it grows; the rest is given back.
    let rows = Vec::with_capacity(input.len() / 64);
    let mut entries = Entries { builder: Builder::new("pytorch-pickle"), rows };
    let (arena, value) = run(input, &mut entries)?;
    let Entries { mut builder, mut rows } = entries;
    rows.shrink_to_fit();
    walk(&mut builder, Pickled { arena: &arena, value }, rows)?;
    drop(arena);
    builder.finish()
}

/// Turns dicts that have an `action` into events.
struct Entries {
    builder: Builder,
    rows: Vec<Event>,
}

impl Fold for Entries {
    #[inline]
    fn is_row(&self, arena: &Arena<'_>, items: &[Value]) -> bool {
        let is_action = |key: Value| Pickled { arena, value: key }.bytes() == Some(b"action");
        items.chunks_exact(2).any(|pair| is_action(pair[0]))
    }

    fn new_row(&mut self) -> Result<u32, Wrong> {
        let row = u32::try_from(self.rows.len()).ok().filter(|&row| row != NO_ALLOCATION);
        let row = row.ok_or_else(|| Wrong::new("more than 4,294,967,294 entries", "fewer"))?;
        self.rows.push(Event::new(Kind::Other));
        Ok(row)
    }

    fn fill(&mut self, arena: &Arena<'_>, row: u32, items: &[Value]) -> Result<(), Wrong> {
        let Some(event) = self.rows.get_mut(row as usize) else { return Ok(()) };
        for pair in items.chunks_exact(2) {
            let key = Pickled { arena, value: pair[0] };
            if let Some(key) = key.bytes() {
                self.builder.entry(event, key, Pickled { arena, value: pair[1] })?;
            }
        }
        self.builder.end_entry(event);
        Ok(())
    }
}

fn walk(builder: &mut Builder, top: Pickled<'_, '_>, rows: Vec<Event>) -> Result<(), Wrong> {
    if let Some(segments) = top.items() {
        builder.only_segments();
        return segments.into_iter().try_for_each(|segment| builder.segment(segment));
    }
    let (segments, traces) = (top.get("segments"), top.get("device_traces"));
    if segments.is_none() && traces.is_none() {
        return Err(not_a_snapshot(top));
    }
    if let Some(traces) = traces {
        self::traces(builder, traces, rows).map_err(|wrong| top.at(wrong))?;
    }
    if let Some(segments) = segments {
        for segment in segments.list("segments").map_err(|wrong| top.at(wrong))? {
            builder.segment(segment).map_err(|wrong| top.at(wrong))?;
        }
    }
    if let Some(settings) = top.get("allocator_settings").filter(|settings| !settings.is_none()) {
        builder.settings(settings).map_err(|wrong| top.at(wrong))?;
    }
    if let Some(flags) = top.get("trace_alloc_overflowed") {
        builder.overflow(flags);
    }
    Ok(())
}

/// Gives each device its entries. They lie in the order of the file, so from the last device to
/// the first each takes the end of the rows, without a copy where there is one device.
fn traces(
    builder: &mut Builder,
    value: Pickled<'_, '_>,
    mut rows: Vec<Event>,
) -> Result<(), Wrong> {
    let lists = value.list("device_traces")?;
    let run_of = |list: Pickled<'_, '_>| list.identity().and_then(|node| list.arena.rows(node));
    let in_runs: Option<Vec<usize>> = lists
        .iter()
        .filter(|list| list.items().is_none_or(|items| !items.is_empty()))
        .map(|&list| run_of(list).map(|run| run.start as usize + run.length as usize))
        .collect();
    if let Some(ends) = in_runs {
        rows.truncate(ends.into_iter().max().unwrap_or(0)); // what follows is of no device
    }
    for (device, list) in lists.into_iter().enumerate().rev() {
        let Some(run) = run_of(list) else {
            let events = scattered(builder, list, &rows).map_err(|wrong| value.at(wrong))?;
            builder.trace(device, events)?;
            continue;
        };
        builder.claim(list, "a device's trace")?;
        let (start, end) = (run.start as usize, run.start as usize + run.length as usize);
        let events = if end > rows.len() {
            return Err(list.at(Wrong::new("a trace entry in two traces", "separate entries")));
        } else if end == rows.len() && start == 0 {
            std::mem::take(&mut rows)
        } else if end == rows.len() {
            rows.split_off(start)
        } else {
            rows[start..end].to_vec()
        };
        builder.trace(device, events)?;
    }
    Ok(())
}

/// A trace whose entries do not lie one after another.
fn scattered(
    builder: &mut Builder,
    list: Pickled<'_, '_>,
    rows: &[Event],
) -> Result<Vec<Event>, Wrong> {
    let items = list.list("a device's trace")?;
    if !items.is_empty() {
        builder.claim(list, "a device's trace")?;
    }
    let entry = |item: Pickled<'_, '_>| {
        let row = list.arena.row_of(item.value).and_then(|row| rows.get(row as usize));
        let wrong = || item.wrong("a trace entry", "a dict with an action");
        row.copied().ok_or_else(|| list.at(wrong()))
    };
    items.into_iter().map(entry).collect()
}
