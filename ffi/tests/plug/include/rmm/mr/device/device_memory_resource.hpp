/* A stub of RMM: the class that the adaptor derives from, and a stream. */
#pragma once
#include <cstddef>

struct CUstream_st;

namespace rmm {
class cuda_stream_view {
  CUstream_st *stream_ = nullptr;

 public:
  cuda_stream_view() = default;
  cuda_stream_view(CUstream_st *stream) : stream_(stream) {}
  CUstream_st *value() const noexcept { return stream_; }
  operator CUstream_st *() const noexcept { return stream_; }
};

namespace mr {
class device_memory_resource {
 public:
  virtual ~device_memory_resource() = default;
  void *allocate(std::size_t bytes, cuda_stream_view stream) { return do_allocate(bytes, stream); }
  void deallocate(void *pointer, std::size_t bytes, cuda_stream_view stream) {
    do_deallocate(pointer, bytes, stream);
  }
  bool is_equal(device_memory_resource const &other) const noexcept { return do_is_equal(other); }

 private:
  virtual void *do_allocate(std::size_t bytes, cuda_stream_view stream) = 0;
  virtual void do_deallocate(void *pointer, std::size_t bytes, cuda_stream_view stream) = 0;
  virtual bool do_is_equal(device_memory_resource const &other) const noexcept { return this == &other; }
};
}  // namespace mr
}  // namespace rmm
