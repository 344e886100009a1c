#include "peer_heap.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "error.hpp"
#include "shared_heap.hpp"

namespace distdbg {

namespace {

struct Opened {
  std::mutex mutex;
  // By generation of forks, pid and start time: what a parent has mapped is not there in its children.
  std::map<std::tuple<std::uint32_t, std::int32_t, std::uint64_t>, std::weak_ptr<const PeerHeap>>
      all;
};

// Lives until the process ends: groups may be closed by whatever runs last.
Opened& opened() {
  static auto* those = new Opened;
  return *those;
}

[[noreturn]] void fail(const std::string& what, int number) {
  throw Error(Fault::system, what + ": " + std::strerror(number), number);
}

std::shared_ptr<const PeerHeap> map(std::int32_t pid, std::uint64_t start_time, int remote_fd) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(remote_fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) fail("opening " + path, errno);
  struct stat facts{};
  HeapHeader header{};
  const bool is_read =
      ::fstat(fd, &facts) == 0 && ::pread(fd, &header, sizeof header, 0) == sizeof header;
  const auto nbytes = static_cast<std::uint64_t>(facts.st_size);
  if (!is_read || header.magic != heap_magic || header.pid != pid ||
      header.start_time != start_time || header.nbytes != nbytes) {
    ::close(fd);
    throw Error(Fault::system, path + " is not the memory of shared arrays");
  }
  void* base = ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  const int number = errno;
  ::close(fd);
  if (base == MAP_FAILED) fail("mapping the shared arrays of a peer", number);
  // A forked child must not keep them, nor write to them; a core file has its own.
  ::madvise(base, nbytes, MADV_DONTFORK);
  ::madvise(base, nbytes, MADV_DONTDUMP);
  return std::make_shared<const PeerHeap>(static_cast<std::byte*>(base), nbytes, header.base);
}

}  // namespace

std::shared_ptr<const PeerHeap> PeerHeap::open(std::int32_t pid, std::uint64_t start_time, int fd) {
  Opened& those = opened();
  const std::lock_guard lock(those.mutex);
  std::erase_if(those.all, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const PeerHeap>& known = those.all[{fork_generation(), pid, start_time}];
  std::shared_ptr<const PeerHeap> heap = known.lock();
  if (!heap) known = heap = map(pid, start_time, fd);
  return heap;
}

PeerHeap::~PeerHeap() {
  if (generation_ == fork_generation()) ::munmap(base_, nbytes_);
}

}  // namespace distdbg
