// Cast: elements of one type as elements of another.
#include "convert.h"
#include "shape.h"

template <typename D, typename S>
BY_FN void cast(void* dst, const void* src, u64 count) {
    D* to = static_cast<D*>(dst);
    const S* from = static_cast<const S*>(src);
    for (u64 i = first(); i < count; i += step()) store(to + i, narrow(widen(load<S>(from + i)), To<D>()));
}

/// Contiguous: one kernel for each pair of types. Pointers are aligned to their elements; memory is disjoint, or the
/// same where both elements have one size.
#define CAST(from, S, to, D)                                                         \
    BY_KERNEL by_cast_##from##_##to(void* dst, const void* src, u64 count) {         \
        cast<D, S>(dst, src, count);                                                 \
    }

#define TO_F64(from, S) CAST(from, S, f64, double)
#define TO_F32(from, S) CAST(from, S, f32, float)
#define TO_F16(from, S) CAST(from, S, f16, f16)
#define TO_BF16(from, S) CAST(from, S, bf16, bf16)
#define TO_I64(from, S) CAST(from, S, i64, i64)
#define TO_I32(from, S) CAST(from, S, i32, i32)
#define TO_I16(from, S) CAST(from, S, i16, i16)
#define TO_I8(from, S) CAST(from, S, i8, i8)
#define TO_U8(from, S) CAST(from, S, u8, u8)
#define TO_BOOL(from, S) CAST(from, S, bool, boolean)

#define TO_FLOATS(from, S) TO_F64(from, S) TO_F32(from, S) TO_F16(from, S) TO_BF16(from, S)
#define TO_INTEGERS(from, S) TO_I64(from, S) TO_I32(from, S) TO_I16(from, S) TO_I8(from, S) TO_U8(from, S)

TO_F32(f64, double) TO_F16(f64, double) TO_BF16(f64, double) TO_INTEGERS(f64, double) TO_BOOL(f64, double)
TO_F64(f32, float) TO_F16(f32, float) TO_BF16(f32, float) TO_INTEGERS(f32, float) TO_BOOL(f32, float)
TO_F64(f16, f16) TO_F32(f16, f16) TO_BF16(f16, f16) TO_INTEGERS(f16, f16) TO_BOOL(f16, f16)
TO_F64(bf16, bf16) TO_F32(bf16, bf16) TO_F16(bf16, bf16) TO_INTEGERS(bf16, bf16) TO_BOOL(bf16, bf16)
TO_FLOATS(i64, i64) TO_I32(i64, i64) TO_I16(i64, i64) TO_I8(i64, i64) TO_U8(i64, i64) TO_BOOL(i64, i64)
TO_FLOATS(i32, i32) TO_I64(i32, i32) TO_I16(i32, i32) TO_I8(i32, i32) TO_U8(i32, i32) TO_BOOL(i32, i32)
TO_FLOATS(i16, i16) TO_I64(i16, i16) TO_I32(i16, i16) TO_I8(i16, i16) TO_U8(i16, i16) TO_BOOL(i16, i16)
TO_FLOATS(i8, i8) TO_I64(i8, i8) TO_I32(i8, i8) TO_I16(i8, i8) TO_U8(i8, i8) TO_BOOL(i8, i8)
TO_FLOATS(u8, u8) TO_I64(u8, u8) TO_I32(u8, u8) TO_I16(u8, u8) TO_I8(u8, u8) TO_BOOL(u8, u8)
TO_FLOATS(bool, boolean) TO_INTEGERS(bool, boolean)

/// A type as the strided kernel's argument.
enum DType : u32 { F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL };

template <typename D, typename W>
BY_FN void put(void* dst, i64 at, W wide) {
    store(static_cast<D*>(dst) + at, narrow(wide, To<D>()));
}

template <typename W>
BY_FN void put_any(u32 type, void* dst, i64 at, W wide) {
    switch (type) {
        case F64: return put<double>(dst, at, wide);
        case F32: return put<float>(dst, at, wide);
        case F16: return put<f16>(dst, at, wide);
        case BF16: return put<bf16>(dst, at, wide);
        case I64: return put<i64>(dst, at, wide);
        case I32: return put<i32>(dst, at, wide);
        case I16: return put<i16>(dst, at, wide);
        case I8: return put<i8>(dst, at, wide);
        case U8: return put<u8>(dst, at, wide);
        case BOOL: return put<boolean>(dst, at, wide);
    }
}

template <typename S>
BY_FN auto get(const void* src, i64 at) {
    return widen(load<S>(static_cast<const S*>(src) + at));
}

BY_FN i64 get_integer(u32 type, const void* src, i64 at) {
    switch (type) {
        case I64: return get<i64>(src, at);
        case I32: return get<i32>(src, at);
        case I16: return get<i16>(src, at);
        case I8: return get<i8>(src, at);
        case U8: return get<u8>(src, at);
        default: return get<boolean>(src, at);
    }
}

/// Strided: one kernel for all types, told at run time. Every thread takes the same turn at each switch. Equal types
/// are allowed, but by_copy_strided keeps every bit and is faster. Memory as for by_copy_strided.
BY_KERNEL by_cast_strided(void* dst, const void* src, u32 dst_type, u32 src_type, const Shape shape) {
    const u64 count = elements(shape);
    for (u64 i = first(); i < count; i += step()) {
        const Offsets at = locate(shape, i, count);
        switch (src_type) {
            case F64: put_any(dst_type, dst, at.dst, get<double>(src, at.src)); break;
            case F32: put_any(dst_type, dst, at.dst, get<float>(src, at.src)); break;
            case F16: put_any(dst_type, dst, at.dst, get<f16>(src, at.src)); break;
            case BF16: put_any(dst_type, dst, at.dst, get<bf16>(src, at.src)); break;
            default: put_any(dst_type, dst, at.dst, get_integer(src_type, src, at.src));
        }
    }
}
