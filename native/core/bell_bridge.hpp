// Wakes a thread that sleeps in poll(2) whenever a futex is rung: no system call waits for both. A thread of
// its own sleeps on the futex, and costs nothing while nobody rings.
#pragma once

#include <pthread.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>
#include <utility>

#include "futex.hpp"

namespace distdbg {

class BellBridge {
 public:
  // `bell` is raised before it is rung, and outlives this; `wake` is called by the thread.
  BellBridge(std::atomic<std::uint32_t>& bell, std::function<void()> wake)
      : bell_(bell), wake_(std::move(wake)) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { work(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~BellBridge() {
    is_over_.store(true, std::memory_order_seq_cst);
    bell_.fetch_add(1, std::memory_order_seq_cst);
    futex_wake_all(bell_);
    thread_.join();
  }
  BellBridge(const BellBridge&) = delete;
  BellBridge& operator=(const BellBridge&) = delete;

 private:
  static constexpr std::int64_t longest_sleep_ns = 60'000 * ns_per_ms;

  void work() {
    std::uint32_t heard = bell_.load(std::memory_order_seq_cst);
    wake_();  // what was rung before is heard by nobody else
    while (!is_over_.load(std::memory_order_seq_cst)) {
      futex_wait(bell_, heard, longest_sleep_ns);
      const std::uint32_t now = bell_.load(std::memory_order_seq_cst);
      if (std::exchange(heard, now) != now) wake_();
    }
  }

  std::atomic<std::uint32_t>& bell_;
  const std::function<void()> wake_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

}  // namespace distdbg
