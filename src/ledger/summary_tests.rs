//! Golden texts of the two tables: for people they are the interface.

use super::*;
use crate::vocab::{Address, Change, GIB, MIB, Observe, PoolId, StreamId, Ticket};

/// A small and a large block out, a large one back, one retry and one failure.
fn stats() -> Stats {
    let mut stats = Stats::new(256 * MIB);
    let segment = |bytes, class| Change::SegmentAllocated {
        base: Address(0),
        bytes,
        class,
        stream: StreamId(0),
        pool: PoolId::DEFAULT,
        oversize: bytes >= 256 * MIB,
    };
    let block = |bytes, requested, class| Change::Allocated {
        ticket: Ticket(0),
        address: Address(0),
        bytes,
        requested,
        class,
        oversize: bytes >= 256 * MIB,
    };
    let (ticket, address, class) = (Ticket(0), Address(0), Class::Large);
    let changes = [
        segment(2 * MIB, Class::Small),
        block(1024, 1000, Class::Small),
        Change::InactiveSplit { class: Class::Small, blocks: 1, bytes: 2 * MIB as i64 - 1024 },
        segment(3 * GIB, class),
        block(3 * GIB, 3 * GIB - 700, class),
        Change::FreeRequested { ticket, address, bytes: 3 * GIB, class, oversize: true },
        Change::FreeCompleted { ticket, address, bytes: 3 * GIB, requested: 3 * GIB - 700, class },
        Change::Retried,
        Change::RanOut { bytes: 4 * GIB, stream: StreamId(0), pool: PoolId::DEFAULT },
    ];
    changes.into_iter().for_each(|change| stats.observe(change));
    stats
}

#[test]
fn the_abbreviated_summary() {
    let golden = "\
|===========================================================================|
|                 PyTorch CUDA memory summary, device ID 3                  |
|---------------------------------------------------------------------------|
|            CUDA OOMs: 1            |        cudaMalloc retries: 1         |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      |   1024 B   |   3072 MiB |   3072 MiB |   3072 MiB |
|---------------------------------------------------------------------------|
| Active memory         |   1024 B   |   3072 MiB |   3072 MiB |   3072 MiB |
|---------------------------------------------------------------------------|
| Requested memory      |   1000 B   |   3072 MiB |   3072 MiB |   3071 MiB |
|---------------------------------------------------------------------------|
| GPU reserved memory   |   3074 MiB |   3074 MiB |   3074 MiB |      0 B   |
|---------------------------------------------------------------------------|
| Non-releasable memory |   2047 KiB |   2047 KiB |   2047 KiB |      0 B   |
|---------------------------------------------------------------------------|
| Allocations           |      1     |      2     |      2     |      1     |
|---------------------------------------------------------------------------|
| Active allocs         |      1     |      2     |      2     |      1     |
|---------------------------------------------------------------------------|
| GPU reserved segments |      2     |      2     |      2     |      0     |
|---------------------------------------------------------------------------|
| Non-releasable allocs |      1     |      1     |      1     |      0     |
|---------------------------------------------------------------------------|
| Oversize allocations  |      0     |      1     |      1     |      1     |
|---------------------------------------------------------------------------|
| Oversize GPU segments |      1     |      1     |      1     |      0     |
|===========================================================================|
";
    assert_eq!(memory_summary(&stats(), 3, true), golden);
}

#[test]
fn the_full_summary_shows_each_side_in_the_unit_of_both() {
    let text = memory_summary(&stats(), 0, false);
    let rows = "\
| Allocated memory      |   1024 B   |   3072 MiB |   3072 MiB |   3072 MiB |
|       from large pool |      0 B   |   3072 MiB |   3072 MiB |   3072 MiB |
|       from small pool |   1024 B   |      0 MiB |      0 MiB |      0 MiB |
";
    assert!(text.contains(rows), "{text}");
    assert_eq!(text.lines().count(), 6 + 9 * 4 + 2 * 2 + 1);
    assert!(text.lines().all(|line| line.chars().count() == WIDTH + 2), "{text}");
}

#[test]
fn units_step_up_at_768_of_the_next() {
    for (value, shown) in [
        (0, "      0 B   "),
        (768 * 1024 - 1, " 786431 B   "),
        (768 * 1024, "    768 KiB "),
        (768 * MIB - 1, " 786431 KiB "),
        (768 * MIB, "    768 MiB "),
    ] {
        assert_eq!(BYTES.show(value, BYTES.unit(value), 12), shown);
    }
    assert_eq!(COUNT.show(749_999, COUNT.unit(749_999), 12), " 749999     ");
    assert_eq!(COUNT.show(750_000, COUNT.unit(750_000), 12), "    750 K   ");
    assert!(BYTES.show(u64::MAX, BYTES.unit(u64::MAX), 12).contains("16383 PiB"));
}

#[test]
fn the_pools() {
    let usage = PoolUsage {
        reserved_bytes: 20 * MIB,
        allocated_bytes: 9 * MIB,
        releasable_bytes: 0,
        pinned_free_bytes: 8 * MIB,
        awaiting_free_bytes: 3 * MIB,
        largest_free_bytes: 5 * MIB,
        rounding_bytes: 100,
    };
    let rows = [("large, stream 0".to_string(), usage), ("small, stream 7".to_string(), usage)];
    let golden = "\
|================================================================================================================================|
|         Pool          |   Reserved   |  Allocated   |  Releasable  | Pinned free  |   Awaiting   | Largest free |   Rounding   |
|--------------------------------------------------------------------------------------------------------------------------------|
| large, stream 0       |    20480 KiB |     9216 KiB |        0 B   |     8192 KiB |     3072 KiB |     5120 KiB |      100 B   |
| small, stream 7       |    20480 KiB |     9216 KiB |        0 B   |     8192 KiB |     3072 KiB |     5120 KiB |      100 B   |
|--------------------------------------------------------------------------------------------------------------------------------|
| all                   |    40960 KiB |    18432 KiB |        0 B   |    16384 KiB |     6144 KiB |     5120 KiB |      200 B   |
|================================================================================================================================|
";
    assert_eq!(pool_summary(&rows), golden);
    assert_eq!(pool_summary(&rows[..1]).lines().count(), 5, "one row needs no sum");
}
