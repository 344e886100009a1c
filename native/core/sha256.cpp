#include "sha256.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace distdbg {
namespace {

constexpr std::size_t block_nbytes = 64;

constexpr std::array<std::uint32_t, 64> round_constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

class Sha256 {
 public:
  void update(std::string_view data) {
    nbytes_ += data.size();
    while (!data.empty()) {
      const std::size_t part = std::min(block_nbytes - fill_, data.size());
      std::memcpy(block_.data() + fill_, data.data(), part);
      fill_ += part;
      data.remove_prefix(part);
      if (fill_ == block_nbytes) {
        mix();
        fill_ = 0;
      }
    }
  }

  Digest finish() {
    const std::uint64_t nbits = nbytes_ * 8;
    update(std::string_view("\x80", 1));
    while (fill_ != block_nbytes - 8) update(std::string_view("\0", 1));
    std::array<char, 8> length{};
    for (std::size_t i = 0; i < 8; ++i) {
      length[i] = static_cast<char>((nbits >> (56 - 8 * i)) & 0xff);
    }
    update({length.data(), length.size()});
    Digest digest{};
    for (std::size_t i = 0; i < digest.size(); ++i) {
      digest[i] = static_cast<std::uint8_t>((state_[i / 4] >> (24 - 8 * (i % 4))) & 0xff);
    }
    return digest;
  }

 private:
  void mix() {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 16; ++i) {
      const std::uint8_t* p = block_.data() + 4 * i;
      w[i] = (std::uint32_t{p[0]} << 24) | (std::uint32_t{p[1]} << 16) |
             (std::uint32_t{p[2]} << 8) | std::uint32_t{p[3]};
    }
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t s0 =
          std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + round_constants[i] + w[i];
      const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g;
      g = f;
      f = e;
      e = d + t1;
      d = c;
      c = b;
      b = a;
      a = t1 + t2;
    }
    const std::array<std::uint32_t, 8> add = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) state_[i] += add[i];
  }

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, block_nbytes> block_{};
  std::size_t fill_ = 0;
  std::uint64_t nbytes_ = 0;
};

}  // namespace

Digest sha256(std::string_view data) {
  Sha256 hash;
  hash.update(data);
  return hash.finish();
}

Digest hmac_sha256(std::string_view key, std::initializer_list<std::string_view> parts) {
  std::array<char, block_nbytes> inner_key{};
  if (key.size() > block_nbytes) {
    const Digest short_key = sha256(key);
    std::memcpy(inner_key.data(), short_key.data(), short_key.size());
  } else if (!key.empty()) {
    std::memcpy(inner_key.data(), key.data(), key.size());
  }
  std::array<char, block_nbytes> outer_key = inner_key;
  for (char& c : inner_key) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer_key) c = static_cast<char>(c ^ 0x5c);

  Sha256 inner;
  inner.update({inner_key.data(), inner_key.size()});
  for (std::string_view part : parts) inner.update(part);
  const Digest inner_digest = inner.finish();
  Sha256 outer;
  outer.update({outer_key.data(), outer_key.size()});
  outer.update(as_view(inner_digest));
  return outer.finish();
}

bool equal_in_constant_time(std::string_view left, std::string_view right) {
  if (left.size() != right.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    difference |= static_cast<unsigned>(static_cast<unsigned char>(left[i] ^ right[i]));
  }
  return difference == 0;
}

}  // namespace distdbg
