// A field of torch's options, remembered as it is set: torch makes a new object of it each time it is read,
// which takes longer than all else that is read of an op.
#pragma once

#include "attributes.hpp"

namespace distdbg {

// A property of torch's that notes the last value set, see distdbg/torch_bridge/tap/methods.py.
class NotedOption {
 public:
  // `is_flag`: torch takes all that is true or false, and makes a bool of it.
  NotedOption(nb::object property, bool is_flag)
      : get_(property.attr("fget")), set_(property.attr("fset")), is_flag_(is_flag) {}

  nb::object read(nb::handle options) const { return get_(options); }

  void write(nb::handle options, nb::handle value) {
    set_(options, value);
    was_set_ = true;
    if (is_flag_ && !PyBool_Check(value.ptr())) {
      options_.reset();
      return;
    }
    if (!value_.is(value)) {  // mostly the same object; to be hashed, an op of torch's calls Python
      code_ = code(value);
      value_ = nb::borrow(value);
    }
    options_ = nb::borrow(options);  // held, so that no other object is at its place
  }

  // Torch's number of the value in these options: of a reduce op, or 0 and 1 of a flag.
  Py_hash_t code_of(nb::handle options) {
    if (!options_.is(options)) return code(get_(options));
    options_.reset();
    return code_;
  }

  // Whether it was set in any options so far.
  bool was_set() const { return was_set_; }

 private:
  static Py_hash_t code(nb::handle value) {
    const Py_hash_t found = PyObject_Hash(value.ptr());
    if (found == -1) nb::raise_python_error();
    return found;
  }

  const nb::object get_;
  const nb::object set_;
  const bool is_flag_;
  nb::object options_;
  nb::object value_;  // set last, and its code
  Py_hash_t code_ = 0;
  bool was_set_ = false;
};

}  // namespace distdbg
