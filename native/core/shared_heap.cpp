#include "shared_heap.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
  struct stat about{};
  if (::fstat(fd_, &about) == 0) file_ = {about.st_dev, about.st_ino};
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

// Whether the descriptor is still that of the heap.
bool SharedHeap::has_file() const {
  struct stat about{};
  return ::fstat(fd_, &about) == 0 && about.st_dev == file_.device && about.st_ino == file_.inode;
}

// Pages of this process instead of those of the file, with the same contents. False: no memory.
bool SharedHeap::replace(std::uint64_t begin, std::uint64_t end) {
  void* own =
      ::mmap(nullptr, end - begin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) return false;
  std::memcpy(own, base_ + begin, end - begin);
  if (::mremap(own, end - begin, end - begin, MREMAP_MAYMOVE | MREMAP_FIXED, base_ + begin) !=
      MAP_FAILED)
    return true;
  ::munmap(own, end - begin);
  return false;
}

// The same pages for reading, own ones once it writes. What was taken out is private already.
void SharedHeap::become_private() {
  const bool is_there = has_file();
  const auto change = [&](std::uint64_t begin, std::uint64_t end) {
    if (begin < end && is_there)
      ::mmap(base_ + begin, end - begin, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd_, static_cast<off_t>(begin));
    else if (begin < end)
      replace(begin, end);
  };
  if (is_there) change(0, page_nbytes);
  for (const auto& [offset, array] : arrays_) {
    std::uint64_t begin = offset;
    for (const auto& [out, end] : array.out) {
      change(begin, out);
      begin = end;
    }
    change(begin, offset + array.room_nbytes);
  }
  if (is_there) ::close(fd_);
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
    arrays_.emplace(offset, Array{room_nbytes, nbytes, tag, {}});
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
  if (errno != EINVAL || !has_file()) fail("getting memory for a shared array", errno);
  if (::fallocate(fd_, 0, static_cast<off_t>(offset), static_cast<off_t>(room_nbytes)) != 0)
    fail("getting memory for a shared array", errno);
}

// By the mapping, not by the descriptor, which may be another file's by now. Who gets the pages next relies
// on zeros.
void SharedHeap::punch(std::uint64_t offset, std::uint64_t room_nbytes) const {
  if (::madvise(base_ + offset, room_nbytes, MADV_REMOVE) != 0)
    std::memset(base_ + offset, 0, room_nbytes);
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
  if (!gone.out.empty()) {
    // Its place in the file may be written to by others: nobody gets it again.
    ::mmap(array, gone.room_nbytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    heap->out_count_.fetch_sub(gone.out.size(), std::memory_order_relaxed);
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
  if (found == arrays_.begin()) return false;
  const auto& out = (--found)->second.out;
  const auto after = out.lower_bound(address - base + std::max<std::uint64_t>(nbytes, 1));
  return after == out.begin() || std::prev(after)->second <= address - base;
}

void SharedHeap::take_out(const std::byte* data, std::uint64_t nbytes) {
  if (nbytes == 0 || !reaches(data, nbytes)) return;
  const std::lock_guard lock(mutex_);
  const auto first = static_cast<std::uint64_t>(data - base_);
  auto found = arrays_.upper_bound(first);
  if (found == arrays_.begin()) return;
  auto& [offset, array] = *--found;
  const std::uint64_t begin = whole_pages(first);
  std::uint64_t end = (first + nbytes) / page_nbytes * page_nbytes;
  if (first + nbytes >= offset + array.nbytes)
    end = offset + array.room_nbytes;                // nobody has the rest
  if (begin >= end || !replace(begin, end)) return;  // the op has failed for a better reason
  array.out[begin] = end;
  out_count_.fetch_add(1, std::memory_order_relaxed);
  if (has_file())
    ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                static_cast<off_t>(end - begin));
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
