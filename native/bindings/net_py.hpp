// How Python gives a group its way to other hosts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "links.hpp"
#include "tcp_transport.hpp"

namespace distdbg {

// The hub of this process, kept by everything that uses it.
struct HubHandle {
  HubHandle(const std::string& host, std::uint16_t port, std::string token)
      : hub(std::make_shared<TcpHub>(host, port, std::move(token))) {}
  std::shared_ptr<TcpHub> hub;
};

// What Group.create() and Group.open() are told of other hosts.
struct NetFacts {
  std::vector<std::uint32_t> host_of;
  MakeTransport make;
};

NetFacts net_facts(std::uint32_t rank, const std::vector<std::uint32_t>& host_of,
                   const HubHandle* hub, std::uint64_t cookie,
                   const std::vector<std::string>& addresses, double keepalive_s);

}  // namespace distdbg
