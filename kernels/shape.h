// Shape: where the elements of two strided views lie.
#pragma once

#include "kernel.h"

static constexpr u32 MAX_RANK = 8;

/// Two views of one shape, the last axis running fastest. Strides count elements, may be zero (on the source only)
/// and negative; both base pointers are those of index zero. Axes from `rank` on are not looked at. Passed by value.
struct Shape {
    u64 size[MAX_RANK];
    i64 dst[MAX_RANK];
    i64 src[MAX_RANK];
    u64 rank;
};

/// Elements to go from the two base pointers.
struct Offsets {
    i64 dst, src;
};

/// One for rank zero.
BY_FN constexpr u64 elements(const Shape& shape) {
    u64 count = 1;
    BY_UNROLL
    for (u32 axis = 0; axis < MAX_RANK; axis++) {
        if (axis < shape.rank) count *= shape.size[axis];
    }
    return count;
}

/// Where element `index` lies. `I` is the integer to divide in: 32 bits where they suffice, as that is much faster.
/// The loop has a fixed length so that the shape stays in parameter memory.
template <typename I>
BY_FN constexpr Offsets locate(const Shape& shape, I index) {
    Offsets at{0, 0};
    BY_UNROLL
    for (u32 back = 0; back < MAX_RANK; back++) {
        const u32 axis = MAX_RANK - 1 - back;
        if (axis < shape.rank) {
            const I size = static_cast<I>(shape.size[axis]);
            const I rest = index / size;
            const i64 place = static_cast<i64>(index - rest * size);
            at.dst += place * shape.dst[axis];
            at.src += place * shape.src[axis];
            index = rest;
        }
    }
    return at;
}

/// Where element `index` of `count` lies.
BY_FN constexpr Offsets locate(const Shape& shape, u64 index, u64 count) {
    return count >> 32 ? locate<u64>(shape, index) : locate<u32>(shape, static_cast<u32>(index));
}
