/* An allocator over the C library that keeps every rule: the least that a caller may rely on. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

void *sound_alloc(ssize_t size, int device, void *stream) {
    (void)device;
    (void)stream;
    if (size <= 0 || size > PTRDIFF_MAX - 511) {
        return NULL;
    }
    return aligned_alloc(512, ((size_t)size + 511) / 512 * 512);
}

void sound_free(void *ptr, ssize_t size, int device, void *stream) {
    (void)size;
    (void)device;
    (void)stream;
    free(ptr);
}

void sound_reset(void) {}
