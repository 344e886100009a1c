// The hub that ranks of other hosts reach this process by. Its transports stay native: groups make them.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "tcp_hub.hpp"

namespace distdbg {

void bind_tcp(nb::module_& module) {
  nb::class_<TcpRelayed>(module, "TcpRelayed")
      .def_prop_ro("network", &TcpRelayed::network)
      .def_prop_ro("end", &TcpRelayed::end)
      .def_prop_ro("is_server", &TcpRelayed::is_server)
      .def_prop_ro("failure", &TcpRelayed::failure)
      .def("shut_network", &TcpRelayed::shut_network)
      .def("shut_end", &TcpRelayed::shut_end)
      .def("fail", &TcpRelayed::fail, nb::arg("error_number"), nb::arg("words"))
      .def("close", &TcpRelayed::close);

  nb::class_<TcpRelay>(module, "TcpRelay")
      .def(nb::init<>())
      .def_prop_ro("fd", &TcpRelay::fd)
      .def("take", &TcpRelay::take, nb::sig("def take(self) -> TcpRelayed | None"))
      // Takes over a connected socket; the descriptor to use from now on, and what is known of it.
      .def(
          "carry",
          [](TcpRelay& self, int network, bool is_server) {
            TcpLine line = self.carry(Fd::from([network] { return network; }), is_server);
            return std::make_pair(line.fd.release(), std::move(line.relayed));
          },
          nb::arg("network"), nb::arg("is_server"))
      .def_prop_ro("is_empty", &TcpRelay::is_empty)
      .def("close", &TcpRelay::close)
      .def("release", &TcpRelay::release);

  nb::class_<TcpHub>(module, "TcpHub")
      .def(
          "__init__",
          [](TcpHub* self, const std::string& host, const std::string& port, const nb::bytes& token,
             std::shared_ptr<TcpRelay> relay) {
            std::string copy(token.c_str(), token.size());
            const ReleaseGil released;  // the resolver may take its time
            new (self) TcpHub(host, port, std::move(copy), {}, std::move(relay));
          },
          nb::arg("host"), nb::arg("port"), nb::arg("token"), nb::arg("relay").none() = nb::none())
      .def_prop_ro("address", &TcpHub::address)
      .def("complaints", &TcpHub::complaints)
      .def_prop_ro("refused", &TcpHub::refused)
      .def("close", &TcpHub::close, nb::call_guard<ReleaseGil>());
}

}  // namespace distdbg
