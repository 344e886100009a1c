#include "p2p.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "nonfinite.hpp"

namespace distdbg {

namespace {

// While both sides wait in the op, pushing through the channel overlaps their two copies in the cache and
// beats one copy by the kernel, up to this size.
constexpr std::uint64_t most_pushed_nbytes = 256 << 20;

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

MessagePointer start(Region region, int dtype, int peer, std::int64_t tag, std::int64_t deadline_ns,
                     bool is_async) {
  auto message = std::make_shared<Message>();
  message->is_async = is_async;
  message->peer = peer;
  message->tag = tag;
  message->dtype = dtype;
  message->region = region;
  message->deadline_ns = deadline_ns;
  return message;
}

// Words that the other side waits for: they come at once, unless it is gone or has given up.
constexpr std::int64_t words_limit_ns = 100 * ns_per_ms;
// The end of a path says more than its beginning.
constexpr std::size_t words_nbytes = 480;
// Of what comes with an offer.
constexpr std::uint64_t most_inline_nbytes = 128 * 1024;

std::exception_ptr differ(std::uint32_t peer) {
  return std::make_exception_ptr(
      Error(Fault::mismatch, "send and recv differ", 0, static_cast<int>(peer)));
}

// As much of it as comes with an offer to a rank of another host: an answer has a long way.
constexpr std::uint64_t net_inline_nbytes = 64 * 1024;

std::vector<std::uint32_t> others(const std::vector<std::uint32_t>& ranks, std::uint32_t rank) {
  std::vector<std::uint32_t> all = ranks;
  std::erase(all, rank);
  return all;
}

}  // namespace

std::string Message::words() const {
  std::string text = recorder != nullptr && site != 0 ? recorder->site_words(site) : std::string();
  return text.size() <= words_nbytes ? text : text.substr(text.size() - words_nbytes);
}

PointToPoint::PointToPoint(Group& group)
    : group_(group),
      peers_(group.size()),
      ring_(group.segment(), group.rank(), others(group.ranks_here(), group.rank()), *this),
      notices_(group) {
  if (group.hosts().size() > 1) net_ = group.make_transport()(*this, Purpose::messages);
  for (Peer& p : peers_) p.arriving = p.unexpected.end();
  const Segment& segment = group_.segment();
  // Below this, the copy through the channel costs less than a system call to read the peer.
  inline_nbytes_ = std::min<std::uint64_t>(4096, segment.channel_nbytes() / 4 - sizeof(Frame));
  // Where ranks share cores, each further frame is a change of process: as much as fits at once.
  blocking_inline_nbytes_ =
      group_.patience().has_own_core()
          ? inline_nbytes_
          : std::min(most_inline_nbytes, segment.channel_nbytes() / 2 - sizeof(Frame));
}

PointToPoint::~PointToPoint() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    if (!unfinished_async_.empty())
      group_.break_group(Fault::broken, static_cast<int>(group_.rank()),
                         "closed the group while messages were in flight");
  }
  async_started_.notify_all();
  RankState& mine = group_.segment().rank(group_.rank());
  mine.bell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(mine.bell);
  if (thread_.joinable()) thread_.join();
  if (!net_) return;
  notices_.tell_cause(*net_);
  notices_.tell_leave(*net_);
  net_->close();
}

void PointToPoint::connect(std::uint32_t peer, const Wait& wait) {
  if (!net_ || peer >= group_.size() || group_.is_here(peer)) return;
  const std::lock_guard lock(mutex_);
  notices_.connect(*net_, peer, wait);
}

// ---------------------------------------------------------------------------------- posting

MessagePointer PointToPoint::send(Region region, int dtype, int peer, std::int64_t tag,
                                  std::int64_t deadline_ns, bool is_async,
                                  const MessageCall& call) {
  if (group_.checks(check_nonfinite)) refuse_nonfinite(region, dtype);
  auto message = start(region, dtype, peer, tag, deadline_ns, is_async);
  if (is_async && group_.checks(check_buffers)) message->guard.start({&message->region, 1}, {});
  connect(static_cast<std::uint32_t>(peer), group_.wait_until(deadline_ns));
  const std::lock_guard lock(mutex_);
  group_.check_usable();
  const auto to = static_cast<std::uint32_t>(peer);
  if (to >= group_.size()) throw Error(Fault::usage, "peer is not a rank of the group");
  record(*message, peers_[to].sent, call);
  Frame frame{};
  frame.type = FrameType::offer;
  frame.id = next_id_++;
  frame.nbytes = region.nbytes;
  frame.address = reinterpret_cast<std::uint64_t>(region.data);
  frame.tag = tag;
  frame.dtype = dtype;
  frame.level = group_.level();
  const bool can_push =
      !is_async && group_.patience().has_own_core() && region.nbytes <= most_pushed_nbytes;
  frame.status = can_push ? Status::push : Status::taken;
  if (to == group_.rank()) {
    const auto match = std::find_if(posted_.begin(), posted_.end(), [&](const auto& recv) {
      return (recv->peer == peer || recv->peer == any_source) && recv->tag == tag;
    });
    if (match != posted_.end()) {
      const MessagePointer recv = *match;
      posted_.erase(match);
      deliver(recv, to, frame, region.data, message->words());
    } else {
      Offer offer{frame, {}, arrivals_++, message->words()};
      offer.payload.assign(region.data, region.data + region.nbytes);
      peers_[to].unexpected.push_back(std::move(offer));
    }
    message->finish();
    return message;
  }
  const std::uint64_t most = !group_.is_here(to) ? net_inline_nbytes
                             : is_async          ? inline_nbytes_
                                                 : blocking_inline_nbytes_;
  if (region.nbytes <= most) frame.payload_nbytes = region.nbytes;
  peers_[to].sends.emplace(frame.id, message);
  post(to, frame, region.data);
  if (is_async) {
    unfinished_async_.push_back(message);
    start_thread();
  }
  return message;
}

MessagePointer PointToPoint::recv(Region region, int dtype, int peer, std::int64_t tag,
                                  std::int64_t deadline_ns, bool is_async,
                                  const MessageCall& call) {
  auto message = start(region, dtype, peer, tag, deadline_ns, is_async);
  const std::lock_guard lock(mutex_);
  group_.check_usable();
  if (peer != any_source && static_cast<std::uint32_t>(peer) >= group_.size())
    throw Error(Fault::usage, "peer is not a rank of the group");
  record(*message,
         peer == any_source ? received_from_any_ : peers_[static_cast<std::size_t>(peer)].received,
         call);
  progress();  // so that messages are matched in the order they came

  std::uint32_t from = 0;
  auto best = peers_[0].unexpected.end();
  bool is_there = false;
  for (std::uint32_t r = 0; r < group_.size(); ++r) {
    if (peer != any_source && r != static_cast<std::uint32_t>(peer)) continue;
    auto& offers = peers_[r].unexpected;
    const auto first = std::find_if(offers.begin(), offers.end(), [&](const Offer& offer) {
      return offer.frame.tag == tag && !offer.taken_by;
    });
    if (first == offers.end() || (is_there && best->arrival < first->arrival)) continue;
    best = first;
    from = r;
    is_there = true;
  }
  if (!is_there) {
    posted_.push_back(message);
  } else if (!best->is_whole) {
    best->taken_by = message;
  } else {
    const Offer offer = std::move(*best);
    peers_[from].unexpected.erase(best);
    deliver(message, from, offer.frame, offer.payload.data(), offer.words);
  }
  if (is_async && !message->done()) {
    unfinished_async_.push_back(message);
    start_thread();
  }
  return message;
}

std::uint64_t PointToPoint::count(bool is_send, int peer) {
  const std::lock_guard lock(mutex_);
  if (peer == any_source) return received_from_any_;
  if (peer < 0 || static_cast<std::size_t>(peer) >= peers_.size())
    throw Error(Fault::usage, "peer is not a rank of the group");
  const Peer& p = peers_[static_cast<std::size_t>(peer)];
  return is_send ? p.sent : p.received;
}

void PointToPoint::record(Message& message, std::uint64_t& count, const MessageCall& call) {
  ++count;
  if (group_.recorder() == nullptr || call.form == nullptr) return;
  OpFacts facts;
  facts.group = call.group;
  facts.seq = count;
  facts.issued_ns = call.issued_ns;
  facts.value = message.tag;
  facts.site = call.site;
  facts.peer = message.peer;
  facts.flags = static_cast<std::uint8_t>(flag_message | (message.is_async ? flag_async : 0));
  message.site = call.site;
  message.recorder = group_.recorder();
  message.recorded = message.recorder->begin(facts, *call.form);
  message.number = message.recorded.number;
}

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
    std::erase_if(pushing_, [&](const MessagePointer& message) {
      if (message->is_sent) complete(message);
      return message->is_sent;
    });
  if (disputes_ != 0) end_disputes();
  return has_moved;
}

bool PointToPoint::place(std::uint32_t peer, const Envelope& envelope, Payload& into) {
  if (notices_.takes(envelope)) {
    notices_.place(peer, envelope, into);
    return true;
  }
  const auto frame = std::bit_cast<Frame>(envelope);
  Peer& p = peers_[peer];
  std::byte* where = nullptr;
  switch (frame.type) {
    case FrameType::offer: where = place_offer(peer, frame); break;
    case FrameType::data: {
      // What was given up is thrown away.
      const auto found = p.receiving.find(frame.id);
      if (found != p.receiving.end() && found->second->region.nbytes == frame.payload_nbytes)
        where = found->second->region.data;
      break;
    }
    default:
      if (frame.payload_nbytes > words_nbytes) throw Error(Fault::system, "a frame is too long");
      p.payload.resize(frame.payload_nbytes);
      where = p.payload.data();
  }
  into = one_piece(where, frame.payload_nbytes);
  return true;
}

// Matched when its envelope is there, so that its payload can go to where it is wanted.
std::byte* PointToPoint::place_offer(std::uint32_t peer, const Frame& frame) {
  if (frame.payload_nbytes > most_inline_nbytes) throw Error(Fault::system, "a frame is too long");
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
  p.is_direct = frame.payload_nbytes == frame.nbytes && fits(*p.matched, frame);
  if (p.is_direct) return p.matched->region.data;
  p.payload.resize(frame.payload_nbytes);
  return p.payload.data();
}

void PointToPoint::arrived(std::uint32_t peer, const Envelope& envelope) {
  if (notices_.takes(envelope)) return notices_.arrived(peer, envelope);
  const auto frame = std::bit_cast<Frame>(envelope);
  switch (frame.type) {
    case FrameType::offer: on_offer(peer, frame); break;
    case FrameType::answer: on_answer(peer, frame); break;
    case FrameType::data: on_data(peer, frame); break;
    case FrameType::words: on_words(peer, frame); break;
  }
}

void PointToPoint::lost(std::uint32_t peer, const std::string& why) { group_.note_lost(peer, why); }

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
  sends.erase(found);
  if (message->recorder != nullptr) message->recorder->started(message->recorded);
  switch (frame.status) {
    case Status::taken: complete(message); break;
    case Status::push: {
      Frame data{};
      data.type = FrameType::data;
      data.id = frame.id;
      data.payload_nbytes = message->region.nbytes;
      pushing_.push_back(message);
      post(peer, data, message->region.data, &message->is_sent);
      break;
    }
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
  auto& receiving = peers_[peer].receiving;
  const auto found = receiving.find(frame.id);
  if (found == receiving.end()) return;
  const MessagePointer message = found->second;
  receiving.erase(found);
  complete(message);
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
  const bool is_self = peer == group_.rank();
  Frame answer{};
  answer.type = FrameType::answer;
  answer.id = offer.id;
  answer.status = Status::taken;
  const bool is_in_place =
      recv->region.nbytes > 0 && payload == recv->region.data;  // then it did fit
  if (!is_in_place && !fits(*recv, offer)) return dispute(recv, peer, offer, own_words);
  if (is_self || offer.payload_nbytes == offer.nbytes) {
    if (offer.nbytes > 0 && !is_in_place) std::memcpy(recv->region.data, payload, offer.nbytes);
  } else if (group_.shares_memory_with(peer) ||
             (group_.can_read(peer) && (recv->is_async || offer.status != Status::push))) {
    try {
      group_.read_peer(peer, offer.address, recv->region.data, offer.nbytes);
      // A sender that gave up breaks the group before its array is its own again: what we read may
      // not be what it meant to send.
      if (group_.is_broken()) group_.throw_cause(true);
    } catch (...) {
      complete(recv, std::current_exception());
      return;
    }
  } else {
    answer.status = Status::push;
    peers_[peer].receiving.emplace(offer.id, recv);
    post(peer, answer, nullptr);
    return;
  }
  if (!is_self) post(peer, answer, nullptr);
  complete(recv);
}

void PointToPoint::refuse_nonfinite(Region region, int dtype) const {
  if (!is_dtype(dtype)) return;
  const auto type = static_cast<Dtype>(dtype);
  const std::uint64_t count = region.nbytes / itemsize(type);
  if (!any_nonfinite(type, region.data, count)) return;
  const NonFinite found = find_nonfinite(type, region.data, count);
  Trouble trouble;
  trouble.flags = has_nonfinite_input | (found.first_is_nan ? first_is_nan : 0U);
  trouble.bad_count = found.bad_count;
  trouble.first = found.first;
  trouble.count = count;
  throw group_.own_error(Fault::nonfinite, trouble, {});
}

void PointToPoint::complete(const MessagePointer& message, std::exception_ptr error) {
  if (!error && message->guard.has_changed_since_start({&message->region, 1}, {}))
    error =
        std::make_exception_ptr(group_.own_error(Fault::changed, Trouble{has_changed_buffer}, {}));
  message->finish(std::move(error));
  if (message->is_async) std::erase(unfinished_async_, message);
  ring(group_.segment().rank(group_.rank()));  // another thread may sleep on it
}

void PointToPoint::forget(const MessagePointer& message) {
  posted_.remove(message);
  std::erase(unfinished_async_, message);
  for (Peer& p : peers_) {
    std::erase_if(p.sends, [&](const auto& entry) { return entry.second == message; });
    std::erase_if(p.receiving, [&](const auto& entry) { return entry.second == message; });
    disputes_ -=
        std::erase_if(p.disputed, [&](const auto& entry) { return entry.second.first == message; });
    if (p.matched == message) p.matched = nullptr;
    for (Offer& offer : p.unexpected)
      if (offer.taken_by == message) offer.taken_by = nullptr;
  }
  std::erase(pushing_, message);
  ring_.cancel(message->region.data, message->region.nbytes);
  if (net_) net_->cancel(message->region.data, message->region.nbytes);
}

void PointToPoint::fail_all(std::exception_ptr error) {
  for (const MessagePointer& message : std::vector(unfinished_async_)) {
    forget(message);
    message->finish(error);
  }
  if (net_) notices_.tell_cause(*net_);
  group_.tell_hosts();
  ring(group_.segment().rank(group_.rank()));
}

}  // namespace distdbg
