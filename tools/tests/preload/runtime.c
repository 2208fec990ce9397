/* A runtime library of two calls, which calls the driver as CUDA's does. */
#include <stddef.h>

int cuMemAlloc_v2(unsigned long long *out, size_t bytes);
int cuMemFree_v2(unsigned long long address);

int cudaMalloc(void **out, size_t bytes) {
    unsigned long long address = 0;
    int status = cuMemAlloc_v2(&address, bytes);
    *out = (void *)address;
    return status;
}

int cudaFree(void *address) { return cuMemFree_v2((unsigned long long)address); }
