// Whether the processes of a group's ranks are still alive, without asking them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace distdbg {

// The start time of a process in clock ticks since boot, 0 when there is no such process.
std::uint64_t process_start_time(std::int32_t pid);

// A process as its rank announced it before the group existed; pid 0: not known.
struct Identity {
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;
};

// Watches one process through a pidfd: it becomes readable when the process ends, also while it
// is a zombie, and cannot be confused by a reused pid.
class Watched {
 public:
  Watched() = default;
  Watched(std::int32_t pid, std::uint64_t start_time);
  Watched(Watched&& other) noexcept;
  Watched& operator=(Watched&& other) noexcept;
  ~Watched();

  bool watches(std::int32_t pid, std::uint64_t start_time) const {
    return pid_ == pid && start_time_ == start_time;
  }
  bool is_dead() const;
  // "died (signal 9, SIGKILL)", "exited (code 3)", or "is gone" when the kernel does not tell.
  std::string how() const;

 private:
  int fd_ = -1;  // -1: pidfd_open is not available, or the process was gone already
  std::int32_t pid_ = 0;
  std::uint64_t start_time_ = 0;
};

}  // namespace distdbg
