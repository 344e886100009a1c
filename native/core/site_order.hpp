// Finds ops that ranks issued in different orders although each pair looks alike: two equal
// all_reduces, swapped. A pure state machine: every rank feeds it the same call sites of all ranks, op
// by op, so every rank comes to the same answer without a message.
//
// Different sites at one op are normal: `if rank == 0: all_reduce(a) else: all_reduce(b)`. They are
// suspicious only when two ops near each other cross: rank i came from a and rank j from b, and soon before
// rank i from b and rank j from a. What recurs without crossing is learned and compared no more.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace distdbg {

class SiteOrder {
 public:
  enum class Verdict {
    quiet,
    crossed,  // with the op `other_seq`
    layouts,  // some ranks' arrays are contiguous and others' are not
  };
  struct Answer {
    Verdict verdict = Verdict::quiet;
    std::uint64_t other_seq = 0;
  };

  // `sites` by rank, 0 where a rank does not know it; `has_mixed_layouts`: of the arrays of the ranks.
  Answer look_at(std::span<const std::uint64_t> sites, bool has_mixed_layouts, std::uint64_t seq);

 private:
  static constexpr std::size_t window = 16;  // ops with different sites; others do not count
  static constexpr std::uint32_t learned_after = 4;
  static constexpr std::size_t most_pairings = 4096;

  struct Pairing {
    std::vector<std::uint64_t> sites;
    std::uint32_t seen = 0;
    std::uint64_t last_seq = 0;
    bool has_crossed = false;  // and was told
    bool has_reported_layouts = false;
  };

  // Pairings by the hash of their sites; entries stay where they are, so `recent_` may point at them.
  std::unordered_map<std::uint64_t, Pairing> pairings_;
  std::array<Pairing*, window> recent_{};
  std::size_t next_ = 0;
};

}  // namespace distdbg
