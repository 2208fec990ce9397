//! Faults: which calls the simulated device refuses though it could grant them.
//!
//! Asked by the simulated device once a call, before anything else happens. Never knows memory or
//! streams. The plan is data and a seed, so a run that failed can be run again.

use crate::device::contract::CallKind;
use crate::device::random::Random;
use crate::vocab::Fault;

/// The refusals of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Single calls to refuse.
    pub single: Vec<Single>,
    /// Calls to refuse at random.
    pub random: Option<AtRandom>,
}

/// One call to refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Single {
    /// The kind of call.
    pub kind: CallKind,
    /// Which call of that kind: 1 is the first. Calls that were refused count too.
    pub nth: u64,
    /// The answer.
    pub fault: Fault,
}

/// A share of calls to refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtRandom {
    /// The seed that decides which.
    pub seed: u64,
    /// How many of a million calls.
    pub per_million: u32,
    /// The kinds that may be refused.
    pub kinds: Vec<CallKind>,
    /// The answer.
    pub fault: Fault,
}

impl Refusals {
    /// Refuses the `nth` call of a kind (1 is the first), besides what this plan refuses already.
    #[must_use]
    pub fn and_nth(mut self, kind: CallKind, nth: u64, fault: Fault) -> Self {
        self.single.push(Single { kind, nth, fault });
        self
    }

    /// Refuses calls of these kinds at random, and no others at random.
    #[must_use]
    pub fn and_random(
        mut self,
        seed: u64,
        per_million: u32,
        kinds: &[CallKind],
        fault: Fault,
    ) -> Self {
        self.random = Some(AtRandom { seed, per_million, kinds: kinds.to_vec(), fault });
        self
    }
}

/// The plan and how far it has come.
#[derive(Clone, Debug)]
pub(super) struct Refuser {
    plan: Refusals,
    random: Random,
    seen: [u64; CallKind::COUNT],
}

impl Refuser {
    /// The plan from its start.
    pub(super) fn new(plan: Refusals) -> Self {
        let seed = plan.random.as_ref().map_or(0, |at_random| at_random.seed);
        Self { plan, random: Random::new(seed), seen: [0; CallKind::COUNT] }
    }

    /// The fault with which the next call of this kind is refused, if it is.
    pub(super) fn next(&mut self, kind: CallKind) -> Option<Fault> {
        self.seen[kind as usize] += 1;
        let nth = self.seen[kind as usize];
        let single = self.plan.single.iter().find(|one| one.kind == kind && one.nth == nth);
        if let Some(one) = single {
            return Some(one.fault);
        }
        let at_random = self.plan.random.as_ref().filter(|all| all.kinds.contains(&kind))?;
        self.random.chance(at_random.per_million).then_some(at_random.fault)
    }
}

#[cfg(test)]
mod tests {
    use super::{CallKind, Fault, Refusals, Refuser};

    #[test]
    fn the_nth_call_of_a_kind_is_refused_once() {
        let plan = Refusals::default().and_nth(CallKind::Map, 2, Fault::Driver(7));
        let mut refuser = Refuser::new(plan);
        let asked = [CallKind::Map, CallKind::Reserve, CallKind::Reserve, CallKind::Map];
        let refused: Vec<_> = asked.map(|kind| refuser.next(kind)).into();
        assert_eq!(refused, [None, None, None, Some(Fault::Driver(7))]);
        assert_eq!(refuser.next(CallKind::Map), None);
    }

    #[test]
    fn a_seed_refuses_the_same_calls_again_and_only_of_its_kinds() {
        let plan =
            Refusals::default().and_random(11, 300_000, &[CallKind::Reserve], Fault::OutOfMemory);
        let run = |mut refuser: Refuser| -> Vec<bool> {
            (0..1000).map(|_| refuser.next(CallKind::Reserve).is_some()).collect()
        };
        let first = run(Refuser::new(plan.clone()));
        assert_eq!(first, run(Refuser::new(plan.clone())));
        let hits = first.iter().filter(|&&hit| hit).count();
        assert!((200..400).contains(&hits), "{hits}");
        let mut refuser = Refuser::new(plan);
        assert!((0..1000).all(|_| refuser.next(CallKind::Map).is_none()));
    }
}
