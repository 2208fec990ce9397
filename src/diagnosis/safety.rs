//! Safety: whether memory was handed out again before every stream that used it was done.
//!
//! Owns the rules: a block given back and not yet reusable must not be handed out; a use after the give-back, or
//! none where all its like have one, is a missing `record_stream`. Asked by the tools. It needs addresses to see
//! reuse, and recorded uses to see what is missing; it says which it had.

use std::collections::HashMap;

use crate::diagnosis::consistency::memory::Known;
use crate::diagnosis::consistency::{Finding, Log, Severity, Site};
use crate::trace::{DeviceTrace, Event, Kind, NO_ALLOCATION, Recording, StackId};
use crate::vocab::StreamId;

/// What a recording allows to be judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Blocks have addresses, so reuse can be seen.
    pub addresses: bool,
    /// It says when a block became reusable.
    pub completions: bool,
    /// It has uses by other streams (`record_stream`).
    pub uses: bool,
    /// Streams that occur.
    pub streams: usize,
}

impl Evidence {
    /// What is there to judge by. O(entries).
    #[must_use]
    pub fn of(trace: &DeviceTrace) -> Self {
        let mut evidence = Self::default();
        let mut streams = [false; 64];
        for event in &trace.events {
            match event.kind {
                Kind::Alloc => evidence.addresses |= event.address != 0,
                Kind::FreeCompleted => evidence.completions = true,
                Kind::Use => evidence.uses = true,
                _ => continue,
            }
            streams[event.stream.0.min(63) as usize] = true;
        }
        evidence.streams = streams.iter().filter(|&&seen| seen).count();
        evidence
    }

    /// In one sentence.
    #[must_use]
    pub fn words(self) -> &'static str {
        match (self.addresses, self.uses, self.streams > 1) {
            (false, false, _) => {
                "no addresses and no uses recorded: reuse and record_stream cannot be judged"
            }
            (false, true, _) => "no addresses recorded: only uses after a free can be judged",
            (true, false, true) => {
                "judged by addresses and completed frees; uses by other streams are not recorded"
            }
            (true, false, false) => "one stream; judged by addresses and completed frees",
            (true, true, _) => "judged by addresses, recorded uses and completed frees",
        }
    }
}

/// Every reuse before its fence, and every use that looks unrecorded. O(entries · log free blocks).
#[must_use]
pub fn check(recording: &Recording, trace: &DeviceTrace) -> Vec<Finding> {
    let evidence = Evidence::of(trace);
    let mut pass = Pass {
        log: Log::new(recording, trace),
        trace,
        blocks: vec![Used::default(); trace.allocations as usize],
        awaiting: Known::default(),
        past: Known::default(),
        places: HashMap::new(),
        several: evidence.streams > 1 || evidence.uses,
    };
    for (entry, event) in trace.events.iter().enumerate() {
        pass.entry(entry, event);
    }
    pass.habits();
    pass.log.into_findings()
}

/// Streams as bits; all above 62 share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Streams(u64);

impl Streams {
    fn one(stream: StreamId) -> Self {
        Self(1 << stream.0.min(63))
    }

    fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    fn first(self) -> Option<u32> {
        (self.0 != 0).then(|| self.0.trailing_zeros())
    }
}

/// What is known of a block, by allocation.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    birth: usize,
    own: Streams,
    users: Streams,
    last_use: Option<usize>,
    given_back: Option<usize>,
}

/// A block that was given back.
#[derive(Clone, Copy, Debug)]
struct Past {
    used: Option<Used>,
    freed: usize,
    /// Streams whose work may not be done.
    pending: Streams,
    /// Streams that used it besides its own, with no fence seen.
    users: Streams,
}

struct Pass<'a> {
    log: Log<'a>,
    trace: &'a DeviceTrace,
    blocks: Vec<Used>,
    /// Given back, not yet reusable.
    awaiting: Known<Past>,
    /// Reusable.
    past: Known<Past>,
    /// Blocks given back by place: with a use by another stream, without, and the first without.
    places: HashMap<StackId, Habit>,
    several: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Habit {
    with: u64,
    without: u64,
    stream: u32,
    first_without: Option<(usize, usize)>,
}

impl Pass<'_> {
    fn entry(&mut self, entry: usize, event: &Event) {
        let (start, end) = (event.address, event.address.saturating_add(event.bytes));
        match event.kind {
            Kind::Alloc => self.born(entry, event),
            Kind::Use => self.used(entry, event),
            Kind::Free | Kind::FreeRequested => self.given_back(entry, event),
            Kind::FreeCompleted => self.completed(entry, event),
            Kind::SegmentFree | Kind::SegmentUnmap => {
                let mut early = None;
                self.awaiting.cut(start, end, |past| early = Some(past));
                self.past.cut(start, end, |_| {});
                if let Some(past) = early {
                    self.log.add(Severity::Error, "released-early", Some(entry), |log| {
                        let text = "memory goes back to the driver while a stream may still use a block in it";
                        (text.to_string(), sites(log, &past, entry, "released"))
                    });
                }
            }
            _ => {}
        }
    }

    fn born(&mut self, entry: usize, event: &Event) {
        let own = Streams::one(event.stream);
        if let Some(used) = self.blocks.get_mut(event.allocation as usize) {
            *used = Used { birth: entry, own, ..Used::default() };
        }
        if event.address == 0 || event.bytes == 0 {
            return;
        }
        let (start, end) = (event.address, event.address + event.bytes);
        let mut early: Option<Past> = None;
        self.awaiting.cut(start, end, |past| early = Some(past));
        if let Some(past) = early {
            self.race(entry, event, &past, true);
        }
        if !self.several {
            return;
        }
        let mut unsafe_reuse = None;
        let mut crossing = None;
        self.past.cut(start, end, |past| {
            let left = past.pending.without(own);
            match (past.users.first(), left.first()) {
                (Some(_), Some(_)) => unsafe_reuse = Some(past),
                (None, Some(_)) => crossing = Some(past),
                _ => {}
            }
        });
        if let Some(past) = unsafe_reuse {
            self.race(entry, event, &past, false);
        }
        if let Some(past) = crossing {
            self.crossing(entry, event, &past);
        }
    }

    fn race(&mut self, entry: usize, event: &Event, past: &Past, waiting: bool) {
        let name = |number: u32| self.log.stream_name(number);
        let others = past.users.without(Streams::one(event.stream));
        let streams = match others.first().or_else(|| past.pending.first()) {
            Some(stream) => format!("stream {}", name(stream)),
            None => "a stream".to_string(),
        };
        let onto = name(event.stream.0);
        self.log.add(Severity::Error, "reuse-race", Some(entry), |log| {
            let seen = if waiting { "before the free was completed" } else { "with no completion seen" };
            let text = format!(
                "reuse race: memory at {:#x} is handed out on stream {onto} {seen}: {streams} may still use it",
                event.address
            );
            (text, sites(log, past, entry, "reused"))
        });
    }

    fn crossing(&mut self, entry: usize, event: &Event, past: &Past) {
        let from = past.pending.first().unwrap_or(0);
        let (from, onto) = (self.log.stream_name(from), self.log.stream_name(event.stream.0));
        self.log.add(Severity::Warning, "cross-stream-reuse", Some(entry), |log| {
            let text = format!(
                "memory at {:#x} passes from stream {from} to stream {onto} with no driver call between: safe only \
                 if the allocator made stream {onto} wait",
                event.address
            );
            (text, sites(log, past, entry, "reused"))
        });
    }

    fn used(&mut self, entry: usize, event: &Event) {
        let stream = event.stream;
        let Some(used) = self.blocks.get_mut(event.allocation as usize) else {
            self.log.add(Severity::Error, "use-of-unknown", Some(entry), |log| {
                let text = format!(
                    "stream {} uses something that is not allocated: record_stream came after the free, or \
                     the allocation is missing",
                    log.stream_name(stream.0)
                );
                (text, vec![log.site("use", entry, None)])
            });
            return;
        };
        if let Some(freed) = used.given_back {
            let used = *used;
            self.log.add(Severity::Error, "use-after-free", Some(entry), |log| {
                let text = format!(
                    "stream {} uses a block after it was given back: record_stream was missing when it was freed",
                    log.stream_name(stream.0)
                );
                let birth = Some(used.birth);
                let sites = vec![
                    log.site("alloc", used.birth, None),
                    log.site("free", freed, birth),
                    log.site("use", entry, birth),
                ];
                (text, sites)
            });
            return;
        }
        used.users = used.users.with(Streams::one(stream)).without(used.own);
        used.last_use = Some(entry);
    }

    fn given_back(&mut self, entry: usize, event: &Event) {
        let known = self.blocks.get_mut(event.allocation as usize);
        let known = known.map(|used| {
            used.given_back = used.given_back.or(Some(entry));
            *used
        });
        if let Some(used) = known {
            self.habit(entry, &used);
        }
        let (start, end, own) = self.extent(event, known.as_ref());
        let users = known.map_or(Streams::default(), |used| used.users);
        let past = Past { used: known, freed: entry, pending: own.with(users), users };
        if start == 0 {
            return;
        }
        if event.kind == Kind::FreeRequested {
            self.awaiting.put(start, end, past);
        } else if self.several {
            self.past.put(start, end, past);
        }
    }

    fn completed(&mut self, entry: usize, event: &Event) {
        let known = self.blocks.get_mut(event.allocation as usize);
        let known = known.map(|used| {
            used.given_back = used.given_back.or(Some(entry));
            *used
        });
        let (start, end, own) = self.extent(event, known.as_ref());
        // What was handed out early is another's now.
        let waited = self.awaiting.hit(start, start.saturating_add(1));
        let same = waited.is_some_and(|(at, past)| {
            at == start && past.used.map(|used| used.birth) == known.map(|used| used.birth)
        });
        if same {
            self.awaiting.cut(start, end, |_| {});
        }
        if self.several && start != 0 && (same || waited.is_none()) {
            let users = Streams::default();
            self.past.put(start, end, Past { used: known, freed: entry, pending: own, users });
        }
    }

    /// Where the block of a free lies, and its own stream.
    fn extent(&self, event: &Event, known: Option<&Used>) -> (u64, u64, Streams) {
        let (block, own) = match known.filter(|_| event.allocation != NO_ALLOCATION) {
            Some(used) => (&self.trace.events[used.birth], used.own),
            None => (event, Streams::one(event.stream)),
        };
        (block.address, block.address.saturating_add(block.bytes.max(1)), own)
    }

    fn habit(&mut self, entry: usize, used: &Used) {
        let stack = self.trace.events[used.birth].stack;
        if !self.several || stack == StackId(0) {
            return;
        }
        let habit = self.places.entry(stack).or_default();
        match used.users.first() {
            Some(stream) => (habit.with, habit.stream) = (habit.with + 1, stream),
            None => {
                habit.without += 1;
                habit.first_without = habit.first_without.or(Some((used.birth, entry)));
            }
        }
    }

    /// Places whose blocks are nearly always recorded on another stream, but not each time.
    fn habits(&mut self) {
        let mut odd: Vec<Habit> = self
            .places
            .values()
            .copied()
            .filter(|habit| habit.with >= 8 && habit.without > 0 && habit.without * 4 <= habit.with)
            .collect();
        odd.sort_by_key(|habit| habit.first_without);
        for habit in odd {
            let Some((birth, freed)) = habit.first_without else { continue };
            self.log.add(Severity::Warning, "record-stream-missing", Some(freed), |log| {
                let text = format!(
                    "{} of {} blocks from this place were used by stream {} before their free; {} were not: \
                     record_stream may be missing",
                    habit.with,
                    habit.with + habit.without,
                    log.stream_name(habit.stream),
                    habit.without
                );
                let sites = vec![log.site("alloc", birth, None), log.site("free", freed, Some(birth))];
                (text, sites)
            });
        }
    }
}

/// Birth, last use and free of what was there, and what happened then.
fn sites(log: &Log<'_>, past: &Past, entry: usize, what: &'static str) -> Vec<Site> {
    let birth = past.used.map(|used| used.birth);
    let mut sites = Vec::with_capacity(4);
    sites.extend(birth.map(|birth| log.site("alloc", birth, None)));
    let last_use = past.used.and_then(|used| used.last_use);
    sites.extend(last_use.map(|last| log.site("last use", last, birth)));
    sites.push(log.site("free", past.freed, birth));
    sites.push(log.site(what, entry, None));
    sites
}

#[cfg(test)]
mod tests;
