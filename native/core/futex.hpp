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

// Between a store and a load that another process makes the other way round: one of both sees the other's store.
// ThreadSanitizer knows no fences; what these threads hand to each other is released and acquired beside it.
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif
inline void full_fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
#pragma GCC diagnostic pop

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// For how long a wait sleeps at once, without a yield, since a yield gave the core to a stranger. Short at first:
// most strangers are there for a moment. Where one is back at once, it is twice as long each time.
class Rest {
 public:
  bool is_on(std::int64_t now) const { return now < until_ns_.load(std::memory_order_relaxed); }
  void begin(std::int64_t now) {
    const std::int64_t last = last_ns_.load(std::memory_order_relaxed);
    const bool is_again = now < until_ns_.load(std::memory_order_relaxed) + soon_ns;
    const std::int64_t next = is_again ? std::min(2 * last, most_ns) : least_ns;
    last_ns_.store(next, std::memory_order_relaxed);
    until_ns_.store(now + next, std::memory_order_relaxed);
  }

  static constexpr std::int64_t least_ns = 1 * ns_per_ms;
  static constexpr std::int64_t most_ns = 50 * ns_per_ms;

 private:
  // Not longer after a long rest: ranks that copy much take as long as a stranger, and what they do next may be short.
  static constexpr std::int64_t soon_ns = 12 * ns_per_ms;
  // Threads of a rank may write both at once; any of the values will do.
  std::atomic<std::int64_t> until_ns_{0};
  std::atomic<std::int64_t> last_ns_{0};
};

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
    return stay(ready, spins_, [] { return true; }, stranger_ns);
  }

  // The same for who knows where the ranks are that it waits for. While `is_core_needed` says that none of them
  // needs this core, keeping it for a moment saves two changes of process.
  template <class Ready, class IsCoreNeeded>
  bool stay_awake(Ready&& ready, IsCoreNeeded&& is_core_needed) const {
    return stay(ready, spins_, is_core_needed, stranger_ns);
  }

  // The same where each look is a system call: a rank that is waited for may need this very core, so that as
  // many of them would cost it fifty microseconds each time. And its turn takes as long as the kernel copies what
  // it sends and receives.
  template <class Ready>
  bool stay_awake_by_calls(Ready&& ready) const {
    return stay(
        ready, (spins_ + rounds_of_a_call - 1) / rounds_of_a_call, [] { return true; },
        stranger_beside_calls_ns);
  }

 private:
  template <class Ready, class IsCoreNeeded>
  bool stay(Ready&& ready, std::uint32_t spins, IsCoreNeeded&& is_core_needed,
            std::int64_t least_of_stranger_ns) const {
    for (std::uint32_t i = 0; i < spins; ++i) {
      if (ready()) return true;
      cpu_relax();
    }
    std::int64_t now = now_ns();
    if (yield_ns_ == 0 || rest_.is_on(now)) return ready();
    const std::int64_t until = now + yield_ns_;
    while (now < until) {
      if (ready()) return true;
      for (std::uint32_t i = 0; i < kept_spins && !is_core_needed(); ++i) {
        cpu_relax();
        if (ready()) return true;
      }
      ::sched_yield();
      const std::int64_t before = now;
      now = now_ns();
      if (now - before > least_of_stranger_ns) {
        // That was no rank doing its part, but a stranger using up its time slice. Yielding to it again
        // costs as much again; a sleeper gets the core back when it is woken.
        rest_.begin(now);
        break;
      }
    }
    return ready();
  }

  // A call that finds nothing takes about as long as so many rounds.
  static constexpr std::uint32_t rounds_of_a_call = 25;
  // Some microseconds, as long as a rank spins that has a core of its own.
  static constexpr std::uint32_t kept_spins = 100;
  static constexpr std::int64_t stranger_ns = 400'000;
  // Four ranks on two cores that exchange 1 MiB have turns of half a millisecond.
  static constexpr std::int64_t stranger_beside_calls_ns = 1'200'000;
  std::uint32_t spins_;    // rounds of cpu_relax
  std::int64_t yield_ns_;  // then sched_yield for this long
  mutable Rest rest_;
};

}  // namespace distdbg
