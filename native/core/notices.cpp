#include "notices.hpp"

#include <bit>

#include "group.hpp"
#include "utf8.hpp"

namespace distdbg {

namespace {

constexpr std::size_t most_text_nbytes = 256;

Payload text_piece(const std::string& text) {
  return one_piece(reinterpret_cast<const std::byte*>(text.data()), text.size());
}

}  // namespace

Notices::Notices(Group& group)
    : group_(group), is_linked_(group.size(), false), texts_(group.size()) {}

void Notices::connect(Transport& transport, std::uint32_t peer, const Wait& wait) {
  is_linked_[peer] = true;
  try {
    transport.connect(peer, wait);
  } catch (const Error& error) {
    if (error.fault() != Fault::network) throw;
    throw Error(Fault::peer_lost, std::string("cannot be reached (") + error.what() + ")",
                error.error_number(), static_cast<int>(peer));
  }
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
  if (has_told_cause_ || cause.state.load(std::memory_order_acquire) != 2) return;
  has_told_cause_ = true;
  Frame frame{};
  frame.type = cause_type;
  frame.rank = cause.rank;
  frame.seq = cause.seq;
  frame.fault = cause.fault;
  frame.noticed_by = cause.noticed_by;
  tell(transport, frame, cause.text);
}

void Notices::tell_leave(Transport& transport) {
  Frame frame{};
  frame.type = leave_type;
  tell(transport, frame, group_.segment().rank(group_.rank()).why);
}

void Notices::place(std::uint32_t peer, const Envelope& envelope, Payload& into) {
  if (envelope.nbytes > most_text_nbytes) throw Error(Fault::system, "a frame is too long");
  texts_[peer].resize(envelope.nbytes);
  into = text_piece(texts_[peer]);
}

void Notices::arrived(std::uint32_t peer, const Envelope& envelope) {
  const auto frame = std::bit_cast<Frame>(envelope);
  if (frame.type == leave_type) return group_.note_leave(peer, texts_[peer]);
  if (frame.fault < 0 || frame.fault > static_cast<std::int32_t>(Fault::breakpoint) ||
      frame.rank >= static_cast<std::int32_t>(group_.size()))
    throw Error(Fault::system, "a frame makes no sense");
  group_.break_group(static_cast<Fault>(frame.fault), frame.rank, texts_[peer], frame.noticed_by);
}

}  // namespace distdbg
