#include "tcp_hub.hpp"

#include <netinet/in.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <list>
#include <map>
#include <utility>

#include "error.hpp"
#include "fork.hpp"
#include "store_address.hpp"
#include "store_wire.hpp"
#include "tcp_complaints.hpp"
#include "tcp_congestion.hpp"
#include "tcp_desk.hpp"
#include "tcp_socket.hpp"
#include "tcp_transport.hpp"

namespace distdbg {
namespace {

constexpr std::int64_t accept_pause_ns = 100 * ns_per_ms;  // when the process has no fds left
constexpr int backlog = 1024;

bool is_any_address(const sockaddr* address) {
  if (address->sa_family == AF_INET)
    return reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr == htonl(INADDR_ANY);
  if (address->sa_family != AF_INET6) return false;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&v6))
    return std::all_of(v6.s6_addr + 12, v6.s6_addr + 16, [](auto byte) { return byte == 0; });
  return IN6_IS_ADDR_UNSPECIFIED(&v6);
}

Fd listen_at(const std::string& host, const std::string& port) {
  if (host.empty()) throw Error(Fault::usage, "a TCP hub listens at one address, not at all");
  const Addresses found = resolve({host, port});
  int error_number = EADDRNOTAVAIL;
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    if (is_any_address(at->ai_addr))
      throw Error(Fault::usage, "a TCP hub listens at one address, not at all of them");
    Fd fd = Fd::from([&] {
      return ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                      at->ai_protocol);
    });
    if (fd) begin_unpaced(fd.get());  // connections that are accepted are like it
    const int on = 1;
    if (fd && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        ::bind(fd.get(), at->ai_addr, at->ai_addrlen) == 0 && ::listen(fd.get(), backlog) == 0)
      return fd;
    error_number = errno;
  }
  throw Error(Fault::network, "cannot listen at " + host + ": " + errno_words(error_number),
              error_number);
}

}  // namespace

class TcpHub::Loop {
 public:
  Loop(Fd listener, const std::string& token, const TcpHubLimits& limits,
       std::shared_ptr<TcpDesk> desk, std::shared_ptr<TcpRelay> relay)
      : listener_(std::move(listener)),
        epoll_(Fd::from([] { return ::epoll_create1(EPOLL_CLOEXEC); })),
        stop_(Fd::from([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })),
        token_(token),
        limits_(limits),
        desk_(std::move(desk)),
        relay_(std::move(relay)) {
    if (!epoll_ || !stop_ || !watch(listener_.get(), &listener_) || !watch(stop_.get(), &stop_))
      throw Error(Fault::system, "a TCP hub needs an epoll set and an eventfd", errno);
  }

  void stop() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  }
  TcpComplaints& complaints() { return complaints_; }

  void run() {
    std::array<epoll_event, 64> events{};
    while (true) {
      const int count =
          ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms());
      for (int i = 0; i < count; ++i) {
        void* const what = events[static_cast<std::size_t>(i)].data.ptr;
        if (what == &stop_) return;
        if (what == &listener_) continue;  // looked at below, once those who spoke have made room
        try {
          hear(*static_cast<Stranger*>(what));
        } catch (
            const std::exception&) {  // out of some resource: its time runs out, the others stay
        }
      }
      gone_.clear();
      desk_->expire();
      dismiss_the_late();
      accept_all();
    }
  }

 private:
  struct Stranger {
    TcpLine line;
    std::string words;  // its address
    std::string host;   // without the port
    TcpDoor door;
    std::int64_t since_ns;
    std::list<Stranger>::iterator self;
  };

  bool watch(int fd, void* what) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = what;
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }

  // While no more can be accepted, the listener is not looked at: its queue would keep this thread awake.
  void listen(bool is_on) {
    if (is_listening_ == is_on) return;
    is_listening_ = is_on;
    if (is_on) {
      watch(listener_.get(), &listener_);
    } else {
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
    }
  }

  int wait_ms() const {
    std::int64_t first = std::min(again_ns_, now_ns() + 60'000 * ns_per_ms);
    if (!strangers_.empty()) {
      const bool is_full = !is_listening_ && strangers_.size() >= limits_.most_strangers;
      first = std::min(
          first, strangers_.front().since_ns + (is_full ? limits_.patience_ns : limits_.proof_ns));
    }
    const std::int64_t ms = (first - now_ns() + ns_per_ms - 1) / ns_per_ms;
    return static_cast<int>(std::clamp<std::int64_t>(ms, 0, 60'000));
  }

  void accept_all() {
    if (again_ns_ <= now_ns()) again_ns_ = no_deadline;
    if (again_ns_ != no_deadline) return;
    while (true) {
      if (strangers_.size() >= limits_.most_strangers && !make_room()) return listen(false);
      Fd socket = Fd::from([&] {
        return ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      });
      if (socket) {
        greet(std::move(socket));
        continue;
      }
      if (errno == EINTR || errno == ECONNABORTED || (errno == EMFILE && raise_fd_limit()))
        continue;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        again_ns_ = now_ns() + accept_pause_ns;
        return listen(false);
      }
      return listen(true);
    }
  }

  void greet(Fd socket) {
    try {
      const std::string own = own_store_address(socket.get());
      const std::string peer = peer_store_address(socket.get());
      std::string words = peer_address_words(socket.get());
      std::string host = words.substr(0, words.rfind(':'));
      TcpDoor door(token_, make_store_nonce(), own, peer);
      TcpLine line = make_line(relay_, std::move(socket), true);
      const int fd = line.fd.get();
      const auto at = strangers_.insert(
          strangers_.end(),
          Stranger{
              std::move(line), std::move(words), std::move(host), std::move(door), now_ns(), {}});
      at->self = at;
      if (!send(fd, at->door.hello()) || !watch(fd, &*at)) strangers_.erase(at);
    } catch (const std::exception&) {  // it is gone already, or some resource is: the others stay
    }
  }

  static bool send(int fd, const std::string& bytes) {
    // Into the empty buffer of a new socket.
    return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(bytes.size());
  }

  void hear(Stranger& stranger) {
    char buffer[tcp_request_nbytes + tcp_proof_nbytes];
    const int fd = stranger.line.fd.get();
    if (fd < 0) return;  // dismissed in this round
    const ssize_t got = ::recv(fd, buffer, std::min(sizeof buffer, stranger.door.wants()), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return dismiss(stranger, why_left(stranger));
    std::string reply;
    const auto state = stranger.door.take({buffer, static_cast<std::size_t>(got)}, reply);
    const bool has_sent = reply.empty() || send(fd, reply);
    if (state == TcpDoor::State::refused) return dismiss(stranger, stranger.door.misbehaviour());
    if (!has_sent) return dismiss(stranger, why_left(stranger));
    if (state == TcpDoor::State::open) let_in(stranger);
  }

  static TcpDoor::Misbehaviour why_left(const Stranger& stranger) {
    const int error_number = stranger.line.relayed ? stranger.line.relayed->failure().first : 0;
    if (error_number == EPROTO) return TcpDoor::Misbehaviour::no_tls;
    if (error_number == EACCES) return TcpDoor::Misbehaviour::certificate;
    return TcpDoor::Misbehaviour::leaves;
  }

  void let_in(Stranger& stranger) {
    unwatch(stranger);
    const auto verdict = desk_->put(stranger.door.way(), std::move(stranger.line));
    if (verdict == TcpDesk::Verdict::unexpected)
      complaints_.note(TcpDoor::Misbehaviour::unexpected, stranger.words);
    if (verdict == TcpDesk::Verdict::other)
      complaints_.note(TcpDoor::Misbehaviour::options, stranger.words);
    forget(stranger);
  }

  void dismiss(Stranger& stranger, TcpDoor::Misbehaviour why) {
    complaints_.note(why, stranger.words);
    unwatch(stranger);
    stranger.line.fd.close();
    forget(stranger);
  }

  // Freed after the current batch of events, which may still point to it.
  void forget(Stranger& stranger) { gone_.splice(gone_.end(), strangers_, stranger.self); }

  // Explicitly: closing is not enough while a process that is just being forked has a copy.
  void unwatch(const Stranger& stranger) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stranger.line.fd.get(), nullptr);
  }

  void dismiss_the_late() {
    const std::int64_t now = now_ns();
    while (!strangers_.empty() && strangers_.front().since_ns + limits_.proof_ns <= now)
      dismiss(strangers_.front(), TcpDoor::Misbehaviour::silence);
    gone_.clear();
  }

  bool make_room() {
    std::map<std::string_view, std::size_t> held;
    for (const Stranger& each : strangers_) ++held[each.host];
    Stranger* greediest = nullptr;  // the oldest of the host that has most
    for (Stranger& each : strangers_) {
      if (each.since_ns + limits_.patience_ns > now_ns()) break;  // the rest is younger
      if (greediest == nullptr || held[each.host] > held[greediest->host]) greediest = &each;
    }
    if (greediest == nullptr) return false;
    dismiss(*greediest, TcpDoor::Misbehaviour::silence);
    gone_.clear();
    return true;
  }

  Fd listener_;
  Fd epoll_;
  Fd stop_;
  const std::string& token_;
  const TcpHubLimits limits_;
  const std::shared_ptr<TcpDesk> desk_;
  const std::shared_ptr<TcpRelay> relay_;
  TcpComplaints complaints_;
  std::list<Stranger> strangers_;  // the oldest first
  std::list<Stranger> gone_;
  bool is_listening_ = true;
  std::int64_t again_ns_ = no_deadline;  // when accepting is tried again
};

TcpHub::TcpHub(const std::string& host, const std::string& port, std::string token,
               const TcpHubLimits& limits, std::shared_ptr<TcpRelay> relay)
    : token_(std::move(token)),
      relay_(std::move(relay)),
      desk_(std::make_shared<TcpDesk>(limits.most_early, limits.early_ns)),
      generation_(fork_generation()) {
  if (token_.empty()) throw Error(Fault::usage, "a TCP hub needs a token");
  Fd listener = listen_at(host, port);
  address_ = own_address_words(listener.get());
  loop_ = std::make_unique<Loop>(std::move(listener), token_, limits, desk_, relay_);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::make_unique<std::thread>([loop = loop_.get()] { loop->run(); });
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TcpHub::~TcpHub() { close(); }

std::unique_ptr<Transport> TcpHub::transport(const TcpPlace& place, Receiver& receiver) {
  return tcp_transport(place, receiver);
}

std::unique_ptr<TcpTransport> TcpHub::tcp_transport(const TcpPlace& place, Receiver& receiver) {
  TcpPlace whole = place;
  whole.addresses.resize(std::max<std::size_t>(whole.addresses.size(), place.rank + 1));
  whole.addresses[place.rank] = {address_};
  return std::make_unique<TcpTransport>(std::move(whole), token_, desk_, relay_, receiver);
}

std::vector<std::string> TcpHub::complaints() {
  return loop_ ? loop_->complaints().take() : std::vector<std::string>{};
}

std::uint64_t TcpHub::refused() const { return loop_ ? loop_->complaints().count() : 0; }

void TcpHub::close() {
  if (!loop_) return;
  if (fork_generation() != generation_) {
    // The thread is the parent's, and what it was at work on may be locked here for ever.
    [[maybe_unused]] std::thread* const parents_thread = thread_.release();
    [[maybe_unused]] Loop* const parents_loop = loop_.release();
    return;
  }
  loop_->stop();
  thread_->join();
  loop_.reset();
  desk_->clear();
}

}  // namespace distdbg
