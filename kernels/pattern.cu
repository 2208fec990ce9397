// Pattern: memory that tells where it is, so that a block can be filled and later checked.
#include "kernel.h"

/// The word of the lattice at `index`: splitmix64 of seed plus index.
BY_FN u64 pattern(u64 seed, u64 index) {
    u64 z = seed + index + 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/// The bits of a word that lie within `size` bytes, when `word` words come before it.
BY_FN u64 mask(u64 size, u64 word) {
    const u64 left = size - 8 * word;
    return left >= 8 ? ~0ull : (1ull << (8 * left)) - 1;
}

/// Writes the words `origin`, `origin + 1`, ... of the pattern over `size` bytes; `dst` is aligned to 8. A last word
/// that does not fit is cut.
BY_KERNEL by_pattern_fill(void* dst, u64 size, u64 seed, u64 origin) {
    const u64 words = size / 8;
    for (u64 i = first(); i < words; i += step()) store(bytes(dst) + 8 * i, pattern(seed, origin + i));
    for (u64 i = 8 * words + first(); i < size; i += step()) {
        store(bytes(dst) + i, static_cast<u8>(pattern(seed, origin + words) >> (8 * (i % 8))));
    }
}

/// The last, partial word, byte by byte.
BY_FN u64 rest(const u8* at, u64 size) {
    u64 word = 0;
    for (u64 i = 0; i < size; i++) word |= static_cast<u64>(at[i]) << (8 * i);
    return word;
}

/// Compares what by_pattern_fill wrote. `found` is two u64 that stood at {2^64 - 1, 0}: afterwards the lowest index of
/// a wrong word, counted from `src`, and how many words are wrong. Only wrong words cost an atomic.
BY_KERNEL by_pattern_verify(const void* src, u64 size, u64 seed, u64 origin, u64* found) {
    const u64 words = (size + 7) / 8;
    u64 lowest = ~0ull, wrong = 0;
    for (u64 i = first(); i < words; i += step()) {
        const u8* at = bytes(src) + 8 * i;
        const u64 word = mask(size, i) == ~0ull ? load<u64>(at) : rest(at, size % 8);
        if (word != (pattern(seed, origin + i) & mask(size, i))) {
            lowest = i < lowest ? i : lowest;
            wrong++;
        }
    }
    if (wrong) {
        atomicMin(found, lowest);
        atomicAdd(found + 1, wrong);
    }
}
