// The hub of this process as Python sees it.
#include "net_py.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "bindings.hpp"
#include "error.hpp"

namespace distdbg {

NetFacts net_facts(std::uint32_t rank, const std::vector<std::uint32_t>& host_of,
                   const HubHandle* hub, std::uint64_t cookie,
                   const std::vector<std::string>& addresses, double keepalive_s) {
  if (hub == nullptr) return {};
  if (addresses.size() != host_of.size())
    throw Error(Fault::usage, "there must be an address for each rank");
  const std::shared_ptr<TcpHub> kept = hub->hub;
  return {host_of, [=](Receiver& receiver, Purpose purpose) -> std::unique_ptr<Transport> {
            return std::make_unique<TcpTransport>(
                NetPlace{kept.get(), cookie, rank, addresses, keepalive_s},
                static_cast<std::uint32_t>(purpose), receiver);
          }};
}

void bind_net(nb::module_& module) {
  nb::class_<HubHandle>(module, "TcpHub", "Where ranks of other hosts connect to this process.")
      .def(
          "__init__",
          [](HubHandle* self, const std::string& host, std::uint16_t port, const nb::bytes& token) {
            std::string secret(token.c_str(), token.size());
            const ReleaseGil release;  // a name may have to be looked up
            new (self) HubHandle(host, port, std::move(secret));
          },
          nb::arg("host"), nb::arg("port"), nb::arg("token"))
      .def_prop_ro("address", [](const HubHandle& self) { return self.hub->address(); })
      .def("complaints", [](const HubHandle& self) { return self.hub->take_complaints(); })
      .def("close", [](const HubHandle& self) { self.hub->close(); }, nb::call_guard<ReleaseGil>());
}

}  // namespace distdbg
