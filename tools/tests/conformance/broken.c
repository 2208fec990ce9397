/* Allocators that each break one rule. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static void *sound(ssize_t size) {
    if (size <= 0 || size > PTRDIFF_MAX - 511) {
        return NULL;
    }
    return aligned_alloc(512, ((size_t)size + 511) / 512 * 512);
}

#define ALLOC(name) void *name(ssize_t size, int device, void *stream)
#define FREE(name) void name(void *ptr, ssize_t size, int device, void *stream)
#define UNUSED (void)device, (void)stream

FREE(sound_free) { UNUSED; (void)size; free(ptr); }

/* Whatever the C library's malloc gives. */
ALLOC(misaligned_alloc) { UNUSED; return size <= 0 ? NULL : malloc((size_t)size); }

/* A ring in which a block begins 256 bytes before the last one ends. */
static char ring[64 << 20] __attribute__((aligned(512)));
static size_t next;
ALLOC(overlap_alloc) {
    UNUSED;
    if (size <= 0 || size > (32 << 20)) {
        return NULL;
    }
    size_t bytes = ((size_t)size + 511) / 512 * 512;
    if (next + bytes > sizeof ring) {
        next = 0;
    }
    char *block = ring + next;
    next += bytes > 512 ? bytes - 512 : bytes;
    return block;
}
FREE(overlap_free) { UNUSED; (void)ptr, (void)size; }

/* A list of free blocks without a lock: right on one thread. */
#define CLASSES 48
static struct node { struct node *volatile next; } *volatile lists[CLASSES];
static int class_of(ssize_t size) {
    int class = 9;
    while (class < CLASSES && (ssize_t)1 << class < size) {
        class++;
    }
    return class;
}
ALLOC(racy_alloc) {
    UNUSED;
    int class = class_of(size);
    if (size <= 0 || class >= CLASSES) {
        return NULL;
    }
    struct node *head = lists[class];
    if (head != NULL) {
        struct node *rest = head->next;
        for (volatile int wait = 0; wait < 2000; wait++) {
        }
        lists[class] = rest;
        return head;
    }
    return aligned_alloc(512, (size_t)1 << class);
}
FREE(racy_free) {
    UNUSED;
    if (ptr == NULL || size <= 0) {
        return;
    }
    struct node *block = ptr;
    int class = class_of(size);
    block->next = lists[class];
    lists[class] = block;
}

/* Gives back three blocks of four. */
FREE(leaky_free) {
    static atomic_int calls;
    UNUSED;
    (void)size;
    if (atomic_fetch_add(&calls, 1) % 4 != 0) {
        free(ptr);
    }
}

/* Promises anything. */
ALLOC(promising_alloc) {
    UNUSED;
    void *block = sound(size);
    return block != NULL || size == 0 ? block : sound(512);
}

/* Follows the null pointer. */
FREE(crashing_free) { UNUSED; (void)size; *(volatile char *)ptr = 0; free(ptr); }
ALLOC(plain_alloc) { UNUSED; return sound(size); }

/* Never returns from a large request. */
ALLOC(hanging_alloc) {
    UNUSED;
    while (size > 3 << 20) {
        pause();
    }
    return sound(size);
}

/* Forgets what live blocks hold. */
static void *noted;
static int was_noted;
ALLOC(forgetful_alloc) {
    UNUSED;
    void *block = sound(size);
    if (size == 1 << 20 && !was_noted) {
        noted = block;
        was_noted = 1;
    }
    return block;
}
void forgetful_reset(void) {
    /* Once, while it is live. */
    if (noted != NULL) {
        memset(noted, 0, 16);
    }
    noted = NULL;
}

/* A driver's memory, cached by size, that goes to any stream at once: right where nothing is asynchronous. */
static struct { void *block; ssize_t size; } cache[4096];
static int driver(const char *name, unsigned long long *out, unsigned long long what) {
    static void *library;
    if (library == NULL) {
        library = dlopen("libcuda.so.1", RTLD_NOW);
    }
    void *found = library == NULL ? NULL : dlsym(library, name);
    if (found == NULL) {
        return 1;
    }
    return out == NULL ? ((int (*)(unsigned long long))found)(what)
                       : ((int (*)(unsigned long long *, size_t))found)(out, what);
}
ALLOC(unordered_alloc) {
    UNUSED;
    for (int place = 0; place < 4096; place++) {
        if (cache[place].block != NULL && cache[place].size == size) {
            void *block = cache[place].block;
            cache[place].block = NULL;
            return block;
        }
    }
    unsigned long long address = 0;
    return size <= 0 || driver("cuMemAlloc_v2", &address, (size_t)size) != 0 ? NULL : (void *)address;
}
FREE(unordered_free) {
    UNUSED;
    for (int place = 0; ptr != NULL && place < 4096; place++) {
        if (cache[place].block == NULL) {
            cache[place].block = ptr;
            cache[place].size = size;
            return;
        }
    }
}
