// Convert: one number of any type as any other type.
//
// Every source is first widened without loss to i64, float or double, and then rounded once:
//
//   to a float            nearest, ties to even; overflow is infinite; NaN stays NaN (quiet, top of the payload kept)
//   float to integer      towards zero; beyond the range its nearest end; NaN is 0
//   integer to integer    the low bits (two's complement)
//   anything to bool      x != 0, so NaN is true; a bool in memory is true unless its byte is 0, and written as 1
#pragma once

#include "half.h"

struct boolean {
    u8 byte;
};

// Widening. Never loses anything.

BY_FN double widen(double from) {
    return from;
}
BY_FN float widen(float from) {
    return from;
}
BY_FN float widen(f16 from) {
    return as_float(from);
}
BY_FN float widen(bf16 from) {
    return as_float(from);
}
BY_FN i64 widen(i64 from) {
    return from;
}
BY_FN i64 widen(i32 from) {
    return from;
}
BY_FN i64 widen(i16 from) {
    return from;
}
BY_FN i64 widen(i8 from) {
    return from;
}
BY_FN i64 widen(u8 from) {
    return from;
}
BY_FN i64 widen(boolean from) {
    return from.byte != 0;
}

// Narrowing. The second argument only says the type.

template <typename T>
struct To {};

BY_FN double narrow(double from, To<double>) {
    return from;
}

/// The device would make every NaN the same one.
BY_FN double narrow(float from, To<double>) {
    const u32 single = bits<u32>(from);
    if ((single & (Single::sign - 1)) <= Single::infinity) return from;
    const u64 sign = static_cast<u64>(single & Single::sign) << 32;
    const u64 payload = static_cast<u64>(single & (Single::one - 1)) << (Double::fraction - Single::fraction);
    return bits<double>(sign | Double::infinity | Double::quiet | payload);
}

BY_FN double narrow(i64 from, To<double>) {
    return static_cast<double>(from);
}

BY_FN float narrow(double from, To<float>) {
    const u64 wide = bits<u64>(from);
    if ((wide & (Double::sign - 1)) <= Double::infinity) return static_cast<float>(from);
    const u32 sign = static_cast<u32>((wide & Double::sign) >> 32);
    const u32 payload = static_cast<u32>((wide & (Double::one - 1)) >> (Double::fraction - Single::fraction));
    return bits<float>(sign | Single::infinity | Single::quiet | payload);
}

BY_FN float narrow(float from, To<float>) {
    return from;
}

BY_FN float narrow(i64 from, To<float>) {
    return static_cast<float>(from);
}

template <typename W>
BY_FN f16 narrow(W from, To<f16>) {
    return as_f16(from);
}

/// Exact in float up to 2^24, and infinite long before.
BY_FN f16 narrow(i64 from, To<f16>) {
    return as_f16(static_cast<float>(from));
}

template <typename W>
BY_FN bf16 narrow(W from, To<bf16>) {
    return as_bf16(from);
}

/// A double does not hold every i64. Bits too low to decide the rounding are gathered into one, so that it does.
BY_FN bf16 narrow(i64 from, To<bf16>) {
    u64 size = from < 0 ? 0 - static_cast<u64>(from) : static_cast<u64>(from);
    if (size >> 32) size = (size >> 16 << 16) | (size & 0xffff ? 0x10000 : 0);
    const double wide = static_cast<double>(size);
    return as_bf16(from < 0 ? -wide : wide);
}

/// Towards zero, the ends of i64 beyond them, 0 for NaN.
template <typename F>
BY_FN i64 whole(F from) {
    constexpr F end = static_cast<F>(9223372036854775808.0);
    if (from != from) return 0;
    if (from >= end) return 0x7fffffffffffffffll;
    if (from < -end) return -0x7fffffffffffffffll - 1;
    return static_cast<i64>(from);
}

template <typename T>
BY_FN T within(i64 from, i64 least, i64 most) {
    return static_cast<T>(from < least ? least : from > most ? most : from);
}

template <typename F>
BY_FN i64 narrow(F from, To<i64>) {
    return whole(from);
}
template <typename F>
BY_FN i32 narrow(F from, To<i32>) {
    return within<i32>(whole(from), -0x7fffffffll - 1, 0x7fffffff);
}
template <typename F>
BY_FN i16 narrow(F from, To<i16>) {
    return within<i16>(whole(from), -0x8000, 0x7fff);
}
template <typename F>
BY_FN i8 narrow(F from, To<i8>) {
    return within<i8>(whole(from), -0x80, 0x7f);
}
template <typename F>
BY_FN u8 narrow(F from, To<u8>) {
    return within<u8>(whole(from), 0, 0xff);
}

BY_FN i64 narrow(i64 from, To<i64>) {
    return from;
}
BY_FN i32 narrow(i64 from, To<i32>) {
    return static_cast<i32>(from);
}
BY_FN i16 narrow(i64 from, To<i16>) {
    return static_cast<i16>(from);
}
BY_FN i8 narrow(i64 from, To<i8>) {
    return static_cast<i8>(from);
}
BY_FN u8 narrow(i64 from, To<u8>) {
    return static_cast<u8>(from);
}

template <typename W>
BY_FN boolean narrow(W from, To<boolean>) {
    return boolean{static_cast<u8>(from != 0)};
}
