#include "control.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "error.hpp"

namespace distdbg {

namespace {

constinit const ControlPage no_page{};

std::string_view run_of(const ControlPage& page) {
  return {page.run, ::strnlen(page.run, sizeof page.run)};
}

}  // namespace

const Control& Control::none() {
  static const Control control(&no_page, false);
  return control;
}

std::shared_ptr<const Control> Control::open(const std::string& path, const std::string& run) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) throw Error(Fault::system, std::strerror(errno), errno);
  struct stat about{};
  void* memory = MAP_FAILED;
  const bool is_ours = ::fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
                       about.st_uid == ::getuid() &&
                       static_cast<std::uint64_t>(about.st_size) == control_nbytes;
  if (is_ours) memory = ::mmap(nullptr, control_nbytes, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  if (!is_ours) throw Error(Fault::usage, "is no control page of this user");
  if (memory == MAP_FAILED) throw Error(Fault::system, std::strerror(errno), errno);
  std::shared_ptr<const Control> control(new Control(static_cast<ControlPage*>(memory), true));
  const ControlPage& page = *control->page_;
  if (page.magic != control_magic || page.version != control_version)
    throw Error(Fault::usage, "is no control page of this version");
  if (run_of(page) != std::string_view(run).substr(0, sizeof page.run))
    throw Error(Fault::usage, "is the control page of another run");
  return control;
}

Control::~Control() {
  if (is_mapped_) ::munmap(const_cast<ControlPage*>(page_), control_nbytes);
}

std::string Control::words() const {
  const std::uint64_t nbytes = page_->abort_nbytes.load(std::memory_order_relaxed);
  if (!is_mapped_ || !is_aborted() || nbytes > max_abort_nbytes) return {};
  std::string text(reinterpret_cast<const char*>(page_) + abort_offset, nbytes);
  // They are written in ASCII; anything else is damage, and not to be handed on.
  const bool is_text = std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
  return is_text ? text : std::string();
}

void Control::throw_aborted() const { throw Error(Fault::aborted, words()); }

}  // namespace distdbg
