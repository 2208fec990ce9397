// Program: the C interface from C++: memory with an owner, on real memory of the host.

#include "blockyard.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#define MUST(what) \
    if (!(what)) throw std::runtime_error(std::string(#what) + ": " + blockyard_last_error_text())

class Allocator {
 public:
    explicit Allocator(const char* device) { MUST(blockyard_create(device, "blockyard", &number_) == BLOCKYARD_OK); }
    Allocator(const Allocator&) = delete;
    Allocator& operator=(const Allocator&) = delete;
    ~Allocator() { blockyard_abandon(number_); }

    auto take(uint64_t bytes) const {
        void* pointer = nullptr;
        if (blockyard_alloc(number_, bytes, nullptr, &pointer) == BLOCKYARD_OUT_OF_MEMORY) {
            throw std::bad_alloc();
        }
        const auto give = [number = number_, bytes](void* p) { blockyard_free(number, p, bytes); };
        return std::unique_ptr<void, decltype(give)>(pointer, give);
    }

    int64_t stat(const char* key) const {
        int64_t value = -1;
        MUST(blockyard_stat(number_, key, &value) == BLOCKYARD_OK);
        return value;
    }

 private:
    blockyard_allocator number_ = 0;
};

int main() try {
    const Allocator all("host:64MiB");
    {
        const auto block = all.take(10000);
        std::memset(block.get(), 7, 10000);
        MUST(all.stat("requested_bytes.all.current") == 10000);
    }
    MUST(all.stat("requested_bytes.all.current") == 0);
    bool failed = false;
    try {
        all.take(uint64_t{1} << 40);
    } catch (const std::bad_alloc&) {
        failed = true;
    }
    MUST(failed && blockyard_last_error() == BLOCKYARD_OUT_OF_MEMORY);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; thread++) {
        threads.emplace_back([&all, thread] {
            // Each thread's error is its own.
            if (blockyard_last_error() != BLOCKYARD_OK) std::abort();
            for (int step = 1; step < 500; step++) {
                const uint64_t bytes = uint64_t{64} * step;
                const auto block = all.take(bytes);
                std::memset(block.get(), thread, bytes);
                if (static_cast<char*>(block.get())[bytes - 1] != thread) std::abort();
            }
        });
    }
    for (auto& thread : threads) thread.join();
    MUST(all.stat("allocation.all.current") == 0);
    // Left live on purpose: abandoning gives it back.
    all.take(100).release();
    std::puts("cpp: done");
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
