// Copy: bytes in a row, and elements of strided views.
#include "shape.h"

/// Copies in units of `T` where both sides are aligned to it after the same number of bytes, single bytes around.
template <typename T>
BY_FN void copy_as(u8* dst, const u8* src, u64 size) {
    u64 head = short_of(dst, sizeof(T));
    if (head > size) head = size;
    const u64 units = (size - head) / sizeof(T);
    const u64 tail = head + sizeof(T) * units;
    const u64 self = first();

    for (u64 i = self; i < units; i += step()) {
        store(dst + head + sizeof(T) * i, load<T>(src + head + sizeof(T) * i));
    }
    for (u64 i = self; i < head; i += step()) store(dst + i, load<u8>(src + i));
    for (u64 i = tail + self; i < size; i += step()) store(dst + i, load<u8>(src + i));
}

/// Copies `size` bytes of any alignment. The ranges are the same or disjoint.
BY_KERNEL by_copy(void* dst, const void* src, u64 size) {
    const u64 apart = reinterpret_cast<u64>(dst) ^ reinterpret_cast<u64>(src);
    if (apart % 16 == 0) {
        copy_as<u128>(bytes(dst), bytes(src), size);
    } else if (apart % 8 == 0) {
        copy_as<u64>(bytes(dst), bytes(src), size);
    } else if (apart % 4 == 0) {
        copy_as<u32>(bytes(dst), bytes(src), size);
    } else {
        copy_as<u8>(bytes(dst), bytes(src), size);
    }
}

template <typename T>
BY_FN void copy_strided(void* dst, const void* src, const Shape& shape) {
    const u64 count = elements(shape);
    for (u64 i = first(); i < count; i += step()) {
        const Offsets at = locate(shape, i, count);
        store(static_cast<T*>(dst) + at.dst, load<T>(static_cast<const T*>(src) + at.src));
    }
}

/// Copies elements of 1, 2, 4, 8 or 16 bytes between views; pointers are aligned to the element. The destination has
/// no two elements in one place and shares no memory with the source.
#define COPY_STRIDED(bits, T)                                                               \
    BY_KERNEL by_copy_strided_##bits(void* dst, const void* src, const Shape shape) {       \
        copy_strided<T>(dst, src, shape);                                                   \
    }

COPY_STRIDED(8, u8)
COPY_STRIDED(16, u16)
COPY_STRIDED(32, u32)
COPY_STRIDED(64, u64)
COPY_STRIDED(128, u128)
