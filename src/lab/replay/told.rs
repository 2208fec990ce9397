//! Told: recordings that say everything that was asked for, and what the driver did for each of it.
//!
//! Nothing is guessed: the entries since the last request belong to the next. On a simulated device frees
//! complete where they did in the recording; on the recorded one uses are real, and fences pass as recorded. A
//! block that was given back or used before the recording waits for a stream that stands in.

use super::player::Player;
use super::world::World;
use super::{ReplayError, Watch};
use crate::trace::{Event, Kind, NO_LIMIT};
use crate::vocab::{BlockId, Input, PoolId, Target, Ticket};

impl<W: Watch> Player<'_, W> {
    /// Lays out for the driver what it did for the request that comes now.
    pub(super) fn lay_out_run(&mut self) -> Result<(), ReplayError> {
        match &mut self.world {
            World::Recorded(device) => {
                device.lay_out(core::mem::take(&mut self.run.deeds), true);
            }
            World::Simulated(_) if self.run.releases == 0 => self.pass_completed()?,
            World::Simulated(_) => {}
        }
        self.run.restart();
        Ok(())
    }

    /// The request that the run was laid out for is done.
    pub(super) fn done(&mut self) -> Result<(), ReplayError> {
        self.settle();
        if matches!(self.world, World::Recorded(_)) {
            self.compare_reserved();
        }
        self.pass_completed()
    }

    /// Tells the engine what the program said, other than a request, a use or a free.
    pub(super) fn tell(&mut self, event: &Event) -> Result<(), ReplayError> {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        let input = match event.kind {
            Kind::Retire => Input::Retire { pool: event.pool },
            Kind::CaptureBegin => Input::Capture { ticket, begins: true },
            Kind::CaptureEnd => Input::Capture { ticket, begins: false },
            Kind::Limit => Input::Limit { bytes: (event.bytes != NO_LIMIT).then_some(event.bytes) },
            _ => Input::Trim { ticket, target: target(event) },
        };
        self.lay_out_run()?;
        self.apply(input)?;
        self.done()
    }

    /// Blocks that had been given back before the recording, and whose frees complete later.
    pub(super) fn seed_pending(&mut self) -> Result<(), ReplayError> {
        for address in self.warm().pending.clone() {
            if let Some(block) = self.before.remove(&address) {
                self.stand_in(address, block)?;
                self.apply(Input::Free { block })?;
            }
        }
        Ok(())
    }

    /// Whether uses are told to the engine: on a simulated device a recording's frees complete where it says.
    pub(super) const fn uses_are_streams(&self) -> bool {
        !self.told || matches!(self.world, World::Recorded(_))
    }

    /// Whether the free of a block waits for streams that the engine knows of.
    pub(super) fn waits_by_itself(&self, block: BlockId) -> bool {
        self.told && self.uses_are_streams() && self.heap.is_used(block)
    }
}

const fn target(event: &Event) -> Target {
    match (event.kind, event.pool) {
        (Kind::Trim, PoolId::DEFAULT) => Target::AtLeast(event.bytes),
        (Kind::Trim, pool) => Target::Pool(pool),
        _ => Target::All,
    }
}
