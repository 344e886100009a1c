// Futex calls on words shared between processes, and the busy part of a wait.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>

#include "clock.hpp"

namespace distdbg {

// Sleeps while *word == expected, at most timeout_ns. May return early for any reason (a wake, a
// signal, a changed word): callers look again.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                       std::int64_t timeout_ns) {
  timeout_ns = std::max<std::int64_t>(timeout_ns, 0);
  timespec t{static_cast<time_t>(timeout_ns / 1'000'000'000),
             static_cast<long>(timeout_ns % 1'000'000'000)};
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, expected, &t, nullptr,
            0);
}

inline void futex_wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr,
            nullptr, 0);
}

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How a wait stays awake before it sleeps in the kernel. Spinning pays when each rank has a core of its
// own; yielding pays when ranks share cores, since it hands the core to the rank we wait for. Decided
// once per group from cores and ranks (distdbg/runtime/backends/waiting.py).
class Patience {
 public:
  Patience(std::uint32_t spins, std::int64_t yield_ns) : spins_(spins), yield_ns_(yield_ns) {}
  // Copies start afresh.
  Patience(const Patience& other) : Patience(other.spins_, other.yield_ns_) {}
  Patience& operator=(const Patience&) = delete;

  // Whether a rank that waits may keep its core meanwhile.
  bool has_own_core() const { return spins_ > 0; }

  // Runs `ready` until it is true or patience is used up; returns the last answer.
  template <class Ready>
  bool stay_awake(Ready&& ready) const {
    return stay(ready, spins_);
  }

  // The same where each look is a system call: a rank that is waited for may need this very core, so that as
  // many of them would cost it fifty microseconds each time.
  template <class Ready>
  bool stay_awake_by_calls(Ready&& ready) const {
    return stay(ready, (spins_ + rounds_of_a_call - 1) / rounds_of_a_call);
  }

 private:
  template <class Ready>
  bool stay(Ready&& ready, std::uint32_t spins) const {
    for (std::uint32_t i = 0; i < spins; ++i) {
      if (ready()) return true;
      cpu_relax();
    }
    std::int64_t now = now_ns();
    if (yield_ns_ == 0 || now < sleeps_until_ns_.load(std::memory_order_relaxed)) return ready();
    const std::int64_t until = now + yield_ns_;
    while (now < until) {
      if (ready()) return true;
      ::sched_yield();
      const std::int64_t before = now;
      now = now_ns();
      if (now - before > stranger_ns) {
        // That was no rank doing its part, but a stranger using up its time slice. Yielding to it again
        // costs as much again; a sleeper gets the core back when it is woken.
        sleeps_until_ns_.store(now + 50 * ns_per_ms, std::memory_order_relaxed);
        break;
      }
    }
    return ready();
  }

  // A call that finds nothing takes about as long as so many rounds.
  static constexpr std::uint32_t rounds_of_a_call = 25;
  static constexpr std::int64_t stranger_ns = 400'000;
  std::uint32_t spins_;    // rounds of cpu_relax
  std::int64_t yield_ns_;  // then sched_yield for this long
  mutable std::atomic<std::int64_t> sleeps_until_ns_{0};
};

}  // namespace distdbg
