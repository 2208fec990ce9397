/*
 * blockyard for RMM and for cuda::mr: header-only, over blockyard.h.
 *
 *   blockyard::allocator             an allocator that C++ owns; throws what went wrong
 *   blockyard::rmm_resource          an rmm::mr::device_memory_resource, where RMM's headers have that class
 *   blockyard::rmm_callbacks         both functions of rmm::mr::callback_memory_resource, in either order of arguments
 *   blockyard::resource              a resource by its functions, in the style of cuda::mr: allocate(stream, bytes, alignment)
 *
 * Blocks are multiples of 512 bytes at multiples of 512. Larger alignments are refused. A block is freed on the stream of its
 * request; if another stream used it last, say so by record_stream before it is freed.
 */
#ifndef BLOCKYARD_RMM_HPP
#define BLOCKYARD_RMM_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "blockyard.h"

#if defined(__has_include)
#if __has_include(<rmm/mr/device/device_memory_resource.hpp>)
#include <rmm/mr/device/device_memory_resource.hpp>
#define BLOCKYARD_HAS_RMM 1
#elif __has_include(<rmm/mr/device_memory_resource.hpp>)
#include <rmm/mr/device_memory_resource.hpp>
#define BLOCKYARD_HAS_RMM 1
#endif
#if defined(BLOCKYARD_HAS_RMM) && __has_include(<rmm/error.hpp>)
#include <rmm/error.hpp>
#define BLOCKYARD_HAS_RMM_ERROR 1
#endif
#if __has_include(<cuda/memory_resource>)
#include <cuda/memory_resource>
#define BLOCKYARD_HAS_CUDA_MR 1
#endif
#endif

namespace blockyard {

/* No memory: the report, with the cause in its first line. RMM's own, where there is one, so that its callers catch it. */
#if defined(BLOCKYARD_HAS_RMM_ERROR)
using out_of_memory = rmm::out_of_memory;
[[noreturn]] inline void throw_out_of_memory(std::string const& report) { throw out_of_memory{report}; }
#else
class out_of_memory : public std::bad_alloc {
  std::shared_ptr<std::string const> report_;

 public:
  explicit out_of_memory(std::string report) : report_(std::make_shared<std::string const>(std::move(report))) {}
  char const* what() const noexcept override { return report_->c_str(); }
};
[[noreturn]] inline void throw_out_of_memory(std::string const& report) { throw out_of_memory(report); }
#endif

/* Throws what the last call on this thread answered. */
inline void check(blockyard_status status) {
  if (status == BLOCKYARD_OK) {
    return;
  }
  char const* text = blockyard_last_error_text();
  std::string said = text == nullptr ? "blockyard failed" : text;
  if (status == BLOCKYARD_OUT_OF_MEMORY) {
    throw_out_of_memory(said);
  }
  throw std::runtime_error(said);
}

/* An allocator. Copies are the same one; it ends with the last. */
class allocator {
  struct state {
    blockyard_allocator number = 0;
    ~state() {
      /* While blocks are live it stays: whoever holds them frees them later. */
      (void)blockyard_destroy(number);
    }
  };
  std::shared_ptr<state> state_ = std::make_shared<state>();

 public:
  /* As blockyard_create takes them; null: what the environment says. */
  explicit allocator(char const* device = nullptr, char const* settings = nullptr) {
    check(blockyard_create(device, settings, &state_->number));
  }

  blockyard_allocator number() const noexcept { return state_->number; }

  void* allocate(std::size_t bytes, void* stream) const {
    void* pointer = nullptr;
    check(blockyard_alloc(number(), bytes, stream, &pointer));
    return pointer;
  }

  void record_stream(void* pointer, void* stream) const {
    check(blockyard_record_stream(number(), pointer, stream));
  }

  /* A failure here is a defect of the caller, and cannot be thrown: it is left in blockyard_last_error_text. */
  void deallocate(void* pointer, std::size_t bytes) const noexcept {
    if (pointer != nullptr) {
      (void)blockyard_free(number(), pointer, bytes);
    }
  }

  std::int64_t stat(char const* key) const {
    std::int64_t value = 0;
    check(blockyard_stat(number(), key, &value));
    return value;
  }

  bool operator==(allocator const& other) const noexcept { return number() == other.number(); }
  bool operator!=(allocator const& other) const noexcept { return !(*this == other); }
};

namespace detail {

/* The driver's handle of a stream: of a wrapper with value() (RMM), with get() (cuda::stream_ref), or the handle itself. */
template <class Stream>
auto handle(Stream const& stream, int) -> decltype(static_cast<void*>(stream.value())) {
  return stream.value();
}
template <class Stream>
auto handle(Stream const& stream, long) -> decltype(static_cast<void*>(stream.get())) {
  return stream.get();
}
template <class Stream>
auto handle(Stream const& stream, ...) -> decltype(static_cast<void*>(stream)) {
  return stream;
}

/* What every address is a multiple of. */
constexpr std::size_t alignment = 512;

inline void check_alignment(std::size_t asked) {
  if (asked > alignment) {
    throw std::invalid_argument("blockyard: blocks are aligned to 512 bytes");
  }
}

}  // namespace detail

/* For rmm::mr::callback_memory_resource(callbacks.allocate(), callbacks.deallocate()). Its releases pass the stream last or
   in the middle; the argument of the user's is a void*, and tells which is which. */
class rmm_callbacks {
  allocator allocator_;

 public:
  explicit rmm_callbacks(allocator from) : allocator_(std::move(from)) {}

  struct allocating {
    allocator from;
    template <class Stream>
    void* operator()(std::size_t bytes, Stream stream, void*) const {
      return from.allocate(bytes, detail::handle(stream, 0));
    }
    template <class Stream>
    void* operator()(std::size_t bytes, void*, Stream stream) const {
      return from.allocate(bytes, detail::handle(stream, 0));
    }
  };

  struct freeing {
    allocator from;
    template <class Any, class Other>
    void operator()(void* pointer, std::size_t bytes, Any&&, Other&&) const noexcept {
      from.deallocate(pointer, bytes);
    }
  };

  allocating allocate() const { return {allocator_}; }
  freeing deallocate() const { return {allocator_}; }
};

/* In the style of cuda::mr: stream first. Comparable, copyable, memory that the device can access. */
class resource {
  allocator allocator_;

 public:
  explicit resource(allocator from) : allocator_(std::move(from)) {}

  template <class Stream>
  void* allocate(Stream stream, std::size_t bytes, std::size_t align = detail::alignment) {
    detail::check_alignment(align);
    return allocator_.allocate(bytes, detail::handle(stream, 0));
  }
  template <class Stream>
  void deallocate(Stream, void* pointer, std::size_t bytes, std::size_t = detail::alignment) noexcept {
    allocator_.deallocate(pointer, bytes);
  }
  void* allocate_sync(std::size_t bytes, std::size_t align = detail::alignment) {
    detail::check_alignment(align);
    return allocator_.allocate(bytes, nullptr);
  }
  void deallocate_sync(void* pointer, std::size_t bytes, std::size_t = detail::alignment) noexcept {
    allocator_.deallocate(pointer, bytes);
  }

  bool operator==(resource const& other) const noexcept { return allocator_ == other.allocator_; }
  bool operator!=(resource const& other) const noexcept { return !(*this == other); }

#if defined(BLOCKYARD_HAS_CUDA_MR)
  friend void get_property(resource const&, cuda::mr::device_accessible) noexcept {}
#endif
};

#if defined(BLOCKYARD_HAS_RMM)
/* For rmm::mr::set_current_device_resource(&resource). */
class rmm_resource final : public rmm::mr::device_memory_resource {
  allocator allocator_;

 public:
  explicit rmm_resource(allocator from) : allocator_(std::move(from)) {}

 private:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
    return bytes == 0 ? nullptr : allocator_.allocate(bytes, detail::handle(stream, 0));
  }
  void do_deallocate(void* pointer, std::size_t bytes, rmm::cuda_stream_view) noexcept override {
    allocator_.deallocate(pointer, bytes);
  }
  bool do_is_equal(rmm::mr::device_memory_resource const& other) const noexcept override {
    auto const* same = dynamic_cast<rmm_resource const*>(&other);
    return same != nullptr && same->allocator_ == allocator_;
  }
};
#endif

}  // namespace blockyard

#endif
