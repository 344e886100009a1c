#include "notices.hpp"

#include <bit>
#include <cstring>
#include <utility>

#include "group.hpp"
#include "utf8.hpp"

namespace distdbg {

namespace {

constexpr std::size_t most_text_nbytes = 256;
// How soon a rank that leaves sees that the job has been aborted.
constexpr std::int64_t leave_slice_ns = 20 * ns_per_ms;

Payload text_piece(const std::string& text) {
  return one_piece(reinterpret_cast<const std::byte*>(text.data()), text.size());
}

}  // namespace

Notices::Notices(Group& group)
    : group_(group),
      is_linked_(group.size(), false),
      has_ended_(group.size(), false),
      texts_(group.size()),
      notified_in_(group.size(), 0),
      heard_in_(group.size(), 0) {}

bool Notices::is_of_timeout(const Envelope& envelope) {
  const auto frame = std::bit_cast<Frame>(envelope);
  return frame.type == cause_type && frame.fault == static_cast<std::int32_t>(Fault::timeout);
}

void Notices::connect(Transport& transport, std::uint32_t peer, const Wait& wait) {
  try {
    transport.connect(peer, wait);
    is_linked_[peer] = true;
  } catch (const Error& error) {
    if (error.fault() != Fault::network) throw;
    // Nothing new where it is lost already.
    lost(peer, "cannot be reached");
    Error unreached(Fault::peer_lost, group_.how_left(peer), error.error_number(),
                    static_cast<int>(peer));
    unreached.detail = error.what();
    throw unreached;
  }
}

void Notices::lost(std::uint32_t peer, const std::string& why) {
  has_ended_[peer] = true;
  group_.note_lost(peer, why);
}

void Notices::tell(Transport& transport, Frame frame, const std::string& text) {
  const std::string words(whole_characters(text, most_text_nbytes));
  frame.nbytes = words.size();
  for (std::uint32_t r = 0; r < group_.size(); ++r) {
    if (!is_linked_[r]) continue;
    try {
      transport.post(r, std::bit_cast<Envelope>(frame), text_piece(words), nullptr);
    } catch (const Error&) {  // that one learns it from others
    }
  }
  transport.poll();
}

void Notices::tell_cause(Transport& transport) {
  const Cause& cause = group_.segment().header().cause;
  if (has_sent_cause_ || cause.state.load(std::memory_order_acquire) != 2) return;
  has_sent_cause_ = true;
  Frame frame{};
  frame.type = cause_type;
  frame.rank = cause.rank;
  frame.seq = cause.seq;
  frame.fault = cause.fault;
  frame.noticed_by = cause.noticed_by;
  tell(transport, frame, cause.text);
}

void Notices::tell_leave(Transport& transport) {
  leave_words_ = whole_characters(group_.segment().rank(group_.rank()).why, most_text_nbytes);
  Frame frame{};
  frame.type = leave_type;
  frame.nbytes = leave_words_.size();
  for (std::uint32_t r = 0; r < group_.size(); ++r) {
    if (!is_linked_[r] || has_ended_[r]) continue;
    notified_.push_back(r);
    are_sent_.push_back(false);
    transport.post(r, std::bit_cast<Envelope>(frame), text_piece(leave_words_), &are_sent_.back());
  }
  transport.poll();
  const auto have_all = [&] {
    for (std::size_t i = 0; i < notified_.size(); ++i)
      if (!are_sent_[i] && !has_ended_[notified_[i]]) return false;
    return true;
  };
  const std::int64_t until = now_ns() + leave_limit_ns;
  while (!have_all() && now_ns() < until && !group_.is_broken() && !group_.control().is_aborted())
    transport.wait(leave_slice_ns, [&] { return transport.poll(); });
}

void Notices::tell_calls(Transport& transport, std::uint32_t peer) {
  const std::uint64_t seq = group_.seq() + 1;  // 0: never
  if (std::exchange(notified_in_[peer], seq) == seq) return;
  const std::vector<std::uint64_t> calls = group_.calls_here();
  Frame frame{};
  frame.type = calls_type;
  frame.seq = group_.seq();
  frame.nbytes = calls.size() * sizeof calls[0];
  transport.post(peer, std::bit_cast<Envelope>(frame),
                 one_piece(reinterpret_cast<const std::byte*>(calls.data()), frame.nbytes),
                 nullptr);
}

bool Notices::has_heard_calls(std::uint32_t peer) const {
  return heard_in_[peer] == group_.seq() + 1;
}

void Notices::place(std::uint32_t peer, const Envelope& envelope, Payload& into) {
  const std::uint64_t most = type_of(envelope) == calls_type
                                 ? group_.ranks_beside(peer).size() * sizeof(std::uint64_t)
                                 : most_text_nbytes;
  if (envelope.nbytes > most) throw Error(Fault::system, "a frame is too long");
  texts_[peer].resize(envelope.nbytes);
  into = text_piece(texts_[peer]);
}

void Notices::arrived(Transport& transport, std::uint32_t peer, const Envelope& envelope) {
  const auto frame = std::bit_cast<Frame>(envelope);
  if (frame.type == calls_type) {
    std::vector<std::uint64_t> calls(texts_[peer].size() / sizeof(std::uint64_t));
    std::memcpy(calls.data(), texts_[peer].data(), calls.size() * sizeof calls[0]);
    group_.note_calls(peer, calls);
    heard_in_[peer] = group_.seq() + 1;
    if (group_.seq() >= frame.seq) tell_calls(transport, peer);
    return;
  }
  const std::string words = shown(texts_[peer]);
  if (frame.type == leave_type) {
    has_ended_[peer] = true;
    return group_.note_leave(peer, words);
  }
  if (frame.fault < 0 || frame.fault > static_cast<std::int32_t>(Fault::breakpoint) ||
      frame.rank >= static_cast<std::int32_t>(group_.size()))
    throw Error(Fault::system, "a frame makes no sense");
  group_.break_group(static_cast<Fault>(frame.fault), frame.rank, words, frame.noticed_by);
}

}  // namespace distdbg
