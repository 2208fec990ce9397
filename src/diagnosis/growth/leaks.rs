//! Leaks: what survives the boundaries of steps, whose it is, and whether it grows.
//!
//! Owns the series of each owner at step boundaries and the verdict over them. It knows two kinds of survivors that
//! people take for leaks: workspaces that a library keeps for each handle, and state that the first step creates.
//! Asked by the tools. A verdict needs three boundaries; without them it says that it cannot tell.

use std::collections::{HashMap, HashSet};

use crate::diagnosis::growth::steps::{Ask, Steps, steps};
use crate::diagnosis::growth::{Pattern, Trend, trend};
use crate::diagnosis::owners::{Block, By, Held, Living, Owners, Passage};
use crate::lab::{Player, ReplayError, Setup};
use crate::policy::presets;
use crate::trace::{DeviceTrace, Event, Kind, Recording, StackId};

/// What BLAS libraries keep for each handle and stream: 8 MiB, and 8 MiB + 128 KiB.
pub const WORKSPACES: [u64; 2] = [8 << 20, 8_519_680];

/// More workspaces of one owner than this are no workspaces.
const WORKSPACES_AT_MOST: u64 = 16;

/// What an owner's survivors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// They grow with the steps.
    Leak,
    /// They grow, too unevenly or too seldom to be sure.
    Suspect,
    /// They go up and down.
    Changing,
    /// They came in the first steps and have stayed the same since.
    FirstStepState,
    /// What a library keeps for a handle.
    LibraryWorkspace,
    /// They were there before the first boundary and have not changed.
    Steady,
    /// There are too few boundaries to tell.
    Unknown,
}

impl Class {
    /// A word for programs and for people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Leak => "leak",
            Self::Suspect => "suspect",
            Self::Changing => "changing",
            Self::FirstStepState => "first-step state",
            Self::LibraryWorkspace => "library workspace",
            Self::Steady => "steady",
            Self::Unknown => "unknown",
        }
    }
}

/// An owner with blocks that live at the last boundary.
#[derive(Clone, Debug, PartialEq)]
pub struct Survivor {
    /// The owner.
    pub owner: String,
    /// What its survivors are.
    pub class: Class,
    /// What it holds at the last boundary.
    pub held: Held,
    /// What it held at the first.
    pub first_bytes: u64,
    /// Its series, read.
    pub trend: Trend,
}

/// What the whole comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Live bytes grow with the steps.
    Leak,
    /// Live bytes do not grow, but reserved memory does, as new sizes keep coming.
    NewSizeGrowth,
    /// Live bytes do not grow, but reserved memory does, without new sizes: fragmentation.
    CacheGrowth,
    /// Live bytes go up and come back.
    Sawtooth,
    /// Nothing grows.
    NoLeak,
    /// Too few boundaries.
    Unknown,
}

impl Verdict {
    /// A word for programs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Leak => "leak",
            Self::NewSizeGrowth => "new-size-growth",
            Self::CacheGrowth => "cache-growth",
            Self::Sawtooth => "sawtooth",
            Self::NoLeak => "no-leak",
            Self::Unknown => "unknown",
        }
    }
}

/// What survives.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaks {
    /// Where the boundaries are.
    pub steps: Steps,
    /// Live bytes at each boundary.
    pub live: Vec<u64>,
    /// Those, read.
    pub trend: Trend,
    /// Reserved bytes at each boundary: as recorded, else of a replay under PyTorch's rules with no limit.
    pub reserved: Vec<u64>,
    /// `reserved` is what the recording says.
    pub reserved_recorded: bool,
    /// Sizes (in units of 512 bytes) that a step requested first, from the first boundary on.
    pub new_sizes: Vec<u64>,
    /// Owners of what lives at the last boundary (without boundaries: at the end), leaks first.
    pub survivors: Vec<Survivor>,
    /// What it comes to.
    pub verdict: Verdict,
    /// Bytes a step that owners lose which do nothing but shrink.
    losses: f64,
}

/// What survives the boundaries of steps. O(entries + owners that change · boundaries).
///
/// # Errors
/// The recording has no record of reserved memory and cannot be replayed for it.
pub fn leaks(
    recording: &Recording,
    trace: &DeviceTrace,
    ask: &Ask,
    by: By,
) -> Result<Leaks, ReplayError> {
    let steps = steps(recording, trace, ask);
    let mut book = Book::new(recording, trace, by);
    book.read(trace, &steps.bounds);
    let trend = trend(&book.live);
    let survivors = book.survivors(steps.bounds.len());
    let losses = book.losses(steps.bounds.len());
    let reserved_recorded = has_segments(trace);
    let reserved = match steps.bounds.len() {
        0..3 => Vec::new(),
        _ if reserved_recorded => recorded_reserved(trace, &steps.bounds),
        _ => replayed_reserved(recording, trace, &steps.bounds)?,
    };
    let mut leaks = Leaks {
        steps,
        live: book.live,
        trend,
        reserved,
        reserved_recorded,
        new_sizes: book.new_sizes,
        survivors,
        verdict: Verdict::Unknown,
        losses,
    };
    leaks.verdict = leaks.judge();
    if leaks.verdict != Verdict::Leak {
        let leaking = leaks.survivors.iter_mut().filter(|survivor| survivor.class == Class::Leak);
        leaking.for_each(|survivor| survivor.class = Class::Suspect);
    }
    Ok(leaks)
}

/// From this confidence on a growth is called a leak.
const SURE: f64 = 0.5;

impl Leaks {
    /// By how much the live bytes grew from one boundary to the next.
    #[must_use]
    pub fn increments(&self) -> Vec<i128> {
        let pairs = self.live.windows(2);
        pairs.map(|pair| i128::from(pair[1]) - i128::from(pair[0])).collect()
    }

    fn judge(&self) -> Verdict {
        if self.live.len() < 3 {
            return Verdict::Unknown;
        }
        let leaking = |survivor: &Survivor| survivor.class == Class::Leak;
        let sure = self.trend.pattern.grows() && self.trend.confidence >= SURE;
        if sure || (self.survivors.iter().any(leaking) && !self.compensated()) {
            return Verdict::Leak;
        }
        if self.cache_rises() {
            let late = self.new_sizes.len() / 2;
            let coming = self.new_sizes[late..].iter().any(|&count| count > 0);
            return if coming { Verdict::NewSizeGrowth } else { Verdict::CacheGrowth };
        }
        match self.trend.pattern {
            Pattern::Sawtooth => Verdict::Sawtooth,
            _ => Verdict::NoLeak,
        }
    }

    /// What these owners gain others lose step by step: memory that moves. A total that merely swings hides a
    /// leak and takes nothing from it.
    fn compensated(&self) -> bool {
        let gained = |survivor: &Survivor| survivor.trend.slope.max(0.0);
        let leaking = self.survivors.iter().filter(|survivor| survivor.class == Class::Leak);
        let gain: f64 = leaking.map(gained).sum();
        self.losses > gain / 2.0
    }

    /// Reserved memory went up by more than a twentieth behind the first quarter, and has not come back.
    fn cache_rises(&self) -> bool {
        let early = (self.reserved.len() / 4).max(2);
        let Some((&last, &before)) = self.reserved.last().zip(self.reserved.get(early)) else {
            return false;
        };
        self.reserved.len() >= 6 && last > before + before / 20
    }
}

/// What every owner holds, as the entries go by.
struct Book<'a> {
    owners: Owners<'a>,
    living: Living,
    held: Vec<Held>,
    /// At which boundary an owner's holding became what, where it changed.
    series: Vec<Vec<(u32, Held)>>,
    dirty: Vec<u32>,
    is_dirty: Vec<bool>,
    /// Whether an owner's name speaks of a library's workspace.
    speaks: HashMap<u32, bool>,
    workspaces: HashMap<u32, u32>,
    live: Vec<u64>,
    sizes: HashSet<u64>,
    new_sizes: Vec<u64>,
}

impl<'a> Book<'a> {
    fn new(recording: &'a Recording, trace: &DeviceTrace, by: By) -> Self {
        let mut book = Self {
            owners: Owners::new(recording, by),
            living: Living::before(trace),
            held: Vec::new(),
            series: Vec::new(),
            dirty: Vec::new(),
            is_dirty: Vec::new(),
            speaks: HashMap::new(),
            workspaces: HashMap::new(),
            live: Vec::new(),
            sizes: HashSet::new(),
            new_sizes: Vec::new(),
        };
        let older: Vec<Block> = book.living.blocks().collect();
        older.into_iter().for_each(|block| book.count(block, true));
        book
    }

    fn read(&mut self, trace: &DeviceTrace, bounds: &[usize]) {
        let mut next = 0;
        for (index, event) in trace.events.iter().enumerate() {
            if bounds.get(next) == Some(&index) {
                self.boundary();
                next += 1;
            }
            self.entry(event);
        }
        while bounds.get(next) == Some(&trace.events.len()) {
            self.boundary();
            next += 1;
        }
        if bounds.is_empty() {
            self.settle(0);
        }
    }

    fn entry(&mut self, event: &Event) {
        match self.living.step(event) {
            Some(Passage::Born(block)) => {
                self.count(block, true);
                if self.sizes.insert(block.bytes.div_ceil(512))
                    && let Some(count) = self.new_sizes.last_mut()
                {
                    *count += 1;
                }
            }
            Some(Passage::Gone(block)) => self.count(block, false),
            None => {}
        }
    }

    fn count(&mut self, block: Block, born: bool) {
        let owner = self.owner(block);
        let place = owner as usize;
        if place >= self.held.len() {
            self.held.resize(place + 1, Held::default());
            self.series.resize(place + 1, Vec::new());
            self.is_dirty.resize(place + 1, false);
        }
        let held = &mut self.held[place];
        if born {
            held.bytes = held.bytes.saturating_add(block.bytes);
            held.blocks += 1;
        } else {
            held.bytes = held.bytes.saturating_sub(block.bytes);
            held.blocks = held.blocks.saturating_sub(1);
        }
        if !std::mem::replace(&mut self.is_dirty[place], true) {
            self.dirty.push(owner);
        }
    }

    /// The owner; of a block that is a library's workspace, that library's part of the owner.
    fn owner(&mut self, block: Block) -> u32 {
        let owner = self.owners.of(block);
        let name = self.owners.name(owner);
        let speaks = *self.speaks.entry(owner).or_insert_with(|| speaks_of_workspaces(name));
        let nameless = block.stack == StackId(0) && !block.older;
        let is_workspace = block.bytes == WORKSPACES[1]
            || (speaks && block.bytes >= 1 << 20)
            || (nameless && block.bytes == WORKSPACES[0]);
        if !is_workspace {
            return owner;
        }
        if let Some(&workspace) = self.workspaces.get(&owner) {
            return workspace;
        }
        let workspace = self.owners.number(format!("{name} {WORKSPACE_NAME}"));
        self.workspaces.insert(owner, workspace);
        workspace
    }

    fn boundary(&mut self) {
        let number = self.live.len() as u32;
        self.live.push(self.living.bytes());
        self.new_sizes.push(0);
        self.settle(number);
    }

    fn settle(&mut self, boundary: u32) {
        for owner in std::mem::take(&mut self.dirty) {
            let place = owner as usize;
            self.is_dirty[place] = false;
            let held = self.held[place];
            let series = &mut self.series[place];
            if series.last().map_or(Held::default(), |&(_, last)| last) != held {
                series.push((boundary, held));
            }
        }
    }

    /// Owners with bytes at the last boundary.
    fn survivors(&self, boundaries: usize) -> Vec<Survivor> {
        let standing = self.series.iter().enumerate();
        let standing =
            standing.filter(|(_, series)| series.last().is_some_and(|last| last.1.bytes > 0));
        let mut survivors: Vec<Survivor> =
            standing.map(|(owner, series)| self.survivor(owner, series, boundaries)).collect();
        survivors.sort_by(|a, b| {
            let growth = |s: &Survivor| if s.class <= Class::Suspect { s.trend.slope } else { 0.0 };
            let by_growth = growth(b).total_cmp(&growth(a));
            a.class.cmp(&b.class).then(by_growth).then(b.held.bytes.cmp(&a.held.bytes))
        });
        survivors
    }

    /// Bytes a step that owners lose which do nothing but shrink, those that are gone at the end among them.
    fn losses(&self, boundaries: usize) -> f64 {
        let shrinking = self.series.iter().filter(|series| !series.is_empty()).map(|series| {
            let trend = trend(&expand(series, boundaries.max(1)));
            if trend.pattern == Pattern::Shrinking { -trend.slope } else { 0.0 }
        });
        shrinking.map(|lost| lost.max(0.0)).sum()
    }

    fn survivor(&self, owner: usize, series: &[(u32, Held)], boundaries: usize) -> Survivor {
        let points = expand(series, boundaries.max(1));
        let trend = trend(&points);
        let held = series.last().map_or(Held::default(), |&(_, held)| held);
        let workspace = self.workspaces.values().any(|&workspace| workspace as usize == owner)
            && held.blocks <= WORKSPACES_AT_MOST;
        let class = match trend.pattern {
            pattern if pattern.grows() && trend.confidence >= SURE => Class::Leak,
            pattern if pattern.grows() => Class::Suspect,
            _ if workspace => Class::LibraryWorkspace,
            Pattern::TooShort => Class::Unknown,
            Pattern::Flat => Class::Steady,
            Pattern::FirstSteps | Pattern::Settled => Class::FirstStepState,
            _ => Class::Changing,
        };
        Survivor {
            owner: self.owners.name(owner as u32).to_string(),
            class,
            held,
            first_bytes: points[0],
            trend,
        }
    }
}

/// What an owner's library workspaces are called, behind its name.
pub const WORKSPACE_NAME: &str = "[library workspace]";

fn speaks_of_workspaces(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("cublas") || name.contains("blas handle") || name.contains("workspace")
}

/// Every boundary's value from those where it changed.
fn expand(series: &[(u32, Held)], boundaries: usize) -> Vec<u64> {
    let mut points = vec![0; boundaries];
    for (index, &(from, held)) in series.iter().enumerate() {
        let until = series.get(index + 1).map_or(boundaries, |next| next.0 as usize);
        points[from as usize..until].fill(held.bytes);
    }
    points
}

fn has_segments(trace: &DeviceTrace) -> bool {
    let memory = |event: &Event| matches!(event.kind, Kind::SegmentAlloc | Kind::SegmentMap);
    trace.events.iter().any(memory) || !trace.segments.is_empty()
}

/// Reserved bytes at the boundaries, walked backwards from the final segments.
fn recorded_reserved(trace: &DeviceTrace, bounds: &[usize]) -> Vec<u64> {
    let mut reserved: i128 = trace.segments.iter().map(|segment| i128::from(segment.bytes)).sum();
    let mut at = Vec::with_capacity(bounds.len());
    let mut bounds = bounds.iter().rev().copied().peekable();
    for index in (0..=trace.events.len()).rev() {
        while bounds.next_if_eq(&index).is_some() {
            at.push(u64::try_from(reserved).unwrap_or(0));
        }
        let Some(event) = index.checked_sub(1).map(|index| &trace.events[index]) else { break };
        match event.kind {
            Kind::SegmentAlloc | Kind::SegmentMap => reserved -= i128::from(event.bytes),
            Kind::SegmentFree | Kind::SegmentUnmap => reserved += i128::from(event.bytes),
            _ => {}
        }
    }
    at.reverse();
    at
}

/// Reserved bytes at the boundaries of a replay under PyTorch's rules on a device without limit.
fn replayed_reserved(
    recording: &Recording,
    trace: &DeviceTrace,
    bounds: &[usize],
) -> Result<Vec<u64>, ReplayError> {
    let setup = Setup::simulated(presets::pytorch(), None);
    let mut player = Player::new(recording, trace, setup, ())?;
    let (mut at, mut done) = (Vec::with_capacity(bounds.len()), 0);
    for &bound in bounds {
        player.run(bound - done)?;
        done = bound;
        at.push(player.stats().reserved_bytes());
    }
    Ok(at)
}

#[cfg(test)]
mod tests;
