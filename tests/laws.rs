//! Laws: every device is put through the laws of `blockyard::device::laws`, and devices with one
//! defect each must fail them: a law that no device breaks says nothing.

use blockyard::device::laws::{Subject, check_laws};
use blockyard::device::{
    CallKind, Calls, Device, FencePolicy, HostDevice, Refusals, SimConfig, SimDevice,
};
use blockyard::vocab::{Address, Answer, Fault, MIB, Serial, StreamId, Want};

const CAPACITY: u64 = 256 * MIB;

fn holds(config: SimConfig) {
    let result = check_laws(|| Box::new(SimDevice::new(config.clone())));
    assert_eq!(result, Ok(()), "{config:?}");
}

#[test]
fn simulated() {
    holds(SimConfig::default());
    holds(SimConfig::with_capacity(CAPACITY));
    holds(SimConfig { hidden: 30 * MIB, ..SimConfig::with_capacity(CAPACITY) });
    holds(SimConfig { granularity: 64 << 10, ..SimConfig::with_capacity(CAPACITY) });
    holds(SimConfig { judge: false, ..SimConfig::with_capacity(CAPACITY) });
}

#[test]
fn simulated_with_every_kind_of_fence() {
    for fences in [
        FencePolicy::AfterCalls(0),
        FencePolicy::AfterCalls(3),
        FencePolicy::AfterCalls(1_000_000),
        FencePolicy::OnlyWhenWaited,
        FencePolicy::Scripted,
    ] {
        holds(SimConfig { fences, ..SimConfig::with_capacity(CAPACITY) });
    }
}

#[test]
fn simulated_at_awkward_addresses() {
    for seed in 0..20 {
        holds(SimConfig::with_capacity(CAPACITY).hostile(seed));
    }
}

#[test]
fn simulated_with_refusals() {
    const KINDS: [CallKind; 10] = [
        CallKind::Reserve,
        CallKind::Release,
        CallKind::ReserveRange,
        CallKind::ReleaseRange,
        CallKind::Map,
        CallKind::Unmap,
        CallKind::Fence,
        CallKind::Poll,
        CallKind::Wait,
        CallKind::Order,
    ];
    for seed in 0..20 {
        let refusals = Refusals::default().and_random(seed, 200_000, &KINDS, Fault::Driver(719));
        holds(SimConfig { refusals, ..SimConfig::with_capacity(CAPACITY) });
    }
}

#[test]
fn host() {
    assert_eq!(check_laws(|| Box::new(HostDevice::with_cap(CAPACITY))), Ok(()));
    assert_eq!(check_laws(|| Box::new(HostDevice::new())), Ok(()));
}

/// What is wrong with a device.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Defect {
    None,
    Misaligned,
    OverlappingSegments,
    RangeOverSegment,
    WrongAnswer,
    Uncounted,
    RefusalLeaks,
    RefusalLeaksUnseen,
    ReleaseKeepsBytes,
    HalfMapped,
    UnmapKeepsBytes,
    PassesEarly,
    PassesUnrecorded,
    PassesBackwards,
    WaitFallsShort,
    WaitPassesOthers,
    PollWaits,
    SlowFence,
    OrderIgnored,
}

/// A simulated device with one defect.
struct Defective {
    inner: SimDevice,
    defect: Defect,
    last: Option<Address>,
    polls: u64,
    extra_nanos: u64,
    leaked: u64,
    calls: Calls,
}

impl Defective {
    fn new(defect: Defect) -> Self {
        let config = SimConfig { judge: false, ..SimConfig::with_capacity(CAPACITY) };
        let inner = SimDevice::new(config);
        let calls = Calls::default();
        Self { inner, defect, last: None, polls: 0, extra_nanos: 0, leaked: 0, calls }
    }

    fn spoil_grant(&mut self, want: Want, base: Address) -> Answer {
        let last = self.last.replace(base);
        let spoilt = match (self.defect, want) {
            (Defect::Misaligned, _) => base.plus(512),
            (Defect::OverlappingSegments, Want::Reserve { .. })
            | (Defect::RangeOverSegment, Want::ReserveRange { .. }) => last.unwrap_or(base),
            _ => base,
        };
        Answer::Granted { base: spoilt }
    }

    fn spoilt(&mut self, want: Want) -> Answer {
        match (self.defect, want) {
            (Defect::PollWaits, Want::Poll { stream, newest }) => {
                self.inner.perform(Want::Wait { stream, serial: newest });
            }
            (Defect::WaitPassesOthers, Want::Wait { .. }) => {
                (0..8).for_each(|stream| self.inner.finish(StreamId(stream)));
            }
            (Defect::SlowFence, Want::Fence { .. }) => self.extra_nanos += 50_000,
            (Defect::OrderIgnored, Want::Order { .. }) => return Answer::Ordered,
            (Defect::ReleaseKeepsBytes, Want::Release { .. }) => return Answer::Released,
            (Defect::UnmapKeepsBytes, Want::Unmap { .. }) => return Answer::Unmapped,
            _ => {}
        }
        let answer = self.inner.perform(want);
        match (self.defect, want, answer) {
            (_, _, Answer::Granted { base }) => self.spoil_grant(want, base),
            (_, _, Answer::Refused(fault)) => self.spoil_refusal(want, fault),
            (_, _, Answer::Passed { through }) => self.spoil_passed(want, through),
            (Defect::WrongAnswer, _, Answer::Released) => Answer::Unmapped,
            _ => answer,
        }
    }

    fn spoil_passed(&mut self, want: Want, through: Serial) -> Answer {
        self.polls += 1;
        let spoilt = match (self.defect, want) {
            (Defect::PassesEarly, Want::Poll { newest, .. }) => newest,
            (Defect::PassesUnrecorded, _) => Serial(through.0 + 1),
            (Defect::PassesBackwards, Want::Poll { .. }) if self.polls.is_multiple_of(2) => {
                Serial(0)
            }
            (Defect::WaitFallsShort, Want::Wait { .. }) => Serial(through.0 - 1),
            _ => through,
        };
        Answer::Passed { through: spoilt }
    }

    fn spoil_refusal(&mut self, want: Want, fault: Fault) -> Answer {
        match (self.defect, want) {
            (Defect::RefusalLeaks | Defect::RefusalLeaksUnseen, Want::Reserve { .. }) => {
                let before = self.inner.free();
                self.inner.perform(Want::Reserve { bytes: 2 * MIB });
                let lost = before.unwrap_or(0) - self.inner.free().unwrap_or(0);
                if self.defect == Defect::RefusalLeaksUnseen {
                    self.leaked += lost;
                }
            }
            (Defect::HalfMapped, Want::Map { base, page, .. }) => {
                self.inner.perform(Want::Map { base, bytes: page, page });
            }
            _ => {}
        }
        Answer::Refused(fault)
    }
}

impl Device for Defective {
    fn perform(&mut self, want: Want) -> Answer {
        let answer = self.spoilt(want);
        if !(self.defect == Defect::Uncounted && matches!(want, Want::Fence { .. })) {
            self.calls.count(&want, &answer);
        }
        answer
    }

    fn total(&self) -> Option<u64> {
        self.inner.total()
    }

    fn free(&self) -> Option<u64> {
        self.inner.free().map(|free| free + self.leaked)
    }

    fn granularity(&self) -> u64 {
        self.inner.granularity()
    }

    fn page_mapping(&self) -> bool {
        self.inner.page_mapping()
    }

    fn nanos(&self) -> u64 {
        self.inner.nanos() + self.extra_nanos
    }

    fn calls(&self) -> Calls {
        self.calls
    }
}

impl Subject for Defective {
    fn busy(&mut self, stream: StreamId, base: Address, bytes: u64) -> bool {
        self.inner.busy(stream, base, bytes)
    }

    fn idle(&mut self, stream: StreamId) {
        self.inner.idle(stream);
    }
}

#[test]
fn a_device_without_a_defect_passes() {
    assert_eq!(check_laws(|| Box::new(Defective::new(Defect::None))), Ok(()));
}

#[test]
fn every_defect_is_found_by_its_law() {
    let expected = [
        (Defect::Misaligned, "is not aligned"),
        (Defect::OverlappingSegments, "D1: segments are aligned and disjoint"),
        (Defect::RangeOverSegment, "D1: address ranges are disjoint"),
        (Defect::WrongAnswer, "was answered Unmapped"),
        (Defect::Uncounted, "was not counted"),
        (Defect::RefusalLeaks, "was refused, yet free went"),
        (Defect::RefusalLeaksUnseen, "filled three times"),
        (Defect::ReleaseKeepsBytes, "after every segment was released"),
        (Defect::HalfMapped, "was refused, yet free went"),
        (Defect::UnmapKeepsBytes, "after the middle page was unmapped"),
        (Defect::PassesEarly, "work before fence 2 unfinished"),
        (Defect::PassesUnrecorded, "was recorded last"),
        (Defect::PassesBackwards, "had passed, then only 0"),
        (Defect::WaitFallsShort, "waited for fence"),
        (Defect::WaitPassesOthers, "passed another stream's fence"),
        (Defect::PollWaits, "must not wait"),
        (Defect::SlowFence, "must not wait"),
        (Defect::OrderIgnored, "before the fence that it was ordered behind"),
    ];
    for (defect, text) in expected {
        let found = check_laws(|| Box::new(Defective::new(defect)));
        let broken = found.expect_err(&format!("{defect:?} was not found"));
        assert!(broken.contains(text), "{defect:?}: {broken}");
    }
}
