//! Heap: the core. `apply(Input) -> Output`, pure and deterministic (**H4**: same inputs, same outputs).
//!
//! Owns all state: blocks, segments, free lists, pending frees and the errands that wait for the device. Asked by
//! whoever pumps it. Never knows a device, a lock, a clock or a file: it returns wants and hears answers.
//!
//! | file | what |
//! |---|---|
//! | `state` | the state and its small helpers |
//! | `serve` | from a request to a block: search, split, hand out |
//! | `climb` | the ladder: what is tried, in order, when the search fails |
//! | `borrow` | taking what is cached for another stream, behind its fence |
//! | `grow` | asking the driver for segments and pages |
//! | `retire` | from a free to a free block: fences, merging |
//! | `reclaim` | giving memory back |
//! | `capture` | what waits while a graph is being captured; the limit at run time |
//! | `room` | the largest request that would be served now |
//! | `seed` | starting from a known layout; `view`: looking; `audit`: proving |

mod audit;
mod borrow;
mod capture;
mod climb;
mod grow;
mod reclaim;
mod retire;
mod room;
pub mod seed;
mod serve;
mod state;
mod view;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_borrow;
#[cfg(test)]
mod tests_capture;
#[cfg(test)]
mod tests_pools;

pub use audit::Violation;
pub use state::Heap;

use crate::vocab::{Fault, Input, Observe, Output};

impl Heap {
    /// Takes one input and says what follows. O(log n) for requests that the cache serves and for frees.
    /// Every change is told to `sink` in order.
    #[inline(always)]
    pub fn apply(&mut self, input: Input, sink: &mut impl Observe) -> Output {
        // Callers name their input where they call: the two that are hot find their way at compile time.
        match input {
            Input::Alloc { ticket, bytes, stream, pool } => {
                self.alloc(ticket, bytes, stream, pool, sink)
            }
            Input::Free { block } => self.free(block, sink),
            rare => self.apply_rare(rare, sink),
        }
    }

    #[inline(never)]
    fn apply_rare(&mut self, input: Input, sink: &mut impl Observe) -> Output {
        let output = self.rarely(input, sink);
        // Not before: an errand that is being climbed names lists.
        if self.pools.may_give_up() {
            self.give_up_pools();
        }
        output
    }

    fn rarely(&mut self, input: Input, sink: &mut impl Observe) -> Output {
        match input {
            Input::Alloc { .. } | Input::Free { .. } => Output::Quiet,
            Input::Use { block, stream } => self.use_on(block, stream),
            Input::Trim { ticket, target } => self.trim(ticket, target, sink),
            Input::Capture { ticket, begins } => self.capture(ticket, begins),
            Input::Limit { bytes } => self.limit_to(bytes),
            Input::Retire { pool } => self.retire_pool(pool),
            Input::Retry { ticket } => match self.take_errand(ticket, true) {
                Some(errand) => self.unpark(errand, sink),
                None => Output::Refused { fault: Fault::UnknownTicket },
            },
            Input::Answer { ticket, answer } => match self.take_errand(ticket, false) {
                Some(errand) => self.resume(errand, answer, sink),
                None => Output::Refused { fault: Fault::UnknownTicket },
            },
        }
    }
}
