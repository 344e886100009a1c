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

struct Stat {
  char state = 0;
  std::uint64_t start_time = 0;
  int exit_code = 0;  // wait status of a zombie
};

// /proc/<pid>/stat, numbered from 1; the name (field 2) may contain anything, also parentheses.
bool read_stat(std::int32_t pid, Stat& stat) {
  char path[40];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[2048];
  const ssize_t got = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (got <= 0) return false;
  text[got] = '\0';
  const char* at = std::strrchr(text, ')');
  if (at == nullptr || at[1] == '\0') return false;
  at += 2;
  for (int field = 3; at != nullptr; ++field) {
    if (field == 3) stat.state = *at;
    if (field == 22) stat.start_time = std::strtoull(at, nullptr, 10);
    if (field == 52) {
      stat.exit_code = static_cast<int>(std::strtol(at, nullptr, 10));
      return true;
    }
    at = std::strchr(at, ' ');
    if (at != nullptr) ++at;
  }
  return false;
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

std::string in_words(int status) {
  if (!WIFSIGNALED(status)) return "exited (code " + std::to_string(WEXITSTATUS(status)) + ")";
  const int number = WTERMSIG(status);
  const char* name = signal_name(number);
  return "died (signal " + std::to_string(number) +
         (name != nullptr ? std::string(", SIG") + name : std::string()) + ")";
}

}  // namespace

std::uint64_t process_start_time(std::int32_t pid) {
  Stat stat;
  return read_stat(pid, stat) ? stat.start_time : 0;
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
  Stat stat;
  if (!read_stat(pid_, stat)) return true;
  return stat.start_time != start_time_ || stat.state == 'Z' || stat.state == 'X';
}

std::string Watched::how() const {
  // Until its parent has fetched it, the exit status is in /proc; afterwards the pidfd has it (since
  // Linux 6.15). In between there is a moment with neither.
  const std::int64_t until = now_ns() + 100 * ns_per_ms;
  do {
    Stat stat;
    if (read_stat(pid_, stat) && stat.start_time == start_time_ && stat.state == 'Z')
      return in_words(stat.exit_code);
    PidfdInfo info{};
    info.mask = pidfd_info_exit;
    if (fd_ >= 0 && ::ioctl(fd_, pidfd_get_info, &info) == 0 && (info.mask & pidfd_info_exit) != 0)
      return in_words(info.exit_code);
    ::usleep(2000);
  } while (now_ns() < until);
  return "is gone";
}

}  // namespace distdbg
