#include "peers.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "clock.hpp"

namespace distdbg {

namespace {

// linux/pidfd.h of 6.15; older headers lack it, older kernels refuse the ioctl.
struct PidfdInfo {
  std::uint64_t mask;
  std::uint64_t cgroup_id;
  std::uint32_t pid, tgid, ppid;
  std::uint32_t ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
  std::int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr std::uint64_t pidfd_info_exit = 1u << 3;
constexpr unsigned long pidfd_get_info = _IOWR(0xFF, 11, PidfdInfo);

// state letter and start time from /proc/<pid>/stat; the name in it may contain anything.
bool read_stat(std::int32_t pid, char& state, std::uint64_t& start_time) {
  char path[40];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[1024];
  const ssize_t got = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (got <= 0) return false;
  text[got] = '\0';
  const char* at = std::strrchr(text, ')');
  if (at == nullptr || at[1] == '\0') return false;
  state = at[2];
  at += 2;
  for (int field = 3; field < 22 && at != nullptr; ++field) {
    at = std::strchr(at, ' ');
    if (at != nullptr) ++at;
  }
  if (at == nullptr) return false;
  start_time = std::strtoull(at, nullptr, 10);
  return true;
}

// sigabbrev_np() would do, but it needs glibc 2.32.
const char* signal_name(int number) {
  switch (number) {
    case SIGHUP: return "HUP";
    case SIGINT: return "INT";
    case SIGQUIT: return "QUIT";
    case SIGILL: return "ILL";
    case SIGTRAP: return "TRAP";
    case SIGABRT: return "ABRT";
    case SIGBUS: return "BUS";
    case SIGFPE: return "FPE";
    case SIGKILL: return "KILL";
    case SIGUSR1: return "USR1";
    case SIGSEGV: return "SEGV";
    case SIGUSR2: return "USR2";
    case SIGPIPE: return "PIPE";
    case SIGALRM: return "ALRM";
    case SIGTERM: return "TERM";
    case SIGXCPU: return "XCPU";
    case SIGSYS: return "SYS";
  }
  return nullptr;
}

}  // namespace

std::uint64_t process_start_time(std::int32_t pid) {
  char state = 0;
  std::uint64_t start_time = 0;
  return read_stat(pid, state, start_time) ? start_time : 0;
}

Watched::Watched(std::int32_t pid, std::uint64_t start_time)
    : fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))), pid_(pid), start_time_(start_time) {
  // Between its announcement and now the pid may have passed to somebody else.
  if (fd_ >= 0 && process_start_time(pid) != start_time) ::close(std::exchange(fd_, -1));
}

Watched::Watched(Watched&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), pid_(other.pid_), start_time_(other.start_time_) {}

Watched& Watched::operator=(Watched&& other) noexcept {
  std::swap(fd_, other.fd_);
  pid_ = other.pid_;
  start_time_ = other.start_time_;
  return *this;
}

Watched::~Watched() {
  if (fd_ >= 0) ::close(fd_);
}

bool Watched::is_dead() const {
  if (pid_ == 0) return false;
  if (fd_ >= 0) {
    pollfd p{fd_, POLLIN, 0};
    return ::poll(&p, 1, 0) > 0;
  }
  char state = 0;
  std::uint64_t start_time = 0;
  if (!read_stat(pid_, state, start_time)) return true;
  return start_time != start_time_ || state == 'Z' || state == 'X';
}

std::string Watched::how() const {
  if (fd_ >= 0) {
    // The kernel tells the exit status once the parent has reaped the process: allow a moment.
    const std::int64_t until = now_ns() + 100 * ns_per_ms;
    do {
      PidfdInfo info{};
      info.mask = pidfd_info_exit;
      if (::ioctl(fd_, pidfd_get_info, &info) == 0 && (info.mask & pidfd_info_exit) != 0) {
        if (WIFSIGNALED(info.exit_code)) {
          const int number = WTERMSIG(info.exit_code);
          const char* name = signal_name(number);
          return "died (signal " + std::to_string(number) +
                 (name != nullptr ? std::string(", SIG") + name : std::string()) + ")";
        }
        return "exited (code " + std::to_string(WEXITSTATUS(info.exit_code)) + ")";
      }
      ::usleep(2000);
    } while (now_ns() < until);
  }
  return "is gone";
}

}  // namespace distdbg
