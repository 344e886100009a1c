// Attributes and methods of Python objects by names that were made once, for code that is called often.
#pragma once

#include <utility>

#include "bindings.hpp"

namespace distdbg {

// A name for the functions below; made once and kept.
inline PyObject* intern(const char* text) { return PyUnicode_InternFromString(text); }

inline nb::object owned(PyObject* made) {
  if (made == nullptr) nb::raise_python_error();
  return nb::steal(made);
}

inline nb::object get(nb::handle of, PyObject* name) {
  return owned(PyObject_GetAttr(of.ptr(), name));
}

inline void set(nb::handle of, PyObject* name, nb::handle value) {
  if (PyObject_SetAttr(of.ptr(), name, value.ptr()) != 0) nb::raise_python_error();
}

inline nb::object call(nb::handle of, PyObject* name) {
  PyObject* arguments[] = {of.ptr()};
  return owned(PyObject_VectorcallMethod(name, arguments, 1, nullptr));
}

// Calls `function` where errors of C++ have to be Python's.
template <class Function>
auto guarded(Function&& function, decltype(function()) failed) -> decltype(function()) {
  try {
    return function();
  } catch (nb::python_error& error) {
    error.restore();
  }
  return failed;
}

// A lock of Python's, held for a block.
class Locked {
 public:
  // Its two methods, looked up once.
  Locked(const nb::object& acquire, nb::object release) : release_(std::move(release)) {
    owned(PyObject_CallNoArgs(acquire.ptr()));
  }
  ~Locked() {
    PyObject* const done = PyObject_CallNoArgs(release_.ptr());
    if (done == nullptr) PyErr_WriteUnraisable(release_.ptr());
    Py_XDECREF(done);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  const nb::object release_;
};

}  // namespace distdbg
