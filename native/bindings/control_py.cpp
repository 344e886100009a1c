// The control page for Python. Ranks hand it to their groups and stores; they read it themselves in
// distdbg/control/clock.py.
#include <nanobind/stl/string.h>

#include "control_py.hpp"

namespace distdbg {

void bind_control(nb::module_& module) {
  nb::class_<ControlHandle>(module, "Control", "The control page of this host, for native waits.")
      .def(
          "__init__",
          [](ControlHandle* self, const nb::bytes& path, const nb::str& run) {
            new (self) ControlHandle{Control::open({path.c_str(), path.size()}, to_utf8(run))};
          },
          nb::arg("path"), nb::arg("run"))
      .def_prop_ro("job_ns",
                   [](const ControlHandle& self) { return self.control->moment().job_ns; })
      .def_prop_ro("is_aborted",
                   [](const ControlHandle& self) { return self.control->is_aborted(); })
      .def_prop_ro("words", [](const ControlHandle& self) { return self.control->words(); });
}

}  // namespace distdbg
