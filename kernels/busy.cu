// Busy: a stream kept from moving on for a while.
#include "kernel.h"

/// No call holds a stream for longer: a slip of the unit must not hang a machine.
static constexpr u64 MAX_BUSY_NANOS = 10000000000ull;

BY_FN u64 now_nanos() {
#ifdef BY_HOST
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<u64>(now.tv_sec) * 1000000000ull + static_cast<u64>(now.tv_nsec);
#else
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
#endif
}

/// Returns after at least `micros` microseconds, at most ten seconds. One thread waits, whatever the launch; the clock
/// of a device moves in steps of up to about a microsecond (some of 32 ns).
BY_KERNEL by_busy(u64 micros) {
    if (first() != 0) return;
    const u64 nanos = micros < MAX_BUSY_NANOS / 1000 ? micros * 1000 : MAX_BUSY_NANOS;
    const u64 begin = now_nanos();
    while (now_nanos() - begin < nanos) {
#ifndef BY_HOST
        asm volatile("nanosleep.u32 200;");
#endif
    }
}
