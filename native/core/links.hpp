// What the ranks of different hosts exchange in collectives: slots at a gate, and the messages of plans.
//
// At a gate between hosts the first rank of each host hands on the slots of all ranks that it has, in
// ceil(log2 H) rounds: in round k to the host 2^k after its own. Afterwards every segment holds all slots.
//
// Frames, each the envelope of a message (transport.hpp):
//
//   SLOT    rank, gate, seq, flags: the slot of a rank; payload: SlotHeader, the blocks where asked for,
//           then as much of the slot as the rank has published
//   DATA    seq: what a SEND of op `seq` sends; before the first gate of its plan also gate, flags
//   CAUSE, LEAVE   see notices.hpp
//
// Messages that a plan does not wait for yet stay where the transport holds them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "notices.hpp"
#include "region.hpp"
#include "transport.hpp"
#include "wait.hpp"

namespace distdbg {

class Group;

enum class Purpose : std::uint32_t { collectives, messages };
// Makes a transport to the ranks of other hosts; the receiver outlives it.
using MakeTransport = std::function<std::unique_ptr<Transport>(Receiver&, Purpose)>;

// What messages between hosts take when all of them send at once.
struct LinkTimes {
  static constexpr std::uint64_t long_nbytes = 256 * 1024;
  std::int64_t short_ns = 0;
  std::int64_t long_ns = 0;
};

class Links final : private Receiver {
 public:
  Links(Group& group, const MakeTransport& make);
  ~Links();

  // All with the op's lock of the group held.

  // Among the first ranks of all hosts.
  void exchange(std::uint64_t gate, bool with_blocks, const Wait& wait, bool in_background);
  // The memory of `from` must last until settle() has returned.
  void send(std::uint32_t peer, Region from, const Wait& wait);
  // With the next exchange(), behind the slots of this host, where it has one rank. Whoever does not want it before
  // the exchange after that throws it away.
  void send_early(std::uint32_t peer, Region from) { early_.push_back({peer, from}); }
  // Of what came early and no step of a plan has taken, nothing is wanted from here on.
  void expire_early() { early_from_ = crossings_ + 1; }
  // And what waits for the next exchange is not sent either.
  void forget_early() {
    early_.clear();
    expire_early();
  }
  void receive(std::uint32_t peer, Region into, const Wait& wait, bool in_background);
  void settle(const Wait& wait, bool in_background);
  // Among the first ranks of all hosts, before any op. `ring`: all hosts, in the order in which each sends to
  // the next.
  LinkTimes measure(const std::vector<std::uint32_t>& ring, const Wait& wait);
  // In an op that somebody does not come to: asks the other hosts who has called it, for a moment. The op
  // has failed then.
  void compare_calls();
  // Notices that have come: at the begin of an op, but not of each of many in turn. What came since the last look
  // is found while this op waits.
  void look() {
    const std::int64_t now = now_ns();
    if (now < next_look_ns_) return;
    next_look_ns_ = now + look_interval_ns;
    transport_->poll();
  }
  void tell_cause();
  void tell_leave() { notices_.tell_leave(*transport_); }

 private:
  enum class FrameType : std::uint32_t { slot, data };
  struct Frame {
    std::uint64_t nbytes;
    FrameType type;
    std::uint32_t rank;  // whose slot
    std::uint64_t gate;  // crossings so far
    std::uint64_t seq;
    std::uint32_t flags;
    std::uint32_t padding[7];
  };
  static_assert(sizeof(Frame) == sizeof(Envelope));
  static constexpr std::uint32_t is_first_gate = 1, has_blocks = 2, is_early = 4;
  // While one peer is waited for, every so many-th look is at all: a notice of another may come first.
  static constexpr std::uint32_t looks_at_one = 16;
  // A look is a system call for each connection, which ops of some tens of microseconds feel.
  static constexpr std::int64_t look_interval_ns = ns_per_ms;

  // What this rank waits for; nothing else of that kind is taken.
  struct Wanted {
    FrameType type = FrameType::data;
    std::uint32_t peer = 0;
    Region into{};                     // data
    std::vector<std::uint32_t> ranks;  // slots, in the order in which they come
    std::size_t next = 0;
    bool is_done = false;
  };

  struct Sending {
    std::uint32_t peer;
    bool is_sent;
  };
  using Unsent = std::deque<Sending>;

  bool place(std::uint32_t peer, const Envelope& envelope, Payload& into) override;
  void arrived(std::uint32_t peer, const Envelope& envelope) override;
  void lost(std::uint32_t peer, const std::string& why) override;
  void corrupted(std::uint32_t peer, const std::string& link) override;
  bool stands_in() const;
  void post(std::uint32_t peer, const Frame& frame, const Payload& payload);
  void post_slot(std::uint32_t peer, std::uint32_t rank, std::uint64_t gate, bool with_blocks,
                 bool is_followed);
  void settle(Unsent& unsent, const Wait& wait, bool in_background);
  bool has_early(std::uint32_t peer) const;
  void post_early(std::uint32_t peer, const Wait& wait);
  bool is_stale(const Frame& frame) const {
    return frame.type == FrameType::data && (frame.flags & is_early) != 0 &&
           frame.gate < early_from_;
  }
  void want(const Wait& wait, bool in_background);
  template <class Ready, class IsNeeded>
  void wait_until(const Wait& wait, bool in_background, const Ready& ready,
                  const IsNeeded& is_needed);

  Group& group_;
  Notices notices_;
  std::unique_ptr<Transport> transport_;
  std::int64_t next_look_ns_ = 0;
  std::uint64_t crossings_ = 0;
  std::uint64_t gate_ = 0;  // of the crossing at hand, as this host counts gates
  Wanted wanted_;
  bool is_waiting_ = false;
  bool is_comparing_ = false;
  // Of a timeout that was told while this rank was in the op: by whom, and what.
  bool has_heard_timeout_ = false;
  std::uint32_t timeout_from_ = 0;
  Envelope timeout_envelope_{};
  Unsent unsent_;
  Unsent unsent_early_;
  struct Early {
    std::uint32_t peer;
    Region from;
  };
  std::vector<Early> early_;      // leaves with the next crossing
  std::uint64_t early_from_ = 0;  // what came with a crossing before that one is wanted no more
};

}  // namespace distdbg
