// The hub that ranks of other hosts reach this process by. Its transports stay native: groups make them.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "tcp_hub.hpp"

namespace distdbg {

void bind_tcp(nb::module_& module) {
  nb::class_<TcpHub>(module, "TcpHub")
      .def(
          "__init__",
          [](TcpHub* self, const std::string& host, const std::string& port,
             const nb::bytes& token) {
            std::string copy(token.c_str(), token.size());
            const ReleaseGil released;  // the resolver may take its time
            new (self) TcpHub(host, port, std::move(copy));
          },
          nb::arg("host"), nb::arg("port"), nb::arg("token"))
      .def_prop_ro("address", &TcpHub::address)
      .def("complaints", &TcpHub::complaints)
      .def_prop_ro("refused", &TcpHub::refused)
      .def("close", &TcpHub::close, nb::call_guard<ReleaseGil>());
}

}  // namespace distdbg
