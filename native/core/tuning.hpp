// What of a machine decides how bytes move; no result depends on it. Chosen by distdbg/runtime/tuning/profile.py,
// where it is explained, and set before any op.
#pragma once

#include <cstdint>

namespace distdbg {

struct Tuning {
  // An output this large does not fit into the cache anyway; writing around the cache saves reading each
  // line before it is overwritten, and leaves the slots where they are: in the cache.
  std::uint64_t stream_nbytes = 8 << 20;
  // What the pieces of all peers take together while they are folded: they should stay in the L2 cache.
  std::uint64_t tile_nbytes = 512 * 1024;
  // While both sides wait in the op, pushing a message through the channel overlaps their two copies in the
  // cache; what is longer is read by the receiver from where it lies.
  std::uint64_t pushed_nbytes = 256 << 20;
  // The longest block of an all_to_all that goes through the slots, where peers can be read: the same on all
  // ranks of a host. 0: as many rounds as the slots are worth.
  std::uint64_t exchanged_nbytes = 0;
};

inline constexpr Tuning usual_tuning{};

}  // namespace distdbg
