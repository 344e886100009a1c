#include "tcp_relay.hpp"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "error.hpp"

namespace distdbg {
namespace {

// So that neither side waits for the other while a large message passes.
constexpr int pair_nbytes = 1 << 20;

}  // namespace

int TcpRelayed::network() const {
  const std::lock_guard lock(mutex_);
  return network_.get();
}

int TcpRelayed::end() const {
  const std::lock_guard lock(mutex_);
  return end_.get();
}

void TcpRelayed::set_options(int keepalive_s) {
  const std::lock_guard lock(mutex_);
  if (network_) set_link_options(network_.get(), keepalive_s);
}

LinkProgress TcpRelayed::progress() const {
  const std::lock_guard lock(mutex_);
  return network_ ? link_progress(network_.get()) : LinkProgress{};
}

void TcpRelayed::shut_network() {
  const std::lock_guard lock(mutex_);
  if (network_) ::shutdown(network_.get(), SHUT_WR);
}

void TcpRelayed::shut_end() {
  const std::lock_guard lock(mutex_);
  if (end_) ::shutdown(end_.get(), SHUT_WR);
}

void TcpRelayed::fail(int error_number, std::string words) {
  const std::lock_guard lock(mutex_);
  if (error_number_ != 0) return;
  error_number_ = error_number;
  words_ = std::move(words);
}

std::pair<int, std::string> TcpRelayed::failure() const {
  const std::lock_guard lock(mutex_);
  return {error_number_, words_};
}

void TcpRelayed::close() {
  const std::lock_guard lock(mutex_);
  network_.close();
  end_.close();
}

void TcpLine::check() const {
  if (relayed == nullptr) return;
  const auto [error_number, words] = relayed->failure();
  if (error_number != 0) throw Error(Fault::network, words, error_number);
}

TcpRelay::TcpRelay() : bell_(Fd::from([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {
  if (!bell_) throw Error(Fault::system, "encrypted connections need an eventfd", errno);
}

TcpLine TcpRelay::carry(Fd network, bool is_server) {
  std::array<int, 2> pair{-1, -1};
  Fd end = Fd::from([&pair] {
    const int kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    return ::socketpair(AF_UNIX, kind, 0, pair.data()) == 0 ? pair[0] : -1;
  });
  if (!end) throw Error(Fault::network, errno_words(errno), errno);
  Fd inside = Fd::from([&pair] { return pair[1]; });
  for (const int fd : pair) {
    const int nbytes = pair_nbytes;
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &nbytes, sizeof nbytes);
  }
  auto made = std::make_shared<TcpRelayed>(std::move(network), std::move(end), is_server);
  const std::lock_guard lock(mutex_);
  if (is_closed_) {
    made->close();
  } else {
    waiting_.push_back(made);
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
  }
  return {std::move(inside), std::move(made)};
}

std::shared_ptr<TcpRelayed> TcpRelay::take() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(bell_.get(), &count, sizeof count);
    return nullptr;
  }
  auto first = std::move(waiting_.front());
  waiting_.pop_front();
  return first;
}

void TcpRelay::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
}

void TcpRelay::release() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  for (const auto& each : waiting_) each->close();
  waiting_.clear();
  bell_.close();
}

int TcpRelay::fd() const {
  const std::lock_guard lock(mutex_);
  return bell_.get();
}

bool TcpRelay::is_empty() const {
  const std::lock_guard lock(mutex_);
  return waiting_.empty();
}

TcpLine make_line(const std::shared_ptr<TcpRelay>& relay, Fd network, bool is_server) {
  if (relay == nullptr) return {std::move(network), nullptr};
  return relay->carry(std::move(network), is_server);
}

}  // namespace distdbg
