// Shim: PyTorch's allocator interface, in C++ because its types are, over blockyard's C interface.
//
// PyTorch's own pluggable allocator does not look at null pointers and refuses statistics, snapshots and pools. This one
// raises torch.OutOfMemoryError with blockyard's report and answers those questions. Built by `python -m
// blockyard_torch.build` against the headers of the PyTorch that is installed; it works with that one only.

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "blockyard.h"

namespace {

namespace native = c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;
using c10::MempoolId_t;
using Base = torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;
using Filter = std::function<bool(cudaStream_t)>;

std::string last_error() { return blockyard_last_error_text(); }

/// Raises what a call came to, unless it was done.
void check(blockyard_status status, const char* what) {
    TORCH_CHECK(status == blockyard_status::BLOCKYARD_OK, "blockyard: ", what, ": ", last_error());
}

blockyard_allocator of(DeviceIndex device) {
    blockyard_allocator number = 0;
    check(blockyard_torch_allocator(device, &number), "no allocator");
    return number;
}

void release(void* pointer);

/// A pool of PyTorch's.
struct Pool {
    blockyard_pool pool = 0;
    uint32_t number = 0;
    int uses = 0;
};

/// A pool that requests are sent to while the filter says so.
struct Route {
    MempoolId_t id;
    blockyard_pool pool;
    Filter filter;
};

class Allocator final : public Base {
 public:
    Allocator()
        : Base(
              [](size_t bytes, int device, cudaStream_t stream) {
                  return blockyard_torch_alloc(static_cast<intptr_t>(bytes), device, stream);
              },
              [](void* pointer, size_t, int, cudaStream_t) { release(pointer); }) {}

    // ---- memory ----

    void* take(size_t bytes, DeviceIndex device, cudaStream_t stream) {
        if (bytes == 0) {
            return nullptr;
        }
        void* pointer = nullptr;
        const blockyard_allocator number = of(device);
        const blockyard_pool pool = routed(device, stream);
        auto status = blockyard_alloc_in(number, pool, bytes, stream, &pointer);
        if (status == blockyard_status::BLOCKYARD_OUT_OF_MEMORY && others_give_back()) {
            status = blockyard_alloc_in(number, pool, bytes, stream, &pointer);
        }
        if (status == blockyard_status::BLOCKYARD_OUT_OF_MEMORY) {
            out_of_memory(bytes, device, last_error());
        }
        check(status, "alloc");
        return pointer;
    }

    /// What else in PyTorch holds memory that it could do without.
    static bool others_give_back() {
        bool gave = false;
        for (const auto& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
            gave |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
        }
        return gave;
    }

    [[noreturn]] void out_of_memory(size_t bytes, DeviceIndex device, const std::string& report) {
        const auto [free, total] = getMemoryInfo(device);
        std::vector<native::OutOfMemoryObserver> observers;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            observers = observers_;
        }
        for (const auto& observer : observers) {
            observer(device, bytes, total, free);
        }
        TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. GPU ", static_cast<int>(device), ": ", report);
        std::abort();
    }

    c10::DataPtr allocate(size_t bytes) override {
        const DeviceIndex device = c10::cuda::current_device();
        void* pointer = take(bytes, device, c10::cuda::getCurrentCUDAStream(device));
        return {pointer, pointer, &release, c10::Device(c10::DeviceType::CUDA, device)};
    }

    c10::DeleterFnPtr raw_deleter() const override { return &release; }

    void* raw_alloc(size_t bytes) override {
        const DeviceIndex device = c10::cuda::current_device();
        return take(bytes, device, c10::cuda::getCurrentCUDAStream(device));
    }

    void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
        return take(bytes, c10::cuda::current_device(), stream);
    }

    void raw_delete(void* pointer) override { give(pointer); }

    /// The device of a block is not kept: there are few devices, and each knows its blocks.
    void give(void* pointer) {
        if (pointer == nullptr || on_its_device([&](auto number) { return blockyard_free(number, pointer, 0); })) {
            return;
        }
        TORCH_WARN("blockyard: free: ", last_error());
    }

    /// Tries the devices, the present one first. Whether one of them knew the block.
    template <typename Call>
    bool on_its_device(Call call) {
        const DeviceIndex present = devices_ == 1 ? DeviceIndex(0) : c10::cuda::current_device();
        for (int step = 0; step < devices_; step++) {
            const auto device = static_cast<DeviceIndex>((present + step) % devices_);
            const auto status = call(of(device));
            if (status == blockyard_status::BLOCKYARD_OK) {
                return true;
            }
            if (status != blockyard_status::BLOCKYARD_UNKNOWN_POINTER) {
                check(status, "block");
            }
        }
        return false;
    }

    void init(int device_count) override {
        devices_ = device_count;
        Base::init(device_count);
    }

    void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override {
        if (data.get() == nullptr || data.get_deleter() != &release) {
            return;
        }
        const bool known = on_its_device([&](auto number) {
            return blockyard_record_stream(number, data.get(), stream.stream());
        });
        TORCH_CHECK(known, "blockyard: record_stream: ", last_error());
    }

    void* getBaseAllocation(void* pointer, size_t* size) override {
        void* base = nullptr;
        uint64_t bytes = 0;
        const bool known = on_its_device([&](auto number) { return blockyard_find(number, pointer, &base, &bytes); });
        TORCH_CHECK(known, "blockyard: getBaseAllocation: ", last_error());
        if (size != nullptr) {
            *size = bytes;
        }
        return base;
    }

    // ---- limits and the cache ----

    void emptyCache(MempoolId_t id = {0, 0}) override {
        for (DeviceIndex device = 0; device < devices_; device++) {
            if (id == MempoolId_t{0, 0}) {
                check(blockyard_empty_cache(of(device), nullptr), "empty_cache");
            } else if (const auto pool = find(device, id); pool.pool != 0) {
                check(blockyard_pool_empty_cache(pool.pool, nullptr), "empty_cache");
            }
        }
    }

    void setMemoryFraction(double fraction, DeviceIndex device) override {
        check(blockyard_set_memory_fraction(of(device), fraction), "set_per_process_memory_fraction");
    }

    double getMemoryFraction(DeviceIndex device) override {
        uint64_t limit = BLOCKYARD_NO_LIMIT;
        check(blockyard_limit(of(device), &limit), "get_per_process_memory_fraction");
        const auto total = static_cast<double>(getMemoryInfo(device).second);
        return limit == BLOCKYARD_NO_LIMIT ? 1.0 : static_cast<double>(limit) / total;
    }

    /// cuDNN's benchmark asks how large a workspace it may try.
    void cacheInfo(DeviceIndex device, size_t* largest) override {
        uint64_t bytes = 0;
        const auto stream = c10::cuda::getCurrentCUDAStream(device).stream();
        check(blockyard_largest_possible(of(device), stream, &bytes), "cacheInfo");
        *largest = std::max(*largest, static_cast<size_t>(bytes));
    }

    std::vector<native::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override {
        std::vector<native::StreamSegmentSize> sizes;
        for (const auto& segment : segments(device)) {
            if (segment.is_expandable) {
                sizes.emplace_back(static_cast<cudaStream_t>(segment.stream), !segment.is_large, segment.total_size);
            }
        }
        return sizes;
    }

    // ---- figures ----

    c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
        std::vector<int64_t> values(blockyard_stat_count());
        check(blockyard_stats(of(device), values.data(), values.size(), nullptr), "memory_stats");
        std::unordered_map<std::string, int64_t> by_key;
        for (size_t place = 0; place < values.size(); place++) {
            by_key.emplace(blockyard_stat_key(place), values[place]);
        }
        const auto one = [&](const std::string& key) {
            c10::CachingAllocator::Stat stat;
            stat.current = by_key[key + ".current"];
            stat.peak = by_key[key + ".peak"];
            stat.allocated = by_key[key + ".allocated"];
            stat.freed = by_key[key + ".freed"];
            return stat;
        };
        const auto three = [&](const std::string& key) {
            return c10::CachingAllocator::StatArray{one(key + ".all"), one(key + ".small_pool"), one(key + ".large_pool")};
        };
        c10::CachingDeviceAllocator::DeviceStats stats;
        stats.allocation = three("allocation");
        stats.segment = three("segment");
        stats.active = three("active");
        stats.inactive_split = three("inactive_split");
        stats.allocated_bytes = three("allocated_bytes");
        stats.reserved_bytes = three("reserved_bytes");
        stats.active_bytes = three("active_bytes");
        stats.inactive_split_bytes = three("inactive_split_bytes");
        stats.requested_bytes = three("requested_bytes");
        stats.oversize_allocations = one("oversize_allocations");
        stats.oversize_segments = one("oversize_segments");
        stats.num_alloc_retries = by_key["num_alloc_retries"];
        stats.num_ooms = by_key["num_ooms"];
        stats.num_sync_all_streams = by_key["num_sync_all_streams"];
        stats.num_device_alloc = by_key["num_device_alloc"];
        stats.num_device_free = by_key["num_device_free"];
        stats.max_split_size = by_key["max_split_size"];
        return stats;
    }

    void resetAccumulatedStats(DeviceIndex device) override {
        check(blockyard_reset_accumulated(of(device)), "reset_accumulated_memory_stats");
    }

    void resetPeakStats(DeviceIndex device) override {
        check(blockyard_reset_peak(of(device)), "reset_peak_memory_stats");
    }

    /// Segments and blocks. The history is in blockyard's own snapshot: `blockyard_torch.snapshot()`.
    native::SnapshotInfo snapshot(MempoolId_t id, bool) override {
        native::SnapshotInfo info{};
        for (DeviceIndex device = 0; device < devices_; device++) {
            for (auto& segment : segments(device)) {
                if (id == MempoolId_t{0, 0} || segment.owner_private_pool_id == id) {
                    info.segments.push_back(std::move(segment));
                }
            }
        }
        info.device_traces.resize(static_cast<size_t>(devices_));
        return info;
    }

    bool isHistoryEnabled() override { return recording_; }

    void recordHistory(bool enabled, native::CreateContextFn, size_t entries, native::RecordContext, bool,
                       const std::vector<std::string>&) override {
        for (DeviceIndex device = 0; device < devices_; device++) {
            const uint64_t most = uint64_t{1} << 24;
            const uint64_t records = enabled ? std::min<uint64_t>(entries, most) : 0;
            check(blockyard_record(of(device), records), "record_memory_history");
        }
        recording_ = enabled;
    }

    void attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) override {
        std::lock_guard<std::mutex> lock(mutex_);
        observers_.push_back(std::move(observer));
    }

    /// Nothing is rejected before every way was tried, so such an observer is never called.
    void attachOomRejectionObserver(native::OomRejectionObserver) override {}

    // ---- pools and captures ----

    void createOrIncrefPool(DeviceIndex device, MempoolId_t id, std::shared_ptr<native::CUDAAllocator> source) override {
        TORCH_CHECK(source == nullptr, "blockyard as the global allocator does not support a pool with an allocator of its own");
        std::lock_guard<std::mutex> lock(mutex_);
        entry(device, id).uses++;
    }

    void setUseOnOOM(DeviceIndex, MempoolId_t, bool use) override {
        TORCH_CHECK(!use, "blockyard does not support MemPool(use_on_oom=True)");
    }

    void setNoSplit(DeviceIndex, MempoolId_t) override {
        TORCH_CHECK(false, "blockyard does not support MemPool(no_split=True)");
    }

    int getPoolUseCount(DeviceIndex device, MempoolId_t id) override { return find(device, id).uses; }

    void beginAllocateToPool(DeviceIndex device, MempoolId_t id, Filter filter) override {
        std::lock_guard<std::mutex> lock(mutex_);
        Pool& pool = entry(device, id);
        pool.uses++;
        routes_[device].push_back({id, pool.pool, std::move(filter)});
        routed_++;
    }

    void endAllocateToPool(DeviceIndex device, MempoolId_t id) override {
        std::lock_guard<std::mutex> lock(mutex_);
        auto& routes = routes_[device];
        for (auto route = routes.rbegin(); route != routes.rend(); ++route) {
            if (route->id == id) {
                routes.erase(std::next(route).base());
                routed_--;
                return;
            }
        }
        TORCH_CHECK(false, "endAllocateToPool: nothing is being sent to this pool");
    }

    void releasePool(DeviceIndex device, MempoolId_t id) override {
        blockyard_pool gone = 0;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            const auto found = pools_.find({device, id});
            TORCH_CHECK(found != pools_.end(), "releasePool: there is no such pool");
            if (--found->second.uses == 0) {
                gone = found->second.pool;
                pools_.erase(found);
            }
        }
        if (gone != 0) {
            check(blockyard_pool_release(gone), "releasePool");
        }
    }

    void markCaptureBegin(DeviceIndex device) override {
        blockyard_pool pool = 0;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            const auto& routes = routes_[device];
            TORCH_CHECK(!routes.empty(), "a capture begins without a pool");
            pool = routes.back().pool;
            captures_[device].push_back(pool);
        }
        check(blockyard_capture_begin(pool), "capture");
    }

    void markCaptureEnd(DeviceIndex device) override {
        blockyard_pool pool = 0;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            auto& captures = captures_[device];
            TORCH_CHECK(!captures.empty(), "a capture ends that never began");
            pool = captures.back();
            captures.pop_back();
        }
        check(blockyard_capture_end(pool), "capture");
    }

    bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id, const std::unordered_set<void*>& expected) override {
        size_t live = 0;
        for (const auto& segment : segments(device)) {
            if (segment.owner_private_pool_id != id) {
                continue;
            }
            size_t address = segment.address;
            for (const auto& block : segment.blocks) {
                if (block.allocated) {
                    live++;
                    if (expected.count(reinterpret_cast<void*>(address)) == 0) {
                        return false;
                    }
                }
                address += block.size;
            }
        }
        return live == expected.size();
    }

    std::string name() override { return "blockyard"; }

 private:
    /// The pool that a request is sent to: the last one that wants it; 0: none does.
    blockyard_pool routed(DeviceIndex device, cudaStream_t stream) {
        if (routed_.load(std::memory_order_relaxed) == 0) {
            return 0;
        }
        std::lock_guard<std::mutex> lock(mutex_);
        const auto& routes = routes_[device];
        for (auto route = routes.rbegin(); route != routes.rend(); ++route) {
            if (route->filter(stream)) {
                return route->pool;
            }
        }
        return 0;
    }

    /// Called with the lock held.
    Pool& entry(DeviceIndex device, MempoolId_t id) {
        Pool& pool = pools_[{device, id}];
        if (pool.pool == 0) {
            check(blockyard_pool_create(of(device), &pool.pool), "pool");
            check(blockyard_pool_number(pool.pool, &pool.number), "pool");
            names_[{device, pool.number}] = id;
        }
        return pool;
    }

    Pool find(DeviceIndex device, MempoolId_t id) {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto found = pools_.find({device, id});
        return found == pools_.end() ? Pool{} : found->second;
    }

    struct Walk {
        std::vector<c10::CachingDeviceAllocator::SegmentInfo> segments;
        std::vector<uint32_t> pools;
        void* segment = nullptr;
        bool open = false;
    };

    /// Segments as PyTorch shows them: of a page-mapped one, each run of mapped pages.
    std::vector<c10::CachingDeviceAllocator::SegmentInfo> segments(DeviceIndex device) {
        Walk walk;
        check(blockyard_blocks(of(device), &Allocator::visit, &walk), "snapshot");
        std::lock_guard<std::mutex> lock(mutex_);
        for (size_t place = 0; place < walk.segments.size(); place++) {
            walk.segments[place].device = device;
            const auto name = names_.find({device, walk.pools[place]});
            if (name != names_.end()) {
                walk.segments[place].owner_private_pool_id = name->second;
            }
        }
        return std::move(walk.segments);
    }

    static void visit(void* user, const blockyard_block* block) {
        Walk& walk = *static_cast<Walk*>(user);
        if (block->state == blockyard_block_state::BLOCKYARD_BLOCK_UNMAPPED) {
            walk.open = false;
            return;
        }
        if (!walk.open || walk.segment != block->segment) {
            c10::CachingDeviceAllocator::SegmentInfo segment;
            segment.address = reinterpret_cast<size_t>(block->address);
            segment.stream = block->stream;
            segment.is_large = block->is_large;
            segment.is_expandable = block->is_expandable;
            walk.segments.push_back(std::move(segment));
            walk.pools.push_back(block->pool);
            walk.segment = block->segment;
            walk.open = true;
        }
        auto& segment = walk.segments.back();
        c10::CachingDeviceAllocator::BlockInfo info;
        info.size = block->bytes;
        info.requested_size = block->requested;
        info.allocated = block->state == blockyard_block_state::BLOCKYARD_BLOCK_ALLOCATED;
        info.active = block->state != blockyard_block_state::BLOCKYARD_BLOCK_FREE;
        segment.total_size += info.size;
        segment.allocated_size += info.allocated ? info.size : 0;
        segment.active_size += info.active ? info.size : 0;
        segment.requested_size += info.active ? info.requested_size : 0;
        segment.blocks.push_back(std::move(info));
    }

    int devices_ = 0;
    std::mutex mutex_;
    std::atomic<int> routed_{0};
    std::map<std::pair<DeviceIndex, MempoolId_t>, Pool> pools_;
    std::map<std::pair<DeviceIndex, uint32_t>, MempoolId_t> names_;
    std::map<DeviceIndex, std::vector<Route>> routes_;
    std::map<DeviceIndex, std::vector<blockyard_pool>> captures_;
    std::vector<native::OutOfMemoryObserver> observers_;
    std::atomic<bool> recording_{false};
};

std::shared_ptr<Allocator>& installed() {
    // Never destroyed: tensors are freed while the process ends, and later than anything here would be.
    static auto* allocator = new std::shared_ptr<Allocator>();
    return *allocator;
}

void release(void* pointer) { installed()->give(pointer); }

}  // namespace

extern "C" {

/// Makes blockyard PyTorch's allocator. A null pointer, or why not.
const char* blockyard_shim_install() {
    static std::string why;
    try {
        TORCH_CHECK(blockyard_abi_version() >> 16 == BLOCKYARD_ABI_MAJOR,
                    "libblockyard has another interface than the one that this shim was built for");
        auto allocator = installed() ? installed() : std::make_shared<Allocator>();
        const auto before = installed();
        installed() = allocator;
        try {
            torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(allocator);
        } catch (...) {
            installed() = before;
            throw;
        }
        return nullptr;
    } catch (const std::exception& error) {
        why = error.what();
        return why.c_str();
    }
}

/// The PyTorch that it was built against.
const char* blockyard_shim_torch_version() { return BLOCKYARD_TORCH_VERSION; }
}
