#include "shared_heap.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>

#include "error.hpp"
#include "peers.hpp"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace distdbg {

namespace {

constexpr std::uint64_t whole_pages(std::uint64_t nbytes) {
  return (nbytes + page_nbytes - 1) / page_nbytes * page_nbytes;
}

[[noreturn]] void fail(const char* what, int number) {
  throw Error(Fault::system, std::string(what) + ": " + std::strerror(number), number);
}

}  // namespace

std::atomic<SharedHeap*> SharedHeap::here_{nullptr};

SharedHeap* SharedHeap::here() { return here_.load(std::memory_order_acquire); }

SharedHeap& SharedHeap::make(std::uint64_t limit_nbytes) {
  static std::mutex making;
  const std::lock_guard lock(making);
  if (SharedHeap* heap = here()) return *heap;
  // Inherited by children, so once for all of them.
  static const int registered =
      ::pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
  (void)registered;
  // Never deleted: arrays may be freed while the process ends, in any order.
  auto* heap = new SharedHeap(limit_nbytes);
  here_.store(heap, std::memory_order_release);
  return *heap;
}

SharedHeap::SharedHeap(std::uint64_t limit_nbytes)
    : file_nbytes_(page_nbytes + 2 * whole_pages(limit_nbytes)) {
  facts_.limit_nbytes = limit_nbytes;
  fd_ = ::memfd_create("distdbg-arrays", MFD_CLOEXEC);
  if (fd_ < 0) fail("memfd_create", errno);
  void* base = MAP_FAILED;
  if (::ftruncate(fd_, static_cast<off_t>(file_nbytes_)) == 0)
    base =
        ::mmap(nullptr, file_nbytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
  if (base == MAP_FAILED) {
    const int number = errno;
    ::close(fd_);
    fail("reserving addresses for shared arrays", number);
  }
  base_ = static_cast<std::byte*>(base);
  const std::int32_t pid = ::getpid();
  *reinterpret_cast<HeapHeader*>(base_) = {
      heap_magic,  pid, 0, process_start_time(pid), reinterpret_cast<std::uint64_t>(base_),
      file_nbytes_};
  room_[page_nbytes] = file_nbytes_ - page_nbytes;
}

// No thread is in the middle of a change while the process forks.
void SharedHeap::before_fork() {
  if (SharedHeap* heap = here()) heap->mutex_.lock();
}

void SharedHeap::after_fork_in_parent() {
  if (SharedHeap* heap = here()) heap->mutex_.unlock();
}

void SharedHeap::after_fork_in_child() {
  SharedHeap* heap = here_.exchange(nullptr, std::memory_order_acq_rel);
  if (heap == nullptr) return;
  heap->become_private();
  heap->mutex_.unlock();
}

// The same pages for reading, own ones once it writes. What was taken out is private already.
void SharedHeap::become_private() {
  const auto change = [&](std::uint64_t begin, std::uint64_t end) {
    if (begin < end)
      ::mmap(base_ + begin, end - begin, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd_, static_cast<off_t>(begin));
  };
  std::uint64_t begin = 0;
  for (const auto& [offset, array] : arrays_) {
    if (!array.is_out) continue;
    change(begin, offset);
    begin = offset + array.room_nbytes;
  }
  change(begin, file_nbytes_);
  ::close(fd_);
}

std::byte* SharedHeap::allocate(std::uint64_t nbytes, std::uint64_t tag) {
  const std::uint64_t room_nbytes = whole_pages(nbytes);
  const std::lock_guard lock(mutex_);
  if (room_nbytes < nbytes || facts_.nbytes + room_nbytes > facts_.limit_nbytes)
    throw Error(Fault::usage, "above the limit of shared arrays");
  const std::uint64_t offset = find_room(room_nbytes);
  if (offset == 0) throw Error(Fault::usage, "no room between shared arrays");
  try {
    populate(offset, room_nbytes);
    arrays_.emplace(offset, Array{room_nbytes, nbytes, tag});
  } catch (...) {
    punch(offset, room_nbytes);
    give_back(offset, room_nbytes);
    throw;
  }
  facts_.count += 1;
  facts_.nbytes += room_nbytes;
  facts_.most_nbytes = std::max(facts_.most_nbytes, facts_.nbytes);
  return base_ + offset;
}

// First fit; 0: none.
std::uint64_t SharedHeap::find_room(std::uint64_t room_nbytes) {
  for (auto at = room_.begin(); at != room_.end(); ++at) {
    const auto [offset, free_nbytes] = *at;
    if (free_nbytes < room_nbytes) continue;
    room_.erase(at);
    if (free_nbytes > room_nbytes) room_[offset + room_nbytes] = free_nbytes - room_nbytes;
    return offset;
  }
  return 0;
}

void SharedHeap::give_back(std::uint64_t offset, std::uint64_t room_nbytes) {
  auto after = room_.lower_bound(offset);
  if (after != room_.end() && after->first == offset + room_nbytes) {
    room_nbytes += after->second;
    after = room_.erase(after);
  }
  if (after != room_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += room_nbytes;
      return;
    }
  }
  room_[offset] = room_nbytes;
}

// Now, and not at the first touch: a full machine is an error here, and a signal there.
void SharedHeap::populate(std::uint64_t offset, std::uint64_t room_nbytes) {
  if (::madvise(base_ + offset, room_nbytes, MADV_POPULATE_WRITE) == 0) return;
  if (errno != EINVAL) fail("getting memory for a shared array", errno);
  if (::fallocate(fd_, 0, static_cast<off_t>(offset), static_cast<off_t>(room_nbytes)) != 0)
    fail("getting memory for a shared array", errno);
}

void SharedHeap::punch(std::uint64_t offset, std::uint64_t room_nbytes) const {
  ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(room_nbytes));
}

void SharedHeap::free(SharedHeap* heap, std::byte* array) {
  if (heap != here()) return;
  const std::lock_guard lock(heap->mutex_);
  const auto offset = static_cast<std::uint64_t>(array - heap->base_);
  const auto found = heap->arrays_.find(offset);
  if (found == heap->arrays_.end()) return;
  const Array gone = found->second;
  heap->arrays_.erase(found);
  heap->facts_.count -= 1;
  heap->facts_.nbytes -= gone.room_nbytes;
  if (gone.is_out) {
    // Its place in the file may be written to by others: nobody gets it again.
    ::mmap(array, gone.room_nbytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    heap->out_count_.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  heap->punch(offset, gone.room_nbytes);
  heap->give_back(offset, gone.room_nbytes);
}

bool SharedHeap::reaches(const std::byte* data, std::uint64_t nbytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto base = reinterpret_cast<std::uintptr_t>(base_);
  if (address < base || address - base > file_nbytes_ || nbytes > file_nbytes_ - (address - base))
    return false;
  if (out_count_.load(std::memory_order_relaxed) == 0) [[likely]]
    return true;
  const std::lock_guard lock(mutex_);
  auto found = arrays_.upper_bound(address - base);
  return found != arrays_.begin() && !(--found)->second.is_out;
}

void SharedHeap::take_out(const std::byte* data) {
  if (!reaches(data, 0)) return;
  const std::lock_guard lock(mutex_);
  auto found = arrays_.upper_bound(static_cast<std::uint64_t>(data - base_));
  if (found == arrays_.begin() || (--found)->second.is_out) return;
  auto& [offset, array] = *found;
  std::byte* const place = base_ + offset;
  void* own = ::mmap(nullptr, array.room_nbytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) return;  // the op has failed for a better reason
  std::memcpy(own, place, array.room_nbytes);
  if (::mremap(own, array.room_nbytes, array.room_nbytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) ==
      MAP_FAILED) {
    ::munmap(own, array.room_nbytes);
    return;
  }
  array.is_out = true;
  out_count_.fetch_add(1, std::memory_order_relaxed);
  punch(offset, array.room_nbytes);
}

HeapFacts SharedHeap::facts() const {
  const std::lock_guard lock(mutex_);
  HeapFacts facts = facts_;
  facts.ops = ops_.load(std::memory_order_relaxed);
  return facts;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> SharedHeap::arrays() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
  for (const auto& [offset, array] : arrays_) all.emplace_back(array.tag, array.room_nbytes);
  return all;
}

}  // namespace distdbg
