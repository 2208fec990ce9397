// Fill: one element over and over.
#include "kernel.h"

/// An element of 1, 2, 4, 8 or 16 bytes, repeated until 16 bytes are full.
BY_FN u128 repeat(u32 element, u64 lo, u64 hi) {
    for (u32 width = element; width < 8; width *= 2) {
        u64 low = lo & ((1ull << (8 * width)) - 1);
        lo = low | (low << (8 * width));
    }
    return u128{lo, element < 16 ? lo : hi};
}

/// The 16 bytes that follow when the first `count` (below 16) of a repetition have been taken.
BY_FN u128 rotate(u128 from, u32 count) {
    if (count >= 8) from = u128{from.hi, from.lo};
    u32 shift = 8 * (count % 8);
    if (shift == 0) return from;
    return u128{(from.lo >> shift) | (from.hi << (64 - shift)), (from.hi >> shift) | (from.lo << (64 - shift))};
}

BY_FN u8 byte_of(u128 from, u32 place) {
    return static_cast<u8>((place < 8 ? from.lo : from.hi) >> (8 * (place % 8)));
}

/// Writes `count` elements of `element` bytes to `dst`, whatever its alignment. The element stands little-endian in
/// `lo` and, for 16 bytes, `hi`. Single bytes up to the first multiple of 16, then 16 at a time, then bytes.
BY_KERNEL by_fill(void* dst, u64 count, u32 element, u64 lo, u64 hi) {
    const u64 size = count * element;
    u64 head = short_of(dst, 16);
    if (head > size) head = size;
    const u64 vectors = (size - head) / 16;
    const u64 tail = head + 16 * vectors;
    const u128 value = repeat(element, lo, hi);
    const u128 turned = rotate(value, static_cast<u32>(head % 16));
    const u64 self = first();

    for (u64 i = self; i < vectors; i += step()) store(bytes(dst) + head + 16 * i, turned);
    for (u64 i = self; i < head; i += step()) store(bytes(dst) + i, byte_of(value, static_cast<u32>(i)));
    for (u64 i = tail + self; i < size; i += step()) {
        store(bytes(dst) + i, byte_of(turned, static_cast<u32>(i - tail)));
    }
}
