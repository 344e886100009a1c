// Shared arrays: what a peer maps is the same memory, until the array is taken out or freed.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "check.hpp"
#include "error.hpp"
#include "peer_heap.hpp"
#include "peers.hpp"
#include "shared_heap.hpp"

using namespace distdbg;

namespace {

constexpr std::uint64_t limit = 1 << 20;

std::uint64_t address_of(const std::byte* data) { return reinterpret_cast<std::uint64_t>(data); }

// As a peer would map it.
std::shared_ptr<const PeerHeap> map_own(const SharedHeap& heap) {
  return PeerHeap::open(::getpid(), process_start_time(::getpid()), heap.fd());
}

template <class Body>
bool fails_with(Fault fault, const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.fault() == fault;
  }
  return false;
}

void test_a_peer_sees_the_same_memory() {
  SharedHeap& heap = SharedHeap::make(limit);
  CHECK(&heap == &SharedHeap::make(1));
  std::byte* array = heap.allocate(10'000, 7);
  CHECK(array[0] == std::byte{0} && array[9'999] == std::byte{0});
  const auto peer = map_own(heap);
  CHECK(peer == map_own(heap));
  std::byte* there = peer->place(address_of(array), 10'000);
  CHECK(there != nullptr && there != array);
  array[9'999] = std::byte{5};
  CHECK(there[9'999] == std::byte{5});
  there[1] = std::byte{6};
  CHECK(array[1] == std::byte{6});
  CHECK(heap.reaches(array, 10'000));
  const std::byte elsewhere{0};
  CHECK(!heap.reaches(&elsewhere, 1));
  CHECK(peer->place(address_of(&elsewhere), 1) == nullptr);
  CHECK(peer->place(address_of(array), 1ULL << 40) == nullptr);
  SharedHeap::free(&heap, array);
  CHECK(there[1] == std::byte{0});  // its pages are gone
}

void test_what_is_freed_is_given_out_again() {
  SharedHeap& heap = SharedHeap::make(limit);
  std::byte* a = heap.allocate(page_nbytes, 1);
  std::byte* b = heap.allocate(page_nbytes, 2);
  std::byte* c = heap.allocate(page_nbytes, 3);
  CHECK(heap.facts().count == 3 && heap.facts().nbytes == 3 * page_nbytes);
  CHECK(heap.arrays().size() == 3 && heap.arrays()[1].first == 2);
  std::memset(a, 1, page_nbytes);
  SharedHeap::free(&heap, a);
  SharedHeap::free(&heap, b);
  std::byte* both = heap.allocate(2 * page_nbytes, 4);
  CHECK(both == a && both[0] == std::byte{0});
  CHECK(fails_with(Fault::usage, [&] { heap.allocate(limit, 5); }));
  CHECK(fails_with(Fault::usage, [&] { heap.allocate(~0ULL, 5); }));
  SharedHeap::free(&heap, both);
  SharedHeap::free(&heap, c);
  CHECK(heap.facts().count == 0 && heap.facts().nbytes == 0);
  std::byte* all = heap.allocate(limit, 6);
  SharedHeap::free(&heap, all);
  CHECK(heap.facts().most_nbytes == limit);
}

void test_what_was_taken_out_is_out_of_reach() {
  SharedHeap& heap = SharedHeap::make(limit);
  const auto peer = map_own(heap);
  std::byte* array = heap.allocate(3 * page_nbytes - 5, 1);
  std::byte* other = heap.allocate(page_nbytes, 2);
  std::memset(array, 9, 3 * page_nbytes - 5);
  std::byte* there = peer->place(address_of(array), 3 * page_nbytes);
  heap.take_out(array, 3 * page_nbytes - 5);
  heap.take_out(array, 3 * page_nbytes - 5);
  CHECK(array[0] == std::byte{9} && array[3 * page_nbytes - 6] == std::byte{9});
  there[0] = there[3 * page_nbytes - 6] = std::byte{1};
  CHECK(array[0] == std::byte{9} && array[3 * page_nbytes - 6] == std::byte{9});
  CHECK(!heap.reaches(array, 1) && heap.reaches(other, 1));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(array[0] == std::byte{9} && other[0] == std::byte{0} ? 0 : 1);
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child && status == 0);
  SharedHeap::free(&heap, array);
  std::byte* next = heap.allocate(3 * page_nbytes, 3);
  CHECK(next != array);  // a peer may still write to its place
  SharedHeap::free(&heap, next);
  SharedHeap::free(&heap, other);
}

// Another op may have them, of another group.
void test_the_rest_of_an_array_stays_where_it_is() {
  SharedHeap& heap = SharedHeap::make(limit);
  const auto peer = map_own(heap);
  std::byte* array = heap.allocate(4 * page_nbytes, 1);
  std::byte* there = peer->place(address_of(array), 4 * page_nbytes);
  heap.take_out(array + 8, 2 * page_nbytes);  // of whole pages it has the second
  for (const std::size_t at : {std::size_t{0}, 2 * page_nbytes, 3 * page_nbytes}) {
    there[at] = std::byte{5};
    CHECK(array[at] == std::byte{5} && heap.reaches(array + at, 1));
  }
  there[page_nbytes] = std::byte{5};
  CHECK(array[page_nbytes] == std::byte{0});
  CHECK(!heap.reaches(array + page_nbytes, 1) && !heap.reaches(array, 4 * page_nbytes));
  CHECK(heap.reaches(array, page_nbytes) && heap.reaches(array + 2 * page_nbytes, 2 * page_nbytes));
  heap.take_out(array + 2 * page_nbytes, 8);  // no whole page
  CHECK(heap.reaches(array + 2 * page_nbytes, 8));
  SharedHeap::free(&heap, array);
}

// A program that closes all descriptors, as daemons do, opens other files under their numbers.
void test_a_file_that_got_the_descriptor_is_left_alone() {
  const pid_t child = ::fork();
  if (child == 0) {
    SharedHeap& heap = SharedHeap::make(limit);
    std::byte* array = heap.allocate(page_nbytes, 1);
    std::memset(array, 7, page_nbytes);
    std::byte* taken = heap.allocate(page_nbytes, 2);
    const int file = ::memfd_create("another", MFD_CLOEXEC);
    const std::vector<char> full(1 << 20, 'a');
    bool is_right = ::write(file, full.data(), full.size()) == static_cast<ssize_t>(full.size());
    is_right &= ::dup2(file, heap.fd()) == heap.fd();
    SharedHeap::free(&heap, array);
    heap.take_out(taken, page_nbytes);
    std::byte* again = heap.allocate(page_nbytes, 3);
    is_right &= again == array && again[0] == std::byte{0};
    again[1] = std::byte{6};
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      again[1] = std::byte{8};  // its own copy
      ::_exit(0);
    }
    int status = -1;
    is_right &= ::waitpid(grandchild, &status, 0) == grandchild && status == 0;
    is_right &= again[1] == std::byte{6};
    std::vector<char> found(full.size());
    is_right &= ::pread(file, found.data(), found.size(), 0) == static_cast<ssize_t>(found.size());
    ::_exit(is_right && found == full ? 0 : 1);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child && status == 0);
}

void test_a_forked_child_has_a_copy() {
  SharedHeap& heap = SharedHeap::make(limit);
  std::byte* array = heap.allocate(page_nbytes, 1);
  array[0] = std::byte{3};
  const auto peer = map_own(heap);
  const pid_t child = ::fork();
  if (child == 0) {
    bool is_right = SharedHeap::here() == nullptr && array[0] == std::byte{3};
    array[0] = std::byte{4};
    SharedHeap::free(&heap, array);  // is its parent's
    is_right &= array[0] == std::byte{4};
    SharedHeap& own = SharedHeap::make(limit);
    is_right &= &own != &heap && !own.reaches(array, 1) && own.reaches(own.allocate(8, 1), 8);
    ::_exit(is_right ? 0 : 1);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child && status == 0);
  CHECK(array[0] == std::byte{3} && heap.facts().count == 1);
  SharedHeap::free(&heap, array);
}

void test_nothing_else_is_mapped_as_one() {
  SharedHeap& heap = SharedHeap::make(limit);
  CHECK(fails_with(Fault::system, [&] { PeerHeap::open(::getpid(), 1, heap.fd()); }));
  CHECK(fails_with(Fault::system,
                   [&] { PeerHeap::open(::getpid(), process_start_time(::getpid()), 0); }));
}

}  // namespace

int main() {
  test_a_peer_sees_the_same_memory();
  test_what_is_freed_is_given_out_again();
  test_what_was_taken_out_is_out_of_reach();
  test_the_rest_of_an_array_stays_where_it_is();
  test_a_file_that_got_the_descriptor_is_left_alone();
  test_a_forked_child_has_a_copy();
  test_nothing_else_is_mapped_as_one();
  return 0;
}
