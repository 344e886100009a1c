// Sockets of this process alone: a child made by fork() has none of them, so that the end of this process
// is the end of its connections.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <string>

#include "clock.hpp"
#include "name_lookup.hpp"

namespace distdbg {

// A file descriptor with one owner.
class Fd {
 public:
  Fd() = default;
  // Owns what `make` returns; empty where that is below 0, errno says why. `make` must not block.
  static Fd from(const std::function<int()>& make);
  ~Fd() { close(); }
  Fd(Fd&& other) noexcept;
  Fd& operator=(Fd&& other) noexcept;
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  // -1 when empty, and in a child.
  int get() const;
  explicit operator bool() const { return get() >= 0; }
  void close();
  // Whoever takes it closes it; -1 when empty, and in a child.
  int release();

 private:
  int fd_ = -1;
  std::uint64_t id_ = 0;  // numbers of closed descriptors are used again, these are not
  std::uint32_t generation_ = 0;
};

// "10.0.0.1:80" or "[fe80::1]:80" of "host:port".
struct HostPort {
  std::string host;
  std::string port;
};
// Error(usage) when it has no port.
HostPort split_address(const std::string& address);

// As look_up() says; it is waited for `lookup_limit_ns` at most.
Addresses resolve(const HostPort& address);

std::string to_words(const sockaddr* address, socklen_t nbytes);
// Of the two ends of a connection; '' when it is gone.
std::string own_address_words(int fd);
std::string peer_address_words(int fd);
std::string errno_words(int error_number);

// Small messages leave at once; an idle peer whose host falls silent is noticed within `keepalive_s`.
void set_link_options(int fd, int keepalive_s);

// What the kernel knows of a link with unanswered data.
struct LinkProgress {
  std::uint32_t unacked = 0;         // segments
  std::uint32_t retransmits = 0;     // of the oldest one, without an answer
  std::uint32_t probes = 0;          // of a closed window, without an answer
  std::int64_t since_answer_ms = 0;  // since the last sign of life
};
LinkProgress link_progress(int fd);
// Whether its host is gone. A peer that answers and does not read is not: TCP_USER_TIMEOUT would not tell
// them apart, and keep-alive does not look while data is on its way.
bool is_silent(const LinkProgress& progress, int keepalive_s);

// Raises the soft limit of open files to the hard one; false when there is no more.
bool raise_fd_limit();

}  // namespace distdbg
