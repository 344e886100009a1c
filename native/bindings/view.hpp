// The memory of a Python object, for native code: `const View&` in a binding gives data and size.
//
// A View holds the object's Py_buffer, so the memory stays where it is until the View is gone; make and
// destroy it with the GIL held, use `data` without. The buffer must be C-contiguous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "bindings.hpp"
#include "dtype.hpp"

namespace distdbg {

class View {
 public:
  static constexpr int unknown_dtype = -1;

  // Throws the exporter's BufferError or ValueError: not contiguous, read-only, not a buffer. None gives
  // an empty View. A dtype of another itemsize than the buffer's is a ValueError.
  View(nb::handle object, bool writable, int dtype_code);
  ~View();
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(buffer_.buf); }
  std::uint64_t nbytes() const { return static_cast<std::uint64_t>(buffer_.len); }
  std::uint64_t count() const { return nbytes() / static_cast<std::uint64_t>(buffer_.itemsize); }
  int dtype_code() const { return dtype_code_; }
  // Also for writable memory that was asked for reading only.
  bool readonly() const { return !writable_; }
  nb::tuple shape() const;
  std::span<const Py_ssize_t> dimensions() const {
    return {buffer_.shape, static_cast<std::size_t>(buffer_.ndim)};
  }

  // For Python only: the object the caller meant when this one is a stand-in for it (None: the same), and
  // what to call after the op (None: nothing).
  nb::object array;
  nb::object finish;
  // For Python to say: the object the caller meant is not contiguous, and this is a copy of it.
  bool is_stand_in = false;

 private:
  Py_buffer buffer_{};
  int dtype_code_;
  bool writable_;
};

}  // namespace distdbg
