// The frames of messages: what arrives, and what follows from it.
#include <algorithm>
#include <bit>
#include <cstring>

#include "p2p.hpp"
#include "p2p_limits.hpp"
#include "utf8.hpp"

namespace distdbg {

namespace {

std::string text_of(const std::vector<std::byte>& bytes) {
  return shown({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::exception_ptr differ(std::uint32_t peer) {
  return std::make_exception_ptr(
      Error(Fault::mismatch, "send and recv differ", 0, static_cast<int>(peer)));
}

// Words that the other side waits for: they come at once, unless it is gone or has given up.
constexpr std::int64_t words_limit_ns = 100 * ns_per_ms;

}  // namespace

// Without `is_sent` what finds no room is copied.
void PointToPoint::post(std::uint32_t peer, const Frame& frame, const void* payload,
                        bool* is_sent) {
  way_to(peer).post(peer, std::bit_cast<Envelope>(frame),
                    one_piece(static_cast<const std::byte*>(payload), frame.payload_nbytes),
                    is_sent);
}

// --------------------------------------------------------------------------------- progress

bool PointToPoint::progress() {
  bool has_moved = ring_.poll();
  if (net_) has_moved |= net_->poll();
  if (!pushing_.empty())
    std::erase_if(pushing_, [&](const MessagePointer& message) { return has_left(message); });
  if (disputes_ != 0) end_disputes();
  return has_moved;
}

bool PointToPoint::place(std::uint32_t peer, const Envelope& envelope, Payload& into) {
  if (peers_[peer].is_malformed) return false;
  // Whoever has dialled is to hear of the group as well.
  if (!group_.is_here(peer)) notices_.link(peer);
  if (!group_.is_here(peer) && notices_.takes(envelope)) {
    notices_.place(peer, envelope, into);
    return true;
  }
  try {
    into = place_frame(peer, envelope);
  } catch (const Malformed& found) {
    refuse(peer, found);
    return false;
  }
  return true;
}

Payload PointToPoint::place_frame(std::uint32_t peer, const Envelope& envelope) {
  const auto frame = std::bit_cast<Frame>(envelope);
  Peer& p = peers_[peer];
  std::byte* where = nullptr;
  switch (frame.type) {
    case FrameType::offer: where = place_offer(peer, frame); break;
    case FrameType::data: where = place_data(peer, frame); break;
    case FrameType::written:
      if (frame.payload_nbytes != 0) throw Malformed{"a word with a payload"};
      break;
    case FrameType::answer:
    case FrameType::words:
      if (frame.payload_nbytes > words_nbytes) throw Malformed{"words that are too long"};
      p.payload.resize(frame.payload_nbytes);
      where = p.payload.data();
      break;
    default: throw Malformed{"it is of no known kind"};
  }
  return one_piece(where, frame.payload_nbytes);
}

// Matched when its envelope is there, so that its payload can go to where it is wanted.
std::byte* PointToPoint::place_offer(std::uint32_t peer, const Frame& frame) {
  check_offer(peer, frame);
  Peer& p = peers_[peer];
  const auto match = std::find_if(posted_.begin(), posted_.end(), [&](const auto& recv) {
    return (recv->peer == static_cast<int>(peer) || recv->peer == any_source) &&
           recv->tag == frame.tag;
  });
  if (match == posted_.end()) {
    p.unexpected.push_back({frame, std::vector<std::byte>(frame.payload_nbytes), arrivals_++});
    p.arriving = std::prev(p.unexpected.end());
    p.arriving->is_whole = false;
    return p.arriving->payload.data();
  }
  p.arriving = p.unexpected.end();
  p.matched = *match;
  posted_.erase(match);
  p.is_direct = carries_data(frame) && !p.matched->is_on_device && fits(*p.matched, frame);
  if (p.is_direct) return p.matched->region.data;
  p.payload.resize(frame.payload_nbytes);
  return p.payload.data();
}

void PointToPoint::arrived(std::uint32_t peer, const Envelope& envelope) {
  if (!group_.is_here(peer) && notices_.takes(envelope))
    return notices_.arrived(*net_, peer, envelope);
  const auto frame = std::bit_cast<Frame>(envelope);
  try {
    switch (frame.type) {
      case FrameType::offer: on_offer(peer, frame); break;
      case FrameType::answer: on_answer(peer, frame); break;
      case FrameType::data: on_data(peer, frame); break;
      case FrameType::words: on_words(peer, frame); break;
      case FrameType::written: on_written(peer, frame); break;
    }
  } catch (const Malformed& found) {
    refuse(peer, found);
  }
}

void PointToPoint::lost(std::uint32_t peer, const std::string& why) {
  if (!group_.is_here(peer)) return notices_.lost(peer, why);
  peers_[peer].is_malformed = true;
  group_.break_group(Fault::system, static_cast<int>(peer), why);
  if (net_) notices_.tell_cause(*net_);
}

void PointToPoint::corrupted(std::uint32_t peer, const std::string& link) {
  group_.break_group(Fault::network, static_cast<int>(peer), link);
  notices_.tell_cause(*net_);
}

void PointToPoint::on_offer(std::uint32_t peer, const Frame& frame) {
  Peer& p = peers_[peer];
  if (p.matched) {
    const MessagePointer recv = std::exchange(p.matched, nullptr);
    deliver(recv, peer, frame, p.is_direct ? recv->region.data : p.payload.data(), {});
    return;
  }
  const auto at = std::exchange(p.arriving, p.unexpected.end());
  if (at == p.unexpected.end()) return;  // its recv has given up
  at->is_whole = true;
  if (!at->taken_by) return;
  const Offer offer = std::move(*at);
  p.unexpected.erase(at);
  deliver(offer.taken_by, peer, frame, offer.payload.data(), {});
}

void PointToPoint::on_answer(std::uint32_t peer, const Frame& frame) {
  auto& sends = peers_[peer].sends;
  const auto found = sends.find(frame.id);
  if (found == sends.end()) return;  // given up by a timeout
  const MessagePointer message = found->second;
  Pieces& pieces = message->pieces;
  check_answer(*message, frame);
  if (frame.status == Status::halves) return write_half(message, peer, frame);
  if (std::exchange(pieces.is_answered, true)) {
    pieces.allowed = std::max(pieces.allowed, static_cast<std::uint64_t>(frame.tag));
    return push(message);
  }
  if (frame.status != Status::push) sends.erase(found);
  if (message->recorder != nullptr) message->recorder->started(message->recorded);
  switch (frame.status) {
    case Status::taken:
      if (message->is_on_device) message->ran_ns = frame.tag;
      message->ended_ns = message->recorded.started_ns;
      complete(message);
      break;
    case Status::push: on_push(message, frame); break;
    case Status::device:
    case Status::staged:
    case Status::halves:
    case Status::more: break;  // not here
    case Status::mismatch: {
      message->peer_nbytes = frame.nbytes;
      message->peer_dtype = frame.dtype;
      message->peer_words = text_of(peers_[peer].payload);
      const std::string words = message->words();
      Frame reply{};
      reply.type = FrameType::words;
      reply.id = frame.id;
      reply.payload_nbytes = words.size();
      post(peer, reply, words.data());
      complete(message, differ(peer));
      break;
    }
  }
}

void PointToPoint::on_words(std::uint32_t peer, const Frame& frame) {
  auto& disputed = peers_[peer].disputed;
  const auto found = disputed.find(frame.id);
  if (found == disputed.end()) return;
  const MessagePointer recv = found->second.first;
  disputed.erase(found);
  --disputes_;
  recv->peer_words = text_of(peers_[peer].payload);
  complete(recv, differ(peer));
}

void PointToPoint::end_disputes() {
  const std::int64_t now = now_ns();
  for (std::uint32_t r = 0; r < group_.size(); ++r)
    std::erase_if(peers_[r].disputed, [&](const auto& entry) {
      const auto& [recv, until] = entry.second;
      if (now < until) return false;
      --disputes_;
      complete(recv, differ(r));
      return true;
    });
}

// A recv has met a send of something else: tells the sender, and waits for its words.
void PointToPoint::dispute(const MessagePointer& recv, std::uint32_t peer, const Frame& offer,
                           const std::string& own_words) {
  recv->peer_nbytes = offer.nbytes;
  recv->peer_dtype = offer.dtype;
  if (peer == group_.rank()) {
    recv->peer_words = own_words;
    return complete(recv, differ(peer));
  }
  const std::string words = recv->words();
  Frame answer{};
  answer.type = FrameType::answer;
  answer.id = offer.id;
  answer.status = Status::mismatch;
  answer.nbytes = recv->region.nbytes;
  answer.dtype = recv->dtype;
  answer.payload_nbytes = words.size();
  peers_[peer].disputed.emplace(offer.id, std::pair(recv, now_ns() + words_limit_ns));
  ++disputes_;
  post(peer, answer, words.data());
}

// What a recv that waits in vain was offered instead: "tag 3 from rank 0 (8 bytes)", in group ranks.
std::string PointToPoint::offers_of(const Message& recv) const {
  std::string text;
  int count = 0;
  for (std::uint32_t r = 0; r < group_.size(); ++r) {
    if (recv.peer != any_source && recv.peer != static_cast<int>(r)) continue;
    for (const Offer& offer : peers_[r].unexpected) {
      if (offer.taken_by) continue;
      if (++count > 4) return text + " ...";
      if (!text.empty()) text += ' ';
      text += std::to_string(r);
      text += ':';
      text += std::to_string(offer.frame.tag);
      text += ':';
      text += std::to_string(offer.frame.nbytes);
    }
  }
  return text;
}

void PointToPoint::on_data(std::uint32_t peer, const Frame& frame) {
  const MessagePointer message = std::exchange(peers_[peer].landing, nullptr);
  if (!message) return;  // it was thrown away
  Pieces& pieces = message->pieces;
  pieces.moved += frame.payload_nbytes;
  if (message->has_moved()) peers_[peer].receiving.erase(frame.id);
  if (message->is_on_device) {
    if (message->want == Want::nothing) set_want(message, Want::pieces);
  } else if (message->has_moved()) {
    complete(message);
  }
}

// Whether a recv is for what a send offers. Sizes are compared at every level: what is longer than its
// place must not be written.
bool PointToPoint::fits(const Message& recv, const Frame& offer) const {
  const bool is_compared = std::max(offer.level, group_.level()) > level_off;
  const bool dtypes_differ =
      is_compared && offer.dtype >= 0 && recv.dtype >= 0 && offer.dtype != recv.dtype;
  return offer.nbytes == recv.region.nbytes && !dtypes_differ;
}

void PointToPoint::deliver(const MessagePointer& recv, std::uint32_t peer, const Frame& offer,
                           const std::byte* payload, const std::string& own_words) {
  recv->source = static_cast<int>(peer);
  if (recv->recorder != nullptr) recv->recorder->started(recv->recorded);
  const bool is_in_place = recv->region.data != nullptr && recv->region.nbytes > 0 &&
                           payload == recv->region.data;  // then it did fit
  if (!is_in_place && !fits(*recv, offer)) return dispute(recv, peer, offer, own_words);
  if (recv->is_on_device) return hold(recv, peer, offer, payload);
  take_in(recv, peer, offer, payload);
}

// What fits, into memory of the host.
void PointToPoint::take_in(const MessagePointer& recv, std::uint32_t peer, const Frame& offer,
                           const std::byte* payload) {
  const bool is_self = peer == group_.rank();
  const bool is_in_place = recv->region.nbytes > 0 && payload == recv->region.data;
  Frame answer{};
  answer.type = FrameType::answer;
  answer.id = offer.id;
  answer.status = Status::taken;
  if (is_self || carries_data(offer)) {
    if (offer.nbytes > 0 && !is_in_place) std::memcpy(recv->region.data, payload, offer.nbytes);
    recv->ended_ns = recv->recorded.started_ns;
  } else if (is_worth_halving(peer, offer) && can_read(*recv, peer, offer)) {
    return take_half(recv, peer, offer);
  } else if (can_read(*recv, peer, offer)) {
    try {
      read(peer, offer, recv->region.data, 0, offer.nbytes);
    } catch (...) {
      complete(recv, std::current_exception());
      return;
    }
  } else {
    return ask_for_push(recv, peer, offer);
  }
  if (!is_self) post(peer, answer, nullptr);
  complete(recv);
}

}  // namespace distdbg
