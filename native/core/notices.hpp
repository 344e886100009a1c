// What a rank tells ranks of other hosts of the group itself, on any transport of it: that the group is
// broken and why, and that it leaves.
//
//   CAUSE   rank (the culprit), fault, noticed by, seq; payload: the text
//   LEAVE   payload: why
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport.hpp"

namespace distdbg {

class Group;

class Notices {
 public:
  // The field behind the size of every frame; owners number theirs from 0.
  static constexpr std::uint32_t cause_type = 0x100, leave_type = 0x101;
  static std::uint32_t type_of(const Envelope& envelope) {
    return static_cast<std::uint32_t>(envelope.words[0]);
  }

  explicit Notices(Group& group);

  void link(std::uint32_t peer) { is_linked_[peer] = true; }
  // Makes the way to it; Error(peer_lost) where there is none.
  void connect(Transport& transport, std::uint32_t peer, const Wait& wait);
  bool is_linked(std::uint32_t peer) const { return is_linked_[peer]; }
  // To all that are linked, once the group is broken; then nobody waits any longer.
  void tell_cause(Transport& transport);
  void tell_leave(Transport& transport);

  // Of a frame of one of those types: where its payload goes, and what follows from it.
  bool takes(const Envelope& envelope) const { return type_of(envelope) >= cause_type; }
  void place(std::uint32_t peer, const Envelope& envelope, Payload& into);
  void arrived(std::uint32_t peer, const Envelope& envelope);

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
  std::vector<bool> is_linked_;     // by rank
  std::vector<std::string> texts_;  // by rank, of what arrives
  bool has_told_cause_ = false;
};

}  // namespace distdbg
