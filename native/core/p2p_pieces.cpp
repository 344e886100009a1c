// Messages that are sent as frames, in pieces where a side has no memory for all of it: an array on a GPU goes through
// a few places in host memory, and while the device copies one piece, another one is on its way.
//
//   sender                                             receiver
//   device -> place   by Python, which says `served`
//   place -> DATA     push(), as far as allowed  --->   place_data(): its place, or the array
//   has_left()        the place is free, Want::pieces   on_data(): Want::pieces
//                                                       place -> device   by Python, which says `served`
//   push() goes on                         <--- more    ask_for_more(): the place is free
//
// A receiver on the host has room for all; a sender there has all of it, and what it has is read by fill() where
// its memory can be.
#include <algorithm>
#include <cstring>

#include "p2p.hpp"
#include "p2p_limits.hpp"

namespace distdbg {

// --------------------------------------------------------------------------------- memory

// Where the piece that begins there is in this process.
std::byte* PointToPoint::place_of(const Message& message, std::uint64_t begin) {
  if (!message.is_on_device) return message.region.data + begin;
  const Pieces& pieces = message.pieces;
  return pieces.places.data + begin % pieces.places.nbytes;
}

// Nothing of its memory is read or written any more.
void PointToPoint::let_go(const Message& message) {
  const auto cancel = [&](const std::byte* memory, std::uint64_t nbytes) {
    if (memory == nullptr) return;
    ring_.cancel(memory, nbytes);
    if (net_) net_->cancel(memory, nbytes);
  };
  const Pieces& pieces = message.pieces;
  if (pieces.posted == 0) {
    const Region memory = message.is_on_device ? pieces.places : message.region;
    return cancel(memory.data, memory.nbytes);
  }
  for (std::uint64_t at = pieces.moved; at < pieces.posted; at += pieces.piece_nbytes)
    cancel(place_of(message, at), std::min(pieces.piece_nbytes, message.region.nbytes - at));
}

void PointToPoint::give(const MessagePointer& message, Region places, std::uint64_t piece_nbytes,
                        bool cannot_open) {
  const std::lock_guard lock(mutex_);
  if (message->done()) return;
  Pieces& pieces = message->pieces;
  const Want wanted = message->want;
  const bool is_wanted = wanted == Want::take || wanted == Want::memory || wanted == Want::data;
  if (!is_wanted || piece_nbytes == 0 || places.nbytes == 0 || places.nbytes % piece_nbytes != 0 ||
      (pieces.piece_nbytes != 0 && piece_nbytes != pieces.piece_nbytes))
    throw Error(Fault::usage, "the message wants no such memory");
  message->want = Want::nothing;
  pieces.places = places;
  pieces.piece_nbytes = piece_nbytes;
  if (wanted == Want::data) {
    pushing_.push_back(message);
    return;
  }
  message->is_refused = cannot_open;
  const auto peer = static_cast<std::uint32_t>(message->source);
  const Frame offer = peers_[peer].held.at(message).frame;
  if (peer == group_.rank() || carries_data(offer) || can_read(*message, peer, offer)) return;
  peers_[peer].held.erase(message);
  ask_for_push(message, peer, offer);
}

std::uint64_t PointToPoint::move_pieces(const MessagePointer& message, std::uint64_t served) {
  const std::lock_guard lock(mutex_);
  Pieces& pieces = message->pieces;
  if (message->done()) return pieces.moved;
  const bool is_send = pieces.is_answered;
  const std::uint64_t nbytes = message->region.nbytes;
  if (pieces.places.data == nullptr || served < pieces.served ||
      served > (is_send ? nbytes : pieces.moved))
    throw Error(Fault::usage, "the message has no such pieces");
  message->want = Want::nothing;
  pieces.served = served;
  try {
    if (is_send)
      push(message);
    else if (served == nbytes)
      complete(message);
    else if (peers_[static_cast<std::size_t>(message->source)].held.contains(message))
      fill(message);
    else
      ask_for_more(message);
    progress();
  } catch (const Error& error) {
    if (!message->done()) give_up(message, error, true);  // the places are the caller's again
    throw;
  }
  return pieces.moved;
}

// ---------------------------------------------------------------------------------- sender

void PointToPoint::on_push(const MessagePointer& message, const Frame& answer) {
  Pieces& pieces = message->pieces;
  const std::uint64_t nbytes = message->region.nbytes;
  pieces.id = answer.id;
  pieces.piece_nbytes = std::min(answer.nbytes, nbytes);
  pieces.allowed = answer.nbytes == 0 ? nbytes : static_cast<std::uint64_t>(answer.tag);
  if (message->is_on_device) {
    message->is_refused = answer.address != 0;
    return set_want(message, Want::data);
  }
  if (pieces.piece_nbytes == 0) pieces.piece_nbytes = nbytes;
  pushing_.push_back(message);
  push(message);
}

// As many pieces as are there, and as the receiver has room for; the rest when some have left.
void PointToPoint::push(const MessagePointer& message) {
  Pieces& pieces = message->pieces;
  const std::uint64_t nbytes = message->region.nbytes;
  const std::uint64_t until =
      std::min(message->is_on_device ? pieces.served : nbytes, std::min(pieces.allowed, nbytes));
  while (pieces.posted < until && pieces.are_sent.size() < most_posted_pieces) {
    const std::uint64_t n = std::min(pieces.piece_nbytes, nbytes - pieces.posted);
    if (n == 0 || n > until - pieces.posted) return;
    Frame data{};
    data.type = FrameType::data;
    data.id = pieces.id;
    data.nbytes = nbytes;
    data.address = pieces.posted;
    data.payload_nbytes = n;
    const std::byte* from = place_of(*message, pieces.posted);
    pieces.posted += n;
    post(static_cast<std::uint32_t>(message->peer), data, from,
         &pieces.are_sent.emplace_back(false));
  }
}

// Whether all of it has; then it has ended.
bool PointToPoint::has_left(const MessagePointer& message) {
  Pieces& pieces = message->pieces;
  const std::uint64_t before = pieces.moved;
  while (!pieces.are_sent.empty() && pieces.are_sent.front()) {
    pieces.are_sent.pop_front();
    pieces.moved += std::min(pieces.piece_nbytes, message->region.nbytes - pieces.moved);
    push(message);
  }
  if (message->has_moved()) {
    peers_[static_cast<std::size_t>(message->peer)].sends.erase(pieces.id);
    complete(message);
    return true;
  }
  if (message->is_on_device && pieces.moved != before && message->want == Want::nothing)
    set_want(message, Want::pieces);
  return false;
}

// -------------------------------------------------------------------------------- receiver

bool PointToPoint::can_read(const Message& recv, std::uint32_t peer, const Frame& offer) const {
  if (is_of_device(offer)) return false;
  return group_.shares_memory_with(peer) ||
         (group_.can_read(peer) && (recv.is_async || offer.status != Status::push));
}

void PointToPoint::read(std::uint32_t peer, const Frame& offer, std::byte* into,
                        std::uint64_t begin, std::uint64_t nbytes) {
  group_.read_peer(peer, offer.address + begin, into, nbytes);
  // A sender that gave up breaks the group before its array is its own again: what we read may
  // not be what it meant to send.
  if (group_.is_broken()) group_.throw_cause(true);
}

void PointToPoint::ask_for_push(const MessagePointer& recv, std::uint32_t peer,
                                const Frame& offer) {
  Pieces& pieces = recv->pieces;
  pieces.id = offer.id;
  pieces.allowed = pieces.places.nbytes;
  Frame answer{};
  answer.type = FrameType::answer;
  answer.status = Status::push;
  answer.id = offer.id;
  answer.address = recv->is_refused ? 1 : 0;
  answer.nbytes = pieces.piece_nbytes;
  answer.tag = static_cast<std::int64_t>(pieces.allowed);
  peers_[peer].receiving.emplace(offer.id, recv);
  post(peer, answer, nullptr);
}

void PointToPoint::ask_for_more(const MessagePointer& recv) {
  Pieces& pieces = recv->pieces;
  const std::uint64_t room = pieces.served + pieces.places.nbytes;
  const bool was_asked = pieces.allowed != 0;  // else it was read
  if (!was_asked || room == pieces.allowed || pieces.allowed >= recv->region.nbytes) return;
  pieces.allowed = room;
  Frame answer{};
  answer.type = FrameType::answer;
  answer.status = Status::more;
  answer.id = pieces.id;
  answer.tag = static_cast<std::int64_t>(room);
  post(static_cast<std::uint32_t>(recv->source), answer, nullptr);
}

// The next piece of what is here already, or in memory that can be read, into a free place. One for each call:
// the device may copy it while the next one is read.
void PointToPoint::fill(const MessagePointer& recv) {
  Pieces& pieces = recv->pieces;
  const auto peer = static_cast<std::uint32_t>(recv->source);
  auto& held = peers_[peer].held;
  const Offer& offer = held.at(recv);
  const std::uint64_t left = recv->region.nbytes - pieces.moved;
  const std::uint64_t n = std::min(pieces.piece_nbytes, left);
  if (pieces.moved + n > pieces.served + pieces.places.nbytes) return;
  std::byte* into = place_of(*recv, pieces.moved);
  if (peer == group_.rank() || carries_data(offer.frame)) {
    std::memcpy(into, offer.payload.data() + pieces.moved, n);
  } else {
    try {
      read(peer, offer.frame, into, pieces.moved, n);
    } catch (...) {
      held.erase(recv);
      complete(recv, std::current_exception());
      return;
    }
  }
  pieces.moved += n;
  if (n < left) return;
  Frame answer{};
  answer.type = FrameType::answer;
  answer.id = offer.frame.id;
  answer.status = Status::taken;
  held.erase(recv);
  if (peer != group_.rank()) post(peer, answer, nullptr);
}

// Where a piece that has come goes; nullptr: nobody wants it any more.
std::byte* PointToPoint::place_data(std::uint32_t peer, const Frame& frame) {
  const auto& receiving = peers_[peer].receiving;
  const auto found = receiving.find(frame.id);
  if (found == receiving.end()) return nullptr;  // its recv has given up
  const Message& recv = *found->second;
  const Pieces& pieces = recv.pieces;
  const std::uint64_t left = recv.region.nbytes - pieces.moved;
  if (pieces.is_halved) throw Malformed{"a piece of a message that was not asked for"};
  const bool is_right = recv.is_on_device
                            ? frame.payload_nbytes == std::min(pieces.piece_nbytes, left) &&
                                  frame.payload_nbytes <= pieces.allowed - pieces.moved
                            : frame.payload_nbytes != 0 && frame.payload_nbytes <= left;
  if (!is_right || frame.nbytes != recv.region.nbytes || frame.address != pieces.moved)
    throw Malformed{"a piece of a message that was not asked for"};
  peers_[peer].landing = found->second;
  return place_of(recv, pieces.moved);
}

}  // namespace distdbg
