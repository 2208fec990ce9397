//! VMM: CUDA's rules, each kept and each broken.
#![allow(missing_docs, clippy::unwrap_used, unsafe_code)]

mod common;
use common::*;

fn reserve(bytes: u64) -> u64 {
    let mut address = 0;
    ok(cuMemAddressReserve(&mut address, bytes, 0, 0, 0));
    address
}

fn create(bytes: u64) -> u64 {
    let mut handle = 0;
    ok(cuMemCreate(&mut handle, bytes, &PROPERTIES, 0));
    handle
}

/// A reservation of two pages with both mapped and accessible, and the handles released.
fn two_pages() -> u64 {
    let at = reserve(2 * PAGE);
    for page in [at, at + PAGE] {
        let handle = create(PAGE);
        ok(cuMemMap(page, PAGE, 0, handle, 0));
        ok(cuMemRelease(handle));
    }
    ok(cuMemSetAccess(at, 2 * PAGE, &FULL, 1));
    at
}

#[test]
fn memory_lives_while_a_handle_or_a_mapping_names_it() {
    let _machine = Machine::new();
    let (at, other, handle) = (reserve(PAGE), reserve(PAGE), create(PAGE));
    ok(cuMemMap(at, PAGE, 0, handle, 0));
    ok(cuMemMap(other, PAGE, 0, handle, 0));
    ok(cuMemSetAccess(at, PAGE, &FULL, 1));
    ok(cuMemSetAccess(other, PAGE, &FULL, 1));
    ok(cuMemsetD8_v2(at, 7, 16));
    assert_eq!(read(other, 2), [7, 7], "the same memory in two places");
    ok(cuMemRelease(handle));
    assert_eq!((alive("handles"), alive("bytes")), (0, PAGE));
    assert_eq!(cuMemRelease(handle), 1, "released already");
    let mut again = 0;
    ok(cuMemRetainAllocationHandle(&mut again, at + 5));
    assert_eq!(again, handle);
    let mut how = Properties::default();
    ok(cuMemGetAllocationPropertiesFromHandle(&mut how, again));
    assert_eq!((how.kind, how.location, how.device), (1, 1, 0));
    ok(cuMemUnmap(at, PAGE));
    ok(cuMemUnmap(other, PAGE));
    assert_eq!(alive("bytes"), PAGE, "a handle still names it");
    ok(cuMemRelease(again));
    assert_eq!(alive("bytes"), 0);
    ok(cuMemAddressFree(at, PAGE));
    ok(cuMemAddressFree(other, PAGE));
    assert_eq!((alive("mappings"), alive("reservations")), (0, 0));
}

#[test]
fn sizes_are_granules() {
    let _machine = Machine::new();
    let (mut address, mut handle, mut granule) = (0, 0, 0);
    ok(cuMemGetAllocationGranularity(&mut granule, &PROPERTIES, 0));
    assert_eq!(granule, PAGE);
    assert_eq!(cuMemAddressReserve(&mut address, PAGE + 4096, 0, 0, 0), 1);
    assert_eq!(cuMemAddressReserve(&mut address, 0, 0, 0, 0), 1);
    assert_eq!(cuMemAddressReserve(&mut address, PAGE, 3, 0, 0), 1, "no power of two");
    assert_eq!(cuMemCreate(&mut handle, 4096, &PROPERTIES, 0), 1);
    assert_eq!(cuMemCreate(&mut handle, PAGE, &Properties { device: 9, ..PROPERTIES }, 0), 101);
    set("memory", PAGE);
    let handle = create(PAGE);
    let mut none = 0;
    assert_eq!(cuMemCreate(&mut none, PAGE, &PROPERTIES, 0), 2);
    ok(cuMemRelease(handle));
}

#[test]
fn hints_hold_where_there_is_room() {
    let _machine = Machine::new();
    let (far, mut got) = (reserve(PAGE) + 64 * PAGE, 0);
    ok(cuMemAddressReserve(&mut got, PAGE, 0, far, 0));
    assert_eq!(got, far);
    ok(cuMemAddressReserve(&mut got, PAGE, 0, far, 0));
    assert_ne!(got, far);
    ok(cuMemAddressReserve(&mut got, PAGE, 16 * PAGE, 0, 0));
    assert!(got.is_multiple_of(16 * PAGE));
}

#[test]
fn a_mapping_lies_inside_one_reservation_and_replaces_none() {
    let _machine = Machine::new();
    let (at, handle, large) = (reserve(2 * PAGE), create(PAGE), create(2 * PAGE));
    assert_eq!(cuMemMap(at, PAGE, 4096, handle, 0), 1, "an offset");
    assert_eq!(cuMemMap(at + 4096, PAGE, 0, handle, 0), 1, "between granules");
    assert_eq!(cuMemMap(at, 2 * PAGE, 0, handle, 0), 1, "more than there is");
    assert_eq!(cuMemMap(at + PAGE, 2 * PAGE, 0, large, 0), 1, "beyond the reservation");
    assert_eq!(cuMemMap(at, PAGE, 0, 0xbad, 0), 1, "no such handle");
    ok(cuMemMap(at, PAGE, 0, handle, 0));
    assert_eq!(cuMemMap(at, PAGE, 0, handle, 0), 208);
    assert_eq!(cuMemMap(at, 2 * PAGE, 0, large, 0), 208);
    assert_eq!(cuMemAddressFree(at, 2 * PAGE), 1, "something is mapped in it");
    assert_eq!(cuMemAddressFree(at, PAGE), 1, "not its size");
}

#[test]
fn only_whole_mappings_are_unmapped() {
    let _machine = Machine::new();
    let (at, large) = (reserve(4 * PAGE), create(2 * PAGE));
    ok(cuMemMap(at, 2 * PAGE, 0, large, 0));
    assert_eq!(cuMemUnmap(at, PAGE), 1);
    assert_eq!(cuMemUnmap(at + PAGE, PAGE), 1);
    assert_eq!(cuMemUnmap(at, 4 * PAGE), 1, "a gap");
    assert_eq!(cuMemSetAccess(at, PAGE, &FULL, 1), 1);
    ok(cuMemUnmap(at, 2 * PAGE));
    let two = two_pages();
    ok(cuMemUnmap(two, 2 * PAGE));
}

#[test]
fn access_is_set_before_use() {
    let _machine = Machine::new();
    let (at, handle) = (reserve(PAGE), create(PAGE));
    ok(cuMemMap(at, PAGE, 0, handle, 0));
    ok(cuMemSetAccess(at, PAGE, &Access { flags: 1, ..FULL }, 1));
    assert_eq!(read(at, 1), [0]);
    assert_eq!(cuMemsetD8_v2(at, 1, 1), 700, "only to be read");
    drop(_machine);

    let _machine = Machine::new();
    let (at, handle) = (reserve(PAGE), create(PAGE));
    ok(cuMemMap(at, PAGE, 0, handle, 0));
    assert_eq!(cuMemsetD8_v2(at, 1, 1), 700, "no access at all");
}

#[test]
fn work_may_cross_mappings_but_no_gap() {
    let _machine = Machine::new();
    let at = two_pages();
    ok(cuMemsetD8_v2(at + PAGE - 8, 3, 16));
    assert_eq!(read(at + PAGE - 9, 3), [0, 3, 3]);
    ok(cuMemUnmap(at + PAGE, PAGE));
    assert_eq!(cuMemsetD8_v2(at + PAGE - 8, 3, 16), 700);
}

#[test]
fn nothing_is_unmapped_under_work() {
    let _machine = Machine::new();
    let (at, s) = (two_pages(), stream(1));
    simcuda_pause();
    ok(cuMemsetD8Async(at + 8, 3, 16, s));
    assert_eq!(cuMemUnmap(at, PAGE), 401);
    ok(cuMemUnmap(at + PAGE, PAGE));
    assert_eq!(simcuda_violations(), 1);
    simcuda_resume();
    ok(cuStreamSynchronize(s));
    ok(cuMemUnmap(at, PAGE));
    assert_eq!(alive("bytes"), 0);
}
