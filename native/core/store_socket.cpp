#include "store_socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "error.hpp"
#include "name_lookup.hpp"
#include "store_address.hpp"

namespace distdbg {
namespace {

constexpr std::int64_t slice_ns = 40 * ns_per_ms;  // as Group::slice_ns
constexpr std::size_t chunk_nbytes = 64u << 10;

void check(const Wait& wait) {
  if (wait.is_interrupted()) throw Error(Fault::interrupted, "interrupted");
  wait.check_job();
  if (wait.is_over()) throw Error(Fault::timeout, "the deadline passed");
}

// Blocks until `fd` is ready for `events`, in slices.
void wait_for(int fd, short events, const Wait& wait) {
  while (true) {
    const int slice_ms = static_cast<int>((wait.nap_ns(slice_ns) + ns_per_ms - 1) / ns_per_ms);
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, slice_ms);
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) throw Error(Fault::system, "poll failed", errno);
    check(wait);
  }
}

void set_socket_options(int fd) {
  const auto set = [fd](int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

// recv() itself is the slice: no poll() is needed before the usual, quick reply.
bool set_blocking(int fd) {
  const timeval slice{0, slice_ns / 1000};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof slice);
  int block = 0;
  return ::ioctl(fd, FIONBIO, &block) == 0;
}

// A client that tries again and again while nobody listens may get its own port as source, and would then
// be connected to itself.
bool is_connected_to_itself(int fd) {
  sockaddr_storage own{};
  sockaddr_storage other{};
  socklen_t own_nbytes = sizeof own;
  socklen_t other_nbytes = sizeof other;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_nbytes) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&other), &other_nbytes) == 0 &&
         own_nbytes == other_nbytes && std::memcmp(&own, &other, own_nbytes) == 0;
}

// 0, or the errno of the failure.
int connect_to(int fd, const addrinfo& address, const Wait& wait) {
  if (::connect(fd, address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    wait_for(fd, POLLOUT, wait);
    int failure = 0;
    socklen_t nbytes = sizeof failure;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &nbytes);
    if (failure != 0) return failure;
  }
  return is_connected_to_itself(fd) ? ECONNREFUSED : 0;
}

}  // namespace

StoreSocket::~StoreSocket() {
  if (fd_ >= 0) ::close(fd_);
}

std::string StoreSocket::peer_address() const {
  return relayed_ != nullptr ? peer_ : peer_store_address(fd_);
}

void StoreSocket::throw_gone(int error_number) const {
  TcpLine{{}, relayed_}.check();
  throw Error(Fault::network,
              error_number == 0 ? "the server closed the connection" : std::strerror(error_number),
              error_number);
}

void StoreSocket::send(std::string_view bytes, const Wait& wait) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      wait_for(fd_, POLLOUT, wait);
    } else if (errno != EINTR) {
      throw_gone(errno);
    }
  }
}

void StoreSocket::receive_some(std::string& buffer, const Wait& wait) {
  char chunk[chunk_nbytes];
  while (true) {
    const ssize_t got = ::recv(fd_, chunk, sizeof chunk, 0);
    if (got > 0) {
      buffer.append(chunk, static_cast<std::size_t>(got));
      return;
    }
    if (got == 0) throw_gone(0);
    if (errno != EAGAIN && errno != EINTR) throw_gone(errno);
    check(wait);
  }
}

std::string StoreSocket::receive(std::size_t nbytes, const Wait& wait) {
  std::string bytes(nbytes, '\0');
  std::size_t filled = 0;
  while (filled < nbytes) {
    const ssize_t got = ::recv(fd_, bytes.data() + filled, nbytes - filled, 0);
    if (got > 0) {
      filled += static_cast<std::size_t>(got);
    } else if (got == 0) {
      throw_gone(0);
    } else if (errno == EAGAIN || errno == EINTR) {
      check(wait);
    } else {
      throw_gone(errno);
    }
  }
  return bytes;
}

StoreSocket connect_store_socket(const std::string& host, std::uint16_t port,
                                 const std::shared_ptr<TcpRelay>& relay, const Wait& wait) {
  const Addresses found = look_up(host, std::to_string(port), [&wait] {
    if (wait.is_interrupted()) throw Error(Fault::interrupted, "interrupted");
    wait.check_job();
    return !wait.is_over();
  });
  int error_number = EHOSTUNREACH;
  for (const addrinfo* address = found.get(); address != nullptr; address = address->ai_next) {
    const int type = address->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK;
    StoreSocket socket(::socket(address->ai_family, type, address->ai_protocol));
    if (socket.fd() < 0) {
      error_number = errno;
      continue;
    }
    error_number = connect_to(socket.fd(), *address, wait);
    if (error_number != 0) continue;
    set_socket_options(socket.fd());
    if (relay != nullptr) {
      std::string peer = socket.peer_address();
      Fd network = Fd::from([&] { return socket.release(); });
      StoreSocket relayed(relay->carry(std::move(network), false), std::move(peer));
      if (set_blocking(relayed.fd())) return relayed;
    } else if (set_blocking(socket.fd())) {
      return socket;
    }
  }
  throw Error(Fault::network, std::strerror(error_number), error_number);
}

}  // namespace distdbg
