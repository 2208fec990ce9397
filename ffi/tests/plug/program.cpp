// Program: blockyard_rmm.hpp with RMM's base class (a stub of it) and without.
#undef NDEBUG
#include <cassert>
#include <cstdio>
#include <cstring>
#include <functional>

#include "blockyard_rmm.hpp"

struct stream_view {
  void *handle;
  void *value() const { return handle; }
};

static constexpr std::size_t MIB = std::size_t{1} << 20;

int main() {
  blockyard::allocator from("sim:64MiB", "pytorch");
  char const *live = "allocated_bytes.all.current";

  blockyard::resource resource(from), same(from);
  assert(resource == same);
  int place = 0;
  void *block = resource.allocate(stream_view{&place}, 3 * MIB);
  assert(block != nullptr && from.stat(live) == 3 * MIB);
  from.record_stream(block, nullptr);
  resource.deallocate(stream_view{&place}, block, 3 * MIB);
  block = resource.allocate_sync(MIB, 256);
  resource.deallocate_sync(block, MIB);
  bool refused = false;
  try {
    (void)resource.allocate_sync(MIB, 4096);
  } catch (std::invalid_argument const &) {
    refused = true;
  }
  assert(refused);

  bool failed = false;
  try {
    (void)resource.allocate(static_cast<void *>(nullptr), 128 * MIB);
  } catch (std::bad_alloc const &error) {
    failed = std::strstr(error.what(), "impossible-size") != nullptr;
  }
  assert(failed);

  blockyard::rmm_callbacks callbacks(from);
  std::function<void *(std::size_t, stream_view, void *)> late = callbacks.allocate();
  std::function<void *(std::size_t, void *, stream_view)> early = callbacks.allocate();
  std::function<void(void *, std::size_t, stream_view, void *)> free_late = callbacks.deallocate();
  std::function<void(void *, std::size_t, void *, stream_view)> free_early = callbacks.deallocate();
  free_late(late(MIB, stream_view{&place}, nullptr), MIB, stream_view{&place}, nullptr);
  free_early(early(MIB, nullptr, stream_view{&place}), MIB, nullptr, stream_view{&place});

#if defined(BLOCKYARD_HAS_RMM)
  blockyard::rmm_resource derived(from), equal(from);
  rmm::mr::device_memory_resource &base = derived;
  assert(base.is_equal(equal));
  void *of_base = base.allocate(MIB, rmm::cuda_stream_view{});
  assert(of_base != nullptr);
  base.deallocate(of_base, MIB, rmm::cuda_stream_view{});
  assert(base.allocate(0, rmm::cuda_stream_view{}) == nullptr);
  std::puts("plug: with RMM's class");
#endif
  assert(from.stat(live) == 0);
  std::puts("plug: done");
  return 0;
}
