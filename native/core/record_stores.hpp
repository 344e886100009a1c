// How a word gets into a record, and who wrote it.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace distdbg {

// The kernel's number of this thread.
inline std::uint32_t thread_number() {
  static thread_local const auto number = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  return number;
}

// Stores that a killed process must have made in this order: the compiler keeps them so, and one
// process's stores to a mapping become visible in program order on x86 and by the release elsewhere.
inline void publish(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref<std::uint64_t>(word).store(value, std::memory_order_release);
}
// ThreadSanitizer knows no fences. It needs none here: whom this one is for reads from another process.
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif
inline void invalidate(std::uint64_t& word) {
  std::atomic_ref<std::uint64_t>(word).store(0, std::memory_order_relaxed);
  __atomic_thread_fence(__ATOMIC_RELEASE);
}
#pragma GCC diagnostic pop

}  // namespace distdbg
