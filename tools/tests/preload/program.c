/* A program that allocates in every way, and knows of no recorder. */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long u64;
struct properties { unsigned kind, handles, location; int device; u64 windows, flags; };

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuStreamCreate(void **stream, unsigned flags);
int cuMemAlloc_v2(u64 *out, size_t bytes);
int cuMemFree_v2(u64 address);
int cuMemAllocManaged(u64 *out, size_t bytes, unsigned flags);
int cuMemAllocAsync(u64 *out, size_t bytes, void *stream);
int cuMemFreeAsync(u64 address, void *stream);
int cuMemAddressReserve(u64 *out, size_t bytes, size_t align, u64 hint, u64 flags);
int cuMemCreate(u64 *out, size_t bytes, const struct properties *how, u64 flags);
int cuMemMap(u64 address, size_t bytes, size_t offset, u64 handle, u64 flags);
int cuMemUnmap(u64 address, size_t bytes);
int cuMemRelease(u64 handle);
int cuGetProcAddress_v2(const char *name, void **out, int version, u64 flags, int *found);
int cudaMalloc(void **out, size_t bytes);
int cudaFree(void *address);

#define DO(call) do { int status = call; if (status != 0) { printf("%s: %d\n", #call, status); exit(1); } } while (0)

static void *context;

static void *worker(void *unused) {
    DO(cuCtxSetCurrent(context));
    for (int turn = 0; turn < 100; turn++) {
        u64 block;
        DO(cuMemAlloc_v2(&block, 4096));
        DO(cuMemFree_v2(block));
    }
    return unused;
}

int main(void) {
    u64 a, b, c, d, range, handle;
    void *stream, *other, *e;
    DO(cuInit(0));
    DO(cuDevicePrimaryCtxRetain(&context, 0));
    DO(cuCtxSetCurrent(context));
    DO(cuStreamCreate(&stream, 1));
    DO(cuStreamCreate(&other, 1));
    DO(cuMemAlloc_v2(&a, 1000));
    DO(cuMemAllocAsync(&b, 2000, stream));
    DO(cuMemAllocManaged(&c, 3000, 1));
    DO(cudaMalloc(&e, 5000));
    int (*found)(u64 *, size_t);
    DO(cuGetProcAddress_v2("cuMemAlloc", (void **)&found, 12000, 0, NULL));
    DO(found(&d, 4000));
    DO(cuMemFreeAsync(b, other));
    DO(cuMemFree_v2(c));
    DO(cudaFree(e));
    struct properties how = {1, 0, 1, 0, 0, 0};
    DO(cuMemAddressReserve(&range, 4 << 20, 0, 0, 0));
    DO(cuMemCreate(&handle, 2 << 20, &how, 0));
    DO(cuMemMap(range, 2 << 20, 0, handle, 0));
    DO(cuMemUnmap(range, 2 << 20));
    DO(cuMemRelease(handle));
    u64 huge;
    printf("huge: %d\n", cuMemAlloc_v2(&huge, (size_t)1 << 40));
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, worker, NULL);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    /* a and d stay. */
    return 0;
}
