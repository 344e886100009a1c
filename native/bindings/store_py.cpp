// TCPStore's two halves. Requests go through as numbers and bytes; what they mean is known to
// native/core/store_table.cpp and distdbg/runtime/store/tcp.py.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "control_py.hpp"
#include "sha256.hpp"
#include "store_client.hpp"
#include "store_server.hpp"

namespace distdbg {
namespace {

std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }
std::string copy(const nb::bytes& bytes) { return std::string(view(bytes)); }
nb::bytes to_bytes(std::string_view text) { return nb::bytes(text.data(), text.size()); }

// Releases the GIL while blocked. The tuple keeps the fields alive and nobody can change it.
nb::tuple call(StoreClient& client, int op, std::int64_t number, const nb::tuple& fields,
               std::int64_t deadline_ns, const ControlHandle* control, bool ends_with_job) {
  std::vector<std::string_view> views;
  views.reserve(nb::len(fields));
  for (nb::handle field : fields) views.push_back(view(nb::cast<nb::bytes>(field)));
  StoreReply reply;
  {
    const Wait wait{deadline_ns, &python_interrupted, &control_of(control), ends_with_job};
    ReleaseGil released;
    reply = client.call(static_cast<StoreOp>(op), number, views, wait);
  }
  nb::list values;
  for (std::string_view field : reply.fields) values.append(to_bytes(field));
  return nb::make_tuple(static_cast<int>(reply.status), reply.number, values);
}

}  // namespace

void bind_store(nb::module_& module) {
  module.def("sha256", [](const nb::bytes& data) { return to_bytes(as_view(sha256(view(data)))); });
  module.def("hmac_sha256", [](const nb::bytes& key, const nb::bytes& data) {
    return to_bytes(as_view(hmac_sha256(view(key), {view(data)})));
  });

  nb::class_<StoreServer>(module, "StoreServer")
      .def(
          "__init__",
          [](StoreServer* self, int listen_fd, const nb::bytes& token, std::uint32_t key_nbytes,
             std::uint32_t value_nbytes, bool shares_port, std::int64_t proof_timeout_ns,
             const std::vector<nb::bytes>& served_as, std::shared_ptr<TcpRelay> relay) {
            std::vector<std::string> addresses;
            for (const nb::bytes& address : served_as) addresses.push_back(copy(address));
            new (self) StoreServer(listen_fd, copy(token), std::move(addresses),
                                   {key_nbytes, value_nbytes}, shares_port, proof_timeout_ns,
                                   std::move(relay));
          },
          nb::arg("listen_fd"), nb::arg("token"), nb::kw_only(), nb::arg("key_nbytes"),
          nb::arg("value_nbytes"), nb::arg("shares_port"), nb::arg("proof_timeout_ns"),
          nb::arg("served_as") = std::vector<nb::bytes>{}, nb::arg("relay").none() = nb::none())
      .def("close", &StoreServer::close, nb::call_guard<ReleaseGil>())
      .def("count_clients", &StoreServer::count_clients)
      .def("refused",
           [](const StoreServer& self) {
             const auto [count, last] = self.refusals().get();
             return nb::make_tuple(count, to_bytes(last));
           })
      .def("why_refused", [](const StoreServer& self) { return self.refusals().why(); });

  nb::class_<StoreClient>(module, "StoreClient")
      .def(
          "__init__",
          [](StoreClient* self, const std::string& host, std::uint16_t port, const nb::bytes& token,
             std::shared_ptr<TcpRelay> relay) {
            new (self) StoreClient(host, port, copy(token), std::move(relay));
          },
          nb::arg("host"), nb::arg("port"), nb::arg("token"), nb::arg("relay").none() = nb::none())
      .def(
          "connect",
          [](StoreClient& client, std::int64_t deadline_ns, std::int64_t tries_until_ns,
             const ControlHandle* control, bool ends_with_job) {
            const Wait wait{deadline_ns, &python_interrupted, &control_of(control), ends_with_job};
            ReleaseGil released;
            return client.connect(wait, tries_until_ns);
          },
          nb::arg("deadline_ns"), nb::arg("tries_until_ns") = no_deadline,
          nb::arg("control").none() = nullptr, nb::arg("ends_with_job") = false)
      .def("call", &call, nb::arg("op"), nb::arg("number"), nb::arg("fields"),
           nb::arg("deadline_ns"), nb::arg("control").none() = nullptr,
           nb::arg("ends_with_job") = false)
      .def("close", &StoreClient::close, nb::call_guard<ReleaseGil>())
      .def_prop_ro("key_nbytes", [](const StoreClient& c) { return c.limits().key_nbytes; })
      .def_prop_ro("value_nbytes", [](const StoreClient& c) { return c.limits().value_nbytes; });
}

}  // namespace distdbg
