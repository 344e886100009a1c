#include "tcp_dial.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "error.hpp"
#include "store_address.hpp"
#include "tcp_congestion.hpp"

namespace distdbg {
namespace {

constexpr std::int64_t slice_ns = 40 * ns_per_ms;  // as Group::slice_ns
constexpr std::int64_t first_attempt_ns = 1'000 * ns_per_ms;
constexpr std::int64_t longest_attempt_ns = 5'000 * ns_per_ms;
constexpr std::int64_t first_pause_ns = 5 * ns_per_ms;
constexpr std::int64_t longest_pause_ns = 250 * ns_per_ms;

struct TheyWereFaster {};

class Dial {
 public:
  Dial(const TcpWay& way, const std::string& token, const std::shared_ptr<TcpRelay>& relay,
       const Wait& wait, Look has_come)
      : way_(way), token_(token), relay_(relay), wait_(wait), has_come_(has_come) {}

  void begin_attempt(std::int64_t until_ns) {
    until_ns_ = until_ns;
    is_connected_ = false;
  }

  // Error(network) where it does not work; ETIMEDOUT when time is up.
  TcpLine attempt(const std::string& address) {
    const HostPort at_home = split_address(address);
    const Addresses found = look_up(at_home.host, at_home.port, [this] {
      nap(nullptr, 0);
      return !wait_.is_over() && now_ns() < until_ns_;
    });
    int error_number = EHOSTUNREACH;
    for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
      Fd socket = Fd::from([&] {
        return ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                        at->ai_protocol);
      });
      if (!socket) {
        error_number = errno;
        continue;
      }
      begin_unpaced(socket.get());
      error_number = connect(socket.get(), *at);
      if (error_number != 0) continue;
      is_connected_ = true;
      const int on = 1;
      ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return shake_hands(std::move(socket));
    }
    throw Error(Fault::network, errno_words(error_number), error_number);
  }

  void pause(std::int64_t pause_ns) {
    begin_attempt(now_ns() + pause_ns);
    while (now_ns() < until_ns_) nap(nullptr);
  }

 private:
  void nap(pollfd* entry, std::int64_t most_ns = slice_ns) {
    if (wait_.is_interrupted()) throw Error(Fault::interrupted, "interrupted");
    wait_.check_job();
    const auto sleep = [&](std::int64_t pause_ns) {
      const timespec slice{0, static_cast<long>(pause_ns)};
      return ::ppoll(entry, entry == nullptr ? 0 : 1, &slice, nullptr) > 0;
    };
    // Who hangs up on a hub that has answered is taken for a stranger: what is connected goes on.
    if (sleep(0)) return;
    if (!is_connected_ && has_come_()) throw TheyWereFaster{};
    sleep(wait_.nap_ns(std::clamp<std::int64_t>(until_ns_ - now_ns(), 0, most_ns)));
  }

  void wait_for(int fd, short events) {
    pollfd entry{fd, events, 0};
    while (true) {
      nap(&entry);
      if (entry.revents != 0) return;
      if (wait_.is_over() || now_ns() >= until_ns_)
        throw Error(Fault::network, "no answer", ETIMEDOUT);
    }
  }

  // 0, or the errno of the failure.
  int connect(int fd, const addrinfo& address) {
    if (::connect(fd, address.ai_addr, address.ai_addrlen) != 0) {
      if (errno != EINPROGRESS) return errno;
      wait_for(fd, POLLOUT);
      int failure = 0;
      socklen_t nbytes = sizeof failure;
      ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &nbytes);
      if (failure != 0) return failure;
    }
    // Where nobody listens, a socket may get that very port as its own, and be its own peer.
    return own_store_address(fd) == peer_store_address(fd) ? ECONNREFUSED : 0;
  }

  std::string receive(const TcpLine& line, std::size_t nbytes) {
    const int fd = line.fd.get();
    std::string bytes(nbytes, '\0');
    std::size_t filled = 0;
    while (filled < nbytes) {
      const ssize_t got = ::recv(fd, bytes.data() + filled, nbytes - filled, 0);
      if (got > 0) {
        filled += static_cast<std::size_t>(got);
      } else if (got == 0) {
        line.check();
        throw Error(Fault::network, "it hung up", ECONNRESET);
      } else if (errno == EAGAIN) {
        wait_for(fd, POLLIN);
      } else if (errno != EINTR) {
        const int error_number = errno;
        line.check();
        throw Error(Fault::network, errno_words(error_number), error_number);
      }
    }
    return bytes;
  }

  // A few bytes into an empty buffer: all of them, or the connection is gone.
  static void send(const TcpLine& line, const std::string& bytes) {
    if (::send(line.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
        static_cast<ssize_t>(bytes.size()))
      return;
    const int error_number = errno;
    line.check();
    throw Error(Fault::network, errno_words(error_number), error_number);
  }

  TcpLine shake_hands(Fd socket) {
    const std::string hub_address = peer_store_address(socket.get());
    const std::string own_address = own_store_address(socket.get());
    TcpLine line = make_line(relay_, std::move(socket), false);
    TcpDialler dialler(way_, token_);
    send(line, dialler.take_hello(receive(line, tcp_hello_nbytes), hub_address, own_address));
    send(line, dialler.take_verdict(receive(line, tcp_verdict_nbytes)));
    return line;
  }

  const TcpWay& way_;
  const std::string& token_;
  const std::shared_ptr<TcpRelay>& relay_;
  const Wait& wait_;
  const Look has_come_;
  std::int64_t until_ns_ = 0;
  bool is_connected_ = false;
};

std::string tried_words(const std::vector<std::string>& addresses,
                        const std::vector<std::string>& failures) {
  std::string words;
  for (std::size_t i = 0; i < addresses.size(); ++i)
    words += (i == 0 ? "" : ", ") + addresses[i] + " (" +
             (failures[i].empty() ? "not tried: no time left" : failures[i]) + ")";
  return words;
}

}  // namespace

TcpLine dial_tcp(const std::vector<std::string>& addresses, const TcpWay& way,
                 const std::string& token, const std::shared_ptr<TcpRelay>& relay, const Wait& wait,
                 Look has_come) {
  const std::string whom = "no way to rank " + std::to_string(way.to);
  const int peer = static_cast<int>(way.to);
  Dial dial(way, token, relay, wait, has_come);
  std::vector<std::string> failures(addresses.size());
  std::vector<bool> is_hopeless(addresses.size());
  const std::int64_t begin = now_ns();
  std::int64_t attempt_ns = first_attempt_ns;
  std::int64_t pause_ns = first_pause_ns;
  int last = ETIMEDOUT;
  try {
    while (true) {
      for (std::size_t i = 0; i < addresses.size(); ++i) {
        if (is_hopeless[i] || (i > 0 && wait.is_over())) continue;
        try {
          dial.begin_attempt(std::min(now_ns() + attempt_ns, begin + dial_limit_ns));
          return dial.attempt(addresses[i]);
        } catch (const Error& error) {
          if (error.fault() != Fault::network && error.fault() != Fault::usage) throw;
          failures[i] = error.what();
          last = error.error_number();
          is_hopeless[i] = error.fault() == Fault::usage || last == EACCES || last == EPROTO;
        }
      }
      if (addresses.empty()) {  // it can only come by itself
        if (wait.is_over())
          throw Error(Fault::network, whom + ": it has no address, and has not dialled", ETIMEDOUT,
                      peer);
      } else if (wait.is_over() || now_ns() - begin >= dial_limit_ns ||
                 std::find(is_hopeless.begin(), is_hopeless.end(), false) == is_hopeless.end()) {
        throw Error(Fault::network, whom + "; tried " + tried_words(addresses, failures), last,
                    peer);
      }
      dial.pause(pause_ns);
      attempt_ns = std::min(2 * attempt_ns, longest_attempt_ns);
      pause_ns = std::min(2 * pause_ns, longest_pause_ns);
    }
  } catch (const TheyWereFaster&) {
    return {};
  }
}

}  // namespace distdbg
