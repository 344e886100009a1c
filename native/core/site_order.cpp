#include "site_order.hpp"

#include <algorithm>

#include "hash.hpp"

namespace distdbg {

namespace {

bool cross(std::span<const std::uint64_t> now, std::span<const std::uint64_t> before) {
  for (std::size_t i = 0; i < now.size(); ++i) {
    // Most pairs of ops share no site: then the inner loop is not worth it.
    if (now[i] == before[i]) continue;
    for (std::size_t j = i + 1; j < now.size(); ++j)
      if (now[i] == before[j] && now[j] == before[i] && now[i] != now[j]) return true;
  }
  return false;
}

}  // namespace

SiteOrder::Answer SiteOrder::look_at(std::span<const std::uint64_t> sites, bool has_mixed_layouts,
                                     std::uint64_t seq) {
  const bool is_uniform = std::ranges::all_of(sites, [&](auto site) { return site == sites[0]; });
  const bool is_known = std::ranges::none_of(sites, [](auto site) { return site == 0; });
  if ((is_uniform || !is_known) && !has_mixed_layouts) return {};
  // A program whose lines are made as it goes must not grow without bound.
  if (pairings_.size() >= most_pairings) {
    pairings_.clear();
    recent_.fill(nullptr);
  }
  Pairing& pairing = pairings_[hash_bytes(sites.data(), sites.size_bytes())];
  if (pairing.seen == 0) pairing.sites.assign(sites.begin(), sites.end());
  if (pairing.seen < learned_after) ++pairing.seen;
  pairing.last_seq = seq;
  Answer answer;
  if (!is_uniform && is_known) {
    if (pairing.seen < learned_after && !pairing.has_crossed) {
      // The nearest first: that is the op it was swapped with.
      for (std::size_t back = 1; back <= window; ++back) {
        Pairing* other = recent_[(next_ + window - back) % window];
        if (other == nullptr || other->has_crossed || !cross(pairing.sites, other->sites)) continue;
        pairing.has_crossed = other->has_crossed = true;
        answer = {Verdict::crossed, other->last_seq};
        break;
      }
    }
    recent_[next_++ % window] = &pairing;
  }
  if (answer.verdict == Verdict::quiet && has_mixed_layouts && !pairing.has_reported_layouts) {
    pairing.has_reported_layouts = true;
    answer.verdict = Verdict::layouts;
  }
  return answer;
}

}  // namespace distdbg
