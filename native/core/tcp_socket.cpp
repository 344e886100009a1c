#include "tcp_socket.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "error.hpp"

namespace distdbg {

namespace {

constexpr std::int64_t slice_ns = 40 * ns_per_ms;
constexpr int backlog = 512;

// The open descriptors, for the child of a fork: a socket that it kept would hide the death of its parent
// from the peers. Only what is allowed after a fork happens there: stores and close().
constexpr std::size_t most_kept = 1 << 14;
std::atomic<int> kept[most_kept];  // fd + 1; 0: free

void close_in_child() {
  for (std::atomic<int>& each : kept) {
    const int fd = each.exchange(0, std::memory_order_relaxed) - 1;
    if (fd >= 0) ::close(fd);
  }
}

void keep(int fd) {
  static const int registered = ::pthread_atfork(nullptr, nullptr, &close_in_child);
  (void)registered;
  for (std::atomic<int>& each : kept) {
    int expected = 0;
    if (each.load(std::memory_order_relaxed) == 0 && each.compare_exchange_strong(expected, fd + 1))
      return;
  }
}

bool release(int fd) {
  for (std::atomic<int>& each : kept) {
    int expected = fd + 1;
    if (each.load(std::memory_order_relaxed) == expected &&
        each.compare_exchange_strong(expected, 0))
      return true;
  }
  return false;  // it was closed when this process was forked
}

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int fault = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (fault != 0)
    throw Error(Fault::network, host + ": " + ::gai_strerror(fault),
                fault == EAI_SYSTEM ? errno : EHOSTUNREACH);
  return {found, &::freeaddrinfo};
}

using GetName = int (*)(int, sockaddr*, socklen_t*);

std::string name_of(int fd, GetName get) {
  sockaddr_storage address{};
  socklen_t nbytes = sizeof address;
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (get(fd, reinterpret_cast<sockaddr*>(&address), &nbytes) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), nbytes, host, sizeof host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "an unknown address";
  const std::string text(host);
  return (address.ss_family == AF_INET6 ? "[" + text + "]" : text) + ":" + port;
}

void set(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

}  // namespace

Descriptor::Descriptor(int fd) : fd_(fd) {
  if (fd_ >= 0) keep(fd_);
}

void Descriptor::reset() {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && release(fd)) ::close(fd);
}

std::pair<std::string, std::uint16_t> split_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  std::uint16_t port = 0;
  if (colon != std::string::npos) {
    const char* end = address.data() + address.size();
    const auto [at, fault] = std::from_chars(address.data() + colon + 1, end, port);
    if (fault == std::errc() && at == end) {
      std::string host = address.substr(0, colon);
      if (host.size() > 2 && host.front() == '[' && host.back() == ']')
        host = host.substr(1, host.size() - 2);
      if (!host.empty()) return {host, port};
    }
  }
  throw Error(Fault::usage, "'" + address + "' is not HOST:PORT");
}

void wait_for_socket(int fd, short events, const Wait& wait) {
  for (;;) {
    const int slice_ms = static_cast<int>((wait.nap_ns(slice_ns) + ns_per_ms - 1) / ns_per_ms);
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, slice_ms);
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) throw Error(Fault::system, "poll failed", errno);
    if (wait.is_interrupted()) throw Error(Fault::interrupted, "interrupted");
    wait.check_job();
    if (wait.is_over()) throw Error(Fault::timeout, "the deadline passed");
  }
}

std::string name_of_peer(int fd) { return name_of(fd, ::getpeername); }

Descriptor listen_at(const std::string& host, std::uint16_t port, std::string& address) {
  const Addresses found = look_up(host, port, AI_PASSIVE | AI_NUMERICSERV);
  Descriptor fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) throw Error(Fault::network, std::strerror(errno), errno);
  set(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd.get(), backlog) != 0)
    throw Error(Fault::network, host + ":" + std::to_string(port) + ": " + std::strerror(errno),
                errno);
  address = name_of(fd.get(), ::getsockname);
  return fd;
}

Descriptor connect_to(const std::string& address, const Wait& wait) {
  const auto [host, port] = split_address(address);
  std::string tried;
  int error_number = EHOSTUNREACH;
  const Addresses found = look_up(host, port, AI_NUMERICSERV);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    Descriptor fd(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int failure = fd.get() < 0 ? errno : 0;
    if (failure == 0 && ::connect(fd.get(), each->ai_addr, each->ai_addrlen) != 0) {
      failure = errno;
      if (failure == EINPROGRESS) {
        wait_for_socket(fd.get(), POLLOUT, wait);
        socklen_t nbytes = sizeof failure;
        ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failure, &nbytes);
      }
    }
    if (failure == 0) return fd;
    error_number = failure;
    tried += (tried.empty() ? "" : ", ") + std::string(std::strerror(failure));
  }
  throw Error(Fault::network, address + ": " + tried, error_number);
}

void prepare_link(int fd, double keepalive_s) {
  const int seconds = std::max(1, static_cast<int>(keepalive_s));
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, seconds / 3));
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / 3));
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 2);
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(keepalive_s * 1000));
}

}  // namespace distdbg
