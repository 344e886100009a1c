// What Group.create() and Group.open() are told of other hosts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "links.hpp"
#include "tcp_hub.hpp"

namespace distdbg {

struct NetFacts {
  std::vector<std::uint32_t> host_of;
  MakeTransport make;
};

// `hub` may be nullptr: all ranks are on one host. It outlives the group.
inline NetFacts net_facts(std::uint32_t rank, const std::vector<std::uint32_t>& host_of,
                          TcpHub* hub, std::uint64_t cookie,
                          const std::vector<std::string>& addresses, double keepalive_s,
                          bool has_sums) {
  if (hub == nullptr) return {};
  TcpPlace place;
  place.cookie = cookie;
  place.rank = rank;
  place.size = static_cast<std::uint32_t>(host_of.size());
  place.keepalive_s = std::max(1, static_cast<int>(keepalive_s));
  place.has_sums = has_sums;
  for (const std::string& address : addresses)
    place.addresses.push_back(address.empty() ? std::vector<std::string>{}
                                              : std::vector<std::string>{address});
  return {host_of, [hub, place = std::move(place)](Receiver& receiver, Purpose purpose) mutable {
            place.kind = static_cast<std::uint32_t>(purpose);
            return hub->transport(place, receiver);
          }};
}

}  // namespace distdbg
