//! Climb: the way from a request that the cache did not serve to a block, or to out-of-memory.
//!
//! The policy's ladder is data; this file climbs it. An [`Errand`] is one climb (or trim, or row of
//! fences) and survives between a want and its answer. **L1** rungs only rise between answers; an
//! errand at the top begins again at the bottom only when another one has opened something
//! meanwhile. **L2** out-of-memory is said only after every open rung, with nothing in flight. See
//! Note [Landings and openings].

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::capture::capture_allows;
use super::reclaim::Eviction;
use super::state::Heap;
use crate::policy::grow;
use crate::vocab::{
    Answer, Call, Change, Class, Fault, Observe, Output, PoolId, Rung, RungOutcome, Serial,
    StreamId, Target, Ticket, Want,
};

/// What was asked for. Sizes are bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub bytes: u64,
    pub size: u64,
    /// Of the segment that is asked for: its class's, on the last rung the smallest.
    pub segment_bytes: u64,
    pub pool: PoolId,
    pub class: Class,
    pub stream: StreamId,
    pub lists: u32,
}

/// What an errand is for.
#[derive(Clone, Debug)]
pub(super) enum Job {
    Alloc(Request),
    Trim {
        target: Target,
        released: u64,
    },
    /// Streams whose pending frees want a fence, last first.
    Fence {
        streams: Vec<StreamId>,
    },
}

impl Job {
    /// What a trim has given back, in bytes.
    const fn released(&self) -> u64 {
        match *self {
            Self::Trim { released, .. } => released,
            _ => 0,
        }
    }

    /// What a trim that wants so many bytes has not given back yet; of all else there is no bound.
    pub(super) const fn lacks(&self) -> u64 {
        match *self {
            Self::Trim { target: Target::AtLeast(bytes), released } => {
                bytes.saturating_sub(released)
            }
            _ => u64::MAX,
        }
    }

    /// Whether this is a trim that has what it wants, with so many bytes more.
    pub(super) const fn has_enough(&self, more: u64) -> bool {
        match *self {
            Self::Trim { target: Target::AtLeast(bytes), released } => released + more >= bytes,
            _ => false,
        }
    }
}

/// Where inside a rung an errand stands.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// At its foot.
    Enter,
    /// A stream was asked, or waited for.
    Asked(StreamId),
    /// A fence is being recorded on a stream.
    Recording(StreamId, Serial),
    /// A segment was asked for.
    Reserving,
    /// Address space of so many bytes was asked for.
    Ranging(u64),
    /// Memory was asked for under the block in this slot.
    Mapping(u32),
    /// A fence is being recorded behind which the block in this slot is to be borrowed.
    Fencing { slot: u32, owner: StreamId, serial: Serial },
    /// The borrower's stream is being ordered behind a fence of its owner's.
    Ordering(u32),
    /// Memory is being given back.
    Evicting(Eviction),
}

/// Something under way between a want and its answer.
#[derive(Clone, Debug)]
pub(super) struct Errand {
    pub ticket: Ticket,
    pub job: Job,
    pub height: usize,
    pub phase: Phase,
    pub parked: bool,
    pub log: Vec<(Rung, RungOutcome)>,
    /// Bytes completed or released on the present rung.
    pub bytes: u64,
    /// Landings seen when it was parked.
    pub landings: u64,
    /// Openings seen when the climb began, and its own since.
    pub openings: u64,
    /// The device refused what borrowing takes: it is not asked for again.
    pub keeps_to_itself: bool,
}

impl Errand {
    fn new(ticket: Ticket, job: Job) -> Self {
        Self {
            ticket,
            job,
            height: 0,
            phase: Phase::Enter,
            parked: false,
            log: Vec::new(),
            bytes: 0,
            landings: 0,
            openings: 0,
            keeps_to_itself: false,
        }
    }

    pub(super) fn alloc(ticket: Ticket, request: Request) -> Self {
        Self::new(ticket, Job::Alloc(request))
    }

    pub(super) fn fence(ticket: Ticket, streams: Vec<StreamId>) -> Self {
        Self::new(ticket, Job::Fence { streams })
    }

    fn rise(&mut self, rung: Rung, outcome: RungOutcome) {
        self.log.push((rung, outcome));
        self.height += 1;
        self.phase = Phase::Enter;
        self.bytes = 0;
    }
}

/// What one turn on a rung came to.
pub(super) enum Step {
    Served(u32),
    /// With a block of another stream's lists; whether an order was needed.
    Lent(u32, bool),
    Want(Want),
    Next(RungOutcome),
    /// An eviction that released too little: growing at once would be vain.
    SkipGrow(RungOutcome),
    /// Others' growths in flight fill the limit: go on here once one has landed.
    Park,
    Broken(Fault),
}

const TRIM_ALL: [Rung; 2] = [Rung::Wait, Rung::EvictAll];
const TRIM_POOL: [Rung; 1] = [Rung::EvictAll];
const TRIM_AT_LEAST: [Rung; 3] = [Rung::EvictAll, Rung::Wait, Rung::EvictAll];

const fn trim_ladder(target: Target) -> &'static [Rung] {
    match target {
        Target::All => &TRIM_ALL,
        Target::Pool(_) => &TRIM_POOL,
        Target::AtLeast(_) => &TRIM_AT_LEAST,
    }
}

impl Heap {
    /// Begins a climb. Where nothing is pending the first two rungs were already done by the
    /// caller.
    #[cold]
    pub(super) fn start(
        &mut self,
        ticket: Ticket,
        request: Request,
        sink: &mut impl Observe,
    ) -> Output {
        let mut errand = Errand::alloc(ticket, request);
        errand.openings = self.openings;
        if self.fences.is_idle() && self.policy.ladder.rung(1) == Some(Rung::Search) {
            errand.rise(Rung::Poll, RungOutcome::Nothing);
            errand.rise(Rung::Search, RungOutcome::Nothing);
        }
        self.climb(errand, None, sink)
    }

    #[cold]
    pub(super) fn trim(
        &mut self,
        ticket: Ticket,
        target: Target,
        sink: &mut impl Observe,
    ) -> Output {
        let unknown = |pool: PoolId| !self.pools.knows(pool);
        if self.capturing() || matches!(target, Target::Pool(pool) if unknown(pool)) {
            return Output::Trimmed { ticket, released: 0 };
        }
        self.climb(Errand::new(ticket, Job::Trim { target, released: 0 }), None, sink)
    }

    /// A parked errand goes on where it stood, unless its block has been freed meanwhile.
    pub(super) fn unpark(&mut self, mut errand: Errand, sink: &mut impl Observe) -> Output {
        errand.parked = false;
        if let Job::Alloc(request) = errand.job
            && let Some(slot) = self.search(request.lists, request.size)
        {
            return self.hand_out(errand.ticket, request.bytes, request.size, slot, sink);
        }
        self.climb(errand, None, sink)
    }

    fn park(&mut self, mut errand: Errand) -> Output {
        debug_assert!(self.in_flight > 0, "H5");
        errand.parked = true;
        errand.landings = self.landings;
        let ticket = errand.ticket;
        self.errands.push(errand);
        Output::Park { ticket }
    }

    /// An answer has come.
    #[cold]
    pub(super) fn resume(
        &mut self,
        errand: Errand,
        answer: Answer,
        sink: &mut impl Observe,
    ) -> Output {
        if matches!(errand.job, Job::Fence { .. }) {
            return self.fence_answered(errand, answer);
        }
        self.climb(errand, Some(answer), sink)
    }

    fn climb(
        &mut self,
        mut errand: Errand,
        mut answer: Option<Answer>,
        sink: &mut impl Observe,
    ) -> Output {
        loop {
            let rung = match errand.job {
                Job::Trim { target, .. } => trim_ladder(target).get(errand.height).copied(),
                _ => self.policy.ladder.rung(errand.height),
            };
            let Some(rung) = rung else { return self.at_the_top(errand, sink) };
            match self.turn(rung, &mut errand, answer.take(), sink) {
                Step::Want(want) => {
                    let ticket = errand.ticket;
                    self.errands.push(errand);
                    return Output::Want { ticket, want };
                }
                Step::Served(slot) => {
                    let Job::Alloc(request) = errand.job else {
                        unreachable!("only requests are served")
                    };
                    self.helped[rung as usize] += 1;
                    return self.hand_out(errand.ticket, request.bytes, request.size, slot, sink);
                }
                Step::Lent(slot, waited) => {
                    let Job::Alloc(request) = errand.job else {
                        unreachable!("only requests are served")
                    };
                    self.helped[rung as usize] += 1;
                    return self.lend(errand.ticket, &request, slot, waited, sink);
                }
                Step::Next(outcome) => {
                    self.note(rung, outcome);
                    errand.rise(rung, outcome);
                }
                Step::SkipGrow(outcome) => {
                    self.note(rung, outcome);
                    errand.rise(rung, outcome);
                    if self.policy.ladder.rung(errand.height) == Some(Rung::Grow) {
                        errand.rise(Rung::Grow, RungOutcome::Closed);
                    }
                }
                Step::Park => return self.park(errand),
                Step::Broken(fault) => {
                    let released = errand.job.released();
                    return Output::DriverFailed { ticket: errand.ticket, fault, released };
                }
            }
        }
    }

    fn note(&mut self, rung: Rung, outcome: RungOutcome) {
        let helped = matches!(outcome, RungOutcome::Released(_) | RungOutcome::Completed(_));
        self.helped[rung as usize] += u64::from(helped);
    }

    /// One turn on one rung.
    fn turn(
        &mut self,
        rung: Rung,
        errand: &mut Errand,
        answer: Option<Answer>,
        sink: &mut impl Observe,
    ) -> Step {
        if answer.is_none() && self.is_closed(rung, &errand.job) {
            let outcome = RungOutcome::Closed;
            // Nothing is released, so growing again would be vain.
            let vain = rung == Rung::EvictSome;
            return if vain { Step::SkipGrow(outcome) } else { Step::Next(outcome) };
        }
        match rung {
            Rung::Poll => self.ask_streams(errand, answer, false, sink),
            Rung::Wait => self.ask_streams(errand, answer, true, sink),
            Rung::Search | Rung::SearchAgain => self.search_rung(errand, None),
            Rung::BorrowClass => self.search_rung(errand, Some(Class::Large)),
            Rung::Grow => self.grow(errand, answer, sink),
            Rung::GrowLeast => self.grow_least(errand, answer, sink),
            Rung::Borrow => self.borrow(errand, answer, sink),
            Rung::Regrow => {
                let enters = matches!(errand.phase, Phase::Enter);
                let step = self.grow(errand, answer, sink);
                if enters && !matches!(step, Step::Park) {
                    sink.observe(Change::Retried);
                }
                step
            }
            Rung::Collect | Rung::EvictSome | Rung::EvictAll => {
                self.evict(rung, errand, answer, sink)
            }
        }
    }

    /// Whether a capture, or a trim that has what it wants, rules the rung out.
    fn is_closed(&self, rung: Rung, job: &Job) -> bool {
        let at_least = matches!(job, Job::Trim { target: Target::AtLeast(_), .. });
        let vain = at_least && rung == Rung::Wait && self.fences.is_idle();
        vain || job.has_enough(0) || (self.capturing() && !capture_allows(rung))
    }

    fn search_rung(&mut self, errand: &Errand, borrow: Option<Class>) -> Step {
        let Job::Alloc(request) = errand.job else { return Step::Next(RungOutcome::Closed) };
        let lists = match borrow {
            Some(class) if class == request.class => return Step::Next(RungOutcome::Closed),
            Some(class) => self.lists_of(request.pool, class, request.stream),
            None => request.lists,
        };
        match self.search(lists, request.size) {
            Some(slot) => Step::Served(slot),
            None => Step::Next(RungOutcome::Nothing),
        }
    }

    /// Polls, or waits for, each stream that pending frees wait for, in stream order. Only recorded
    /// fences can be asked about; before a wait, what is not recorded and not being recorded is
    /// recorded here.
    fn ask_streams(
        &mut self,
        errand: &mut Errand,
        answer: Option<Answer>,
        wait: bool,
        sink: &mut impl Observe,
    ) -> Step {
        let mut after = None;
        match (core::mem::replace(&mut errand.phase, Phase::Enter), answer) {
            (Phase::Recording(stream, serial), Some(answer)) => {
                self.fence_landed(stream, serial, answer);
                errand.openings += 1;
                match answer {
                    Answer::Fenced | Answer::Refused(Fault::OutOfMemory) => {}
                    Answer::Refused(fault) => return Step::Broken(fault),
                    _ => return Step::Broken(Fault::WrongAnswer),
                }
                if let Some(newest) = self.fences.recorded(stream)
                    && !self.capturing()
                {
                    errand.phase = Phase::Asked(stream);
                    return Step::Want(Want::Wait { stream, serial: newest });
                }
                after = Some(stream);
            }
            (Phase::Asked(stream), Some(Answer::Passed { through })) => {
                errand.bytes += self.pass(stream, through, sink);
                after = Some(stream);
            }
            (Phase::Asked(_), Some(Answer::Refused(fault))) => {
                return Step::Broken(fault.of(if wait { Call::Wait } else { Call::Poll }));
            }
            (Phase::Asked(_), _) => return Step::Broken(Fault::WrongAnswer),
            _ => {}
        }
        let cut_short = self.capturing();
        while !cut_short && let Some(stream) = self.fences.next_waiting(after) {
            after = Some(stream);
            if wait && let Some(want) = self.record(stream, errand) {
                return Step::Want(want);
            }
            if let Some(newest) = self.fences.recorded(stream) {
                errand.phase = Phase::Asked(stream);
                return Step::Want(if wait {
                    Want::Wait { stream, serial: newest }
                } else {
                    Want::Poll { stream, newest }
                });
            }
        }
        if wait && !cut_short {
            sink.observe(Change::Synchronized);
        }
        Step::Next(match errand.bytes {
            0 => RungOutcome::Nothing,
            bytes => RungOutcome::Completed(bytes),
        })
    }

    /// Every rung was climbed.
    fn at_the_top(&mut self, mut errand: Errand, sink: &mut impl Observe) -> Output {
        match errand.job {
            Job::Trim { released, .. } => Output::Trimmed { ticket: errand.ticket, released },
            Job::Fence { .. } => Output::Quiet,
            // Another errand has opened something since this climb began: look again.
            Job::Alloc(ref mut request) if self.openings != errand.openings => {
                request.segment_bytes = grow::segment_bytes(&self.policy, request.size);
                errand.height = 0;
                errand.log.clear();
                errand.openings = self.openings;
                self.climb(errand, None, sink)
            }
            Job::Alloc(_) if self.in_flight > 0 => self.park(errand),
            Job::Alloc(request) => self.fail(errand, request, sink),
        }
    }

    #[cold]
    pub(super) fn fail(
        &mut self,
        errand: Errand,
        request: Request,
        sink: &mut impl Observe,
    ) -> Output {
        sink.observe(Change::RanOut {
            bytes: request.size,
            stream: request.stream,
            pool: request.pool,
        });
        let report = Box::new(self.report(&request, errand.log));
        Output::Failed { ticket: errand.ticket, report }
    }
}

// Note [Landings and openings]
//
// Whatever was asked of the driver *lands* with its answer; parked errands look again after every
// landing. A landing that left something for others to take is an *opening* too: memory given back
// or left cached, a fence recorded. Only openings send an errand back to the bottom. If refusals
// did so as well, two requests that both cannot be served would send each other back for ever. The
// one thing that a refusal frees is its share of the limit; an errand that only such shares hold
// back is parked on its rung and goes on from there.
//
// Two openings come from outside: a capture that begins or ends, and a limit that is set. Both may
// have cut a climb off from a rung that would have served it.
