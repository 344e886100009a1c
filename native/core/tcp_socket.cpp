#include "tcp_socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "error.hpp"
#include "fork.hpp"
#include "tcp_congestion.hpp"

namespace distdbg {
namespace {

// All descriptors that children must not keep. Locked over a fork, so that each is in it or not there yet.
struct Owned {
  std::mutex mutex;
  std::map<std::uint64_t, int> fds;
  std::uint64_t next = 1;
};

Owned& owned() {
  static Owned* const all = [] {
    auto* made = new Owned;  // never deleted: descriptors with static storage may end after it
    fork_generation();
    ::pthread_atfork([] { owned().mutex.lock(); }, [] { owned().mutex.unlock(); },
                     [] {
                       for (const auto& [id, fd] : owned().fds) ::close(fd);
                       owned().fds.clear();
                       owned().mutex.unlock();
                     });
    return made;
  }();
  return *all;
}

using AskAddress = int (*)(int, sockaddr*, socklen_t*);

std::string end_words(int fd, AskAddress ask) {
  sockaddr_storage address{};
  socklen_t nbytes = sizeof address;
  if (ask(fd, reinterpret_cast<sockaddr*>(&address), &nbytes) != 0) return {};
  return to_words(reinterpret_cast<const sockaddr*>(&address), nbytes);
}

}  // namespace

Fd Fd::from(const std::function<int()>& make) {
  Owned& all = owned();
  const std::lock_guard lock(all.mutex);
  Fd made;
  made.fd_ = make();
  if (made.fd_ < 0) return {};
  made.id_ = all.next++;
  made.generation_ = fork_generation();
  try {
    all.fds.emplace(made.id_, made.fd_);
  } catch (...) {
    ::close(std::exchange(made.fd_, -1));
    throw;
  }
  return made;
}

Fd::Fd(Fd&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), id_(other.id_), generation_(other.generation_) {}

Fd& Fd::operator=(Fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(id_, other.id_);
  std::swap(generation_, other.generation_);
  return *this;
}

int Fd::get() const { return fd_ >= 0 && generation_ == fork_generation() ? fd_ : -1; }

void Fd::close() {
  if (fd_ < 0) return;
  Owned& all = owned();
  const std::lock_guard lock(all.mutex);
  if (all.fds.erase(id_) == 1) ::close(fd_);
  fd_ = -1;
}

int Fd::release() {
  const int fd = get();
  if (fd < 0) return -1;
  Owned& all = owned();
  const std::lock_guard lock(all.mutex);
  all.fds.erase(id_);
  return std::exchange(fd_, -1);
}

HostPort split_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size())
    throw Error(Fault::usage, "'" + address + "' is not host:port");
  HostPort parts{address.substr(0, colon), address.substr(colon + 1)};
  if (parts.host.size() > 1 && parts.host.front() == '[' && parts.host.back() == ']')
    parts.host = parts.host.substr(1, parts.host.size() - 2);
  return parts;
}

Addresses resolve(const HostPort& address) {
  const std::int64_t until_ns = now_ns() + lookup_limit_ns;
  return look_up(address.host, address.port, [until_ns] { return now_ns() < until_ns; });
}

std::string to_words(const sockaddr* address, socklen_t nbytes) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (::getnameinfo(address, nbytes, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {};
  const std::string text = host;
  return (text.find(':') == std::string::npos ? text : "[" + text + "]") + ":" + port;
}

std::string own_address_words(int fd) { return end_words(fd, &::getsockname); }
std::string peer_address_words(int fd) { return end_words(fd, &::getpeername); }

std::string errno_words(int error_number) {
  char buffer[128];
#if defined(_GNU_SOURCE)
  return ::strerror_r(error_number, buffer, sizeof buffer);
#else
  return ::strerror_r(error_number, buffer, sizeof buffer) == 0 ? buffer : "unknown";
#endif
}

void set_link_options(int fd, int keepalive_s) {
  const auto set = [fd](int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  const int probe_s = std::max(1, keepalive_s / 5);
  const int probes = std::clamp(keepalive_s / probe_s - 2, 1, 3);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, keepalive_s - probes * probe_s));
  set(IPPROTO_TCP, TCP_KEEPINTVL, probe_s);
  set(IPPROTO_TCP, TCP_KEEPCNT, probes);
  pace_if_far(fd);
}

LinkProgress link_progress(int fd) {
  tcp_info info{};
  socklen_t nbytes = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &nbytes) != 0) return {};
  return {info.tcpi_unacked, info.tcpi_retransmits, info.tcpi_probes, info.tcpi_last_ack_recv};
}

bool is_silent(const LinkProgress& progress, int keepalive_s) {
  const bool has_asked =
      progress.probes >= 2 || (progress.unacked > 0 && progress.retransmits >= 2);
  return has_asked && progress.since_answer_ms >= std::int64_t{keepalive_s} * 1000;
}

bool raise_fd_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

}  // namespace distdbg
