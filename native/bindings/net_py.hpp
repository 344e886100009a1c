// What Group.create() and Group.open() are told of other hosts.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "links.hpp"
#include "tcp_hub.hpp"
#include "ucx_transport.hpp"

namespace distdbg {

struct NetFacts {
  std::vector<std::uint32_t> host_of;
  MakeTransport make;
};

// By rank: the address of its worker, empty where it is not wanted, and whether it is on this host.
using PyWorkers = std::vector<std::tuple<nb::bytes, bool>>;
using PyUcx = std::optional<std::tuple<std::shared_ptr<UcxEngine>, PyWorkers>>;

// `hub` may be nullptr: all ranks are on one host. It outlives the group. Without `ucx` messages go by TCP.
inline NetFacts net_facts(std::uint32_t rank, const std::vector<std::uint32_t>& host_of,
                          TcpHub* hub, std::uint64_t cookie,
                          const std::vector<std::string>& addresses, double keepalive_s,
                          std::uint32_t streams, bool has_sums, const PyUcx& ucx) {
  if (hub == nullptr) return {};
  TcpPlace place;
  place.cookie = cookie;
  place.rank = rank;
  place.size = static_cast<std::uint32_t>(host_of.size());
  place.keepalive_s = std::max(1, static_cast<int>(keepalive_s));
  place.has_sums = has_sums;
  place.streams = streams;
  for (const std::string& address : addresses)
    place.addresses.push_back(address.empty() ? std::vector<std::string>{}
                                              : std::vector<std::string>{address});
  std::vector<UcxTransport::Worker> workers;
  if (ucx)
    for (const auto& [address, is_here] : std::get<1>(*ucx))
      workers.push_back({{address.c_str(), address.size()}, is_here});
  return {host_of,
          [hub, place = std::move(place), engine = ucx ? std::get<0>(*ucx) : nullptr,
           workers = std::move(workers)](Receiver& receiver,
                                         Purpose purpose) mutable -> std::unique_ptr<Transport> {
            place.kind = static_cast<std::uint32_t>(purpose);
            if (!engine) return hub->transport(place, receiver);
            return std::make_unique<UcxTransport>(*hub, place, workers, engine, receiver);
          }};
}

}  // namespace distdbg
