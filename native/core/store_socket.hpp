// A blocking socket whose every wait has a deadline and notices Ctrl-C; the client's half of the wire.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "wait.hpp"

namespace distdbg {

class StoreSocket {
 public:
  StoreSocket() = default;
  explicit StoreSocket(int fd) : fd_(fd) {}
  ~StoreSocket();
  StoreSocket(StoreSocket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  StoreSocket(const StoreSocket&) = delete;
  StoreSocket& operator=(const StoreSocket&) = delete;

  int fd() const { return fd_; }

  // All of `bytes`, or Error: timeout, network (the other side is gone), interrupted.
  void send(std::string_view bytes, const Wait& wait);
  // At least one byte is appended to `buffer`.
  void receive_some(std::string& buffer, const Wait& wait);
  // Exactly `nbytes`.
  std::string receive(std::size_t nbytes, const Wait& wait);

 private:
  int fd_ = -1;
};

// Connects to any address of the host. One round through the addresses: Error(network) with the last errno
// when none answers.
StoreSocket connect_store_socket(const std::string& host, std::uint16_t port, const Wait& wait);

}  // namespace distdbg
