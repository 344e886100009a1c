// A method that CPython calls with its arguments in a row, by position. What nanobind does for each call
// (keywords, overloads, conversions) takes longer than most looks at a known call.
#pragma once

#include <exception>
#include <utility>

#include "attributes.hpp"

namespace distdbg {

// Of a class with `PyObject* fail(std::exception_ptr)`, which sets Python's error and returns nullptr.
template <auto method>
struct FastMethod;

template <class Self, class... Handles, nb::object (Self::*method)(Handles...)>
struct FastMethod<method> {
  // The method bound to `self`.
  static nb::object bind(nb::handle self) {
    static PyMethodDef definition{"known",
                                  reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&call)),
                                  METH_FASTCALL, nullptr};
    return owned(PyCFunction_NewEx(&definition, self.ptr(), nullptr));
  }

 private:
  static PyObject* call(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    if (count != sizeof...(Handles)) {
      PyErr_Format(PyExc_TypeError, "takes %zu arguments, not %zd", sizeof...(Handles), count);
      return nullptr;
    }
    Self& self = *nb::inst_ptr<Self>(object);
    try {
      return invoke(self, arguments, std::index_sequence_for<Handles...>{}).release().ptr();
    } catch (...) {
      return self.fail(std::current_exception());
    }
  }
  template <std::size_t... at>
  static nb::object invoke(Self& self, PyObject* const* arguments, std::index_sequence<at...>) {
    return (self.*method)(nb::handle(arguments[at])...);
  }
};

}  // namespace distdbg
