#include "segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "channel.hpp"
#include "error.hpp"
#include "futex.hpp"

namespace distdbg {

namespace {

constexpr std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::size_t half_nbytes_of(std::size_t size, std::size_t slot_nbytes) {
  return round_up(sizeof(SlotHeader) + 2 * size * sizeof(Block) + slot_nbytes, line_nbytes);
}

std::size_t channel_stride(std::size_t channel_nbytes) {
  return sizeof(ChannelHeader) + round_up(channel_nbytes, line_nbytes);
}

std::size_t total_nbytes_of(std::size_t size, std::size_t slot_nbytes, std::size_t channel_nbytes) {
  return sizeof(Header) + size * sizeof(RankState) + 2 * size * half_nbytes_of(size, slot_nbytes) +
         size * size * channel_stride(channel_nbytes);
}

[[noreturn]] void fail(const std::string& what) {
  const int number = errno;
  throw Error(Fault::system, what + ": " + std::strerror(number), number);
}

std::byte* map(int fd, std::size_t nbytes) {
  void* base = ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) fail("mapping the group's shared memory");
  // A forked child must not keep the segment alive, nor write to it.
  ::madvise(base, nbytes, MADV_DONTFORK);
  return static_cast<std::byte*>(base);
}

}  // namespace

void ring(RankState& theirs) {
  // Pairs with the sleeper, which raises bell_sleepers and then looks at what may have come: either we see the
  // sleeper, or it sees what we wrote. Nothing is written here, so that the line stays in the caches of all ranks.
  full_fence();
  ring_locked(theirs);
}

void ring_locked(RankState& rank) {
  if (rank.bell_sleepers.load(std::memory_order_relaxed) == 0) return;
  rank.bell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(rank.bell);
}

Segment::Segment(std::byte* base, std::size_t nbytes, int fd)
    : base_(base), nbytes_(nbytes), fd_(fd) {
  const Header& h = header();
  size_ = h.size;
  slot_nbytes_ = h.slot_nbytes;
  channel_nbytes_ = h.channel_nbytes;
  half_nbytes_ = half_nbytes_of(size_, slot_nbytes_);
  slots_ = base_ + sizeof(Header) + size_ * sizeof(RankState);
  channels_ = slots_ + 2 * size_ * half_nbytes_;
}

Segment::Segment(Segment&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      nbytes_(other.nbytes_),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      slot_nbytes_(other.slot_nbytes_),
      channel_nbytes_(other.channel_nbytes_),
      half_nbytes_(other.half_nbytes_),
      slots_(other.slots_),
      channels_(other.channels_) {}

Segment::~Segment() {
  close_fd();
  if (base_ != nullptr && nbytes_ != 0) ::munmap(base_, nbytes_);
}

Segment Segment::alias() const { return Segment(base_, 0, -1); }

void Segment::close_fd() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

std::byte* Segment::channel(std::uint32_t from, std::uint32_t to) const {
  return channels_ +
         (static_cast<std::size_t>(from) * size_ + to) * channel_stride(channel_nbytes_);
}

Segment Segment::create(std::uint32_t size, std::uint32_t slot_nbytes, std::uint32_t channel_nbytes,
                        std::uint64_t cookie, std::uint32_t options,
                        std::uint32_t checksum_interval) {
  const std::size_t nbytes = total_nbytes_of(size, slot_nbytes, channel_nbytes);
  const int fd = ::memfd_create("distdbg", MFD_CLOEXEC);
  if (fd < 0) fail("memfd_create");
  if (::ftruncate(fd, static_cast<off_t>(nbytes)) != 0) {
    const int number = errno;
    ::close(fd);
    errno = number;
    fail("sizing the group's shared memory");
  }
  std::byte* base = nullptr;
  try {
    base = map(fd, nbytes);
  } catch (...) {
    ::close(fd);
    throw;
  }
  Header* h = new (base) Header{};  // the file is zero-filled; this starts the lifetimes
  h->cookie = cookie;
  h->size = size;
  h->slot_nbytes = slot_nbytes;
  h->channel_nbytes = channel_nbytes;
  h->total_nbytes = nbytes;
  h->options = options;
  h->checksum_interval = checksum_interval;
  h->magic = segment_magic;
  return Segment(base, nbytes, fd);
}

Segment Segment::open(std::int32_t pid, int remote_fd, std::uint64_t cookie) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(remote_fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) fail("opening " + path);
  struct stat facts{};
  std::byte* base = nullptr;
  try {
    if (::fstat(fd, &facts) != 0) fail("reading the size of " + path);
    if (facts.st_size < static_cast<off_t>(sizeof(Header)))
      throw Error(Fault::system, path + " is not a group's shared memory");
    base = map(fd, static_cast<std::size_t>(facts.st_size));
  } catch (...) {
    ::close(fd);
    throw;
  }
  ::close(fd);
  const Header& h = *reinterpret_cast<Header*>(base);
  const auto nbytes = static_cast<std::size_t>(facts.st_size);
  if (h.magic != segment_magic || h.cookie != cookie || h.total_nbytes != nbytes ||
      total_nbytes_of(h.size, h.slot_nbytes, h.channel_nbytes) != nbytes) {
    ::munmap(base, nbytes);
    throw Error(Fault::system, path + " is not the shared memory that was announced");
  }
  return Segment(base, nbytes, -1);
}

}  // namespace distdbg
