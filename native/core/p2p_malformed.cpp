// Frames that no rank of ours sends: the group is broken on all ranks, with words that name who sent it and what is
// wrong with it, and nothing more is read from there. What a frame says is checked before any memory is taken
// for it or any message changes by it.
#include <algorithm>

#include "dtype.hpp"
#include "p2p.hpp"
#include "p2p_limits.hpp"

namespace distdbg {

namespace {

bool is_dtype_or_none(int code) { return code < 0 || is_dtype(code); }

std::string part(std::uint64_t nbytes, std::uint64_t of) {
  return std::to_string(nbytes) + " of " + std::to_string(of) + " bytes";
}

}  // namespace

// Called while the transport reads from it.
void PointToPoint::refuse(std::uint32_t peer, const Malformed& found) {
  peers_[peer].is_malformed = true;
  group_.break_group(Fault::system, static_cast<int>(peer),
                     "sent a malformed frame (" + found.what + ") in a send or recv");
  if (net_) notices_.tell_cause(*net_);
}

void PointToPoint::check_offer(std::uint32_t peer, const Frame& offer) {
  Peer& p = peers_[peer];
  if (offer.id < p.next_offer) throw Malformed{"an offer with the number of an earlier one"};
  p.next_offer = offer.id + 1;
  if (!is_dtype_or_none(offer.dtype)) throw Malformed{"an offer of no known dtype"};
  const std::uint64_t has = offer.payload_nbytes;
  switch (offer.status) {
    case Status::taken:
    case Status::push:
    case Status::halves:
      if (has > most_inline_nbytes || (has != 0 && has != offer.nbytes))
        throw Malformed{"an offer that brings " + part(has, offer.nbytes)};
      return;
    case Status::device:
      if (!group_.is_here(peer) || has > description_nbytes || offer.nbytes == 0)
        throw Malformed{"an offer from a device that cannot be one"};
      return;
    case Status::staged:
      if (has != 0 || offer.nbytes == 0)
        throw Malformed{"an offer from a device that cannot be one"};
      return;
    default: throw Malformed{"an offer of no known kind"};
  }
}

void PointToPoint::check_answer(const Message& send, const Frame& answer) {
  const auto room = static_cast<std::uint64_t>(answer.tag);
  const std::uint64_t nbytes = send.region.nbytes;
  if (send.pieces.is_answered != (answer.status == Status::more))
    throw Malformed{"an answer that comes out of turn"};
  if (answer.payload_nbytes != 0 && answer.status != Status::mismatch)
    throw Malformed{"an answer with a payload"};
  switch (answer.status) {
    case Status::taken:
      // It had nothing to take it from.
      if (send.is_on_device && send.description.empty())
        throw Malformed{"an answer that comes out of turn"};
      return;
    case Status::push:
      if (nbytes == 0 || (answer.nbytes != 0 && room < std::min(answer.nbytes, nbytes)))
        throw Malformed{"an answer with room for " + part(room, nbytes)};
      return;
    case Status::halves:
      if (send.is_async || send.is_on_device || send.pieces.is_halved)
        throw Malformed{"an answer that comes out of turn"};
      return;
    case Status::more:
      if (room <= send.pieces.allowed)
        throw Malformed{"an answer with room for " + part(room, nbytes)};
      return;
    case Status::mismatch:
      if (!is_dtype_or_none(answer.dtype)) throw Malformed{"an answer of no known dtype"};
      return;
    default: throw Malformed{"an answer of no known kind"};
  }
}

}  // namespace distdbg
