// The shared arrays of this process: memory that the other ranks of its host read and write in place.
//
// It is one memfd, mapped once for good, and as long as all arrays together may ever need; pages that
// no array has cost nothing. It has no name, so it is gone with the last process that has it mapped.
//
//   offset 0            HeapHeader     whose it is, and where it lies in its own process
//   page_nbytes         arrays         each on pages of its own
//
// Example, a limit of 1 GiB: the file has 2 GiB, so that an array finds room also between others; a first
// array of 10,000 bytes has the pages from 4096 to 16384, a second one begins at 16384.
//
// What an op of an array that failed had been given, while others may still write to it, is taken out: its pages
// become this process's own, at the address that they have, and what others write goes nowhere. Only whole
// pages: the rest of the array may be in another op, and a page that both have a part of stays.
//
// A forked child sees the arrays as it sees all memory of its parent: what it writes is its own. It frees
// nothing; its own shared arrays are in a heap of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace distdbg {

constexpr std::uint64_t heap_magic = 0x3170'6165'6864'6464;  // "dddheap1"
#if defined(__x86_64__)
constexpr std::size_t page_nbytes = 4096;
#else
constexpr std::size_t page_nbytes = 65536;  // the largest that a kernel may have been built with
#endif

struct HeapHeader {
  std::uint64_t magic;
  std::int32_t pid;
  std::uint32_t padding;
  std::uint64_t start_time;  // of the process: tells a reused pid
  std::uint64_t base;        // address of this header in its own process
  std::uint64_t nbytes;      // of the file
};
static_assert(sizeof(HeapHeader) == 40);

struct HeapFacts {
  std::uint64_t count = 0;
  std::uint64_t nbytes = 0;
  std::uint64_t most_nbytes = 0;  // at any time so far
  std::uint64_t limit_nbytes = 0;
  std::uint64_t ops = 0;  // of this process that used arrays of its peers, or let them use its own
};

class SharedHeap {
 public:
  // That of this process; null before its first array. There is one, because an address tells all that an op
  // has to know: no array says which of several it is from.
  static SharedHeap* here();
  // Makes it where there is none yet. Throws Error(Fault::system).
  static SharedHeap& make(std::uint64_t limit_nbytes);

  SharedHeap(const SharedHeap&) = delete;
  SharedHeap& operator=(const SharedHeap&) = delete;

  // Zeros, on pages that are there already. Error(Fault::usage) above the limit, Error(Fault::system) where
  // the machine has no memory. `tag` is whatever `arrays` is to say of it.
  std::byte* allocate(std::uint64_t nbytes, std::uint64_t tag);
  // From any process: in a forked child it does nothing.
  static void free(SharedHeap* heap, std::byte* array);
  // Whether others can reach it: nothing of it was taken out.
  bool reaches(const std::byte* data, std::uint64_t nbytes) const;
  // What others write there from now on is not seen; the contents stay.
  void take_out(const std::byte* data, std::uint64_t nbytes);

  int fd() const { return fd_; }
  void count_op() { ops_.fetch_add(1, std::memory_order_relaxed); }
  HeapFacts facts() const;
  // (tag, nbytes) of each array.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> arrays() const;

 private:
  struct Array {
    std::uint64_t room_nbytes;  // whole pages
    std::uint64_t nbytes;
    std::uint64_t tag;
    std::map<std::uint64_t, std::uint64_t> out;  // end by begin, of what was taken out
  };
  struct FileName {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
  };
  explicit SharedHeap(std::uint64_t limit_nbytes);
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();
  void become_private();
  std::uint64_t find_room(std::uint64_t room_nbytes);
  void give_back(std::uint64_t offset, std::uint64_t room_nbytes);
  void populate(std::uint64_t offset, std::uint64_t room_nbytes);
  void punch(std::uint64_t offset, std::uint64_t room_nbytes) const;
  bool has_file() const;
  bool replace(std::uint64_t begin, std::uint64_t end);

  static std::atomic<SharedHeap*> here_;
  std::byte* base_ = nullptr;
  std::uint64_t file_nbytes_ = 0;
  int fd_ = -1;
  FileName file_;  // a program may close all descriptors, and open others
  std::atomic<std::uint64_t> out_count_{0};
  std::atomic<std::uint64_t> ops_{0};
  mutable std::mutex mutex_;                     // protects what is below
  std::map<std::uint64_t, Array> arrays_;        // by offset
  std::map<std::uint64_t, std::uint64_t> room_;  // free ranges by offset; none touches another
  HeapFacts facts_;
};

}  // namespace distdbg
