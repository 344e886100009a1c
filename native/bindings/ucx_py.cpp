// UCX of this process. Its transports stay native: groups make them.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "ucx_engine.hpp"

namespace distdbg {

void bind_ucx(nb::module_& module) {
  nb::class_<UcxEngine>(module, "UcxEngine")
      .def(
          "__init__",
          [](UcxEngine* self, const std::string& library, const nb::bytes& token) {
            std::string copy(token.c_str(), token.size());
            const ReleaseGil released;  // it looks for devices, which may take its time
            new (self) UcxEngine(library, std::move(copy));
          },
          nb::arg("library"), nb::arg("token"))
      .def_prop_ro("address",
                   [](const UcxEngine& self) {
                     return nb::bytes(self.address().data(), self.address().size());
                   })
      .def_prop_ro("version", &UcxEngine::version)
      .def_prop_ro("refused", &UcxEngine::refused)
      .def("close", &UcxEngine::close, nb::call_guard<ReleaseGil>());
}

}  // namespace distdbg
