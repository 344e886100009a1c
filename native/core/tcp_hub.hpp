// Where ranks of other hosts reach this process: one listener at one address, and one thread that lets in
// who proves to know the token (tcp_wire.hpp). Transports take it from there, by their own threads.
//
// Of strangers at most `most_strangers` are heard at a time, each for `proof_ns` and 136 bytes. When they
// are more, the others wait in the listener's queue; the place of whoever was silent for `patience_ns` goes
// to the next, first that of the address that holds the most.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "clock.hpp"
#include "tcp_relay.hpp"
#include "transport.hpp"

namespace distdbg {

class TcpDesk;
class TcpTransport;

struct TcpHubLimits {
  std::size_t most_strangers = 64;
  std::int64_t proof_ns = 5'000 * ns_per_ms;
  std::int64_t patience_ns = 250 * ns_per_ms;
  // Of connections that have proven themselves, before their transport is there.
  std::size_t most_early = 1024;
  std::int64_t early_ns = 120'000 * ns_per_ms;
};

// What the ranks of a group know of each other.
struct TcpPlace {
  std::uint64_t cookie = 0;  // of the group: the same for all its ranks, and only for them
  std::uint32_t rank = 0;    // in the group
  std::uint32_t size = 1;
  std::uint32_t kind = 0;  // what the transport is for
  // By rank: where its hub may be reached, "host:port" each. None: it has to dial. The hub knows its own.
  std::vector<std::vector<std::string>> addresses;
  int keepalive_s = 5;  // a host that is silent for so long is lost
  bool has_sums = false;
  // To each peer at most, in this direction: more than one carry large messages only.
  std::uint32_t streams = 1;
};

class TcpHub {
 public:
  // Listens at `host` only, port 0: at one that is free. Error(usage) for all interfaces at once;
  // Error(network) when that is no address of this host.
  // Connections are encrypted by `relay`, if there is one.
  TcpHub(const std::string& host, const std::string& port, std::string token,
         const TcpHubLimits& limits = {}, std::shared_ptr<TcpRelay> relay = nullptr);
  ~TcpHub();
  TcpHub(const TcpHub&) = delete;
  TcpHub& operator=(const TcpHub&) = delete;

  // Where it listens, "host:port".
  const std::string& address() const { return address_; }
  // `receiver` outlives it; the hub need not, but then nobody reaches the transport any more.
  std::unique_ptr<Transport> transport(const TcpPlace& place, Receiver& receiver);
  std::unique_ptr<TcpTransport> tcp_transport(const TcpPlace& place, Receiver& receiver);
  // The first of each kind of misbehaviour, in words; each is told once.
  std::vector<std::string> complaints();
  // How many connections were turned away.
  std::uint64_t refused() const;
  // Idempotent. In a forked child there is nothing to close.
  void close();

 private:
  class Loop;
  std::string token_;
  const std::shared_ptr<TcpRelay> relay_;
  std::string address_;
  std::shared_ptr<TcpDesk> desk_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<std::thread> thread_;
  const std::uint32_t generation_;
};

}  // namespace distdbg
