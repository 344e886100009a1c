// How ranks leave a group or are lost to it, and what is known of those that did not come to an op.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "group.hpp"
#include "utf8.hpp"

namespace distdbg {

void Group::set_why(const std::string& text) {
  char* why = segment_.rank(rank_).why;
  if (why[0] != '\0') return;
  const std::string_view words = whole_characters(text, sizeof(RankState::why) - 1);
  std::memcpy(why, words.data(), words.size());
}

void Group::depart(const std::string& text) {
  set_why(text);
  break_group(Fault::peer_lost, static_cast<int>(rank_), how_left(rank_));
  tell_hosts();
  leave();
}

void Group::note_leave(std::uint32_t r, const std::string& why) { note_end(r, why, false); }

void Group::note_lost(std::uint32_t r, const std::string& why) { note_end(r, why, true); }

void Group::note_end(std::uint32_t r, const std::string& why, bool is_lost) {
  const std::lock_guard lock(notes_mutex_);
  RankState& state = segment_.rank(r);
  if (state.left.load(std::memory_order_acquire) != 0) return;
  if (is_lost) {
    state.lost_ms.store(static_cast<std::uint32_t>(now_ns() / ns_per_ms),
                        std::memory_order_relaxed);
    state.lost.store(1, std::memory_order_release);
  }
  const std::string_view words = whole_characters(why, sizeof(RankState::why) - 1);
  std::memcpy(state.why, words.data(), words.size());
  state.left.store(1, std::memory_order_release);
}

const std::vector<std::uint32_t>& Group::ranks_beside(std::uint32_t r) const {
  return *std::find_if(hosts_.begin(), hosts_.end(), [r](const auto& ranks) {
    return std::binary_search(ranks.begin(), ranks.end(), r);
  });
}

std::vector<std::uint64_t> Group::calls_here() const {
  std::vector<std::uint64_t> calls;
  for (const std::uint32_t r : ranks_here())
    calls.push_back(segment_.rank(r).seq.load(std::memory_order_acquire));
  return calls;
}

void Group::note_calls(std::uint32_t peer, const std::vector<std::uint64_t>& calls) {
  const std::vector<std::uint32_t>& there = ranks_beside(peer);
  for (std::size_t i = 0; i < std::min(calls.size(), there.size()); ++i)
    note_call(there[i], calls[i]);
}

void Group::note_call(std::uint32_t r, std::uint64_t seq) {
  if (is_here_[r]) return;
  RankState& state = segment_.rank(r);
  if (seq > state.seq.load(std::memory_order_acquire))
    state.seq.store(seq, std::memory_order_release);
  if (seq >= seq_ && state.gate.load(std::memory_order_acquire) <= gate_)
    state.gate.store(gate_ + 1, std::memory_order_release);
}

// The time of this rank's op is over: who has called it, and who has not? The first rank of a host asks the
// others, or where it has not come, the next; the others wait for its answer.
void Group::find_missing() {
  if (!links_) return;
  constexpr std::int64_t answer_ns = 900 * ns_per_ms;  // longer than the first rank asks
  const auto& here = ranks_here();
  const auto asker = std::find_if(here.begin(), here.end(), [&](std::uint32_t r) {
    return segment_.rank(r).seq.load(std::memory_order_acquire) >= seq_;
  });
  if (asker == here.end() || *asker == rank_) return links_->compare_calls();
  const std::int64_t until = now_ns() + answer_ns;
  while (!is_broken() && now_ns() < until) ::usleep(1000);
}

bool Group::may_be_explained(std::uint32_t r, std::int64_t now) const {
  const RankState& state = segment_.rank(r);
  if (is_here_[r] || state.lost.load(std::memory_order_acquire) == 0) return false;
  const auto since =
      static_cast<std::uint32_t>(now / ns_per_ms) - state.lost_ms.load(std::memory_order_relaxed);
  if (since >= explanation_ms) return false;
  const std::vector<std::uint32_t>& there = ranks_beside(r);
  return std::any_of(there.begin(), there.end(), [&](std::uint32_t other) {
    return segment_.rank(other).left.load(std::memory_order_acquire) == 0;
  });
}

std::string Group::how_left(std::uint32_t r) const {
  std::string why(segment_.rank(r).why);
  if (segment_.rank(r).lost.load(std::memory_order_acquire) != 0) return why;
  const bool is_process = r < watched_.size() && r != rank_ && !is_local_[r] && is_here_[r];
  // A group that was destroyed leaves its process alive. The end of a process has a reason of its own;
  // without one nobody asked for it (os._exit, a signal).
  constexpr std::string_view destroyed = "destroyed the group";
  if ((why.empty() || why.starts_with(destroyed)) &&
      segment_.rank(r).left.load(std::memory_order_acquire) != 0)
    return std::string("left (").append(why.empty() ? destroyed : why).append(")");
  const std::string end = is_process ? watched_[r].how() : std::string();
  constexpr std::string_view exited = "exited (code ";
  const bool has_code = end.starts_with(exited);
  if (why.empty() || (!end.empty() && !has_code && end != "is gone")) return end;
  if (has_code) {
    const std::string code = end.substr(exited.size(), end.size() - exited.size() - 1);
    why = why == "returned" && code != "0" ? "exit code " + code : why + ", exit code " + code;
  }
  return "left (" + why + ")";
}

void Group::leave() {
  RankState& mine = segment_.rank(rank_);
  if (mine.left.exchange(1, std::memory_order_seq_cst) != 0) return;
  futex_wake_all(segment_.header().epoch);
  futex_wake_all(segment_.header().opener_sleeps);
  for (std::uint32_t r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    segment_.rank(r).bell.fetch_add(1, std::memory_order_seq_cst);
    futex_wake_all(segment_.rank(r).bell);
  }
}

}  // namespace distdbg
