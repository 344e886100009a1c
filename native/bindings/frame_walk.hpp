// The frames of this thread, innermost first, read as the interpreter has them. CPython's functions for frames make
// an object of each and take some 65 instructions a frame, which is as long as the rest of a small op where a stack
// has twenty. With the GIL held.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstring>
#include <optional>

namespace distdbg {

// Where things lie in one version of CPython, in bytes. Fixed once a version is out.
struct FrameLayout {
  std::size_t current;   // in the thread's state: its frame, or what points at that
  std::size_t indirect;  // in what it points at: its frame; `none` where it is the frame itself
  std::size_t code;      // in a frame, as are the next two
  std::size_t previous;
  std::size_t instruction;
  std::size_t code_begin;  // in a code object: its instructions

  static constexpr std::size_t none = ~std::size_t{0};

  // Nothing where this version is not known, or is a build whose objects have more fields.
  static std::optional<FrameLayout> of_this_python();
};

class FrameWalk {
 public:
  // `layout` outlives it.
  explicit FrameWalk(const FrameLayout& layout) : layout_(&layout) {
    const char* at = field(reinterpret_cast<const char*>(PyThreadState_Get()), layout.current);
    frame_ =
        layout.indirect == FrameLayout::none || at == nullptr ? at : field(at, layout.indirect);
  }

  bool is_over() const { return frame_ == nullptr; }
  // Of a Python function; an object of another kind where the interpreter was entered from C.
  PyObject* code() const {
    return reinterpret_cast<PyObject*>(const_cast<char*>(field(frame_, layout_->code)));
  }
  const char* instruction() const { return field(frame_, layout_->instruction); }
  // As PyFrame_GetLasti, of a Python function.
  std::ptrdiff_t last_instruction() const {
    return instruction() - (reinterpret_cast<const char*>(code()) + layout_->code_begin);
  }
  void go_back() { frame_ = field(frame_, layout_->previous); }

 private:
  static const char* field(const char* of, std::size_t offset) {
    const char* value = nullptr;
    std::memcpy(&value, of + offset, sizeof value);
    return value;
  }

  const FrameLayout* layout_;
  const char* frame_;
};

}  // namespace distdbg
