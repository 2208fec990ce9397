/*
 * blockyard: a caching GPU memory allocator with introspection. The C interface.
 *
 * Generated from src/ffi by cbindgen: do not edit, run tools/header.sh. What holds for threads, ownership, errors and
 * versions stands in docs/c-abi.md.
 */

#ifndef BLOCKYARD_H
#define BLOCKYARD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/*
 Programs built for another major version do not work with this library.
 */
#define BLOCKYARD_ABI_MAJOR 1

/*
 Rises with every function that is added.
 */
#define BLOCKYARD_ABI_MINOR 0

/*
 No limit, for `blockyard_set_limit`.
 */
#define BLOCKYARD_NO_LIMIT UINT64_MAX

/*
 Everything, for `blockyard_record`.
 */
#define BLOCKYARD_ALL UINT64_MAX

/*
 What a call came to. The text is in `blockyard_last_error_text`. A call that fails has changed nothing.
 */
enum blockyard_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /*
     It was done.
     */
    BLOCKYARD_OK = 0,
    /*
     There is no memory for the request; the text is a report of why.
     */
    BLOCKYARD_OUT_OF_MEMORY = 1,
    /*
     The driver failed, or there is none.
     */
    BLOCKYARD_DRIVER = 2,
    /*
     No live block starts at this address: never allocated here, or freed before.
     */
    BLOCKYARD_UNKNOWN_POINTER = 3,
    /*
     The block has another size than the caller says.
     */
    BLOCKYARD_WRONG_SIZE = 4,
    /*
     A null pointer, a text that is not understood, a number out of range.
     */
    BLOCKYARD_INVALID_ARGUMENT = 5,
    /*
     No such allocator or pool: never created, or given back.
     */
    BLOCKYARD_INVALID_HANDLE = 6,
    /*
     Blocks are live, or a scope is open.
     */
    BLOCKYARD_BUSY = 7,
    /*
     This library or this device cannot do it.
     */
    BLOCKYARD_UNSUPPORTED = 8,
    /*
     A file could not be written.
     */
    BLOCKYARD_IO = 9,
    /*
     A defect of this library. Whether the call was done is not known.
     */
    BLOCKYARD_INTERNAL = 10,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum blockyard_status blockyard_status;
#else
typedef int32_t blockyard_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 What a block is.
 */
enum blockyard_block_state
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /*
     Handed out.
     */
    BLOCKYARD_BLOCK_ALLOCATED = 0,
    /*
     Given back, but streams may still use it.
     */
    BLOCKYARD_BLOCK_AWAITING_FREE = 1,
    /*
     Can be handed out.
     */
    BLOCKYARD_BLOCK_FREE = 2,
    /*
     Addresses without memory.
     */
    BLOCKYARD_BLOCK_UNMAPPED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum blockyard_block_state blockyard_block_state;
#else
typedef int32_t blockyard_block_state;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 An allocator. 0 is none.
 */
typedef uint64_t blockyard_allocator;

/*
 A private pool. 0 is none.
 */
typedef uint64_t blockyard_pool;

/*
 One block of one segment. Sizes are bytes.
 */
typedef struct blockyard_block {
    /*
     Where it starts.
     */
    void *address;
    /*
     Its size.
     */
    uint64_t bytes;
    /*
     The client's size; 0 of a block that is free.
     */
    uint64_t requested;
    /*
     Where its segment starts.
     */
    void *segment;
    /*
     The segment's size; of a page-mapped one, the addresses that it spans.
     */
    uint64_t segment_bytes;
    /*
     The stream whose requests the segment serves.
     */
    void *stream;
    /*
     The number of the segment's pool; 0: the default pool.
     */
    uint32_t pool;
    /*
     What it is.
     */
    blockyard_block_state state;
    /*
     Whether the segment is on the large side of its pool.
     */
    bool is_large;
    /*
     Whether the segment is page-mapped.
     */
    bool is_expandable;
} blockyard_block;

/*
 Is shown a block.
 */
typedef void (*blockyard_visitor)(void *user, const struct blockyard_block *block);

/*
 Hears of a request that failed, before its error is returned. `report` lives as long as the call.
 */
typedef void (*blockyard_oom_callback)(void *user, uint64_t requested, const char *report);

/*
 Hears of a block that was handed out (`is_alloc` is true) or is given back.
 */
typedef void (*blockyard_block_callback)(void *user,
                                         bool is_alloc,
                                         void *address,
                                         uint64_t bytes,
                                         void *stream);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The version of the interface: the major number in the upper sixteen bits, the minor one in the lower.
 */
uint32_t blockyard_abi_version(void);

/*
 The version of the library, such as "0.1.0". It belongs to the library.
 */
const char *blockyard_version(void);

/*
 Creates an allocator.

 `device` is "cuda" or "cuda:N", "sim" or "sim:16GiB" (addresses without memory), "host" or "host:1GiB"; null: what
 the variable `BLOCKYARD_DEVICE` says, else "cuda:0". `settings` is a preset ("blockyard", "pytorch", ...), a preset
 with settings after a colon, or settings alone ("max_split_size_mb:128"); null: what `BLOCKYARD_CONF` says, else
 "blockyard".

 # Safety
 Both texts are null or end with a zero.
 */
blockyard_status blockyard_create(const char *device,
                                  const char *settings,
                                  blockyard_allocator *out);

/*
 Destroys an allocator and its pools; what it has cached goes back to the driver. Refused with `BLOCKYARD_BUSY` while
 blocks are live.
 */
blockyard_status blockyard_destroy(blockyard_allocator allocator);

/*
 Destroys an allocator whatever is live: all its memory goes back to the driver, under whoever still uses it.
 */
blockyard_status blockyard_abandon(blockyard_allocator allocator);

/*
 A text of the settings in force, what asked for each, and warnings; to be freed with `blockyard_text_free`.
 */
blockyard_status blockyard_settings(blockyard_allocator allocator,
                                    char **out);

/*
 What this thread's last failed call came to; `BLOCKYARD_OK` if none has failed. Calls that succeed leave it alone.
 */
blockyard_status blockyard_last_error(void);

/*
 The text of this thread's last failed call, "" if none has failed. It belongs to the library and lives until the
 thread's next failed call, or its end.
 */
const char *blockyard_last_error_text(void);

/*
 A block of `bytes` on a stream of the driver (null: the default stream), from the pool of this thread's innermost
 scope. Zero bytes give a null pointer. The stream must live as long as the allocator.
 */
blockyard_status blockyard_alloc(blockyard_allocator allocator,
                                 uint64_t bytes,
                                 void *stream,
                                 void **out);

/*
 The same from a private pool of this allocator; pool 0: as `blockyard_alloc`.
 */
blockyard_status blockyard_alloc_in(blockyard_allocator allocator,
                                    blockyard_pool from,
                                    uint64_t bytes,
                                    void *stream,
                                    void **out);

/*
 Gives a block back. `bytes`, unless 0, must be what was requested. A null pointer is nothing. Never waits for the
 device.
 */
blockyard_status blockyard_free(blockyard_allocator allocator,
                                void *pointer,
                                uint64_t bytes);

/*
 A stream uses the block too: once freed, its memory is reused only when that stream's work so far is done.
 */
blockyard_status blockyard_record_stream(blockyard_allocator allocator,
                                         void *pointer,
                                         void *stream);

/*
 The live block around an address: where it starts, and what was requested. Takes time proportional to the number of
 live blocks. Either result may be null.
 */
blockyard_status blockyard_find(blockyard_allocator allocator,
                                const void *pointer,
                                void **base,
                                uint64_t *bytes);

/*
 Gives all idle memory back to the driver, after waiting for pending frees. `released`, which may be null: bytes. If
 the driver fails, what it did not take back is kept.
 */
blockyard_status blockyard_empty_cache(blockyard_allocator allocator,
                                       uint64_t *released);

/*
 Gives at least so many bytes of idle memory back, if there is as much. `released`, which may be null: bytes.
 */
blockyard_status blockyard_release_at_least(blockyard_allocator allocator,
                                            uint64_t bytes,
                                            uint64_t *released);

/*
 Sets the most that may be reserved, in bytes; `BLOCKYARD_NO_LIMIT`: no limit.
 */
blockyard_status blockyard_set_limit(blockyard_allocator allocator, uint64_t bytes);

/*
 The most that may be reserved, in bytes, or `BLOCKYARD_NO_LIMIT`.
 */
blockyard_status blockyard_limit(blockyard_allocator allocator, uint64_t *out);

/*
 Sets the limit to a share of the device's memory, from 0 to 1; 1 is no limit.
 */
blockyard_status blockyard_set_memory_fraction(blockyard_allocator allocator, double fraction);

/*
 The largest request that would be served on this stream now, in bytes.
 */
blockyard_status blockyard_largest_possible(blockyard_allocator allocator,
                                            void *stream,
                                            uint64_t *out);

/*
 How many statistics there are.
 */
size_t blockyard_stat_count(void);

/*
 The key of a statistic by its place, such as "allocated_bytes.all.peak"; null beyond the last. It belongs to the
 library.
 */
const char *blockyard_stat_key(size_t place);

/*
 One statistic by its key.

 # Safety
 `key` is null or ends with a zero.
 */
blockyard_status blockyard_stat(blockyard_allocator allocator, const char *key, int64_t *out);

/*
 All statistics of one moment, in the order of `blockyard_stat_key`: as many as there are and as fit into `capacity`.
 `count`, which may be null: how many there are.

 # Safety
 `out` is null or has room for `capacity` values.
 */
blockyard_status blockyard_stats(blockyard_allocator allocator,
                                 int64_t *out,
                                 size_t capacity,
                                 size_t *count);

/*
 Peaks begin at what is current.
 */
blockyard_status blockyard_reset_peak(blockyard_allocator allocator);

/*
 Totals and counts begin at zero.
 */
blockyard_status blockyard_reset_accumulated(blockyard_allocator allocator);

/*
 Tables for people; to be freed with `blockyard_text_free`.
 */
blockyard_status blockyard_summary(blockyard_allocator allocator, char **out);

/*
 Shows every block of one moment to `visitor`, by address. No lock is held meanwhile.

 # Safety
 `visitor` may be called with `user`, and does not unwind.
 */
blockyard_status blockyard_blocks(blockyard_allocator allocator,
                                  blockyard_visitor visitor,
                                  void *user);

/*
 `callback` hears of every request that fails, before its error is returned; null: nobody does. The one before may
 still be running on another thread when this returns.

 # Safety
 `callback` may be called with `user` from any thread as long as it is set, and does not unwind.
 */
blockyard_status blockyard_on_out_of_memory(blockyard_allocator allocator,
                                            blockyard_oom_callback callback,
                                            void *user);

/*
 The report of the last request that failed, on whatever thread, to be freed with `blockyard_text_free`; null if none
 has. For callers that cannot take a callback: one that would need a lock which the failing thread may hold.
 */
blockyard_status blockyard_last_report(blockyard_allocator allocator,
                                       char **out);

/*
 `callback` hears of every block that is handed out or given back, before its address can be handed out again; null:
 nobody does.

 # Safety
 As for `blockyard_on_out_of_memory`.
 */
blockyard_status blockyard_on_block(blockyard_allocator allocator,
                                    blockyard_block_callback callback,
                                    void *user);

/*
 Keeps the last so many records from now on, and forgets those so far. 0: none. `BLOCKYARD_ALL`: all, in memory that
 grows by about a hundred bytes a record. Where `BLOCKYARD_TRACE` has everything recorded, this changes nothing.
 */
blockyard_status blockyard_record(blockyard_allocator allocator,
                                  uint64_t records);

/*
 Writes the records and the heap after them as a trace, which `blockyard replay` and `render` read; compressed if the
 name ends in ".zst" or ".gz".

 # Safety
 `to` is null or ends with a zero.
 */
blockyard_status blockyard_write_trace(blockyard_allocator allocator,
                                       const char *to);

/*
 Writes heap and records as JSON in the shape of PyTorch's memory snapshots, which its viewer and `blockyard` read.

 # Safety
 `to` is null or ends with a zero.
 */
blockyard_status blockyard_write_snapshot(blockyard_allocator allocator,
                                          const char *to);

/*
 The same as a text, to be freed with `blockyard_text_free`.
 */
blockyard_status blockyard_snapshot(blockyard_allocator allocator, char **out);

/*
 Frees a text that a function of this library gave to the caller. A null pointer is nothing.

 # Safety
 `text` came from this library for the caller to free, and is not freed twice.
 */
void blockyard_text_free(char *text);

/*
 Names what this thread allocates, inside the names that are open already, until it is popped.

 # Safety
 `name` is null or ends with a zero.
 */
blockyard_status blockyard_tag_push(const char *name);

/*
 Ends this thread's innermost name.
 */
blockyard_status blockyard_tag_pop(void);

/*
 Creates a private pool: a part of the program keeps its memory to itself.
 */
blockyard_status blockyard_pool_create(blockyard_allocator allocator, blockyard_pool *out);

/*
 Gives a pool back: what is idle goes to the driver, what is live when it is freed. Scopes that are open on it last
 until they end.
 */
blockyard_status blockyard_pool_release(blockyard_pool pool);

/*
 The number by which `blockyard_blocks` and snapshots know the pool.
 */
blockyard_status blockyard_pool_number(blockyard_pool pool, uint32_t *out);

/*
 Gives the pool's idle memory back to the driver. `released`, which may be null: bytes.
 */
blockyard_status blockyard_pool_empty_cache(blockyard_pool pool, uint64_t *released);

/*
 Sends this thread's requests to the pool until `blockyard_pool_end`. Scopes nest.
 */
blockyard_status blockyard_pool_begin(blockyard_pool pool);

/*
 Ends this thread's innermost scope of the pool.
 */
blockyard_status blockyard_pool_end(blockyard_pool pool);

/*
 Begins a capture of a graph: a scope of the pool in which no fence is asked about and nothing goes back to the
 driver.
 */
blockyard_status blockyard_capture_begin(blockyard_pool pool);

/*
 Ends this thread's innermost capture into the pool.
 */
blockyard_status blockyard_capture_end(blockyard_pool pool);

/*
 The allocator behind the functions below for a device; created if need be.
 */
blockyard_status blockyard_torch_allocator(int device, blockyard_allocator *out);

/*
 `alloc_fn`. A null pointer: see the last error.
 */
void *blockyard_torch_alloc(ptrdiff_t bytes, int device, void *stream);

/*
 `free_fn`. The stream is the one of the request, which is known.
 */
void blockyard_torch_free(void *pointer, ptrdiff_t bytes, int device, void *_stream);

/*
 `init_fn`. Allocators are created when they are needed.
 */
void blockyard_torch_init(int _device_count);

/*
 `reset_fn`, which `torch.cuda.empty_cache` calls: on every device.
 */
void blockyard_torch_reset(void);

/*
 `memory_fraction_fn`.
 */
void blockyard_torch_memory_fraction(double fraction, int device);

/*
 `base_alloc_fn`: the block around an address, on whichever device it is; null: none is.
 */
void *blockyard_torch_base_alloc(void *pointer, size_t *bytes);

/*
 `record_stream_fn`, on whichever device the block is.
 */
void blockyard_torch_record_stream(void *pointer, void *stream);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BLOCKYARD_H */
