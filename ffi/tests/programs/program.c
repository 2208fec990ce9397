/* Program: the C interface from C, each function once at least, on a simulated device and from four threads. */

#include "blockyard.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

/* Not assert(): a release build must check, too. */
#define MUST(what)                                                                                  \
    do {                                                                                            \
        if (!(what)) {                                                                              \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #what,               \
                    blockyard_last_error_text());                                                   \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)

struct heard {
    int blocks;
    int failures;
    uint64_t requested;
};

static void on_block(void *user, bool is_alloc, void *address, uint64_t bytes, void *stream) {
    (void)stream;
    MUST(address != NULL && bytes > 0);
    ((struct heard *)user)->blocks += is_alloc ? 1 : -1;
}

static void on_failure(void *user, uint64_t requested, const char *report) {
    struct heard *heard = user;
    MUST(strstr(report, "out of memory") != NULL);
    heard->failures++;
    heard->requested = requested;
}

static void count_live(void *user, const blockyard_block *block) {
    *(uint64_t *)user += block->state == BLOCKYARD_BLOCK_ALLOCATED ? block->bytes : 0;
}

static int64_t stat(blockyard_allocator all, const char *key) {
    int64_t value = -1;
    MUST(blockyard_stat(all, key, &value) == BLOCKYARD_OK);
    return value;
}

static void memory(blockyard_allocator all) {
    void *stream = (void *)0x100, *a = NULL, *b = NULL, *base = NULL;
    uint64_t bytes = 0, released = 0;
    MUST(blockyard_alloc(all, 3 * MIB, NULL, &a) == BLOCKYARD_OK && a != NULL);
    MUST(blockyard_alloc(all, 1, stream, &b) == BLOCKYARD_OK && b != NULL && b != a);
    MUST(stat(all, "allocation.all.current") == 2);
    MUST(blockyard_find(all, (char *)a + 5, &base, &bytes) == BLOCKYARD_OK);
    MUST(base == a && bytes == 3 * MIB);
    MUST(blockyard_record_stream(all, a, stream) == BLOCKYARD_OK);

    /* What is wrong is answered, and changes nothing. */
    MUST(blockyard_free(all, a, 1) == BLOCKYARD_WRONG_SIZE);
    MUST(blockyard_free(all, (char *)a + 512, 0) == BLOCKYARD_UNKNOWN_POINTER);
    MUST(blockyard_alloc(all, 1, NULL, NULL) == BLOCKYARD_INVALID_ARGUMENT);
    MUST(blockyard_last_error() == BLOCKYARD_INVALID_ARGUMENT);
    MUST(strcmp(blockyard_last_error_text(), "out is a null pointer") == 0);
    MUST(blockyard_destroy(all) == BLOCKYARD_BUSY);
    MUST(stat(all, "allocation.all.current") == 2);

    MUST(blockyard_free(all, a, 3 * MIB) == BLOCKYARD_OK);
    MUST(blockyard_free(all, a, 3 * MIB) == BLOCKYARD_UNKNOWN_POINTER);
    MUST(blockyard_free(all, b, 0) == BLOCKYARD_OK);
    MUST(blockyard_free(all, NULL, 0) == BLOCKYARD_OK);
    MUST(blockyard_release_at_least(all, 1, &released) == BLOCKYARD_OK && released > 0);
    MUST(blockyard_empty_cache(all, &released) == BLOCKYARD_OK);
    MUST(stat(all, "reserved_bytes.all.current") == 0);
}

static void failure(blockyard_allocator all, struct heard *heard) {
    void *pointer = NULL;
    char *report = NULL;
    MUST(blockyard_on_out_of_memory(all, on_failure, heard) == BLOCKYARD_OK);
    MUST(blockyard_last_report(all, &report) == BLOCKYARD_OK && report == NULL);
    MUST(blockyard_alloc(all, 512 * MIB, NULL, &pointer) == BLOCKYARD_OUT_OF_MEMORY && pointer == NULL);
    MUST(strstr(blockyard_last_error_text(), "cause: ") != NULL);
    MUST(heard->failures == 1 && heard->requested == 512 * MIB);
    MUST(blockyard_last_report(all, &report) == BLOCKYARD_OK && strstr(report, "512.00 MiB") != NULL);
    blockyard_text_free(report);
    MUST(blockyard_on_out_of_memory(all, NULL, NULL) == BLOCKYARD_OK);
}

static void limits(blockyard_allocator all) {
    uint64_t bytes = 0;
    void *pointer = NULL;
    MUST(blockyard_set_memory_fraction(all, 0.25) == BLOCKYARD_OK);
    MUST(blockyard_limit(all, &bytes) == BLOCKYARD_OK && bytes == 64 * MIB);
    MUST(blockyard_largest_possible(all, NULL, &bytes) == BLOCKYARD_OK && bytes == 64 * MIB);
    MUST(blockyard_alloc(all, 65 * MIB, NULL, &pointer) == BLOCKYARD_OUT_OF_MEMORY);
    MUST(blockyard_set_memory_fraction(all, 2.0) == BLOCKYARD_INVALID_ARGUMENT);
    MUST(blockyard_set_limit(all, BLOCKYARD_NO_LIMIT) == BLOCKYARD_OK);
    MUST(blockyard_limit(all, &bytes) == BLOCKYARD_OK && bytes == BLOCKYARD_NO_LIMIT);
}

static void figures(blockyard_allocator all) {
    size_t there = 0, count = blockyard_stat_count();
    int64_t *values = malloc(count * sizeof *values);
    uint64_t live = 0;
    char *text = NULL;
    void *pointer = NULL;
    MUST(blockyard_alloc(all, 2 * MIB, NULL, &pointer) == BLOCKYARD_OK);
    MUST(blockyard_stats(all, values, count, &there) == BLOCKYARD_OK && there == count && count > 100);
    for (size_t place = 0; place < count; place++) {
        MUST(stat(all, blockyard_stat_key(place)) == values[place]);
    }
    MUST(blockyard_stat_key(count) == NULL);
    free(values);
    MUST(blockyard_stat(all, "no.such.key", NULL) == BLOCKYARD_INVALID_ARGUMENT);
    MUST(blockyard_blocks(all, count_live, &live) == BLOCKYARD_OK && live == 2 * MIB);
    MUST(blockyard_reset_peak(all) == BLOCKYARD_OK);
    MUST(stat(all, "allocated_bytes.all.peak") == (int64_t)(2 * MIB));
    MUST(blockyard_reset_accumulated(all) == BLOCKYARD_OK && stat(all, "allocation.all.allocated") == 0);
    MUST(blockyard_summary(all, &text) == BLOCKYARD_OK && strstr(text, "memory summary") != NULL);
    blockyard_text_free(text);
    MUST(blockyard_settings(all, &text) == BLOCKYARD_OK && strstr(text, "max_split_size_mb") != NULL);
    blockyard_text_free(text);
    blockyard_text_free(NULL);
    MUST(blockyard_free(all, pointer, 0) == BLOCKYARD_OK);
}

static void recorder(blockyard_allocator all, const char *folder) {
    char path[4096];
    char *json = NULL;
    void *pointer = NULL;
    MUST(blockyard_record(all, 1000) == BLOCKYARD_OK);
    MUST(blockyard_tag_push("epoch") == BLOCKYARD_OK && blockyard_tag_push("step") == BLOCKYARD_OK);
    MUST(blockyard_alloc(all, MIB, NULL, &pointer) == BLOCKYARD_OK);
    MUST(blockyard_tag_pop() == BLOCKYARD_OK && blockyard_tag_pop() == BLOCKYARD_OK);
    MUST(blockyard_tag_pop() == BLOCKYARD_INVALID_ARGUMENT);
    MUST(blockyard_snapshot(all, &json) == BLOCKYARD_OK);
    MUST(strstr(json, "\"alloc\"") != NULL && strstr(json, "epoch/step") != NULL);
    blockyard_text_free(json);
    snprintf(path, sizeof path, "%s/program.json", folder);
    MUST(blockyard_write_snapshot(all, path) == BLOCKYARD_OK);
    snprintf(path, sizeof path, "%s/program.trace.zst", folder);
    MUST(blockyard_write_trace(all, path) == BLOCKYARD_OK);
    MUST(blockyard_write_trace(all, "no/such/folder/x") == BLOCKYARD_IO);
    MUST(blockyard_record(all, 0) == BLOCKYARD_OK);
    MUST(blockyard_free(all, pointer, MIB) == BLOCKYARD_OK);
}

static void pools(blockyard_allocator all) {
    blockyard_pool pool = 0;
    uint32_t number = 0;
    void *inside = NULL, *also = NULL;
    uint64_t released = 0;
    MUST(blockyard_pool_create(all, &pool) == BLOCKYARD_OK && pool != 0);
    MUST(blockyard_pool_number(pool, &number) == BLOCKYARD_OK && number > 0);
    MUST(blockyard_pool_begin(pool) == BLOCKYARD_OK);
    MUST(blockyard_alloc(all, MIB, NULL, &inside) == BLOCKYARD_OK);
    MUST(blockyard_pool_end(pool) == BLOCKYARD_OK);
    MUST(blockyard_pool_end(pool) == BLOCKYARD_INVALID_ARGUMENT);
    MUST(blockyard_alloc_in(all, pool, MIB, NULL, &also) == BLOCKYARD_OK);
    MUST(blockyard_free(all, inside, MIB) == BLOCKYARD_OK && blockyard_free(all, also, 0) == BLOCKYARD_OK);
    MUST(blockyard_capture_begin(pool) == BLOCKYARD_OK && blockyard_capture_end(pool) == BLOCKYARD_OK);
    MUST(blockyard_pool_empty_cache(pool, &released) == BLOCKYARD_OK && released > 0);
    MUST(blockyard_pool_release(pool) == BLOCKYARD_OK);
    MUST(blockyard_pool_release(pool) == BLOCKYARD_INVALID_HANDLE);
    MUST(blockyard_alloc_in(all, pool, MIB, NULL, &also) == BLOCKYARD_INVALID_HANDLE);
}

static void *work(void *number) {
    const blockyard_allocator all = *(blockyard_allocator *)number;
    void *held[16] = {NULL};
    for (int step = 0; step < 2000; step++) {
        void **place = &held[step % 16];
        MUST(blockyard_free(all, *place, 0) == BLOCKYARD_OK);
        MUST(blockyard_alloc(all, 1000 + (uint64_t)step * 7, NULL, place) == BLOCKYARD_OK);
    }
    for (int place = 0; place < 16; place++) {
        MUST(blockyard_free(all, held[place], 0) == BLOCKYARD_OK);
    }
    return NULL;
}

static void threads(blockyard_allocator all) {
    pthread_t running[4];
    for (int place = 0; place < 4; place++) {
        MUST(pthread_create(&running[place], NULL, work, &all) == 0);
    }
    for (int place = 0; place < 4; place++) {
        pthread_join(running[place], NULL);
    }
    MUST(stat(all, "allocation.all.current") == 0 && stat(all, "allocation.all.allocated") >= 8000);
}

static void torch(void) {
    blockyard_allocator all = 0;
    size_t bytes = 0;
    blockyard_torch_init(1);
    void *pointer = blockyard_torch_alloc(5000, 0, NULL);
    MUST(pointer != NULL);
    MUST(blockyard_torch_base_alloc((char *)pointer + 100, &bytes) == pointer && bytes == 5000);
    blockyard_torch_record_stream(pointer, (void *)0x200);
    blockyard_torch_free(pointer, 5000, 0, NULL);
    blockyard_torch_memory_fraction(1.0, 0);
    blockyard_torch_reset();
    MUST(blockyard_torch_alloc(-5, 0, NULL) == NULL && blockyard_torch_alloc(5, -1, NULL) == NULL);
    MUST(blockyard_torch_allocator(0, &all) == BLOCKYARD_OK && stat(all, "allocation.all.allocated") == 1);
    MUST(blockyard_destroy(all) == BLOCKYARD_OK);
}

int main(int count, char **arguments) {
    blockyard_allocator all = 0;
    struct heard heard = {0, 0, 0};
    MUST(count == 2);
    MUST(blockyard_abi_version() >> 16 == BLOCKYARD_ABI_MAJOR && blockyard_version()[0] != 0);
    MUST(blockyard_create("moon", NULL, &all) == BLOCKYARD_INVALID_ARGUMENT && all == 0);
    MUST(blockyard_create("sim:256MiB", "blokyard", &all) == BLOCKYARD_INVALID_ARGUMENT);
    MUST(blockyard_create("sim:256MiB", "blockyard", &all) == BLOCKYARD_OK && all != 0);
    MUST(blockyard_on_block(all, on_block, &heard) == BLOCKYARD_OK);
    memory(all);
    failure(all, &heard);
    limits(all);
    figures(all);
    recorder(all, arguments[1]);
    pools(all);
    MUST(heard.blocks == 0);
    MUST(blockyard_on_block(all, NULL, NULL) == BLOCKYARD_OK);
    threads(all);
    MUST(blockyard_destroy(all) == BLOCKYARD_OK);
    MUST(blockyard_destroy(all) == BLOCKYARD_INVALID_HANDLE);
    MUST(blockyard_free(all, NULL, 0) == BLOCKYARD_INVALID_HANDLE);
    torch();
    puts("c: done");
    return 0;
}
