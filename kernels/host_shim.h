// Host shim: what lets the .cu files compile as plain C++, and a launch run on the calling thread.
//
// Owns the CUDA words (`__global__`, `threadIdx`, ...) on the host and the entry `NAME__host` of every kernel.
// host.cpp includes it before any kernel; the device build never sees it. Kernels here use neither shared memory
// nor barriers, so the threads of a launch run one after another; atomics are real ones, as two streams may run
// on two host threads. Needs no libstdc++ at run time.
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <utility>

#define BY_HOST 1
#define __global__
#define __launch_bounds__(threads)
#define BY_FN static inline
#define BY_UNROLL

struct HostIndex {
    unsigned x, y, z;
};

static thread_local HostIndex threadIdx, blockIdx, blockDim, gridDim;

extern "C" {

/// Runs a whole launch. `args` points at one pointer for each parameter, as cuLaunchKernel's `kernelParams`.
typedef void (*HostLaunch)(void** args, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                           unsigned shared_bytes);

/// One row of the table that `blockyard_host_kernels` gives; the row after the last has a null name.
struct HostKernel {
    const char* name;
    HostLaunch launch;
    unsigned n_args;
    /// Bytes of each parameter.
    const unsigned* arg_sizes;
};

const HostKernel* blockyard_host_kernels(void);
}

template <typename T>
static T host_argument(const void* at) {
    T value;
    __builtin_memcpy(&value, at, sizeof value);
    return value;
}

template <typename... A>
struct HostSignature {
    static constexpr unsigned count = sizeof...(A);
    static constexpr unsigned sizes[] = {sizeof(A)..., 0};

    template <std::size_t... I>
    static void call(void (*kernel)(A...), void** args, std::index_sequence<I...>) {
        kernel(host_argument<A>(args[I])...);
    }
};

/// Only its type is used.
template <typename... A>
HostSignature<A...> host_signature(void (*)(A...));

template <typename Visit>
static void host_each(HostIndex extent, HostIndex& at, Visit visit) {
    for (at.z = 0; at.z < extent.z; at.z++)
        for (at.y = 0; at.y < extent.y; at.y++)
            for (at.x = 0; at.x < extent.x; at.x++) visit();
}

template <typename... A>
static void host_launch(void (*kernel)(A...), void** args, HostIndex grid, HostIndex block) {
    gridDim = grid;
    blockDim = block;
    host_each(grid, blockIdx, [&] {
        host_each(block, threadIdx, [&] {
            HostSignature<A...>::call(kernel, args, std::index_sequence_for<A...>());
        });
    });
}

#define BY_HOST_ENTRY(kernel)                                                                                       \
    extern "C" void kernel##__host(void** args, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,    \
                                   unsigned bz, unsigned) {                                                         \
        host_launch(kernel, args, HostIndex{gx, gy, gz}, HostIndex{bx, by, bz});                                    \
    }

#define BY_HOST_ROW(kernel) \
    {#kernel, kernel##__host, decltype(host_signature(kernel))::count, decltype(host_signature(kernel))::sizes},

/// What "misaligned address" is on a device.
[[noreturn]] static inline void host_misaligned(const void* at, std::size_t size) {
    fprintf(stderr, "kernel: access of %zu bytes at %p is misaligned\n", size, at);
    abort();
}

// The words of the device that kernels call.

static inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long value) {
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

static inline unsigned long long atomicMin(unsigned long long* at, unsigned long long value) {
    unsigned long long old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (value < old &&
           !__atomic_compare_exchange_n(at, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}
