// The parts of the extension module; one function per file, called once by module.cpp.
#pragma once

#include <nanobind/nanobind.h>

#include <cxxabi.h>
#include <unistd.h>

#include <string>

#include "wait.hpp"

namespace distdbg {

namespace nb = nanobind;

// Like nb::gil_scoped_release, for daemon threads too: up to Python 3.13, taking the GIL back while the
// interpreter ends unwinds the thread (pthread_exit), which no C++ frame above lets through. It
// stays here instead until the process is gone, as Python does itself since 3.14.
class ReleaseGil {
 public:
  ReleaseGil() : state_(PyEval_SaveThread()) {}
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;
  ~ReleaseGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
      for (;;) ::pause();
    }
  }

 private:
  PyThreadState* state_;
};

// The text as UTF-8. Python strings may hold half of a surrogate pair (a file name in another encoding);
// it is written as \udc80, because words for a person are no reason to fail.
inline std::string to_utf8(const nb::str& text) {
  const nb::object bytes =
      nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
  char* data = nullptr;
  Py_ssize_t length = 0;
  if (!bytes.is_valid() || PyBytes_AsStringAndSize(bytes.ptr(), &data, &length) != 0)
    throw nb::python_error();
  return {data, static_cast<std::size_t>(length)};
}

void bind_errors(nb::module_& module);
void bind_control(nb::module_& module);
void bind_reduce(nb::module_& module);
void bind_store(nb::module_& module);
void bind_record(nb::module_& module);
void bind_ops(nb::module_& module);
void bind_tcp(nb::module_& module);
void bind_ucx(nb::module_& module);
void bind_group(nb::module_& module);
void bind_known_calls(nb::module_& module);
void bind_noted_option(nb::module_& module);
void bind_short_way(nb::module_& module);
void bind_reducer(nb::module_& module);
void bind_tap(nb::module_& module);
void bind_tap_messages(nb::module_& module);
void bind_shared_heap(nb::module_& module);

// True when a Python signal handler raised (KeyboardInterrupt); takes the GIL, and only on the main
// thread, since Python runs handlers nowhere else. Call it without the GIL.
bool python_interrupted();

}  // namespace distdbg
