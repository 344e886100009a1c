// Sockets of links between hosts: how they are opened, and what they are set to.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "wait.hpp"

namespace distdbg {

// Owns a file descriptor, which a child made by fork does not keep open.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd);
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  void reset();

 private:
  int fd_ = -1;
};

// "10.0.0.5:4711", "[fd00::5]:4711", "node7:4711"; Error(usage) for anything else.
std::pair<std::string, std::uint16_t> split_address(const std::string& address);

// "10.0.0.5:4711"; "an unknown address" of a connection that is gone.
std::string name_of_peer(int fd);

// A listener at that address alone; `address` is set to where it listens. Error(network) with words.
Descriptor listen_at(const std::string& host, std::uint16_t port, std::string& address);

// Connected, non-blocking. Error: network with words and errno, timeout, interrupted, aborted.
Descriptor connect_to(const std::string& address, const Wait& wait);

// For frames in both directions: small ones leave at once, and a peer that is silent for so long is lost.
void prepare_link(int fd, double keepalive_s);

// Blocks until `fd` is ready for `events` (poll), in slices; throws as `wait` says.
void wait_for_socket(int fd, short events, const Wait& wait);

}  // namespace distdbg
