//! Simulated device: a GPU without the GPU: addresses, capacity, pages, streams, fences, costs and
//! a judge.
//!
//! Owns: address space (`space`), what is granted (`memory`), how far streams have come (`clock`),
//! which calls are refused (`faults`), and who may use what (`judge`). Asked by replay and by
//! tests. Never knows the allocator; there is no memory behind its addresses.
//!
//! Same configuration and same calls: same answers, addresses and costs.
//!
//! A call that only a bug of the caller can make (a segment released twice, a page mapped twice,
//! memory taken away under unfinished work of another stream) panics with a message that begins
//! `judge:`. With the judge off, such a call is refused with [`INVALID_VALUE`] and work is not
//! looked at.

mod clock;
mod faults;
mod intervals;
mod judge;
mod memory;
mod space;
#[cfg(test)]
mod tests;

pub use faults::{AtRandom, Refusals, Single};

use super::contract::{CallKind, Calls, Device, INVALID_VALUE};
use super::costs::CostModel;
use crate::vocab::{Address, Answer, Fault, MIB, Serial, StreamId, Want};
use clock::Clock;
use faults::Refuser;
use judge::Judge;
use memory::{Memory, Trouble};
use space::Space;

/// When a recorded fence passes. Never before the work before it is done (invariant **D2**).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FencePolicy {
    /// As soon as the work before it is done: at once, if none was launched.
    #[default]
    Immediate,
    /// After this many more calls and launches; the stream has then done all work before the fence.
    AfterCalls(u64),
    /// When it is waited for; a poll finds only what a wait has passed.
    OnlyWhenWaited,
    /// When the owner says so ([`SimDevice::pass`]), or when it is waited for.
    Scripted,
}

/// Where the next segment or range goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The lowest free addresses that are long enough.
    #[default]
    Lowest,
    /// The top or the bottom of the space by a coin of this seed, never beside another.
    Hostile {
        /// The seed.
        seed: u64,
    },
}

/// What to simulate.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The device's memory in bytes; `None`: no limit.
    pub capacity: Option<u64>,
    /// Bytes of the capacity that others hold from the start (a context, another process).
    pub hidden: u64,
    /// The first address.
    pub space_base: Address,
    /// How many bytes of addresses there are.
    pub space_bytes: u64,
    /// Bases and sizes are multiples of this; a power of two.
    pub granularity: u64,
    /// Where things go.
    pub placement: Placement,
    /// What calls cost.
    pub costs: CostModel,
    /// When fences pass.
    pub fences: FencePolicy,
    /// Which calls are refused though they could be granted.
    pub refusals: Refusals,
    /// Whether a bug of the caller panics.
    pub judge: bool,
}

impl Default for SimConfig {
    /// No limit, 96 TiB of addresses from 0x200000000000 in steps of 2 MiB, fences that pass at
    /// once.
    fn default() -> Self {
        Self {
            capacity: None,
            hidden: 0,
            space_base: Address(0x2000_0000_0000),
            space_bytes: 96 << 40,
            granularity: 2 * MIB,
            placement: Placement::Lowest,
            costs: CostModel::default(),
            fences: FencePolicy::Immediate,
            refusals: Refusals::default(),
            judge: true,
        }
    }
}

impl SimConfig {
    /// The default with a capacity.
    #[must_use]
    pub fn with_capacity(bytes: u64) -> Self {
        Self { capacity: Some(bytes), ..Self::default() }
    }

    /// Addresses that end at 2^47 (the last a 64-bit program can have), placed without neighbours.
    #[must_use]
    pub fn hostile(self, seed: u64) -> Self {
        let space_base = Address((1 << 47) - self.space_bytes);
        Self { space_base, placement: Placement::Hostile { seed }, ..self }
    }
}

/// A simulated GPU.
#[derive(Clone, Debug)]
pub struct SimDevice {
    capacity: Option<u64>,
    granularity: u64,
    costs: CostModel,
    memory: Memory,
    clock: Clock,
    refuser: Refuser,
    judge: Option<Judge>,
    nanos: u64,
    calls: Calls,
}

impl SimDevice {
    /// A device on which nothing has happened.
    #[must_use]
    pub fn new(config: SimConfig) -> Self {
        let SimConfig { capacity, granularity, .. } = config;
        let space =
            Space::new(config.space_base.0, config.space_bytes, granularity, config.placement);
        Self {
            capacity,
            granularity,
            costs: config.costs,
            memory: Memory::new(space, granularity, capacity, config.hidden),
            clock: Clock::new(config.fences),
            refuser: Refuser::new(config.refusals),
            judge: config.judge.then(Judge::new),
            nanos: 0,
            calls: Calls::default(),
        }
    }

    /// Queues `items` of work on `stream` that uses the stretch until it is done.
    pub fn launch(&mut self, stream: StreamId, base: Address, bytes: u64, items: u64) {
        self.clock.tick();
        let until = self.clock.launch(stream, items);
        let Some(judge) = self.judge.as_mut() else { return };
        assert!(
            self.memory.backs(base.0, bytes),
            "judge: stream {} uses {bytes} bytes at {base}, where there is no memory",
            stream.0
        );
        judge.launched(stream, base.0, base.0 + bytes, until);
    }

    /// Does up to `items` of `stream`'s queued work.
    pub fn advance(&mut self, stream: StreamId, items: u64) {
        self.clock.advance(stream, items);
    }

    /// Does all of `stream`'s queued work.
    pub fn finish(&mut self, stream: StreamId) {
        self.clock.finish(stream);
    }

    /// Whether streams do their work as calls go by ([`FencePolicy::AfterCalls`]), untold.
    #[must_use]
    pub const fn moves_by_itself(&self) -> bool {
        self.clock.moves_by_itself()
    }

    /// Lets fence `serial` of `stream` pass, with all before it and the work before it.
    ///
    /// # Panics
    /// If the judge is on and the fence was never recorded.
    pub fn pass(&mut self, stream: StreamId, serial: Serial) {
        if let Err(text) = self.clock.wait(stream, serial) {
            self.misuse(&text);
        }
    }

    /// Tells the judge that the stretch was handed to a client whose first work will be on
    /// `stream`.
    ///
    /// # Panics
    /// If the judge is on and another stream's unfinished work uses it, or no memory is there.
    pub fn handed_out(&mut self, stream: StreamId, base: Address, bytes: u64) {
        let Some(judge) = self.judge.as_mut() else { return };
        assert!(
            self.memory.backs(base.0, bytes),
            "judge: handed out {bytes} bytes at {base}, where there is no memory"
        );
        judge.handed_out(stream, base.0, base.0 + bytes, &mut self.clock);
    }

    /// A bug of the caller: the judge's panic, or without a judge the driver's refusal.
    fn misuse(&self, text: &str) -> Fault {
        assert!(self.judge.is_none(), "judge: {text}");
        Fault::Driver(INVALID_VALUE)
    }

    fn refuse(&self, trouble: Trouble) -> Answer {
        Answer::Refused(match trouble {
            Trouble::Refused(fault) => fault,
            Trouble::Misuse(text) => self.misuse(&text),
        })
    }

    fn reserve(&mut self, bytes: u64) -> Answer {
        match self.memory.reserve(bytes) {
            Ok(base) => {
                self.nanos += self.costs.alloc.of(bytes);
                Answer::Granted { base: Address(base) }
            }
            Err(trouble) => {
                self.nanos += self.costs.alloc.fixed;
                self.refuse(trouble)
            }
        }
    }

    fn release(&mut self, base: u64, bytes: u64) -> Answer {
        self.nanos += self.costs.free.of(bytes);
        if let Err(trouble) = self.memory.may_release(base, bytes) {
            return self.refuse(trouble);
        }
        self.take_away("released", base, bytes, None);
        self.memory.release(base, bytes);
        Answer::Released
    }

    fn reserve_range(&mut self, bytes: u64, page: u64) -> Answer {
        self.nanos += self.costs.address_reserve.of(bytes);
        match self.memory.reserve_range(bytes, page) {
            Ok(base) => Answer::Granted { base: Address(base) },
            Err(trouble) => self.refuse(trouble),
        }
    }

    fn release_range(&mut self, base: u64, bytes: u64) -> Answer {
        self.nanos += self.costs.address_free.of(bytes);
        match self.memory.release_range(base, bytes) {
            Ok(()) => Answer::Released,
            Err(trouble) => self.refuse(trouble),
        }
    }

    fn map(&mut self, base: u64, bytes: u64, page: u64) -> Answer {
        match self.memory.map(base, bytes, page) {
            Ok(()) => {
                self.nanos += self.costs.map_pages(bytes / page, page);
                Answer::Mapped
            }
            Err((trouble, created)) => {
                self.nanos += self.costs.refused_map(created, page);
                self.refuse(trouble)
            }
        }
    }

    fn unmap(&mut self, base: u64, bytes: u64, page: u64, stream: StreamId) -> Answer {
        if let Err(trouble) = self.memory.may_unmap(base, bytes, page) {
            return self.refuse(trouble);
        }
        self.take_away("unmapped", base, bytes, Some(stream));
        let items = self.clock.finish(stream);
        self.nanos += self.costs.unmap_pages(bytes / page, page) + items * self.costs.work_item;
        self.memory.unmap(base, bytes);
        Answer::Unmapped
    }

    /// Asks the judge, then does the work that the driver waits for: what still uses the stretch. A
    /// driver may wait for more; nobody may rely on it, so this one does not.
    fn take_away(&mut self, verb: &str, base: u64, bytes: u64, waited: Option<StreamId>) {
        let Some(judge) = self.judge.as_mut() else { return };
        let end = base + bytes;
        judge.taken_away(verb, base, end, waited, &mut self.clock);
        for (stream, until) in judge.unfinished(base, end, &mut self.clock) {
            self.nanos += self.clock.reach(stream, until) * self.costs.work_item;
        }
        judge.forget(base, end);
    }

    fn fence(&mut self, stream: StreamId, serial: Serial) -> Answer {
        self.nanos += self.costs.event.fixed;
        match self.clock.record(stream, serial) {
            Ok(()) => Answer::Fenced,
            Err(text) => Answer::Refused(self.misuse(&text)),
        }
    }

    fn poll(&mut self, stream: StreamId, newest: Serial) -> Answer {
        self.nanos += self.costs.event.fixed;
        Answer::Passed { through: self.clock.poll(stream, newest) }
    }

    fn order(&mut self, waiter: StreamId, after: StreamId, serial: Serial) -> Answer {
        self.nanos += self.costs.event.fixed;
        match self.clock.order(waiter, after, serial) {
            Ok(()) => Answer::Ordered,
            Err(text) => Answer::Refused(self.misuse(&text)),
        }
    }

    fn wait(&mut self, stream: StreamId, serial: Serial) -> Answer {
        match self.clock.wait(stream, serial) {
            Ok(items) => {
                self.nanos += self.costs.synchronise.fixed + items * self.costs.work_item;
                let through = self.clock.poll(stream, Serial(u64::MAX));
                Answer::Passed { through }
            }
            Err(text) => Answer::Refused(self.misuse(&text)),
        }
    }
}

impl Device for SimDevice {
    fn perform(&mut self, want: Want) -> Answer {
        self.clock.tick();
        let refused = self.refuser.next(CallKind::of(&want));
        let answer = match (refused, want) {
            (Some(fault), _) => Answer::Refused(fault),
            (None, Want::Reserve { bytes }) => self.reserve(bytes),
            (None, Want::Release { base, bytes }) => self.release(base.0, bytes),
            (None, Want::ReserveRange { bytes, page }) => self.reserve_range(bytes, page),
            (None, Want::ReleaseRange { base, bytes }) => self.release_range(base.0, bytes),
            (None, Want::Map { base, bytes, page }) => self.map(base.0, bytes, page),
            (None, Want::Unmap { base, bytes, page, stream }) => {
                self.unmap(base.0, bytes, page, stream)
            }
            (None, Want::Fence { stream, serial }) => self.fence(stream, serial),
            (None, Want::Poll { stream, newest }) => self.poll(stream, newest),
            (None, Want::Wait { stream, serial }) => self.wait(stream, serial),
            (None, Want::Order { waiter, after, serial }) => self.order(waiter, after, serial),
        };
        self.calls.count(&want, &answer);
        answer
    }

    fn total(&self) -> Option<u64> {
        self.capacity
    }

    fn free(&self) -> Option<u64> {
        self.memory.free()
    }

    fn granularity(&self) -> u64 {
        self.granularity
    }

    fn page_mapping(&self) -> bool {
        true
    }

    fn nanos(&self) -> u64 {
        self.nanos
    }

    fn calls(&self) -> Calls {
        self.calls
    }
}
