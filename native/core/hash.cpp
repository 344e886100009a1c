#include "hash.hpp"

#include <bit>
#include <cstring>

namespace distdbg {

namespace {

// Odd, with bits all over; the fractions of the square roots of 2, 3 and 5.
constexpr std::uint64_t k1 = 0x6a09'e667'f3bc'c909;
constexpr std::uint64_t k2 = 0xbb67'ae85'84ca'a73b;
constexpr std::uint64_t k3 = 0x3c6e'f372'fe94'f82b;

std::uint64_t word_at(const std::byte* p) {
  std::uint64_t word = 0;
  std::memcpy(&word, p, sizeof word);
  return word;
}

constexpr std::uint64_t stir(std::uint64_t state, std::uint64_t word) {
  return std::rotl(state ^ (word * k1), 29) * k2;
}

}  // namespace

std::uint64_t hash_bytes(const void* data, std::uint64_t nbytes, std::uint64_t seed) {
  const auto* p = static_cast<const std::byte*>(data);
  std::uint64_t left = nbytes;
  std::uint64_t hash = seed ^ k3;
  // A multiplication takes longer than it takes to start the next one: several chains at once.
  constexpr int chains = 8;
  if (left >= 8 * chains) {
    std::uint64_t state[chains];
    for (int i = 0; i < chains; ++i) state[i] = seed + static_cast<std::uint64_t>(i + 1) * k3;
    for (; left >= 8 * chains; left -= 8 * chains, p += 8 * chains)
      for (int i = 0; i < chains; ++i) state[i] = stir(state[i], word_at(p + 8 * i));
    for (int i = 0; i < chains; ++i) hash = stir(hash, state[i]);
  }
  for (; left >= 8; left -= 8, p += 8) hash = stir(hash, word_at(p));
  if (left > 0) {
    std::uint64_t word = 0;
    std::memcpy(&word, p, left);
    hash = stir(hash, word);
  }
  hash = stir(hash, nbytes);
  hash ^= hash >> 32;
  hash *= k1;
  return hash ^ hash >> 29;
}

}  // namespace distdbg
