// Messages that both sides copy: where the sender waits in the op on a core of its own, and each can reach the memory
// of the other, the receiver reads one half while the sender writes the other one.
//
//   sender                              receiver
//   OFFER halves          --->
//                         <---          ANSWER halves: where the second half goes
//   writes it                           reads the first half
//   WRITTEN               --->          has both: it has ended
//   has ended             <---          ANSWER taken
#include "p2p.hpp"

namespace distdbg {

namespace {

// What is shorter comes with one copy as soon: a second frame has a way as well.
constexpr std::uint64_t least_halved_nbytes = 32 * 1024;
// What is shorter is read before a sender that sleeps has woken up.
constexpr std::uint64_t worth_waking_nbytes = 4 << 20;

std::uint64_t first_half(std::uint64_t nbytes) {
  return (nbytes / 2 + line_nbytes - 1) / line_nbytes * line_nbytes;
}

}  // namespace

bool PointToPoint::can_halve(const Message& send, std::uint32_t to) const {
  return !send.is_async && group_.patience().has_own_core() && group_.can_read(to) &&
         send.region.nbytes >= least_halved_nbytes;
}

bool PointToPoint::is_worth_halving(std::uint32_t peer, const Frame& offer) const {
  if (offer.status != Status::halves) return false;
  const RankState& theirs = group_.segment().rank(peer);
  return offer.nbytes >= worth_waking_nbytes ||
         theirs.bell_sleepers.load(std::memory_order_relaxed) == 0;
}

void PointToPoint::take_half(const MessagePointer& recv, std::uint32_t peer, const Frame& offer) {
  const std::uint64_t half = first_half(offer.nbytes);
  Frame answer{};
  answer.type = FrameType::answer;
  answer.status = Status::halves;
  answer.id = offer.id;
  answer.address = reinterpret_cast<std::uint64_t>(recv->region.data) + half;
  answer.nbytes = offer.nbytes - half;
  peers_[peer].receiving.emplace(offer.id, recv);
  recv->pieces.id = offer.id;
  recv->pieces.is_halved = recv->pieces.is_exposed = true;
  post(peer, answer, nullptr);
  try {
    read(peer, offer, recv->region.data, 0, half);
  } catch (...) {
    peers_[peer].receiving.erase(offer.id);
    const std::exception_ptr error = std::current_exception();
    take_back(*recv);
    return complete(recv, error);
  }
  recv->pieces.moved = half;
  answer = {};
  answer.type = FrameType::answer;
  answer.status = Status::taken;
  answer.id = offer.id;
  post(peer, answer, nullptr);
}

void PointToPoint::write_half(const MessagePointer& send, std::uint32_t peer, const Frame& answer) {
  if (!can_halve(*send, peer) ||
      answer.nbytes != send->region.nbytes - first_half(send->region.nbytes))
    throw Malformed{"an answer that comes out of turn"};
  send->pieces.is_halved = true;
  if (send->recorder != nullptr) send->recorder->started(send->recorded);
  try {
    group_.write_peer(peer, answer.address, send->region.data + first_half(send->region.nbytes),
                      answer.nbytes, Group::Writer::message);
  } catch (...) {
    peers_[peer].sends.erase(answer.id);
    return complete(send, std::current_exception());
  }
  Frame written{};
  written.type = FrameType::written;
  written.id = answer.id;
  post(peer, written, nullptr);
}

// Before its array is its owner's again: the sender may be writing there, or be about to.
void PointToPoint::take_back(Message& message) {
  if (!message.pieces.is_exposed) return;
  if (!group_.is_broken())
    group_.break_group(Fault::broken, static_cast<int>(group_.rank()),
                       "closed the group while messages were in flight");
  group_.await_writers(Group::Writer::message);
  message.is_left_written = Group::take_left_written();
}

void PointToPoint::on_written(std::uint32_t peer, const Frame& frame) {
  auto& receiving = peers_[peer].receiving;
  const auto found = receiving.find(frame.id);
  if (found == receiving.end()) return;  // its recv has given up
  const MessagePointer recv = found->second;
  if (!recv->pieces.is_halved) throw Malformed{"a half of a message that was not asked for"};
  receiving.erase(found);
  recv->pieces.moved = recv->region.nbytes;
  complete(recv);
}

}  // namespace distdbg
