#include "tcp_hub.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "error.hpp"
#include "fork.hpp"
#include "store_address.hpp"
#include "store_wire.hpp"

namespace distdbg {

namespace {

constexpr std::size_t most_guests = 64;
constexpr std::int64_t guest_limit_ns = 5'000 * ns_per_ms;
// Of those that have proven themselves before their group was made here.
constexpr std::size_t most_early = 4096;
constexpr std::int64_t early_limit_ns = 120'000 * ns_per_ms;
constexpr std::size_t most_kinds_of_complaints = 16;

}  // namespace

TcpHub::TcpHub(const std::string& host, std::uint16_t port, std::string token)
    : token_(std::move(token)),
      generation_(fork_generation()),
      listener_(listen_at(host, port, address_)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_.get() < 0) throw Error(Fault::system, "eventfd failed", errno);
  // Signals belong to the threads that Python knows.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { work(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TcpHub::~TcpHub() { close(); }

void TcpHub::close() {
  if (generation_ != fork_generation()) {
    // The thread is the parent's; its handle cannot be joined here.
    if (thread_.joinable()) new std::thread(std::move(thread_));
    return;
  }
  if (!thread_.joinable()) return;
  is_closing_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t wrote = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
  guests_.clear();
  listener_.reset();
  const std::lock_guard lock(mutex_);
  early_.clear();
}

void TcpHub::expect(std::uint64_t cookie, std::uint32_t rank, std::uint32_t purpose,
                    LinkTaker& taker) {
  const Key key{cookie, rank, purpose};
  const std::lock_guard lock(mutex_);
  takers_[key] = &taker;
  for (Early& each : early_)
    if (each.key == key) taker.take(each.from, std::move(each.socket));
  std::erase_if(early_, [&](const Early& each) { return each.key == key; });
}

void TcpHub::forget(std::uint64_t cookie, std::uint32_t rank, std::uint32_t purpose) {
  const std::lock_guard lock(mutex_);
  takers_.erase(Key{cookie, rank, purpose});
}

std::vector<std::string> TcpHub::take_complaints() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const auto& [what, times] : std::exchange(complaints_, {}))
    all.push_back(
        what +
        (times.first > 1 ? ", " + std::to_string(times.first) + " times, last" : std::string()) +
        " from " + times.second);
  return all;
}

void TcpHub::complain(const std::string& what, const std::string& from) {
  const std::lock_guard lock(mutex_);
  if (complaints_.size() >= most_kinds_of_complaints && !complaints_.contains(what)) return;
  auto& [count, last] = complaints_[what];
  ++count;
  last = from;
}

void TcpHub::work() {
  std::vector<pollfd> polled;
  while (!is_closing_.load(std::memory_order_acquire)) {
    polled.assign(1, {wake_.get(), POLLIN, 0});
    const std::int64_t before = now_ns();
    const bool rests = before < rests_until_;
    polled.push_back({rests ? -1 : listener_.get(), POLLIN, 0});
    for (const Guest& guest : guests_) polled.push_back({guest.socket.get(), POLLIN, 0});
    // Without guests and rest nothing has to be looked at before somebody comes.
    const bool has_limits = rests || !guests_.empty();
    if (::poll(polled.data(), polled.size(), has_limits ? 100 : 10'000) < 0 && errno != EINTR)
      return;
    std::size_t i = 2;
    for (auto at = guests_.begin(); at != guests_.end(); ++i) {
      const bool is_ready = (polled[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0;
      at = is_ready && !serve(*at) ? guests_.erase(at) : std::next(at);
    }
    drop_late(now_ns());
    if ((polled[1].revents & POLLIN) != 0) accept_some();
  }
}

void TcpHub::drop_late(std::int64_t now) {
  std::erase_if(guests_, [&](const Guest& guest) {
    const bool is_late = now >= guest.until_ns;
    if (is_late) complain("it said nothing, or not all, for 5 s", guest.from);
    return is_late;
  });
  const std::lock_guard lock(mutex_);
  while (!early_.empty() && (now >= early_.front().until_ns || early_.size() > most_early))
    early_.pop_front();
}

void TcpHub::accept_some() {
  for (int i = 0; i < 64; ++i) {
    sockaddr_storage address{};
    socklen_t nbytes = sizeof address;
    Descriptor socket(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &nbytes,
                                SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        complain(std::string("it could not be accepted: ") + std::strerror(errno), "the kernel");
        rests_until_ = now_ns() + 100 * ns_per_ms;
      }
      return;
    }
    if (guests_.size() >= most_guests) {
      complain("too many did not say who they are", guests_.front().from);
      guests_.pop_front();  // it has had the most time
    }
    Guest& guest = guests_.emplace_back();
    guest.from = name_of_peer(socket.get());
    guest.socket = std::move(socket);
    guest.until_ns = now_ns() + guest_limit_ns;
  }
}

bool TcpHub::serve(Guest& guest) {
  const std::size_t wanted = guest.is_greeted ? link_name_nbytes : link_hello_nbytes;
  char bytes[link_name_nbytes + link_hello_nbytes];
  const ssize_t got = ::recv(guest.socket.get(), bytes, wanted - guest.bytes.size(), MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
    if (guest.is_greeted || !guest.bytes.empty())
      complain("it left in the middle of its greeting", guest.from);
    return false;
  }
  if (got < 0) return true;
  guest.bytes.append(bytes, static_cast<std::size_t>(got));
  if (guest.bytes.size() < wanted) return true;
  if (guest.is_greeted) {
    if (!hand_over(guest)) complain("it does not know the run's token (DISTDBG_TOKEN)", guest.from);
    return false;
  }
  guest.meeting.rank_nonce = decode_link_hello(guest.bytes);
  guest.bytes.clear();
  if (guest.meeting.rank_nonce.empty()) {
    complain("it is no rank of distdbg", guest.from);
    return false;
  }
  try {
    guest.meeting.hub_nonce = make_store_nonce();
    guest.meeting.hub_address = own_store_address(guest.socket.get());
  } catch (const Error&) {
    return false;
  }
  const std::string answer = encode_link_answer(token_, guest.meeting);
  guest.is_greeted = true;
  return ::send(guest.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(answer.size());
}

bool TcpHub::hand_over(Guest& guest) {
  LinkName name{};
  if (!check_link_name(guest.bytes, token_, guest.meeting, name)) return false;
  const Key key{name.cookie, name.to, name.purpose};
  const std::lock_guard lock(mutex_);
  if (const auto taker = takers_.find(key); taker != takers_.end())
    taker->second->take(name.from, std::move(guest.socket));
  else
    early_.push_back({key, name.from, std::move(guest.socket), now_ns() + early_limit_ns});
  return true;
}

}  // namespace distdbg
