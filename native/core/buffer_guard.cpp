#include "buffer_guard.hpp"

#include <algorithm>

#include "hash.hpp"

namespace distdbg {

namespace {

std::uint64_t hash_regions(std::span<const Region> regions, std::uint64_t seed) {
  for (const Region& region : regions) seed = hash_bytes(region.data, region.nbytes, seed);
  return seed;
}

std::uint64_t hash_all(std::span<const Region> inputs, std::span<const Region> outputs) {
  return hash_regions(outputs, hash_regions(inputs, 0));
}

std::uint64_t hash_only_read(std::span<const Region> inputs, std::span<const Region> outputs) {
  std::uint64_t hash = 0;
  for (const Region& region : inputs)
    if (!overlap_any(region, outputs)) hash = hash_bytes(region.data, region.nbytes, hash);
  return hash;
}

constexpr std::uint64_t whole_nbytes = 512;
constexpr std::uint64_t pieces = 7;
constexpr std::uint64_t piece_nbytes = 64;

std::uint64_t sample_one(const Region& region, std::uint64_t seed) {
  if (region.nbytes <= whole_nbytes) return hash_bytes(region.data, region.nbytes, seed);
  const std::uint64_t last = region.nbytes - piece_nbytes;
  for (std::uint64_t piece = 0; piece < pieces; ++piece)
    seed = hash_bytes(region.data + last / pieces * piece, piece_nbytes, seed);
  return hash_bytes(region.data + last, piece_nbytes, seed);
}

}  // namespace

std::uint64_t sample(std::span<const Region> regions) {
  std::uint64_t hash = 0;
  for (const Region& region : regions) hash = sample_one(region, hash);
  return hash;
}

bool overlap(const Region& a, const Region& b) {
  return a.nbytes != 0 && b.nbytes != 0 && a.data < b.data + b.nbytes && b.data < a.data + a.nbytes;
}

bool overlap_any(const Region& region, std::span<const Region> others) {
  return std::ranges::any_of(others, [&](const Region& other) { return overlap(region, other); });
}

void BufferGuard::take(std::span<const Region> inputs, std::span<const Region> outputs) {
  submitted_ = hash_all(inputs, outputs);
  is_taken_ = true;
}

bool BufferGuard::has_changed(std::span<const Region> inputs,
                              std::span<const Region> outputs) const {
  return is_taken_ && hash_all(inputs, outputs) != submitted_;
}

void BufferGuard::start(std::span<const Region> inputs, std::span<const Region> outputs) {
  started_ = hash_only_read(inputs, outputs);
  is_started_ = true;
}

bool BufferGuard::has_changed_since_start(std::span<const Region> inputs,
                                          std::span<const Region> outputs) const {
  return is_started_ && hash_only_read(inputs, outputs) != started_;
}

}  // namespace distdbg
