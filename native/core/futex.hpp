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

// How long a wait stays awake before it sleeps in the kernel. Spinning pays when each rank has a
// core of its own; yielding pays when ranks share cores, since it hands the core to the rank we
// wait for. Decided once per group from cores and ranks (distdbg/runtime/backends/waiting.py).
struct Patience {
  std::uint32_t spins = 0;       // rounds of cpu_relax
  std::int64_t yield_ns = 0;     // then sched_yield for this long
};

// Runs `ready` until it is true or patience is used up; returns the last answer.
template <class Ready>
bool stay_awake(const Patience& patience, Ready&& ready) {
  for (std::uint32_t i = 0; i < patience.spins; ++i) {
    if (ready()) return true;
    cpu_relax();
  }
  if (patience.yield_ns > 0) {
    const std::int64_t until = now_ns() + patience.yield_ns;
    do {
      if (ready()) return true;
      ::sched_yield();
    } while (now_ns() < until);
  }
  return ready();
}

}  // namespace distdbg
