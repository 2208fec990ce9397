// Host build: every kernel as plain C++ in one translation unit, with the table of them.
//
// `cc::Build::new().cpp(true).file("kernels/host.cpp")` is the whole build.
#include "host_shim.h"

#include "axpy.cu"
#include "busy.cu"
#include "cast.cu"
#include "copy.cu"
#include "fill.cu"
#include "pattern.cu"
#include "sparse.cu"

// What no test can launch: shapes of 2^32 elements and more.
static constexpr Shape far_shape{{1ull << 31, 3, 2}, {-6, 2, 1}, {0, 1, 5}, 3};
static_assert(elements(far_shape) == 6ull << 31, "");
static_assert(locate(far_shape, (6ull << 31) - 1, elements(far_shape)).dst == 5 - 6 * ((1ll << 31) - 1), "");
static_assert(locate(far_shape, (6ull << 31) - 1, elements(far_shape)).src == 7, "");

#define BY_ROW(kernel) BY_HOST_ENTRY(kernel)
#include "table.def"
#undef BY_ROW

#define BY_ROW(kernel) BY_HOST_ROW(kernel)
static const HostKernel host_kernels[] = {
#include "table.def"
    {nullptr, nullptr, 0, nullptr}};

extern "C" const HostKernel* blockyard_host_kernels(void) {
    return host_kernels;
}
