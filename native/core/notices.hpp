// What a rank tells ranks of other hosts of the group itself, on any transport of it: that the group is
// broken and why, that it leaves, and which op each rank of its host is in.
//
//   CAUSE   rank (the culprit), fault, noticed by, seq; payload: the text
//   LEAVE   payload: why
//   CALLS   seq: the op that somebody waits in; payload: of each rank of the host, the op it called last
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "transport.hpp"

namespace distdbg {

class Group;

class Notices {
 public:
  // The field behind the size of every frame; owners number theirs from 0.
  static constexpr std::uint32_t cause_type = 0x100, leave_type = 0x101, calls_type = 0x102;
  static std::uint32_t type_of(const Envelope& envelope) {
    return static_cast<std::uint32_t>(envelope.words[0]);
  }

  // Of a frame that says that the group is broken, since somebody did not come in time.
  static bool is_of_timeout(const Envelope& envelope);

  explicit Notices(Group& group);

  void link(std::uint32_t peer) { is_linked_[peer] = true; }
  // Makes the way to it; Error(peer_lost) where there is none.
  void connect(Transport& transport, std::uint32_t peer, const Wait& wait);
  // The way to it has ended.
  void lost(std::uint32_t peer, const std::string& why);
  // Whether something of it may be on its way still by this transport. That it has left, or was lost, may be
  // heard earlier by another: a wait for it ends with its own way.
  bool may_bring_more(std::uint32_t peer) const { return is_linked_[peer] && !has_ended_[peer]; }
  // To all that are linked, once the group is broken; then nobody waits any longer.
  void tell_cause(Transport& transport);
  bool has_sent_cause() const { return has_sent_cause_; }
  // Returns once that, and so all that was posted before, has left this process; not where the group is broken,
  // or the others do not read for `leave_limit_ns`. Before the transport is closed.
  void tell_leave(Transport& transport);
  static constexpr std::int64_t leave_limit_ns = 5'000'000'000;
  // Each rank is told once in an op, and answers when it is in that op, or further.
  void tell_calls(Transport& transport, std::uint32_t peer);
  bool has_heard_calls(std::uint32_t peer) const;

  // Of a frame of one of those types: where its payload goes, and what follows from it.
  bool takes(const Envelope& envelope) const { return type_of(envelope) >= cause_type; }
  void place(std::uint32_t peer, const Envelope& envelope, Payload& into);
  void arrived(Transport& transport, std::uint32_t peer, const Envelope& envelope);

 private:
  struct Frame {
    std::uint64_t nbytes;
    std::uint32_t type;
    std::int32_t rank;
    std::uint64_t seq;
    std::int32_t fault;
    std::int32_t noticed_by;
    std::uint64_t padding[4];
  };
  static_assert(sizeof(Frame) == sizeof(Envelope));
  void tell(Transport& transport, Frame frame, const std::string& text);

  Group& group_;
  std::vector<bool> is_linked_;             // by rank
  std::vector<bool> has_ended_;             // by rank: it has said that it leaves, or was lost
  std::vector<std::string> texts_;          // by rank, of what arrives
  std::vector<std::uint64_t> notified_in_;  // by rank, the op in which it was told of calls
  std::vector<std::uint64_t> heard_in_;     // and in which it told of its own
  bool has_sent_cause_ = false;
  std::string leave_words_;              // what is told when this rank leaves,
  std::vector<std::uint32_t> notified_;  // whom,
  std::deque<bool> are_sent_;            // and whether it has left this process
};

}  // namespace distdbg
