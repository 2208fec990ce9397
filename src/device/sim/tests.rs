//! Tests of the simulated device as a whole: addresses, refusals, costs, and each thing that the
//! judge forbids.

use super::{FencePolicy, Refusals, SimConfig, SimDevice};
use crate::device::contract::{CallKind, Device, INVALID_VALUE};
use crate::vocab::{Address, Answer, Fault, GIB, MIB, Serial, StreamId, Want};

const A: StreamId = StreamId(0);
const B: StreamId = StreamId(1);
const BASE: u64 = 0x2000_0000_0000;
const PAGE: u64 = 2 * MIB;

fn reserve(device: &mut SimDevice, bytes: u64) -> Address {
    match device.perform(Want::Reserve { bytes }) {
        Answer::Granted { base } => base,
        other => panic!("{other:?}"),
    }
}

fn mapped_range(device: &mut SimDevice, bytes: u64) -> Address {
    let Answer::Granted { base } = device.perform(Want::ReserveRange { bytes, page: PAGE }) else {
        panic!("no address space")
    };
    assert_eq!(device.perform(Want::Map { base, bytes, page: PAGE }), Answer::Mapped);
    base
}

#[test]
fn segments_and_ranges_share_one_space_from_the_lowest_address() {
    let mut device = SimDevice::new(SimConfig::default());
    assert_eq!(reserve(&mut device, MIB), Address(BASE));
    assert_eq!(reserve(&mut device, 20 * MIB), Address(BASE + 2 * MIB));
    let range = device.perform(Want::ReserveRange { bytes: 4 * MIB, page: PAGE });
    assert_eq!(range, Answer::Granted { base: Address(BASE + 22 * MIB) });
    let release = Want::Release { base: Address(BASE), bytes: MIB };
    assert_eq!(device.perform(release), Answer::Released);
    assert_eq!(reserve(&mut device, 4 * MIB), Address(BASE + 26 * MIB));
    assert_eq!(reserve(&mut device, 2 * MIB), Address(BASE));
}

#[test]
fn more_than_the_capacity_is_out_of_memory() {
    let config = SimConfig { hidden: 4 * MIB, ..SimConfig::with_capacity(32 * MIB) };
    let mut device = SimDevice::new(config);
    assert_eq!((device.total(), device.free()), (Some(32 * MIB), Some(28 * MIB)));
    reserve(&mut device, 20 * MIB);
    let refused = device.perform(Want::Reserve { bytes: 10 * MIB });
    assert_eq!(refused, Answer::Refused(Fault::OutOfMemory));
    mapped_range(&mut device, 8 * MIB);
    assert_eq!(device.free(), Some(0));
    assert_eq!(device.calls().device_allocs(), 2);
    assert_eq!((device.calls().pages_mapped, device.calls().refused), (4, 1));
}

#[test]
fn an_ordered_refusal_changes_nothing() {
    let refusals = Refusals::default().and_nth(CallKind::Reserve, 2, Fault::Driver(999));
    let config = SimConfig { refusals, ..SimConfig::with_capacity(GIB) };
    let mut device = SimDevice::new(config);
    reserve(&mut device, MIB);
    let (free, nanos) = (device.free(), device.nanos());
    let refused = device.perform(Want::Reserve { bytes: MIB });
    assert_eq!(refused, Answer::Refused(Fault::Driver(999)));
    assert_eq!((device.free(), device.nanos()), (free, nanos));
    assert_eq!(reserve(&mut device, MIB), Address(BASE + 2 * MIB));
}

#[test]
fn time_is_the_sum_of_the_prices() {
    let mut config = SimConfig::default();
    config.costs.work_item = 1_000;
    let mut device = SimDevice::new(config);
    let base = reserve(&mut device, 20 * MIB);
    assert_eq!(device.nanos(), 50_000 + 20 * 800);
    device.launch(A, base, 512, 7);
    device.perform(Want::Fence { stream: A, serial: Serial(1) });
    let before = device.nanos();
    device.perform(Want::Poll { stream: A, newest: Serial(1) });
    assert_eq!(device.nanos() - before, 1_000, "a poll does not wait for the work");
    device.perform(Want::Wait { stream: A, serial: Serial(1) });
    assert_eq!(device.nanos() - before, 1_000 + 5_000 + 7_000);
    device.launch(A, base, 512, 3);
    device.perform(Want::Release { base, bytes: 20 * MIB });
    assert_eq!(device.nanos() - before, 13_000 + 50_000 + 20 * 400 + 3_000);
}

#[test]
fn a_scripted_fence_passes_when_told() {
    let config = SimConfig { fences: FencePolicy::Scripted, ..SimConfig::default() };
    let mut device = SimDevice::new(config);
    for serial in 1..=3 {
        device.perform(Want::Fence { stream: A, serial: Serial(serial) });
    }
    let poll = Want::Poll { stream: A, newest: Serial(3) };
    assert_eq!(device.perform(poll), Answer::Passed { through: Serial(0) });
    device.pass(A, Serial(2));
    assert_eq!(device.perform(poll), Answer::Passed { through: Serial(2) });
}

#[test]
fn memory_may_go_to_its_own_stream_under_unfinished_work() {
    let mut device = SimDevice::new(SimConfig::default());
    let base = reserve(&mut device, 2 * MIB);
    device.handed_out(A, base, MIB);
    device.launch(A, base, MIB, 1);
    device.handed_out(A, base, 2 * MIB);
    device.handed_out(B, base.plus(MIB), MIB);
    device.launch(B, base.plus(MIB), MIB, 1);
    let release = Want::Release { base, bytes: 2 * MIB };
    assert_eq!(device.perform(release), Answer::Released, "each stretch by its owner's work");
    assert_eq!(reserve(&mut device, 2 * MIB), base);
    device.handed_out(B, base, 2 * MIB);
}

#[test]
fn memory_may_go_to_another_stream_once_the_work_is_done() {
    let mut device = SimDevice::new(SimConfig::default());
    let base = reserve(&mut device, 2 * MIB);
    device.handed_out(A, base, MIB);
    device.launch(A, base, MIB, 2);
    device.launch(B, base, MIB, 1);
    device.finish(B);
    device.advance(A, 2);
    device.handed_out(B, base, MIB);
}

#[test]
#[should_panic(expected = "judge: handed out")]
fn judge_forbids_handing_out_under_anothers_work() {
    let mut device = SimDevice::new(SimConfig::default());
    let base = reserve(&mut device, 2 * MIB);
    device.launch(A, base, MIB, 2);
    device.advance(A, 1);
    device.handed_out(B, base.plus(MIB - 512), MIB);
}

#[test]
#[should_panic(expected = "judge: released")]
fn judge_forbids_releasing_under_a_guests_work() {
    let mut device = SimDevice::new(SimConfig::default());
    let base = reserve(&mut device, 2 * MIB);
    device.handed_out(A, base, MIB);
    device.launch(B, base, MIB, 1);
    device.perform(Want::Release { base, bytes: 2 * MIB });
}

#[test]
#[should_panic(expected = "judge: unmapped")]
fn judge_forbids_unmapping_under_work_that_is_not_waited_for() {
    let mut device = SimDevice::new(SimConfig::default());
    let base = mapped_range(&mut device, 2 * PAGE);
    device.handed_out(A, base, PAGE);
    device.launch(A, base, PAGE, 1);
    device.perform(Want::Unmap { base, bytes: PAGE, page: PAGE, stream: B });
}

#[test]
fn unmapping_waits_for_the_stream_it_names() {
    let mut device = SimDevice::new(SimConfig::default());
    let base = mapped_range(&mut device, 2 * PAGE);
    device.launch(A, base, PAGE, 5);
    let unmap = Want::Unmap { base, bytes: PAGE, page: PAGE, stream: A };
    assert_eq!(device.perform(unmap), Answer::Unmapped);
    device.perform(Want::Fence { stream: A, serial: Serial(1) });
    let poll = Want::Poll { stream: A, newest: Serial(1) };
    assert_eq!(device.perform(poll), Answer::Passed { through: Serial(1) });
}

#[test]
#[should_panic(expected = "judge: stream 0 uses")]
fn judge_forbids_using_what_is_not_mapped() {
    let mut device = SimDevice::new(SimConfig::default());
    let base = mapped_range(&mut device, PAGE);
    device.launch(A, base, PAGE + 1, 1);
}

#[test]
#[should_panic(expected = "which is no segment")]
fn judge_forbids_releasing_twice() {
    let mut device = SimDevice::new(SimConfig::default());
    let base = reserve(&mut device, 2 * MIB);
    device.perform(Want::Release { base, bytes: 2 * MIB });
    device.perform(Want::Release { base, bytes: 2 * MIB });
}

#[test]
fn without_a_judge_misuse_is_refused() {
    let config = SimConfig { judge: false, ..SimConfig::with_capacity(GIB) };
    let mut device = SimDevice::new(config);
    let base = mapped_range(&mut device, 2 * PAGE);
    device.launch(A, Address(0), 512, 1);
    device.handed_out(B, base, PAGE);
    let refused = Answer::Refused(Fault::Driver(INVALID_VALUE));
    let wrong = [
        Want::Reserve { bytes: 0 },
        Want::Release { base, bytes: 2 * PAGE },
        Want::ReleaseRange { base, bytes: 2 * PAGE },
        Want::ReserveRange { bytes: 3, page: 0 },
        Want::Map { base, bytes: PAGE, page: PAGE },
        Want::Map { base, bytes: PAGE, page: 0 },
        Want::Unmap { base, bytes: 0, page: PAGE, stream: A },
        Want::Unmap { base: Address(u64::MAX), bytes: PAGE, page: PAGE, stream: A },
        Want::Fence { stream: A, serial: Serial(0) },
        Want::Wait { stream: A, serial: Serial(1) },
    ];
    let free = device.free();
    for want in wrong {
        assert_eq!(device.perform(want), refused, "{want:?}");
    }
    assert_eq!(device.free(), free);
}
