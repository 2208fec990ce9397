//! Free curve: where the free memory is, at some hundred moments of a replay.
//!
//! Each moment costs a walk over all blocks, so the moments are few and evenly spread.

use blockyard::lab::{Player, Setup};
use blockyard::policy::Policy;
use blockyard::trace::{DeviceTrace, Recording};

use crate::charts::model::FreeSample;
use crate::fail::Fail;
use crate::session::{Options, capacity};

/// How many moments are looked at.
const MOMENTS: usize = 800;

/// Replays once more and looks at the free memory, up to event `events`.
///
/// # Errors
/// Where the recording cannot be replayed.
pub fn collect(
    recording: &Recording,
    trace: &DeviceTrace,
    policy: &Policy,
    options: &Options,
    events: u32,
) -> Result<Vec<FreeSample>, Fail> {
    let mut setup = if options.recorded {
        Setup::recorded(policy.clone())
    } else {
        Setup::simulated(policy.clone(), capacity(trace, options.capacity).0)
    };
    setup.continue_on_oom |= options.continue_on_oom;
    let broken = |error: blockyard::lab::ReplayError| Fail::BadInput(error.to_string());
    let mut player = Player::new(recording, trace, setup, ()).map_err(broken)?;
    let step = (trace.events.len() / MOMENTS).max(1);
    let mut samples = Vec::new();
    while player.events_done() < events && player.run(step).map_err(broken)? {
        samples.push(look(&player));
    }
    samples.push(look(&player));
    Ok(samples)
}

fn look(player: &Player<'_, ()>) -> FreeSample {
    let event = u64::from(player.events_done().saturating_sub(1));
    let mut sample = FreeSample { event, ..FreeSample::default() };
    for (_, _, _, book) in player.heap().usage() {
        sample.free += book.releasable_bytes + book.pinned_free_bytes;
        sample.pinned_free += book.pinned_free_bytes;
        sample.largest_free = sample.largest_free.max(book.largest_free_bytes);
    }
    sample
}
