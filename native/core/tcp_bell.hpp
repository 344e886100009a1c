// Wakes threads that sleep in poll(2): all who sleep when it is rung, each of them surely.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

#include "error.hpp"
#include "tcp_socket.hpp"

namespace distdbg {

class TcpBell {
 public:
  TcpBell() : fd_(Fd::from([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {
    if (!fd_) throw Error(Fault::system, "a TCP transport needs an eventfd", errno);
  }

  // Readable from when it is rung until the last of those who sleep has left: were it silenced by the first,
  // the others might sleep on.
  int fd() const { return fd_.get(); }
  void enter() {
    const std::lock_guard lock(mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    if (sleepers_.fetch_sub(1, std::memory_order_seq_cst) != 1 || !is_rung_) return;
    is_rung_ = false;
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(fd_.get(), &count, sizeof count);
  }
  // Does nothing when at most `besides` threads sleep.
  void ring(std::uint32_t besides = 0) {
    if (sleepers_.load(std::memory_order_seq_cst) <= besides) return;
    const std::lock_guard lock(mutex_);
    if (is_rung_ || sleepers_.load(std::memory_order_relaxed) <= besides) return;
    is_rung_ = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
  }

 private:
  const Fd fd_;
  std::mutex mutex_;  // guards `is_rung_`, and that nobody comes while it is silenced
  bool is_rung_ = false;
  std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace distdbg
