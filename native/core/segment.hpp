// The shared memory of one group: what lies where, and how a process gets at it.
//
// It is a memfd: it has no name, so when the last process that mapped it ends, however it ends,
// nothing is left. The first rank of a host creates it; the others open /proc/<pid>/fd/<fd> of that one.
// In a group of several hosts each has its own, where the states and slots of ranks of other hosts are
// what links.hpp has brought.
//
//   offset 0            Header           identity, the gate, the cause when broken
//   header_nbytes       RankState[size]  three cache lines per rank
//   slots_offset        slot[size][2]    SlotHeader, Block in[size], Block out[size], payload
//   channels_offset     channel[size][size]  bytes from rank i to rank j (channel.hpp)
//
// Example, 2 ranks, 64 KiB slots and channels: header 0, ranks 448, slots 832, each half
// 64 + 2*2*16 + 65536 = 65664 bytes, so channels begin at 832 + 4*65664 = 263488.
// Pages that nobody touches cost nothing, so the many channels of large groups are free until used.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "clock.hpp"

namespace distdbg {

constexpr std::uint64_t segment_magic = 0x3167'6562'7473'6964;  // "distbeg1", little endian
constexpr std::size_t line_nbytes = 64;

// Why a group can no longer be used; written once, by whoever wins `state`.
struct Cause {
  std::atomic<std::uint32_t> state;  // 0 usable, 1 being written, 2 written
  std::int32_t fault;                // Fault
  std::int32_t rank;                 // the rank at fault, -1 unknown
  std::int32_t noticed_by;           // group rank that wrote this
  std::uint64_t seq;                 // op of the writer
  char text[232];                    // NUL-terminated
};

struct Header {
  std::uint64_t magic;
  std::uint64_t cookie;  // random; proves that this is the segment that was announced
  std::uint32_t size;
  std::uint32_t slot_nbytes;
  std::uint32_t channel_nbytes;
  std::atomic<std::uint32_t> no_single_copy;  // set by any rank that cannot read a peer
  std::uint64_t total_nbytes;
  std::uint32_t options;            // checks.hpp; the same for all ranks, as rank 0 found them
  std::uint32_t checksum_interval;  // outputs are compared at every so many ops; 0: never

  // The gate: the n-th arrival of a round moves `epoch` on; `sleepers` saves the wake-up call. With several
  // hosts the first rank of each always arrives last, and others wake it if it sleeps.
  alignas(line_nbytes) std::atomic<std::uint64_t> arrivals;
  std::atomic<std::uint32_t> opener_sleeps;
  alignas(line_nbytes) std::atomic<std::uint32_t> epoch;
  std::atomic<std::uint32_t> sleepers;

  alignas(line_nbytes) Cause cause;
};

struct RankState {
  std::atomic<std::uint32_t> attached;  // 1 once the fields below are written
  std::int32_t pid;
  std::uint64_t start_time;         // of the process, from /proc/<pid>/stat: tells a reused pid
  std::uint64_t probe_address;      // of a word that holds the cookie, to try single copy on
  std::atomic<std::uint64_t> gate;  // number of the gate it last came to
  std::atomic<std::uint64_t> seq;   // number of the op it is in or last finished
  std::atomic<std::uint32_t> left;  // 1 once it closed the group
  std::uint32_t published;  // bytes of its slot that the gate it comes to hands to other hosts
  std::atomic<std::uint32_t> lost;     // 1 when the way to it has ended without a word
  std::atomic<std::uint32_t> lost_ms;  // when; of the monotonic clock, its lower half
  // 1 + the descriptor of its shared arrays' memory; 0: it has none. Written once.
  std::atomic<std::uint32_t> heap;
  std::uint32_t padding;
  // Rung by peers that wrote to one of our channels while `bell_sleepers` was not 0.
  alignas(line_nbytes) std::atomic<std::uint32_t> bell;
  std::atomic<std::uint32_t> bell_sleepers;
  // Where it was last seen, as this_core() says, when ranks share cores; written only when that changes.
  std::atomic<std::uint32_t> core;
  // 1 + the rank whose arrays it is writing to, in an op and for a message; 0: nobody's. See peer_memory.cpp.
  std::atomic<std::uint32_t> writes_to[2];
  // Why the rank leaves, in words, NUL-terminated: "raised ValueError: no data". Empty: it has not said.
  // Written before `left`, or before its process ends; read after either.
  alignas(line_nbytes) char why[64];
};

// Wakes the rank if it sleeps until its bell is rung.
void ring(RankState& theirs);
// The same of this rank's other threads, by one that holds the lock under which they look before they sleep.
void ring_locked(RankState& rank);

// One block of a rank's input or output, as the rank itself addresses it.
struct Block {
  std::uint64_t address;
  std::uint64_t nbytes;
};

// What a rank says of its call at the first gate of its plan. Any other rank may read it once it has
// passed that gate, as long as `first_gate` says that it is of the same op.
struct SlotHeader {
  std::uint64_t fingerprint;
  std::uint64_t first_gate;
  std::uint32_t in_count;
  std::uint32_t out_count;
  std::uint64_t site;       // hash of the call site; 0: not compared
  std::uint16_t level;      // checks.hpp
  std::uint16_t flags;      // checks.hpp; the three below when they say so
  std::uint32_t bad_array;  // input block
  std::uint64_t bad_count;  // elements that are not finite
  std::uint64_t first_bad;  // the first of them in its block
  std::uint64_t checksum;   // of the outputs; written for a gate of its own after the op
};

static_assert(sizeof(Header) == 448 && alignof(Header) == line_nbytes);
static_assert(sizeof(RankState) == 192);
static_assert(sizeof(SlotHeader) == line_nbytes);
static_assert(sizeof(Block) == 16);
static_assert(std::is_standard_layout_v<Header> && std::is_standard_layout_v<RankState>);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// A process's mapping of the segment; unmapped on destruction.
class Segment {
 public:
  // Makes a new segment; `fd()` stays open until `close_fd`, so that others can open it.
  static Segment create(std::uint32_t size, std::uint32_t slot_nbytes, std::uint32_t channel_nbytes,
                        std::uint64_t cookie, std::uint32_t options = 0,
                        std::uint32_t checksum_interval = 0);
  // Opens rank 0's; throws Error(Fault::system) with errno, or when it is not the announced one.
  static Segment open(std::int32_t pid, int fd, std::uint64_t cookie);

  // The same mapping once more, for a further rank of this process; this one must outlive it.
  Segment alias() const;

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;
  ~Segment();

  int fd() const { return fd_; }
  void close_fd();

  Header& header() const { return *reinterpret_cast<Header*>(base_); }
  std::uint32_t size() const { return size_; }
  std::uint32_t slot_nbytes() const { return slot_nbytes_; }
  std::uint32_t channel_nbytes() const { return channel_nbytes_; }
  RankState& rank(std::uint32_t r) const {
    return reinterpret_cast<RankState*>(base_ + sizeof(Header))[r];
  }
  SlotHeader& slot(std::uint32_t r, std::uint64_t gate) const {
    return *reinterpret_cast<SlotHeader*>(slots_ + (2 * r + (gate & 1)) * half_nbytes_);
  }
  Block* in_blocks(SlotHeader& slot) const { return reinterpret_cast<Block*>(&slot + 1); }
  Block* out_blocks(SlotHeader& slot) const { return in_blocks(slot) + size_; }
  std::byte* payload(std::uint32_t r, std::uint64_t gate) const {
    return reinterpret_cast<std::byte*>(out_blocks(slot(r, gate)) + size_);
  }
  std::byte* channel(std::uint32_t from, std::uint32_t to) const;

 private:
  Segment(std::byte* base, std::size_t nbytes, int fd);

  std::byte* base_ = nullptr;
  std::size_t nbytes_ = 0;  // 0: not ours to unmap
  int fd_ = -1;
  std::uint32_t size_ = 0;
  std::uint32_t slot_nbytes_ = 0;
  std::uint32_t channel_nbytes_ = 0;
  std::size_t half_nbytes_ = 0;
  std::byte* slots_ = nullptr;
  std::byte* channels_ = nullptr;
};

}  // namespace distdbg
