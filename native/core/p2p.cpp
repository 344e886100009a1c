#include "p2p.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "nonfinite.hpp"
#include "p2p_limits.hpp"

namespace distdbg {

namespace {

// As much of it as comes with an offer to a rank of another host: an answer has a long way.
constexpr std::uint64_t net_inline_nbytes = 64 * 1024;

std::vector<std::uint32_t> others(const std::vector<std::uint32_t>& ranks, std::uint32_t rank) {
  std::vector<std::uint32_t> all = ranks;
  std::erase(all, rank);
  return all;
}

}  // namespace

MessagePointer start_message(Region region, int dtype, int peer, std::int64_t tag,
                             std::int64_t deadline_ns, bool is_async) {
  auto message = std::make_shared<Message>();
  message->is_async = is_async;
  message->peer = peer;
  message->tag = tag;
  message->dtype = dtype;
  message->region = region;
  message->deadline_ns = deadline_ns;
  return message;
}

static MessagePointer start_note(std::uint64_t nbytes, int peer, std::int64_t tag) {
  const MessagePointer message =
      start_message({}, static_cast<int>(Dtype::uint8), peer, tag, no_deadline, true);
  message->note.resize(nbytes);
  message->region = {message->note.data(), nbytes};
  return message;
}

std::string Message::words() const {
  return recorder != nullptr ? recorder->site_words(site, words_nbytes) : std::string();
}

std::string_view Message::note_words() const {
  if (!done()) return {};
  const std::string_view all(reinterpret_cast<const char*>(note.data()), note.size());
  return all.substr(0, all.find_last_not_of('\0') + 1);
}

PointToPoint::PointToPoint(Group& group)
    : group_(group),
      peers_(group.size()),
      ring_(group.segment(), group.rank(), others(group.ranks_here(), group.rank()), *this,
            group.tuning()),
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

// Of a send that waits. What is longer than what is pushed is better read from where it lies.
std::uint64_t PointToPoint::most_inline(std::uint32_t to) const {
  if (group_.patience().has_own_core() || !group_.can_read(to)) return blocking_inline_nbytes_;
  const std::uint64_t pushed = std::max(group_.tuning().pushed_nbytes, inline_nbytes_);
  return std::min(blocking_inline_nbytes_, pushed);
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
  bridge_.reset();
  notices_.tell_cause(*net_);
  notices_.tell_leave(*net_);
  net_->close();
}

void PointToPoint::abandon() {
  const std::lock_guard lock(mutex_);
  is_abandoned_ = true;
  has_wanted_.notify_all();
  if (unfinished_async_.empty()) return;
  group_.break_group(Fault::broken, static_cast<int>(group_.rank()),
                     "closed the group while messages were in flight");
  fail_all(std::make_exception_ptr(Error(Fault::usage, "this rank has left the group")));
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
  return post_send(start_message(region, dtype, peer, tag, deadline_ns, is_async), false, call);
}

MessagePointer PointToPoint::recv(Region region, int dtype, int peer, std::int64_t tag,
                                  std::int64_t deadline_ns, bool is_async,
                                  const MessageCall& call) {
  return post_recv(start_message(region, dtype, peer, tag, deadline_ns, is_async), false, call);
}

MessagePointer PointToPoint::send_note(std::span<const std::byte> words, std::uint64_t nbytes,
                                       int peer, std::int64_t tag) {
  if (words.size() > nbytes) throw Error(Fault::usage, "a note is longer than both sides know");
  const MessagePointer message = start_note(nbytes, peer, tag);
  std::copy(words.begin(), words.end(), message->note.begin());
  return post_send(message, true, {});
}

MessagePointer PointToPoint::recv_note(std::uint64_t nbytes, int peer, std::int64_t tag) {
  return post_recv(start_note(nbytes, peer, tag), true, {});
}

bool PointToPoint::are_sends_received() {
  const std::lock_guard lock(mutex_);
  progress();
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& each) { return each.sends.empty(); });
}

MessagePointer PointToPoint::post_send(const MessagePointer& message, bool is_note,
                                       const MessageCall& call) {
  const Region region = message->region;
  const int dtype = message->dtype;
  const int peer = message->peer;
  const std::int64_t tag = message->tag;
  const std::int64_t deadline_ns = message->deadline_ns;
  const bool is_async = message->is_async;
  if (group_.checks(check_nonfinite)) refuse_nonfinite(region, dtype);
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
  const bool can_push = !is_async && group_.patience().has_own_core() &&
                        region.nbytes <= group_.tuning().pushed_nbytes;
  frame.status = can_push ? Status::push : can_halve(*message, to) ? Status::halves : Status::taken;
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
                                                 : most_inline(to);
  if (region.nbytes <= most) frame.payload_nbytes = region.nbytes;
  peers_[to].sends.emplace(frame.id, message);
  if (is_note) progress();  // answers to earlier ones
  post(to, frame, region.data);
  // What found no room is to leave even if this rank never comes here again.
  const bool is_on_its_way = is_note && group_.is_here(to) && ring_.has_sent_all(to);
  if (is_async && !is_on_its_way) {
    unfinished_async_.push_back(message);
    start_thread();
  }
  return message;
}

MessagePointer PointToPoint::post_recv(const MessagePointer& message, bool is_note,
                                       const MessageCall& call) {
  const int peer = message->peer;
  const std::int64_t tag = message->tag;
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
  if (message->is_async && !is_note && !message->done()) {
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
  end(message, std::move(error));
  if (message->is_async) std::erase(unfinished_async_, message);
  ring_locked(group_.segment().rank(group_.rank()));  // another thread may sleep on it
}

void PointToPoint::forget(const MessagePointer& message) {
  posted_.remove(message);
  wanted_.remove(message);
  std::erase(unfinished_async_, message);
  for (Peer& p : peers_) {
    std::erase_if(p.sends, [&](const auto& entry) { return entry.second == message; });
    std::erase_if(p.receiving, [&](const auto& entry) { return entry.second == message; });
    disputes_ -=
        std::erase_if(p.disputed, [&](const auto& entry) { return entry.second.first == message; });
    p.held.erase(message);
    if (p.matched == message) p.matched = nullptr;
    if (p.landing == message) p.landing = nullptr;
    for (Offer& offer : p.unexpected)
      if (offer.taken_by == message) offer.taken_by = nullptr;
  }
  std::erase(pushing_, message);
  let_go(*message);
}

void PointToPoint::fail_all(std::exception_ptr error) {
  for (const MessagePointer& message : std::vector(unfinished_async_)) {
    forget(message);
    take_back(*message);
    end(message, error);
  }
  if (net_) notices_.tell_cause(*net_);
  group_.tell_hosts();
  ring_locked(group_.segment().rank(group_.rank()));
}

}  // namespace distdbg
