// The only place where a native error becomes a Python exception: `_native.Error` with the attributes
// fault (str), error_number (int), peer (int, -1 if none) and more.
#include <sys/syscall.h>
#include <unistd.h>

#include "bindings.hpp"
#include "error.hpp"

namespace distdbg {

static const char* fault_name(Fault fault) {
  switch (fault) {
    case Fault::usage: return "usage";
    case Fault::timeout: return "timeout";
    case Fault::peer_lost: return "peer_lost";
    case Fault::network: return "network";
    case Fault::store: return "store";
    case Fault::mismatch: return "mismatch";
    case Fault::nonfinite: return "nonfinite";
    case Fault::changed: return "changed";
    case Fault::diverged: return "diverged";
    case Fault::broken: return "broken";
    case Fault::interrupted: return "interrupted";
    case Fault::system: return "system";
    case Fault::aborted: return "aborted";
    case Fault::breakpoint: return "break";
  }
  return "unknown";
}

bool python_interrupted() {
  if (static_cast<pid_t>(::syscall(SYS_gettid)) != ::getpid()) return false;
  nb::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

static PyObject* error_class = nullptr;

void bind_errors(nb::module_& module) {
  nb::object type = nb::steal(PyErr_NewExceptionWithDoc(
      "distdbg._native.Error", "A failure in native code, before the runtime names rank and op.",
      PyExc_RuntimeError, nullptr));
  module.attr("Error") = type;
  error_class = type.ptr();  // borrowed: the module keeps it alive

  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      // The signal handler's own exception is already set and says more.
      if (error.fault() == Fault::interrupted && PyErr_Occurred()) return;
      nb::object instance = nb::steal(PyObject_CallFunction(error_class, "s", error.what()));
      if (!instance.is_valid()) return;
      instance.attr("fault") = fault_name(error.fault());
      instance.attr("error_number") = error.error_number();
      instance.attr("peer") = error.peer();
      instance.attr("detail") = nb::str(error.detail.data(), error.detail.size());
      instance.attr("seq") = error.seq;
      instance.attr("gate") = error.gate;
      instance.attr("number") = error.number;
      nb::list descriptions;
      if (error.descriptions)
        for (const std::string& text : *error.descriptions)
          descriptions.append(nb::bytes(text.data(), text.size()));
      instance.attr("descriptions") = descriptions;
      nb::list troubles;
      if (error.troubles)
        for (const Trouble& t : *error.troubles)
          troubles.append(nb::make_tuple(t.flags, t.array, t.bad_count, t.first, t.before, t.count,
                                         t.checksum));
      instance.attr("troubles") = troubles;
      PyErr_SetObject(error_class, instance.ptr());
    }
  });
}

}  // namespace distdbg
