// Half: the two 16-bit floats as bits, rounded by integer arithmetic so that host and device agree on every bit.
//
// Rounding is to nearest, ties to even; too large becomes infinite; a NaN keeps its sign and the top of its payload,
// and becomes quiet. Subnormal numbers are kept on both sides.
#pragma once

#include "kernel.h"

struct f16 {
    u16 bits;
};

struct bf16 {
    u16 bits;
};

/// A binary floating-point format: the unsigned integer of its size, fraction bits, exponent bias.
template <typename U, int FRACTION, int BIAS>
struct Format {
    typedef U Bits;
    static constexpr int fraction = FRACTION, bias = BIAS;
    static constexpr U one = static_cast<U>(1) << FRACTION;
    static constexpr U infinity = static_cast<U>(2 * BIAS + 1) << FRACTION;
    static constexpr U quiet = static_cast<U>(1) << (FRACTION - 1);
    static constexpr U sign = static_cast<U>(static_cast<U>(1) << (8 * sizeof(U) - 1));
};

typedef Format<u64, 52, 1023> Double;
typedef Format<u32, 23, 127> Single;
typedef Format<u16, 10, 15> Half;
typedef Format<u16, 7, 127> Brain;

/// `value / 2^shift`, to the nearest integer, ties to even. `shift` is at least one and below the width of `U`.
template <typename U>
BY_FN U shift_to_nearest(U value, int shift) {
    const U one = 1, rest = value & ((one << shift) - 1), middle = one << (shift - 1);
    const U kept = value >> shift;
    return kept + (rest > middle || (rest == middle && (kept & 1)) ? 1 : 0);
}

/// The bits of a number of format `From` in the narrower format `To`.
template <typename To, typename From>
BY_FN typename To::Bits rounded(typename From::Bits from) {
    typedef typename From::Bits U;
    constexpr int lost = From::fraction - To::fraction;
    const U size = from & (From::sign - 1);
    const u32 sign = from & From::sign ? To::sign : 0;
    if (size > From::infinity) {
        const u32 payload = static_cast<u32>((size - From::infinity) >> lost);
        return static_cast<typename To::Bits>(sign | To::infinity | To::quiet | payload);
    }
    const int exponent = static_cast<int>(size >> From::fraction) - From::bias + To::bias;
    if (exponent > 2 * To::bias) return static_cast<typename To::Bits>(sign | To::infinity);

    U near;
    if (exponent > 0 || From::bias == To::bias) {
        // Carrying out of the fraction raises the exponent, up to infinity, as it should.
        const U moved = (size & (From::one - 1)) | (static_cast<U>(exponent) << From::fraction);
        near = shift_to_nearest<U>(moved, lost);
    } else if (lost + 1 - exponent > From::fraction + 1) {
        near = 0;
    } else {
        near = shift_to_nearest<U>((size & (From::one - 1)) | From::one, lost + 1 - exponent);
    }
    return static_cast<typename To::Bits>(sign | static_cast<u32>(near));
}

BY_FN float as_float(bf16 from) {
    const u32 wide = static_cast<u32>(from.bits) << 16;
    const bool nan = (wide & (Single::sign - 1)) > Single::infinity;
    return bits<float>(nan ? wide | Single::quiet : wide);
}

BY_FN float as_float(f16 from) {
    const u32 sign = static_cast<u32>(from.bits & Half::sign) << 16;
    const u32 size = from.bits & (Half::sign - 1);
    const u32 moved = size << (Single::fraction - Half::fraction);
    if (size > Half::infinity) return bits<float>(sign | Single::infinity | Single::quiet | moved);
    if (size == Half::infinity) return bits<float>(sign | Single::infinity);
    if (size >= Half::one) {
        return bits<float>(sign | (moved + (static_cast<u32>(Single::bias - Half::bias) << Single::fraction)));
    }
    // A multiple of the smallest subnormal, 2^-24: exact.
    const float small = static_cast<float>(size) * 5.9604644775390625e-8f;
    return bits<float>(sign | bits<u32>(small));
}

BY_FN f16 as_f16(float from) {
    return f16{rounded<Half, Single>(bits<u32>(from))};
}

BY_FN f16 as_f16(double from) {
    return f16{rounded<Half, Double>(bits<u64>(from))};
}

BY_FN bf16 as_bf16(float from) {
    return bf16{rounded<Brain, Single>(bits<u32>(from))};
}

BY_FN bf16 as_bf16(double from) {
    return bf16{rounded<Brain, Double>(bits<u64>(from))};
}
