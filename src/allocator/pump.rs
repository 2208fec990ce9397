//! Pump: carries wants to the device and answers back, with no lock held. It never chooses.
//!
//! **C1** the core's lock is held for one `apply` at a time: no driver call and no user code under
//! it. **C2** every want is answered, also when the device call panics: the answer is then a
//! refusal, and the panic goes on.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::shell::Shared;
use crate::vocab::{Answer, Fault, Input, Output, Ticket, Want};

/// The driver code for a device call that panicked.
pub(crate) const PANICKED: i32 = -1;

impl Shared {
    /// Takes an input to its end.
    pub(super) fn pump(&self, input: Input) -> Output {
        let (output, landings) = self.apply(input);
        self.carry(output, landings)
    }

    /// Carries on from an output to one that wants and waits for nothing.
    #[inline]
    pub(super) fn carry(&self, output: Output, landings: u64) -> Output {
        match output {
            Output::Want { .. } | Output::Park { .. } => self.carry_on(output, landings),
            done => done,
        }
    }

    #[cold]
    fn carry_on(&self, mut output: Output, mut landings: u64) -> Output {
        let mut moved = false;
        loop {
            (output, landings) = match output {
                Output::Want { ticket, want } => {
                    moved |= moves_memory(want);
                    self.answer(ticket, want, self.perform(ticket, want))
                }
                Output::Park { ticket } => {
                    self.gate.wait_above(landings);
                    self.apply(Input::Retry { ticket })
                }
                done => {
                    if moved {
                        self.segments_moved();
                    }
                    return done;
                }
            };
            self.gate.raise(landings);
        }
    }

    /// One driver call. One that panics is answered by a refusal before the panic goes on (**C2**).
    fn perform(&self, ticket: Ticket, want: Want) -> Answer {
        let answer = {
            let mut device = self.device.lock();
            catch_unwind(AssertUnwindSafe(|| device.perform(want)))
        };
        #[cfg(feature = "tracing")]
        super::events::driver_call(self.watch.device_index, want, &answer);
        answer.unwrap_or_else(|panic| {
            self.refuse(ticket);
            resume_unwind(panic)
        })
    }

    #[cold]
    fn refuse(&self, ticket: Ticket) {
        loop {
            let answer = Answer::Refused(Fault::Driver(PANICKED));
            let (output, landings) = self.apply(Input::Answer { ticket, answer });
            self.gate.raise(landings);
            // A row of fences asks for the next one: all are refused, the next wait covers them.
            if !matches!(output, Output::Want { .. }) {
                return;
            }
        }
    }
}

/// Whether a call takes memory from the driver or gives it back.
const fn moves_memory(want: Want) -> bool {
    matches!(
        want,
        Want::Reserve { .. } | Want::Release { .. } | Want::Map { .. } | Want::Unmap { .. }
    )
}
