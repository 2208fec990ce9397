//! Runs: driver entries between the requests of a recording, and what they were.
//!
//! A recording of PyTorch's lists driver calls and completed frees between the requests. They are gathered as the
//! [`Run`] before a request and say what its driver did; a run of releases that no request explains is the
//! program emptying its cache. Frees that completed in a run with releases completed because the ladder waited
//! for them, so they are not shown to the search before it.
//!
//! Releases before a growth are either: the recorded allocator may have been on its way to memory. The engine
//! that made the recording tells: it empties no cache for a request that it can serve. Another one may fit the
//! request where that one did not, so on a simulated device it is an emptied cache only where the recording's
//! device had room for the growth all along.

use super::player::{Player, STAND_IN};
use super::world::World;
use super::{ReplayError, Watch};
use crate::device::Deed;
use crate::trace::{DeviceTrace, Event, Kind};
use crate::vocab::{Input, PoolId, Serial, StreamId};

/// Driver entries and completed frees before a request.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub deeds: Vec<Deed>,
    pub completed: Vec<u32>,
    pub releases: usize,
    pub growths: usize,
    pub pools: Vec<PoolId>,
    /// Bytes of the growths, and by how many bytes the run changes what is reserved.
    pub grown: i128,
    pub change: i128,
}

impl Run {
    /// Whether memory came or went.
    pub(super) const fn moves(&self) -> bool {
        self.releases + self.growths > 0
    }

    /// A free that waits for a stand-in completes here. The stream that it stands for passed last; when that was
    /// asked before, the free was asked about in vain.
    pub(super) fn completes(&mut self, stand_in: StreamId) {
        let asked = |deed: &Deed| match *deed {
            Deed::Passed { stream, .. } if stream.0 < STAND_IN => Some(stream),
            _ => None,
        };
        let last = self.deeds.iter().rposition(|deed| asked(deed).is_some());
        let stream = last.and_then(|last| asked(&self.deeds[last]));
        let in_vain = |place: &usize| asked(&self.deeds[*place]) == stream;
        let before: Vec<usize> = (0..last.unwrap_or(0)).filter(in_vain).collect();
        for place in before.into_iter().rev() {
            self.deeds.insert(place, Deed::Passed { stream: stand_in, behind: 1 });
        }
        self.deeds.push(Deed::Passed { stream: stand_in, behind: 0 });
    }

    /// The run is over; frees that it completed stay.
    pub(super) fn restart(&mut self) {
        (self.releases, self.growths) = (0, 0);
        (self.grown, self.change) = (0, 0);
        self.deeds.clear();
        self.pools.clear();
    }
}

/// By how many bytes an entry changes what is reserved.
fn change(event: &Event) -> i128 {
    match event.kind {
        Kind::SegmentAlloc | Kind::SegmentMap => i128::from(event.bytes),
        Kind::SegmentFree | Kind::SegmentUnmap => -i128::from(event.bytes),
        _ => 0,
    }
}

/// The most that was reserved at one time, where `reserved` was at the beginning.
pub(super) fn peak(trace: &DeviceTrace, reserved: i128) -> i128 {
    let (mut now, mut peak) = (reserved, reserved);
    for event in &trace.events {
        now += change(event);
        peak = peak.max(now);
    }
    peak
}

impl<W: Watch> Player<'_, W> {
    /// Keeps a driver entry for the request that it belongs to.
    pub(super) fn gather(&mut self, event: &Event) {
        let (base, bytes) = (event.address, event.bytes);
        let change = change(event);
        self.recorded_reserved += change;
        self.run.change += change;
        self.run.grown += change.max(0);
        self.run.growths += usize::from(change > 0);
        self.run.releases += usize::from(change < 0);
        self.run.deeds.push(match event.kind {
            Kind::SegmentAlloc => Deed::Segment { base, bytes },
            Kind::SegmentMap => Deed::Pages { base, bytes },
            Kind::SegmentFree => Deed::SegmentGone { base, bytes },
            Kind::SegmentUnmap => Deed::PagesGone { base, bytes },
            Kind::RangeAlloc => Deed::Range { base, bytes },
            Kind::RangeFree => Deed::RangeGone { base, bytes },
            _ => Deed::Passed { stream: event.stream, behind: bytes },
        });
        let private = change < 0 && event.pool != PoolId::DEFAULT;
        if private && !self.run.pools.contains(&event.pool) {
            self.run.pools.push(event.pool);
        }
    }

    /// Decides what the run before a request was, and lays it out for the driver.
    pub(super) fn before_request(&mut self, event: &Event) -> Result<(), ReplayError> {
        let failed = event.kind == Kind::Oom;
        if self.run.deeds.is_empty() && self.run.completed.is_empty() {
            if let World::Recorded(device) = &mut self.world {
                device.lay_out([], failed);
            }
            return Ok(());
        }
        let served = self.heap.fits(event.bytes, event.stream, event.pool);
        let on_its_way = failed || (self.run.growths > 0 && !(served && self.had_room()));
        let emptied = match self.world {
            World::Simulated(_) => !on_its_way,
            World::Recorded(_) => served || !(failed || self.run.growths > 0),
        };
        if self.run.releases > 0 && emptied {
            self.explain_releases()?;
        }
        self.retire_pools()?;
        if self.run.releases == 0 {
            self.pass_completed()?;
        }
        let deeds = core::mem::take(&mut self.run.deeds);
        if let World::Recorded(device) = &mut self.world {
            device.lay_out(deeds, failed);
        }
        self.run.restart();
        Ok(())
    }

    /// Whether the recording's device had room for the growths of this run before its releases.
    const fn had_room(&self) -> bool {
        let before = self.recorded_reserved - self.run.change;
        before + self.run.grown <= self.recorded_peak
    }

    /// A run that no request explains: the program emptied its cache.
    pub(super) fn explain_run(&mut self) -> Result<(), ReplayError> {
        if self.run.releases > 0 {
            self.explain_releases()?;
        }
        if self.run.growths > 0 {
            self.run.restart();
            self.mismatch("a driver call that served no request".into(), "no request".into());
        }
        self.pass_completed()
    }

    fn explain_releases(&mut self) -> Result<(), ReplayError> {
        self.retire_pools()?;
        let first_growth = self
            .run
            .deeds
            .iter()
            .position(|deed| matches!(deed, Deed::Segment { .. } | Deed::Pages { .. }));
        let rest = self.run.deeds.split_off(first_growth.unwrap_or(self.run.deeds.len()));
        let releases = core::mem::replace(&mut self.run.deeds, rest);
        self.run.releases = 0;
        if let World::Recorded(device) = &mut self.world {
            device.lay_out(releases, true);
        }
        self.empty_cache()?;
        self.settle();
        self.pass_completed()
    }

    /// A private pool whose segments the recording released had no users left.
    fn retire_pools(&mut self) -> Result<(), ReplayError> {
        for pool in core::mem::take(&mut self.run.pools) {
            self.apply(Input::Retire { pool })?;
        }
        Ok(())
    }

    /// The device shows frees as completed that the recording completed.
    pub(super) fn pass_completed(&mut self) -> Result<(), ReplayError> {
        for stream in core::mem::take(&mut self.run.completed) {
            let stream = StreamId(stream);
            let newest = self.stand_in_fences.get(&stream).copied().unwrap_or(0);
            self.world.pass(stream, Serial(newest));
            self.spare_streams.push(stream);
        }
        Ok(())
    }
}
