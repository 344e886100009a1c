// Copies from and to the arrays of other ranks of this host: by the kernel, or where it is one process by itself.
//
// Who writes to a peer's array must not do so when the peer has given up the op and has its array back:
//
//   writer                                peer that gives up
//   writes_to = peer                      breaks the group
//   broken? then writes_to = none, stop   waits until nobody's writes_to is this rank
//   copies a piece, writes_to = none      has its arrays back
//
// A writer that is stopped just before it copies is not waited for without end: see take_left_written().
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "group.hpp"

namespace distdbg {

namespace {

// Takes well under a millisecond, which is how long a peer that gives up waits for it.
constexpr std::uint64_t written_piece_nbytes = 256 * 1024;
constexpr std::int64_t longest_piece_ns = 1000 * ns_per_ms;

thread_local bool is_left_written = false;

}  // namespace

void Group::read_peer(std::uint32_t peer, std::uint64_t address, std::byte* into,
                      std::uint64_t nbytes, bool is_sure) {
  if (is_local_[peer] && is_sure) {
    std::memcpy(into, reinterpret_cast<const void*>(address), nbytes);
    return;
  }
  const RankState& theirs = segment_.rank(peer);
  while (nbytes > 0) {
    iovec local{into, nbytes};
    iovec remote{reinterpret_cast<void*>(address), nbytes};
    const ssize_t got = ::process_vm_readv(theirs.pid, &local, 1, &remote, 1, 0);
    if (got <= 0) {
      const int number = got == 0 ? EFAULT : errno;
      if (number == EINTR) continue;
      throw_unreachable(peer, "reading", number);
    }
    into += got;
    address += static_cast<std::uint64_t>(got);
    nbytes -= static_cast<std::uint64_t>(got);
  }
}

void Group::write_peer(std::uint32_t peer, std::uint64_t address, const std::byte* from,
                       std::uint64_t nbytes, Writer writer) {
  const RankState& theirs = segment_.rank(peer);
  auto& writes_to = segment_.rank(rank_).writes_to[static_cast<std::size_t>(writer)];
  while (nbytes > 0) {
    const std::uint64_t n = std::min(nbytes, written_piece_nbytes);
    auto put = static_cast<ssize_t>(n);
    int number = 0;
    writes_to.store(peer + 1);
    const bool is_over = segment_.header().cause.state.load() != 0;
    if (!is_over && is_local_[peer]) {
      std::memcpy(reinterpret_cast<void*>(address), from, n);
    } else if (!is_over) {
      iovec local{const_cast<std::byte*>(from), n};
      iovec remote{reinterpret_cast<void*>(address), n};
      put = ::process_vm_writev(theirs.pid, &local, 1, &remote, 1, 0);
      number = put == 0 ? EFAULT : errno;
    }
    writes_to.store(0, std::memory_order_release);
    if (is_over) throw_cause(true);
    if (put <= 0) {
      if (number == EINTR) continue;
      throw_unreachable(peer, "writing to", number);
    }
    from += put;
    address += static_cast<std::uint64_t>(put);
    nbytes -= static_cast<std::uint64_t>(put);
  }
}

void Group::throw_unreachable(std::uint32_t peer, const char* doing, int number) {
  if (number == ESRCH || (!is_local_[peer] && watched_[peer].is_dead())) {
    break_group(Fault::peer_lost, static_cast<int>(peer), watched_[peer].how());
    throw_cause(true);
  }
  // Who gave up an op may have unmapped its arrays since; then it has said why.
  if (is_broken()) throw_cause(true);
  const std::string what = std::string(doing) + " the memory of a peer: " + std::strerror(number);
  break_group(Fault::system, static_cast<int>(peer), what);
  throw Error(Fault::system, what, number, static_cast<int>(peer));
}

void Group::await_writers(Writer writer) {
  // Waited for once: whoever is stopped now was so before.
  const std::int64_t until = has_waited_in_vain_ ? 0 : now_ns() + longest_piece_ns;
  for (const std::uint32_t r : ranks_here()) {
    if (r == rank_) continue;
    const auto& writes_to = segment_.rank(r).writes_to[static_cast<std::size_t>(writer)];
    while (writes_to.load() == rank_ + 1) {
      if (!is_local_[r] && watched_[r].is_dead()) break;
      if (now_ns() > until) {
        has_waited_in_vain_ = is_left_written = true;
        break;
      }
      ::usleep(50);
    }
  }
}

bool Group::take_left_written() { return std::exchange(is_left_written, false); }
void Group::note_left_written() { is_left_written = true; }

}  // namespace distdbg
