// Kernel: the words that all kernels share: integers, memory access, who works on what, strided shapes.
//
// Compiles under NVRTC without any include path and under a C++17 compiler behind host_shim.h.
#pragma once

#ifndef BY_HOST
#define BY_FN static __device__ __forceinline__
#define BY_UNROLL _Pragma("unroll")
#endif

/// The C name of a kernel; the device runs at most this many threads in a block.
#define BY_KERNEL extern "C" __global__ void __launch_bounds__(1024)

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

struct alignas(16) u128 {
    u64 lo, hi;
};

/// A GPU refuses an access that is not aligned to its type, and so does the host build.
template <typename T>
BY_FN void expect_aligned([[maybe_unused]] const void* at) {
#ifdef BY_HOST
    if (reinterpret_cast<u64>(at) % alignof(T)) host_misaligned(at, sizeof(T));
#endif
}

/// Memory as a value of type `T`.
template <typename T>
BY_FN T load(const void* at) {
    expect_aligned<T>(at);
#ifdef BY_HOST
    T value;
    __builtin_memcpy(&value, at, sizeof value);
    return value;
#else
    return *static_cast<const T*>(at);
#endif
}

template <typename T>
BY_FN void store(void* at, T value) {
    expect_aligned<T>(at);
#ifdef BY_HOST
    __builtin_memcpy(at, &value, sizeof value);
#else
    *static_cast<T*>(at) = value;
#endif
}

/// The same bits as another type of the same size.
template <typename To, typename From>
BY_FN To bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "one size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

/// Grids and blocks are one-dimensional. A thread works on `first()`, `first() + step()`, ...
BY_FN u64 first() {
    return static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
}

BY_FN u64 step() {
    return static_cast<u64>(gridDim.x) * blockDim.x;
}

BY_FN u8* bytes(void* at) {
    return static_cast<u8*>(at);
}

BY_FN const u8* bytes(const void* at) {
    return static_cast<const u8*>(at);
}

/// Bytes from an address to the next multiple of `align`, a power of two.
BY_FN u64 short_of(const void* at, u64 align) {
    return (align - reinterpret_cast<u64>(at)) & (align - 1);
}
