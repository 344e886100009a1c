// The server of a TCPStore: one thread, one epoll set, any number of clients.
//
// A connection is in one of four states, and only `ready` reads requests:
//
//   challenged, proving --(right proof)--> ready --(a key is missing)--> parked
//      |                         ^  |                          |
//      | 10 s, or wrong          |  | nonsense, or gone        | the key came / the timeout
//      v                         |  v                          v
//    closed                      +--- closed <--(gone)-------- ready
//
// Memory per connection is bounded: at most one request and one reply are held, both limited by
// StoreLimits, and a reply that is not being read stops the reading of requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "store_refusals.hpp"
#include "store_wire.hpp"
#include "tcp_relay.hpp"

namespace distdbg {

class StoreServer {
 public:
  // Takes over `listen_fd`. `shares_port` says that other processes hold the same listening socket, so
  // that it is closed, but not shut down, in the end. `served_as`: at which addresses clients may dial
  // it beside those of its own host, where something translates them (18 bytes each, as on the wire). Connections
  // are encrypted by `relay`, if there is one.
  StoreServer(int listen_fd, std::string token, std::vector<std::string> served_as,
              StoreLimits limits, bool shares_port, std::int64_t proof_timeout_ns,
              std::shared_ptr<TcpRelay> relay = nullptr);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Ends the thread and every connection; idempotent. In a forked child it only lets go of the fds.
  void close();
  int count_clients() const { return client_count_.load(std::memory_order_relaxed); }
  const StoreRefusals& refusals() const { return refusals_; }

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<std::thread> thread_;
  std::atomic<int> client_count_{0};
  StoreRefusals refusals_;
  pid_t pid_;
};

}  // namespace distdbg
