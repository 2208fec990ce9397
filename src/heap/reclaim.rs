//! Reclaim: giving idle memory back to the driver.
//!
//! **V1** only idle memory is named: whole segments with one free block, and whole pages inside
//! free blocks. An eviction is planned at once and carried out one driver call at a time; a block
//! that was taken in the meantime is passed over, because its id is stale (**A1**).
//!
//! An address range goes back with the last of its pages. One that never got any, because the driver refused them,
//! is kept for the next growth of its lists, as PyTorch does; in a retired pool there is none, and it goes.

use alloc::vec::Vec;

use super::climb::{Errand, Job, Phase, Step};
use super::state::Heap;
use crate::policy::evict;
use crate::store::State;
use crate::vocab::{
    Address, Answer, BlockId, Call, Change, Class, Fault, Observe, PoolId, Rung, RungOutcome,
    Target, Want,
};

/// An eviction under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Eviction {
    /// What to give back, last first.
    plan: Vec<BlockId>,
    /// The slot of the block that a driver call is under way for.
    moving: u32,
    /// That call returns address space, whose pages are gone already.
    range: bool,
    /// Given back so far, in bytes.
    released: u64,
    /// What must be given back for growing to make sense, in bytes.
    target: u64,
}

impl Eviction {
    /// Whether a driver call is under way for the block in this slot.
    pub(super) const fn moves(&self, slot: u32) -> bool {
        self.moving == slot
    }

    /// Whether it is returning the address space of the block in this slot, whose memory is gone.
    pub(super) const fn returns_range(&self, slot: u32) -> bool {
        self.range && self.moving == slot
    }
}

impl Heap {
    pub(super) fn evict(
        &mut self,
        rung: Rung,
        errand: &mut Errand,
        answer: Option<Answer>,
        sink: &mut impl Observe,
    ) -> Step {
        let mut eviction = match core::mem::replace(&mut errand.phase, Phase::Enter) {
            Phase::Evicting(eviction) => eviction,
            _ => match self.plan(rung, &errand.job, 0) {
                Some(eviction) => eviction,
                None if rung == Rung::EvictSome => return Step::SkipGrow(RungOutcome::Closed),
                None => return Step::Next(RungOutcome::Closed),
            },
        };
        let answered = answer.is_some();
        if let Some(answer) = answer {
            let before = self.openings;
            let departed = self.departure_answered(&mut eviction, answer, sink);
            errand.openings += self.openings - before;
            match departed {
                Ok(None) => {}
                Ok(Some(want)) => {
                    errand.phase = Phase::Evicting(eviction);
                    return Step::Want(want);
                }
                Err(fault) => {
                    add_released(errand, &eviction);
                    return Step::Broken(fault);
                }
            }
        }
        // A capture that began meanwhile ends the eviction here.
        if self.capturing() || errand.job.has_enough(eviction.released) {
            return self.evicted(rung, errand, &eviction);
        }
        let mut want = self.next_departure(&mut eviction, errand.job.lacks());
        // While calls were under way others may have taken parts of what was planned: the rest goes
        // as well.
        if want.is_none()
            && answered
            && rung == Rung::EvictAll
            && let Some(again) = self.plan(rung, &errand.job, eviction.released)
        {
            eviction.plan = again.plan;
            want = self.next_departure(&mut eviction, errand.job.lacks());
        }
        if let Some(want) = want {
            errand.phase = Phase::Evicting(eviction);
            return Step::Want(want);
        }
        self.evicted(rung, errand, &eviction)
    }

    fn evicted(&self, rung: Rung, errand: &mut Errand, eviction: &Eviction) -> Step {
        add_released(errand, eviction);
        let outcome = match eviction.released {
            0 => RungOutcome::Nothing,
            bytes => RungOutcome::Released(bytes),
        };
        if rung == Rung::EvictSome && eviction.released < eviction.target {
            return Step::SkipGrow(outcome);
        }
        Step::Next(outcome)
    }

    /// What a rung gives back, having given back so much; `None` where the policy rules it out.
    fn plan(&self, rung: Rung, job: &Job, released: u64) -> Option<Eviction> {
        let mut eviction = match (rung, job) {
            (Rung::Collect, Job::Alloc(_)) => self.plan_by_age()?,
            (Rung::EvictSome, Job::Alloc(request)) => {
                self.plan_oversize(request.lists, request.size)?
            }
            (_, Job::Trim { target: Target::Pool(pool), .. }) => {
                Eviction { plan: self.plan_pools(&[*pool]), ..Eviction::default() }
            }
            (_, &Job::Trim { target: Target::AtLeast(bytes), released: before }) => {
                self.plan_at_least(bytes.saturating_sub(before + released))
            }
            _ => Eviction { plan: self.plan_pools(&self.every_pool()), ..Eviction::default() },
        };
        eviction.plan.reverse();
        Some(eviction)
    }

    /// Idle segments of the default pool's large side by age: passes release everything at or above
    /// the average age until the target is met. Source of the rule: PyTorch's
    /// `garbage_collect_cached_blocks`.
    fn plan_by_age(&self) -> Option<Eviction> {
        let limit = self.limit.filter(|_| self.collects)?;
        let target = evict::collect_target(&self.policy, limit, self.reserved);
        let now = self.searches;
        let mut idle: Vec<(u32, u64, u64)> = self
            .free_blocks(PoolId::DEFAULT, Class::Large)
            .filter(|&slot| self.blocks[slot].is_alone())
            .map(|slot| (slot, now - self.blocks[slot].idle_since, self.blocks[slot].size))
            .collect();
        let (mut total, mut count) =
            (idle.iter().map(|&(_, age, _)| age).sum::<u64>(), idle.len() as u64);
        let mut eviction = Eviction::default();
        let mut reclaimed = 0;
        while reclaimed < target && count > 0 {
            let (pass_total, pass_count, before) = (total, count, reclaimed);
            idle.retain(|&(slot, age, size)| {
                let goes =
                    !self.blocks[slot].paged && evict::old_enough(age, pass_total, pass_count);
                if goes {
                    eviction.plan.push(self.id(slot));
                    reclaimed += size;
                    total -= age;
                    count -= 1;
                }
                !goes
            });
            if reclaimed == before {
                break;
            }
        }
        Some(eviction)
    }

    /// One oversize block that will do, or else the largest ones until together they do.
    /// Source of the rule: PyTorch's `release_available_cached_blocks`.
    fn plan_oversize(&self, lists: u32, size: u64) -> Option<Eviction> {
        let target = evict::oversize_target(&self.policy, size)?;
        let bins = &self.lists[lists].bins;
        let whole = |slot: u32| !self.blocks[slot].paged && self.blocks[slot].is_alone();
        let mut eviction = Eviction { target, ..Eviction::default() };
        if let Some(key) = bins.find(target)
            && whole(key.slot())
        {
            eviction.plan.push(self.id(key.slot()));
            return Some(eviction);
        }
        let mut bytes = 0;
        for key in bins.iter().rev() {
            if bytes >= target || key.bytes() < self.policy.max_split {
                break;
            }
            if whole(key.slot()) {
                bytes += key.bytes();
                eviction.plan.push(self.id(key.slot()));
            }
        }
        Some(eviction)
    }

    /// Everything idle in these pools: in each side whole segments first, then pages.
    pub(super) fn plan_pools(&self, pools: &[PoolId]) -> Vec<BlockId> {
        let mut plan = Vec::new();
        for &pool in pools {
            let private = pool != PoolId::DEFAULT;
            if !self.gives(pool) {
                continue;
            }
            let mut sides = [Class::Large, Class::Small];
            if private {
                sides.reverse();
            }
            for class in sides {
                for paged in [false, true] {
                    let slots = self.free_blocks(pool, class);
                    let idle = slots.filter(|&slot| self.is_idle(slot, paged));
                    plan.extend(idle.map(|slot| self.id(slot)));
                }
            }
            if self.pools.is_retired(pool) {
                plan.extend(self.empty_ranges(pool).map(|slot| self.id(slot)));
            }
        }
        plan
    }

    /// The address ranges of a pool that have no pages at all.
    fn empty_ranges(&self, pool: PoolId) -> impl Iterator<Item = u32> + '_ {
        let sides = [Class::Small, Class::Large].into_iter();
        let lists = sides.flat_map(move |class| self.pools.side(pool, class));
        let gaps = lists.flat_map(|lists| self.lists[lists].unmapped.iter().map(|&(_, slot)| slot));
        gaps.filter(|&slot| self.blocks[slot].is_alone())
    }

    pub(super) fn every_pool(&self) -> Vec<PoolId> {
        self.pools.ids().collect()
    }

    /// The smallest idle segment or run of pages that has `bytes`; where there is none the largest,
    /// and so on with what is then missing.
    fn plan_at_least(&self, mut bytes: u64) -> Eviction {
        let mut eviction = Eviction::default();
        let idle = self.plan_pools(&self.every_pool());
        let sized = idle.into_iter().map(|id| (self.idle_bytes(id.index), id));
        let mut idle: Vec<(u64, BlockId)> = sized.filter(|&(size, _)| size > 0).collect();
        idle.sort_by_key(|&(size, _)| size);
        eviction.plan.clear();
        while bytes > 0 && !idle.is_empty() {
            let enough = idle.partition_point(|&(size, _)| size < bytes);
            let (size, id) = idle.remove(enough.min(idle.len() - 1));
            eviction.plan.push(id);
            bytes = bytes.saturating_sub(size);
        }
        eviction
    }

    /// What the driver would get back of this free block: all of a whole segment, or the whole
    /// pages inside.
    pub(super) fn idle_bytes(&self, slot: u32) -> u64 {
        let block = &self.blocks[slot];
        if block.state != State::Free {
            return 0;
        }
        if !block.paged {
            return if block.is_alone() { block.size } else { 0 };
        }
        let (first, last) = self.segments[block.segment].pages_inside(block.address, block.end());
        last - first
    }

    /// Whether the pool's idle memory may go back to the driver: private pools give only when no
    /// user is left, or the policy says otherwise.
    #[must_use]
    pub fn gives(&self, pool: PoolId) -> bool {
        pool == PoolId::DEFAULT || self.policy.evict_private || self.pools.is_retired(pool)
    }

    fn is_idle(&self, slot: u32, paged: bool) -> bool {
        let block = &self.blocks[slot];
        block.paged == paged && (paged || block.is_alone())
    }

    fn free_blocks(&self, pool: PoolId, class: Class) -> impl Iterator<Item = u32> + '_ {
        self.pools
            .side(pool, class)
            .flat_map(|lists| self.lists[lists].bins.iter().map(|key| key.slot()))
    }

    /// The next driver call of an eviction for a job that lacks so many bytes.
    fn next_departure(&mut self, eviction: &mut Eviction, lacks: u64) -> Option<Want> {
        let lacks = lacks.saturating_sub(eviction.released);
        while let Some(id) = eviction.plan.pop() {
            let slot = id.index;
            if !self.blocks.holds(slot, id.generation) {
                continue;
            }
            let block = &self.blocks[slot];
            let want = match block.state {
                State::Free if block.paged => self.unmap(slot, lacks),
                State::Free => self.release(slot),
                State::Unmapped if block.is_alone() => Some((slot, self.release_range(slot))),
                _ => None,
            };
            if let Some((slot, want)) = want {
                self.in_flight += 1;
                eviction.moving = slot;
                eviction.range = matches!(want, Want::ReleaseRange { .. });
                return Some(want);
            }
        }
        None
    }

    fn release(&mut self, slot: u32) -> Option<(u32, Want)> {
        if !self.blocks[slot].is_alone() {
            return None;
        }
        self.unshelve(slot);
        let block = &mut self.blocks[slot];
        block.state = State::Moving;
        Some((slot, Want::Release { base: Address(block.address), bytes: block.size }))
    }

    /// Begins to take the whole pages inside a free block, the last ones if not so many are lacked;
    /// what is left on either side stays free.
    fn unmap(&mut self, slot: u32, lacks: u64) -> Option<(u32, Want)> {
        let block = &self.blocks[slot];
        let segment = &self.segments[block.segment];
        let page = segment.page;
        let (first, last) = segment.pages_inside(block.address, block.end());
        if first == last {
            return None;
        }
        let first = first.max(last.saturating_sub(lacks.div_ceil(page).saturating_mul(page)));
        let stream = self.lists[block.lists].stream;
        let (start, end) = (block.address, block.end());
        self.unshelve(slot);
        let mut middle = slot;
        if first > start {
            middle = self.cut(slot, first - start);
            self.shelve(slot);
        }
        if last < end {
            let rest = self.cut(middle, last - first);
            self.shelve(rest);
        }
        self.blocks[middle].state = State::Moving;
        Some((middle, Want::Unmap { base: Address(first), bytes: last - first, page, stream }))
    }

    /// A driver call of an eviction was answered; it may want one more for the same memory.
    fn departure_answered(
        &mut self,
        eviction: &mut Eviction,
        answer: Answer,
        sink: &mut impl Observe,
    ) -> Result<Option<Want>, Fault> {
        self.land();
        self.open();
        let slot = eviction.moving;
        match (answer, eviction.range) {
            (Answer::Released, true) => {
                self.drop_segment(slot);
                Ok(None)
            }
            (Answer::Released, false) if !self.blocks[slot].paged => {
                eviction.released += self.segment_gone(slot, sink);
                Ok(None)
            }
            (Answer::Unmapped, false) if self.blocks[slot].paged => {
                eviction.released += self.blocks[slot].size;
                Ok(self.pages_gone(slot, eviction, sink))
            }
            (Answer::Refused(fault), range) => {
                let call = match (range, self.blocks[slot].paged) {
                    (true, _) => Call::ReleaseRange,
                    (false, true) => Call::Unmap,
                    (false, false) => Call::Release,
                };
                self.stays(slot, range);
                Err(fault.of(call))
            }
            (_, range) => {
                self.stays(slot, range);
                Err(Fault::WrongAnswer)
            }
        }
    }

    fn segment_gone(&mut self, slot: u32, sink: &mut impl Observe) -> u64 {
        let segment = self.drop_segment(slot);
        let lists = &self.lists[segment.lists];
        self.reserved -= segment.bytes;
        sink.observe(Change::SegmentFreed {
            base: Address(segment.base),
            bytes: segment.bytes,
            class: lists.class,
            stream: lists.stream,
            pool: lists.pool,
            oversize: segment.bytes >= self.policy.max_split,
        });
        segment.bytes
    }

    fn pages_gone(
        &mut self,
        slot: u32,
        eviction: &mut Eviction,
        sink: &mut impl Observe,
    ) -> Option<Want> {
        let block = &self.blocks[slot];
        let lists = &self.lists[block.lists];
        self.reserved -= block.size;
        sink.observe(Change::Unmapped {
            base: Address(block.address),
            bytes: block.size,
            pages: block.size / self.segments[block.segment].page,
            class: lists.class,
            stream: lists.stream,
            pool: lists.pool,
        });
        self.return_to_unmapped(slot);
        if !self.blocks[slot].is_alone() {
            return None;
        }
        eviction.range = true;
        self.in_flight += 1;
        Some(self.release_range(slot))
    }

    fn release_range(&mut self, slot: u32) -> Want {
        self.unshelve_unmapped(slot);
        let block = &mut self.blocks[slot];
        block.state = State::Moving;
        Want::ReleaseRange { base: Address(block.address), bytes: block.size }
    }

    /// The driver would not take the memory back: it is as free as it was.
    fn stays(&mut self, slot: u32, range: bool) {
        if range {
            self.blocks[slot].state = State::Unmapped;
            self.shelve_unmapped(slot);
            return;
        }
        self.blocks[slot].state = State::Free;
        self.merge_idle(slot);
        self.shelve(slot);
    }
}

/// A trim counts what an eviction gave back.
const fn add_released(errand: &mut Errand, eviction: &Eviction) {
    if let Job::Trim { released, .. } = &mut errand.job {
        *released += eviction.released;
    }
}
