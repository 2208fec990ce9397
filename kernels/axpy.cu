// Axpy: y = alpha * x + y, with one rounding in the arithmetic (fused) and one to the type of y.
#include "convert.h"
#include "fused.h"
#include "shape.h"

/// `A` is the type of alpha and of the arithmetic: float for the 16-bit types.
template <typename T, typename A>
BY_FN void axpy_one(T* y, const T* x, A alpha) {
    const A sum = fused(alpha, widen(load<T>(x)), widen(load<T>(y)));
    store(y, narrow(sum, To<T>()));
}

/// x and y are the same, or disjoint; in the strided form y has no two elements in one place.
#define AXPY(name, T, A)                                                                               \
    BY_KERNEL by_axpy_##name(void* y, const void* x, A alpha, u64 count) {                             \
        for (u64 i = first(); i < count; i += step()) {                                                \
            axpy_one<T, A>(static_cast<T*>(y) + i, static_cast<const T*>(x) + i, alpha);               \
        }                                                                                              \
    }                                                                                                  \
    BY_KERNEL by_axpy_strided_##name(void* y, const void* x, A alpha, const Shape shape) {             \
        const u64 count = elements(shape);                                                             \
        for (u64 i = first(); i < count; i += step()) {                                                \
            const Offsets at = locate(shape, i, count);                                                \
            axpy_one<T, A>(static_cast<T*>(y) + at.dst, static_cast<const T*>(x) + at.src, alpha);     \
        }                                                                                              \
    }

AXPY(f64, double, double)
AXPY(f32, float, float)
AXPY(f16, f16, float)
AXPY(bf16, bf16, float)
