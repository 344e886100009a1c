// A client of a TCPStore server, for any number of threads at once.
//
// A connection carries one request at a time, so a thread that blocks in `get` keeps one for itself and
// others use, or open, another: an idle one is reused, and few are kept idle.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <sys/types.h>

#include "store_wire.hpp"
#include "tcp_relay.hpp"
#include "wait.hpp"

namespace distdbg {

struct StoreReply {
  StoreStatus status = StoreStatus::ok;
  std::int64_t number = 0;
  std::string bytes;  // what the fields point into
  std::vector<std::string_view> fields;
};

class StoreClient {
 public:
  // Its connections are encrypted by `relay`, if there is one.
  StoreClient(std::string host, std::uint16_t port, std::string token,
              std::shared_ptr<TcpRelay> relay = nullptr);
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  // Opens the first connection; tries again until the deadline, since the server may come later.
  // False: there was none when no further try was to begin, at `tries_until_ns` (monotonic).
  bool connect(const Wait& wait, std::int64_t tries_until_ns = no_deadline);

  // Sends one request and waits for its reply. The deadline is the caller's patience with the server
  // itself; how long the server waits for keys is the request's number.
  StoreReply call(StoreOp op, std::int64_t number, const std::vector<std::string_view>& fields,
                  const Wait& wait);

  // Ends the calls of other threads with Fault::broken; idempotent.
  void close();

  StoreLimits limits() const { return limits_; }

 private:
  class Connection;
  struct Borrowed;

  void check_process() const;
  // Null: no further try was to begin.
  std::unique_ptr<Connection> open(const Wait& wait, bool is_patient, std::int64_t tries_until_ns);
  std::unique_ptr<Connection> borrow(const Wait& wait);
  void give_back(std::unique_ptr<Connection> connection);
  [[noreturn]] void throw_closed() const;
  void release(int fd);

  const std::string host_;
  const std::uint16_t port_;
  const std::string token_;
  const std::shared_ptr<TcpRelay> relay_;
  const pid_t pid_;
  StoreLimits limits_;

  std::mutex mutex_;  // guards what follows
  bool is_closed_ = false;
  std::vector<std::unique_ptr<Connection>> idle_;
  std::unordered_set<int> open_fds_;
};

}  // namespace distdbg
