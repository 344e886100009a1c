// A blocking socket whose every wait has a deadline and notices Ctrl-C; the client's half of the wire.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tcp_relay.hpp"
#include "wait.hpp"

namespace distdbg {

class StoreSocket {
 public:
  StoreSocket() = default;
  explicit StoreSocket(int fd) : fd_(fd) {}
  // Encrypted; `peer` is the address that was dialled.
  StoreSocket(TcpLine line, std::string peer)
      : fd_(line.fd.release()), relayed_(std::move(line.relayed)), peer_(std::move(peer)) {}
  ~StoreSocket();
  StoreSocket(StoreSocket&& other) noexcept
      : fd_(other.release()), relayed_(std::move(other.relayed_)), peer_(std::move(other.peer_)) {}
  StoreSocket(const StoreSocket&) = delete;
  StoreSocket& operator=(const StoreSocket&) = delete;

  int fd() const { return fd_; }
  // The caller closes it.
  int release() { return std::exchange(fd_, -1); }
  // As in store_address.hpp. Error(network) when the connection is gone.
  std::string peer_address() const;

  // All of `bytes`, or Error: timeout, network (the other side is gone), interrupted.
  void send(std::string_view bytes, const Wait& wait);
  // At least one byte is appended to `buffer`.
  void receive_some(std::string& buffer, const Wait& wait);
  // Exactly `nbytes`.
  std::string receive(std::size_t nbytes, const Wait& wait);

 private:
  [[noreturn]] void throw_gone(int error_number) const;

  int fd_ = -1;
  std::shared_ptr<TcpRelayed> relayed_;
  std::string peer_;
};

// Connects to any address of the host. One round through the addresses: Error(network) with the last errno
// when none answers. It is encrypted by `relay`, if there is one.
StoreSocket connect_store_socket(const std::string& host, std::uint16_t port,
                                 const std::shared_ptr<TcpRelay>& relay, const Wait& wait);

}  // namespace distdbg
