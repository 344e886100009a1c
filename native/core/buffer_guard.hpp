// Notices that the arrays of an asynchronous op changed while the op owned them: their hashes are taken
// when it is submitted, looked at when it starts, and for what it only reads once more when it ends.
#pragma once

#include <cstdint>
#include <span>

#include "region.hpp"

namespace distdbg {

bool overlap(const Region& a, const Region& b);
bool overlap_any(const Region& region, std::span<const Region> others);

// A hash of some bytes of arrays: small ones are read whole, of larger ones some pieces from the first to the
// last byte. Cheap enough for every op.
std::uint64_t sample(std::span<const Region> regions);

class BufferGuard {
 public:
  // An earlier op may still be about to write to these arrays: then there is nothing to compare with.
  void take(std::span<const Region> inputs, std::span<const Region> outputs);
  // Whether anything has changed since take().
  bool has_changed(std::span<const Region> inputs, std::span<const Region> outputs) const;

  // The same for what the op reads and does not write, between its start and its end.
  void start(std::span<const Region> inputs, std::span<const Region> outputs);
  bool has_changed_since_start(std::span<const Region> inputs,
                               std::span<const Region> outputs) const;

 private:
  bool is_taken_ = false;
  bool is_started_ = false;
  std::uint64_t submitted_ = 0;
  std::uint64_t started_ = 0;
};

}  // namespace distdbg
