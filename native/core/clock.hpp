// Monotonic time.
#pragma once

#include <time.h>

#include <cstdint>
#include <limits>

namespace distdbg {

constexpr std::int64_t no_deadline = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t ns_per_ms = 1'000'000;

// CLOCK_MONOTONIC, the same clock and origin as Python's time.monotonic_ns().
inline std::int64_t now_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

// How long the calling thread has run so far: it stands while others have its core.
inline std::int64_t thread_cpu_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

}  // namespace distdbg
