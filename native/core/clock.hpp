// Monotonic time and the two facts that every wait carries: its deadline and how to notice Ctrl-C.
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

// Passed down by value. `interrupted` is asked every 50 ms or so while blocked, on the calling
// thread; when it returns true the wait throws Error(Fault::interrupted) at once.
struct Wait {
  std::int64_t deadline_ns = no_deadline;
  bool (*interrupted)() = nullptr;

  bool is_interrupted() const { return interrupted != nullptr && interrupted(); }
};

}  // namespace distdbg
